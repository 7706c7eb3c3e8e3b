"""Figures of the tokens: mu(t, x) and p(t, x) over depth on a line or a ring, with characteristics on a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.output.plots_panels import (
    angles,
    costate_values,
    mark_angles,
    of_angles,
    panel_titles,
    part_note,
    resampled,
    seen,
    shown_sequences,
    window,
)
from meanfield_pde.output.plots_space import pairs_figure, plane_figure
from meanfield_pde.output.plots_titles import LEAST_WIDTH, heading
from meanfield_pde.output.solution import Solution

# so many depths across
ACROSS = 240
BLUE = "#0072B2"
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


def token_figures(solution: Solution) -> Iterator[tuple[str, Any]]:
    """``mu`` and, where there is a costate, ``p``."""
    grid = solution.token_grid
    assert grid is not None
    still = solution.depth_t[0] == solution.depth_t[-1]
    if grid.dim > 2:
        yield "mu", pairs_figure(solution, grid)
        return
    if grid.dim == 1 and still:
        yield "mu", profiles_figure(solution, grid)
        return
    draw = heat_figure if grid.dim == 1 else plane_figure
    yield "mu", draw(solution, grid, costate=False)
    if len(solution.p) > 1 and not still:
        yield "p", draw(solution, grid, costate=True)


def quantiles(mu: FloatArray, grid: Grid, shares: tuple[float, ...]) -> FloatArray:
    """Quantiles of densities (n, cells) between walls, (n, shares).

    Meaning: on one axis mass keeps its order, so the quantile lines of mu(t, ·) over depth are characteristics of
    (F), whatever the velocity: ∫ up to X(t) of mu is constant along Ẋ = V.
    """
    masses = np.maximum(mu, 0.0) * grid.cell_volume
    below = np.concatenate([np.zeros((len(mu), 1)), np.cumsum(masses, axis=1)], axis=1)
    edges = grid.edges(0)
    return np.array([np.interp(np.array(shares) * row[-1], row, edges) for row in below])


def heat_figure(solution: Solution, grid: Grid, costate: bool) -> Any:
    """mu(t, x), or p(t, x) less its mean, of a few sequences, one colour scale for all."""
    from matplotlib.figure import Figure

    shown = shown_sequences(solution)
    t = np.linspace(solution.depth_t[0], solution.depth_t[-1], ACROSS)
    mu = resampled(solution.depth_t, solution.mu[:, shown], t)
    if costate:
        values, top = costate_values(resampled(solution.costate_t, solution.p[:, shown], t), mu, grid)
        scale = {"cmap": "RdBu_r", "vmin": -top, "vmax": top}
        label, lines, extend = "p − ∫p dmu: loss added by a token at x", "0.25", "both"
    else:
        values = np.ma.masked_array(mu, np.zeros(mu.shape, dtype=bool))
        top = float(np.quantile(mu.max(axis=-1), 0.98))
        scale = {"cmap": "viridis", "vmin": 0.0, "vmax": top}
        label, lines = "density mu(t, x)", "white"
        extend = "max" if mu.max() > 1.001 * top else "neither"
    width = max(2.4 * len(shown) + 1.5, LEAST_WIDTH)
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    mesh: Any = None
    titles = panel_titles(solution, shown)
    ring = of_angles(grid, 0)
    x, order = angles(grid, 0) if ring else (grid.centers(0), slice(None))
    for column, axes in enumerate(panels):
        mesh = axes.pcolormesh(t, x, values[:, column, order].T, shading="nearest", rasterized=True, **scale)
        if not grid.periodic[0]:
            axes.plot(t, quantiles(mu[:, column], grid, SHARES), color=lines, linewidth=0.8, alpha=0.85)
        axes.set_title(titles[column])
        axes.set_xlabel("depth t")
        axes.set_facecolor("0.93")
    if ring:
        mark_angles(panels[0], "y")
    else:
        panels[0].set_ylim(grid.edges(0)[[0, -1]] if grid.periodic[0] else window(seen(mu, grid), grid.edges(0)))
    panels[0].set_ylabel("token, an angle" if ring else "token x")
    figure.colorbar(mesh, ax=list(panels), label=label, extend=extend, pad=0.02)
    what = "costate of the tokens" if costate else "law of the tokens"
    # on a ring mass passes the seam, and no quantile follows it
    lines_note = [] if grid.periodic[0] else ["lines: characteristics through the quantiles 5, 25, 50, 75, 95 % of mu"]
    figure.suptitle(heading(solution, what, width, *part_note(solution, shown), *lines_note))
    return figure


def profiles_figure(solution: Solution, grid: Grid) -> Any:
    """The laws at the only depth there is."""
    from matplotlib.figure import Figure

    shown = shown_sequences(solution)
    width = max(2.6 * len(shown), LEAST_WIDTH)
    figure = Figure(figsize=(width, 3.0), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False, sharex=True, sharey=True)[0]
    ring = of_angles(grid, 0)
    x, order = angles(grid, 0) if ring else (grid.centers(0), slice(None))
    for sequence, title, axes in zip(shown, panel_titles(solution, shown), panels, strict=True):
        axes.plot(x, solution.mu[-1, sequence, order], color=BLUE, linewidth=1.3)
        axes.set(xlabel="token, an angle" if ring else "token x", title=title)
        axes.grid(alpha=0.25)
    if ring:
        mark_angles(panels[0], "x")
    panels[0].set_ylabel("density mu")
    why = "depth T = 0: nothing moves"
    figure.suptitle(heading(solution, "law of the tokens", width, *part_note(solution, shown), why))
    return figure
