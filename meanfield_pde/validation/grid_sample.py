"""A fixed quasi-random sample of the law that cell averages stand for."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid


def grid_sample(density: FloatArray, grid: Grid, count: int, seed: int = 0, quasi: bool = True) -> FloatArray:
    """``count`` points of the law of cell averages: scrambled Sobol points, or independent ones, through its cells.

    One coordinate of a uniform point chooses the cell along an axis given those before, by the conditional masses, and
    what is left of it the place within: on each axis the density in a cell is 1 + s ξ, |ξ| ≤ ½, with central slopes s
    limited to keep it ≥ 0. Integrals of smooth functions are then right to O(h⁴), where uniform cells have h²/12 too
    much variance.
    Shapes: density (*cells) -> (count, d).
    Raises: MeanFieldError if the density does not fit the grid or has no mass.
    Source: Rosenblatt 1952 (conditioning); Owen 1998 (scrambling).
    """
    from scipy.stats import qmc  # imported late: it takes a quarter of a second

    masses = np.maximum(density, 0.0)
    if density.shape != grid.cells or not 0 < masses.sum() < np.inf or count < 1:
        raise MeanFieldError(
            f"cell averages {density.shape} on a grid {grid.cells} cannot give {count} points: shapes must agree, "
            "masses be finite and not all 0"
        )
    if quasi:
        power = int(np.ceil(np.log2(count)))
        uniform = qmc.Sobol(grid.dim, rng=np.random.default_rng(seed)).random_base2(power)[:count]
    else:
        uniform = np.random.default_rng(seed).random((count, grid.dim))
    chosen: tuple[IntArray, ...] = ()
    left = np.empty((count, grid.dim))
    for axis in range(grid.dim):
        along = masses.sum(axis=tuple(range(axis + 1, grid.dim)))[chosen]
        cell, left[:, axis] = _choose(np.broadcast_to(along, (count, grid.cells[axis])), uniform[:, axis])
        chosen = (*chosen, cell)
    points = np.empty((count, grid.dim))
    for axis in range(grid.dim):
        slope = _slopes(masses, axis, grid.periodic[axis])[chosen]
        points[:, axis] = grid.centers(axis)[chosen[axis]] + grid.spacing[axis] * _within(left[:, axis], slope)
    return points


def _choose(masses: FloatArray, u: FloatArray) -> tuple[IntArray, FloatArray]:
    """The cell where the cumulative share of each row of masses (count, cells) reaches u, and its part before u."""
    total = np.cumsum(masses, axis=1)
    target = u * total[:, -1]
    cell = np.minimum((total <= target[:, None]).sum(axis=1), masses.shape[1] - 1)
    row = np.arange(len(u))
    own = masses[row, cell]
    part = np.divide(target - total[row, cell] + own, own, out=np.full(len(u), 0.5), where=own > 0)
    return cell, np.clip(part, 0.0, 1.0)


def _slopes(masses: FloatArray, axis: int, ring: bool) -> FloatArray:
    """(m_{j+1} − m_{j−1})/(2 m_j) along an axis, one-sided at walls, kept within ±2: the density stays ≥ 0."""
    m = np.moveaxis(masses, axis, 0)
    ends = (m[-1:], m[:1]) if ring else (2 * m[:1] - m[1:2], 2 * m[-1:] - m[-2:-1])
    wide = np.concatenate([ends[0], m, ends[1]])
    rise = np.divide(wide[2:] - wide[:-2], 2 * m, out=np.zeros_like(m), where=m > 0)
    return np.moveaxis(np.clip(rise, -2.0, 2.0), 0, axis)


def _within(part: FloatArray, slope: FloatArray) -> FloatArray:
    """ξ in [−½, ½] where the density 1 + slope ξ has the mass ``part`` before it."""
    c = part - 0.5 + slope / 8
    return np.asarray(np.clip(2 * c / (1 + np.sqrt(np.maximum(1 + 2 * slope * c, 0.0))), -0.5, 0.5))
