"""Figures of the heads: rho at a few training times, or a few layers, with its marginals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.model.heads import ALONE, axes_of
from meanfield_pde.output.plots_corner import draw_corner, line_colours, window
from meanfield_pde.output.plots_panels import angles, evenly, marginal, mark_angles, of_angles
from meanfield_pde.output.plots_titles import LEAST_WIDTH, heading
from meanfield_pde.output.solution import Solution

# layers closer than this share of the largest density look the same: their differences are drawn
ALIKE = 0.05
# and these are the same but for rounding
SAME = 1e-13
BLUE = "#0072B2"


def head_figures(solution: Solution) -> Iterator[tuple[str, Any]]:
    """``rho`` over training time and, for layerwise heads, ``rho_layers`` over depth at the end."""
    grid = solution.head_grid
    assert grid is not None
    chosen = evenly(len(solution.snapshots))
    layers = solution.snapshots.shape[1]
    mean = "" if layers == 1 else ", mean over layers"
    laws = [(f"s = {solution.snapshot_s[k]:.3g}", solution.snapshots[k].mean(axis=0)) for k in chosen]
    yield "rho", _law_figure(solution, grid, laws, f"law of the heads over training{mean}")
    if layers > 1:
        s_end = solution.snapshot_s[-1]
        shown, mean_law = evenly(layers), solution.rho.mean(axis=0)
        drawn, what, notes = solution.rho[shown], f"law of the heads by layer at s = {s_end:.3g}", []
        share = float(np.abs(drawn - mean_law).max() / solution.rho.max())
        signed = SAME < share < ALIKE and grid.dim == 2
        if signed:
            drawn, what = drawn - mean_law, f"layer less mean over layers at s = {s_end:.3g}"
            notes = [f"red: more than the mean, blue: less, at most by {100 * share:.2g} % of the largest density"]
        elif share <= SAME:
            notes = ["the layers are the same"]
        elif share < ALIKE:
            notes = [f"the layers part from their mean by {100 * share:.2g} % of the largest density at most"]
        laws = [(f"layer {k + 1} of {layers}", rho) for k, rho in zip(shown, drawn, strict=True)]
        yield "rho_layers", _law_figure(solution, grid, laws, what, *notes, mean_law=mean_law if signed else None)


def axis_names(solution: Solution, grid: Grid) -> tuple[str, ...]:
    """The parameters of the head family, with what they do; ``grid`` is the box that the heads live in."""
    heads = solution.problem.heads
    names: tuple[str, ...] = ()
    alone = False
    if heads is not None and isinstance(heads.family, str):
        tokens, alone = solution.token_grid, heads.family in ALONE
        dim = 1 if tokens is None else tokens.dim
        names = axes_of(heads.family, 2 if tokens is not None and any(tokens.periodic) and not alone else dim)
    meaning = {"w": "value", "a": "slope" if alone else "score", "p": "angle", "c": "offset", "r": "length"}
    if len(names) == grid.dim:
        return tuple(f"{meaning[name[0]]} {name}" for name in names)
    return ("theta",) if grid.dim == 1 else tuple(f"theta{k}" for k in range(grid.dim))


def _law_figure(
    solution: Solution,
    grid: Grid,
    laws: list[tuple[str, FloatArray]],
    what: str,
    *notes: str,
    mean_law: FloatArray | None = None,
) -> Any:
    from matplotlib.figure import Figure

    names = axis_names(solution, grid)
    if grid.dim > 2:
        side = 1.9 * grid.dim
        figure = Figure(figsize=(max(side + 1.6, LEAST_WIDTH), side + 1.2), layout="constrained")
        halves = [f"above the diagonal: {laws[0][0]}, below: {laws[-1][0]}"] if len(laws) > 1 else []
        figure.suptitle(heading(solution, what, figure.get_figwidth(), *notes, *halves))
        draw_corner(figure, grid, laws, names)
        return figure
    joint = grid.dim == 2
    width = max(2.9 * len(laws) + 1.0 if joint else 4.8, LEAST_WIDTH)
    figure = Figure(figsize=(width, 3.9 if joint else 3.4), layout="constrained")
    figure.suptitle(heading(solution, what, width, *notes))
    if joint:
        _draw_joint(figure, grid, laws, names, mean_law)
    else:
        _draw_lines(figure, grid, laws, names[0])
    return figure


def _draw_joint(
    figure: Any, grid: Grid, laws: list[tuple[str, FloatArray]], names: tuple[str, ...], mean_law: FloatArray | None
) -> None:
    """Two axes: one panel a law with a marginal above it and beside it; all share axes and colours.

    Laws less ``mean_law``, if that is given, take colours that part at 0.
    """
    signed = mean_law is not None
    x, y = grid.centers(0), grid.centers(1)
    top = max(float(np.abs(rho).max()) for _, rho in laws)
    colours: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -top} if signed else {"cmap": "viridis", "vmin": 0.0}
    across = [marginal(rho, grid, (0,)) for _, rho in laws]
    up = [marginal(rho, grid, (1,)) for _, rho in laws]
    x_range, y_range = (
        # differences may cancel in a marginal: they are looked for where the law itself is
        window(marginals if mean_law is None else [marginal(mean_law, grid, (axis,))], centers)
        for axis, marginals, centers in ((0, across, x), (1, up, y))
    )
    grids = figure.add_gridspec(2, 2 * len(laws), width_ratios=[3, 1] * len(laws), height_ratios=[1, 3])
    mesh: Any = None
    for k, (label, rho) in enumerate(laws):
        joint = figure.add_subplot(grids[1, 2 * k])
        above = figure.add_subplot(grids[0, 2 * k], sharex=joint)
        beside = figure.add_subplot(grids[1, 2 * k + 1], sharey=joint)
        mesh = joint.pcolormesh(x, y, rho.T, shading="nearest", vmax=top, rasterized=True, **colours)
        joint.set(xlim=x_range, ylim=y_range, xlabel=names[0])
        above.fill_between(x, across[k], color=BLUE, alpha=0.35, linewidth=0)
        above.plot(x, across[k], color=BLUE, linewidth=1.0)
        above.set_ylim(_limits(across))
        beside.fill_betweenx(y, up[k], color=BLUE, alpha=0.35, linewidth=0)
        beside.plot(up[k], y, color=BLUE, linewidth=1.0)
        beside.set_xlim(_limits(up))
        above.set_title(label)
        above.tick_params(labelbottom=False, labelleft=k == 0)
        beside.tick_params(labelleft=False)
        if signed:
            # narrow: the numbers would run into each other
            beside.set_xticks([0.0])
        if k == 0:
            joint.set_ylabel(names[1])
            above.set_ylabel("marginal")
        else:
            joint.tick_params(labelleft=False)
    figure.colorbar(mesh, ax=figure.axes, label="difference of densities" if signed else "density rho", pad=0.02)


def _limits(marginals: list[FloatArray]) -> tuple[float, float]:
    """From 0, or from below it for differences, to a little above the largest."""
    low, high = min(float(m.min()) for m in marginals), max(float(m.max()) for m in marginals)
    return 1.08 * min(low, 0.0), 1.08 * high if high > 0.0 else 1.0


def _draw_lines(figure: Any, grid: Grid, laws: list[tuple[str, FloatArray]], name: str) -> None:
    """One axis: the densities themselves."""
    ring = of_angles(grid, 0)
    x, order = angles(grid, 0) if ring else (grid.centers(0), slice(None))
    axes = figure.subplots()
    for (label, rho), colour in zip(laws, line_colours(len(laws)), strict=True):
        axes.plot(x, rho[order], color=colour, label=label, linewidth=1.3)
    axes.set(xlabel=name, ylabel="density rho")
    if ring:
        mark_angles(axes, "x")
    axes.set_ylim(bottom=0.0)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
