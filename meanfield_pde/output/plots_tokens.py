"""Figures of the tokens: mu(t, x) and p(t, x) over depth with characteristics, or marginals in several dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.output.plots_titles import LEAST_WIDTH, heading, name_of, target_words
from meanfield_pde.output.solution import Solution

# at most so many sequences side by side, and so many depths across
COLUMNS, ACROSS = 4, 240
# shares of the largest mu at a depth: below the first there is nothing to be seen, above the second colours differ
NEGLIGIBLE, IN_THE_BULK = 1e-3, 0.05
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


def token_figures(solution: Solution) -> Iterator[tuple[str, Any]]:
    """``mu`` and, where there is a costate, ``p``."""
    grid = solution.token_grid
    assert grid is not None
    if grid.dim > 1 or solution.depth_t[0] == solution.depth_t[-1]:
        yield "mu", marginals_figure(solution, grid)
        return
    yield "mu", heat_figure(solution, grid, costate=False)
    if len(solution.p) > 1:
        yield "p", heat_figure(solution, grid, costate=True)


def chosen_sequences(count: int) -> list[int]:
    """A few sequences, the first and the last among them."""
    return sorted({round(k) for k in np.linspace(0, count - 1, min(count, COLUMNS))})


def _panel_titles(solution: Solution, shown: list[int]) -> list[str]:
    targets = target_words(solution)
    return ["\n".join(filter(None, (name_of(solution, k), *targets[k : k + 1]))) for k in shown]


def _part_note(solution: Solution, shown: list[int]) -> list[str]:
    count = solution.mu.shape[1]
    return [f"{len(shown)} of {count} sequences shown"] if len(shown) < count else []


def resampled(t: FloatArray, values: FloatArray, wanted: FloatArray) -> FloatArray:
    """Linear interpolation in depth of (n_t, ...) at ``wanted`` (n_w,): shape (n_w, ...)."""
    right = np.clip(np.searchsorted(t, wanted, side="right"), 1, len(t) - 1)
    share = (wanted - t[right - 1]) / (t[right] - t[right - 1])
    share = np.clip(share, 0.0, 1.0).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((1.0 - share) * values[right - 1] + share * values[right])


def quantiles(mu: FloatArray, grid: Grid, shares: tuple[float, ...]) -> FloatArray:
    """Quantiles of densities (n, cells) between walls, (n, shares).

    Meaning: on one axis mass keeps its order, so the quantile lines of mu(t, ·) over depth are characteristics of
    (F), whatever the velocity: ∫ up to X(t) of mu is constant along Ẋ = V.
    """
    masses = np.maximum(mu, 0.0) * grid.cell_volume
    below = np.concatenate([np.zeros((len(mu), 1)), np.cumsum(masses, axis=1)], axis=1)
    edges = grid.edges(0)
    return np.array([np.interp(np.array(shares) * row[-1], row, edges) for row in below])


def _seen(mu: FloatArray, share: float = NEGLIGIBLE) -> BoolArray:
    return np.asarray(mu > share * mu.max(axis=-1, keepdims=True))


def _window(seen: BoolArray, grid: Grid) -> tuple[float, float]:
    """The part of the axis where any of the shown laws is."""
    cells = np.flatnonzero(seen.any(axis=tuple(range(seen.ndim - 1))))
    edges = grid.edges(0)
    margin = 0.03 * (edges[cells[-1] + 1] - edges[cells[0]])
    return max(edges[0], edges[cells[0]] - margin), min(edges[-1], edges[cells[-1] + 1] + margin)


def heat_figure(solution: Solution, grid: Grid, costate: bool) -> Any:
    """mu(t, x), or p(t, x) less its mean, of a few sequences, one colour scale for all."""
    from matplotlib.figure import Figure

    shown = chosen_sequences(solution.mu.shape[1])
    t = np.linspace(solution.depth_t[0], solution.depth_t[-1], ACROSS)
    mu = resampled(solution.depth_t, solution.mu[:, shown], t)
    seen = _seen(mu)
    if costate:
        p = resampled(solution.costate_t, solution.p[:, shown], t)
        # p is defined up to a constant, and ∫p dmu does not change with depth
        p = p - grid.integral(p * mu)[..., None]
        values = np.ma.masked_array(p, ~seen)
        # the tails shall not take the colours of the bulk
        top = float(np.abs(p[_seen(mu, IN_THE_BULK)]).max()) or 1.0
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
    titles = _panel_titles(solution, shown)
    for column, axes in enumerate(panels):
        mesh = axes.pcolormesh(t, grid.centers(0), values[:, column].T, shading="nearest", rasterized=True, **scale)
        if not grid.periodic[0]:
            axes.plot(t, quantiles(mu[:, column], grid, SHARES), color=lines, linewidth=0.8, alpha=0.85)
        axes.set_title(titles[column])
        axes.set_xlabel("depth t")
        axes.set_facecolor("0.93")
    panels[0].set_ylim(_window(seen, grid))
    panels[0].set_ylabel("token x")
    figure.colorbar(mesh, ax=list(panels), label=label, extend=extend, pad=0.02)
    what = "costate of the tokens" if costate else "law of the tokens"
    # on a ring mass passes the seam, and no quantile follows it
    lines_note = [] if grid.periodic[0] else ["lines: characteristics through the quantiles 5, 25, 50, 75, 95 % of mu"]
    figure.suptitle(heading(solution, what, width, *_part_note(solution, shown), *lines_note))
    return figure


def marginals_figure(solution: Solution, grid: Grid) -> Any:
    """Marginals of mu at the first and the last depth, one row an axis: no heat map is possible."""
    from matplotlib.figure import Figure

    shown = chosen_sequences(solution.mu.shape[1])
    width = max(2.6 * len(shown), LEAST_WIDTH)
    figure = Figure(figsize=(width, 0.9 + 2.1 * grid.dim), layout="constrained")
    panels = figure.subplots(grid.dim, len(shown), squeeze=False, sharex="row", sharey="row")
    first, last = solution.depth_t[0], solution.depth_t[-1]
    titles = _panel_titles(solution, shown)
    for axis in range(grid.dim):
        others = tuple(k for k in range(grid.dim) if k != axis)
        across = grid.cell_volume / grid.spacing[axis]
        for column, sequence in enumerate(shown):
            axes = panels[axis, column]
            for index, colour, style in ((0, "#0072B2", "--"), (-1, "#D55E00", "-")):
                marginal = solution.mu[index, sequence].sum(axis=others) * across
                t = solution.depth_t[index]
                axes.plot(grid.centers(axis), marginal, style, color=colour, label=f"t = {t:g}", linewidth=1.3)
            axes.set_xlabel("token x" if grid.dim == 1 else f"token x{axis}")
            axes.grid(alpha=0.25)
            if axis == 0:
                axes.set_title(titles[column])
        panels[axis, 0].set_ylabel("density mu" if grid.dim == 1 else "marginal of mu")
    panels[0, -1].legend(frameon=False)
    why = "depth T = 0: nothing moves" if first == last else f"{grid.dim} axes: marginals instead of a heat map"
    figure.suptitle(heading(solution, "law of the tokens", width, *_part_note(solution, shown), why))
    return figure
