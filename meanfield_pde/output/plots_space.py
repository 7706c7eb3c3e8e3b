"""Figures of tokens in the plane and in space: heat maps of mu and p at a few depths, marginals for three axes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.output.plots_panels import (
    NEGLIGIBLE,
    costate_values,
    evenly,
    marginal,
    panel_titles,
    part_note,
    resampled,
    seen,
    shown_sequences,
    window,
)
from meanfield_pde.output.plots_titles import LEAST_WIDTH, heading
from meanfield_pde.output.solution import Solution

# of the largest densities of the panels, the one that takes the brightest colour
BRIGHT = 0.75
SIDE = 1.75  # inches of a panel
Pair = tuple[int, int]
Limits = tuple[tuple[float, float], tuple[float, float]]


def plane_figure(solution: Solution, grid: Grid, costate: bool) -> Any:
    """mu, or p less its mean, of a few sequences (rows) at a few depths (columns), one colour scale for all."""
    shown = shown_sequences(solution)
    # between its nodes p is not known; mu is stored densely enough to be interpolated
    times = solution.costate_t if costate else solution.depth_t
    t = np.unique(times)[evenly(len(np.unique(times)))]
    still = len(np.unique(solution.depth_t)) == 1
    mu = solution.mu[:1, shown] if still else resampled(solution.depth_t, solution.mu[:, shown], t)
    if costate:
        p = solution.p[[int(np.flatnonzero(times == one)[-1]) for one in t]][:, shown]
        values, top = costate_values(p, mu, grid)
        scale = {"cmap": "RdBu_r", "vmin": -top, "vmax": top}
        label, extend = "p − ∫p dmu: loss added by a token at x", "both"
    else:
        values, top, extend = _bright(mu, grid)
        scale = {"cmap": "viridis", "vmin": 0.0, "vmax": top}
        label = "density mu(t, x)"
    rows = panel_titles(solution, shown)
    columns = [f"t = {one:.3g}" for one in t]
    what = "costate of the tokens" if costate else "law of the tokens"
    notes = part_note(solution, shown) + ["depth T = 0: nothing moves"] * still
    panels = [[(values[k, row], grid, (0, 1)) for k in range(len(t))] for row in range(len(shown))]
    tokens = seen(mu, grid)
    limits = _part(grid, 0, np.asarray(tokens.any(axis=-1))), _part(grid, 1, np.asarray(tokens.any(axis=-2)))
    return _maps(solution, what, notes, panels, [limits] * len(t), rows, columns, scale, label, extend)


def pairs_figure(solution: Solution, grid: Grid) -> Any:
    """Three axes: the marginals of mu on each pair of axes, at the first and the last depth, one colour scale."""
    shown = shown_sequences(solution)
    first, last = float(solution.depth_t[0]), float(solution.depth_t[-1])
    still = first == last
    ends = [(0, first)] if still else [(0, first), (-1, last)]
    # panels of one size: every axis is shown as long as the longest
    alone = [np.stack([marginal(solution.mu[index, shown], grid, (k,)) for index, _ in ends]) for k in range(grid.dim)]
    parts = [_part(grid, k, law > NEGLIGIBLE * law.max()) for k, law in enumerate(alone)]
    half = 0.5 * max(high - low for low, high in parts)
    parts = [(0.5 * (low + high) - half, 0.5 * (low + high) + half) for low, high in parts]
    columns, laws, limits, pairs = [], [], [], []
    for low, high in combinations(range(grid.dim), 2):
        for index, t in ends:
            laws.append(marginal(solution.mu[index, shown], grid, (low, high)))
            pairs.append((low, high))
            columns.append(f"t = {t:.3g}")
            limits.append((parts[low], parts[high]))
    tops = np.array([law.max(axis=(1, 2)) for law in laws])
    top = float(np.quantile(tops, BRIGHT))
    extend = "max" if tops.max() > 1.001 * top else "neither"
    panels = [
        [(law[row], _plane_of(grid, kept), kept) for law, kept in zip(laws, pairs, strict=True)]
        for row in range(len(shown))
    ]
    scale = {"cmap": "viridis", "vmin": 0.0, "vmax": top}
    notes = part_note(solution, shown) + ["depth T = 0: nothing moves"] * still
    rows = panel_titles(solution, shown)
    what = "law of the tokens, its marginals on pairs of axes"
    return _maps(solution, what, notes, panels, limits, rows, columns, scale, "marginal of mu", extend)


def _plane_of(grid: Grid, kept: Pair) -> Grid:
    low, high = kept
    sides = (grid.lower[low], grid.lower[high]), (grid.upper[low], grid.upper[high])
    return Grid(*sides, (grid.cells[low], grid.cells[high]), (grid.periodic[low], grid.periodic[high]))


def _bright(mu: FloatArray, grid: Grid) -> tuple[Any, float, str]:
    """Values, the density of the brightest colour, and which ends of the scale are passed."""
    tops = mu.max(axis=(-2, -1))
    top = float(np.quantile(tops, BRIGHT))
    return np.ma.masked_array(mu, np.zeros(mu.shape, dtype=bool)), top, "max" if tops.max() > 1.001 * top else "neither"


def _part(grid: Grid, axis: int, shown: BoolArray) -> tuple[float, float]:
    """The part of an axis where tokens are shown, (..., cells of the axis); a ring whole."""
    return (grid.lower[axis], grid.upper[axis]) if grid.periodic[axis] else window(shown, grid.edges(axis))


def _maps(
    solution: Solution,
    what: str,
    notes: list[str],
    panels: list[list[tuple[Any, Grid, Pair]]],
    limits: list[Limits],
    rows: list[str],
    columns: list[str],
    scale: dict[str, Any],
    label: str,
    extend: str,
) -> Any:
    """Panels in rows of sequences, equal aspect, with the names of axes at the left and below."""
    from matplotlib.figure import Figure

    # few columns get larger panels instead of gaps
    side = min(max(SIDE, (LEAST_WIDTH - 1.6) / len(columns)), 1.5 * SIDE)
    width = max(side * len(columns) + 1.6, LEAST_WIDTH)
    tallest = max((high[1] - high[0]) / (wide[1] - wide[0]) for wide, high in limits)
    height = len(rows) * side * min(max(tallest, 0.6), 1.5)
    figure = Figure(figsize=(width, height + 0.8), layout="constrained")
    figure.suptitle(heading(solution, what, width, *notes))
    grid_of_axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col", sharey="col")
    mesh: Any = None
    for row, of_row in enumerate(panels):
        for column, (values, grid, kept) in enumerate(of_row):
            axes = grid_of_axes[row, column]
            mesh = axes.pcolormesh(
                grid.centers(0), grid.centers(1), values.T, shading="nearest", rasterized=True, **scale
            )
            axes.set(xlim=limits[column][0], ylim=limits[column][1])
            axes.set_aspect("equal", adjustable="box")
            axes.set_facecolor("0.93")
            if row == 0:
                axes.set_title(columns[column])
            if row == len(rows) - 1:
                axes.set_xlabel(f"token x{kept[0]}")
            begins = column == 0 or of_row[column - 1][2] != kept
            axes.tick_params(labelleft=begins)
            if begins:
                name = f"token x{kept[1]}"
                axes.set_ylabel(f"{rows[row]}\n{name}" if column == 0 else name)
    figure.colorbar(mesh, ax=list(grid_of_axes.ravel()), label=label, extend=extend, pad=0.02)
    return figure
