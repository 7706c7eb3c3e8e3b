"""What the figures of tokens share: which sequences and depths they show, where there is anything to be seen."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.output.plots_titles import name_of, target_words
from meanfield_pde.output.solution import Solution

# at most so many sequences, depths, layers or training times
COLUMNS = 4
# shares of the largest mu at a depth: below the first there is nothing to be seen, above the second colours differ
NEGLIGIBLE, IN_THE_BULK = 1e-3, 0.05
ANGLE_TICKS = (-pi, -pi / 2, 0.0, pi / 2, pi)
ANGLE_WORDS = ("−π", "−π/2", "0", "π/2", "π")


def evenly(count: int, most: int = COLUMNS) -> list[int]:
    """A few of so many things, the first and, if more than one, the last among them."""
    return sorted({round(k) for k in np.linspace(0, count - 1, min(count, most))})


def shown_sequences(solution: Solution) -> list[int]:
    """A few sequences, the first and the last among them; where they have few labels, as many of each."""
    count = solution.mu.shape[1]
    words = target_words(solution)
    kinds = sorted({word for word in words if word.startswith("label")})
    if len(words) != count or not 1 < len(kinds) <= COLUMNS:
        return evenly(count)
    each = COLUMNS // len(kinds)
    of_kind = [[k for k, word in enumerate(words) if word == kind] for kind in kinds]
    return sorted(indices[k] for indices in of_kind for k in evenly(len(indices), each))


def panel_titles(solution: Solution, shown: list[int]) -> list[str]:
    """The names of sequences with their targets under them."""
    targets = target_words(solution)
    return ["\n".join(filter(None, (name_of(solution, k), *targets[k : k + 1]))) for k in shown]


def part_note(solution: Solution, shown: list[int]) -> list[str]:
    """How many sequences are shown, unless all are."""
    count = solution.mu.shape[1]
    return [f"{len(shown)} of {count} sequences shown"] if len(shown) < count else []


def resampled(t: FloatArray, values: FloatArray, wanted: FloatArray) -> FloatArray:
    """Linear interpolation in depth of (n_t, ...) at ``wanted`` (n_w,): shape (n_w, ...)."""
    right = np.clip(np.searchsorted(t, wanted, side="right"), 1, len(t) - 1)
    share = (wanted - t[right - 1]) / (t[right] - t[right - 1])
    share = np.clip(share, 0.0, 1.0).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((1.0 - share) * values[right - 1] + share * values[right])


def seen(mu: FloatArray, grid: Grid, share: float = NEGLIGIBLE) -> BoolArray:
    """Where laws (..., *cells) reach a share of their own largest value."""
    axes = tuple(range(mu.ndim - grid.dim, mu.ndim))
    return np.asarray(mu > share * mu.max(axis=axes, keepdims=True))


def window(shown: BoolArray, edges: FloatArray) -> tuple[float, float]:
    """The part of the last axis, cut at ``edges``, where anything is shown, with a little room."""
    cells = np.flatnonzero(shown.any(axis=tuple(range(shown.ndim - 1))))
    margin = 0.03 * (edges[cells[-1] + 1] - edges[cells[0]])
    return max(edges[0], edges[cells[0]] - margin), min(edges[-1], edges[cells[-1] + 1] + margin)


def marginal(density: FloatArray, grid: Grid, kept: tuple[int, ...]) -> FloatArray:
    """Marginals of densities (..., *cells) on the axes ``kept``, ascending: shape (..., *cells of those)."""
    gone = [k for k in range(grid.dim) if k not in kept]
    lead = density.ndim - grid.dim
    across = np.prod([grid.spacing[k] for k in gone])
    return np.asarray(density.sum(axis=tuple(lead + k for k in gone)) * across)


def of_angles(grid: Grid, axis: int) -> bool:
    """Whether an axis is a ring that goes once around the circle."""
    return grid.periodic[axis] and abs(grid.upper[axis] - grid.lower[axis] - 2.0 * pi) < 1e-9


def angles(grid: Grid, axis: int) -> tuple[FloatArray, Any]:
    """The centres of a ring of angles between −π and π, ascending, and the order of cells that makes them so."""
    wrapped = np.mod(grid.centers(axis) + pi, 2.0 * pi) - pi
    order = np.argsort(wrapped)
    return wrapped[order], order


def mark_angles(axes: Any, along: str) -> None:
    """From −π to π, in quarters, along "x" or "y"."""
    axes.set(**{f"{along}lim": (-pi, pi), f"{along}ticks": ANGLE_TICKS, f"{along}ticklabels": ANGLE_WORDS})


def costate_values(p: FloatArray, mu: FloatArray, grid: Grid) -> tuple[Any, float]:
    """p less its mean over mu, hidden where there are no tokens, and the largest size it has in the bulk.

    p is defined up to a constant, and ∫p dmu does not change with depth.
    """
    mean = grid.integral(p * mu)
    p = p - mean.reshape(*mean.shape, *[1] * grid.dim)
    # the tails shall not take the colours of the bulk
    top = float(np.abs(p[seen(mu, grid, IN_THE_BULK)]).max()) or 1.0
    return np.ma.masked_array(p, ~seen(mu, grid)), top
