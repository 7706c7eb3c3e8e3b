"""Masses of smooth laws in the cells of a grid: normal integrals where exact, Gauss-Legendre elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product
from math import ceil

import numpy as np
from scipy.special import ndtr

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid

RING_IS_FLAT = 2.0  # a wrapped normal this many lengths wide differs from uniform by exp(-2 pi² 4) = 5e-35
NODES = 8  # Gauss-Legendre nodes on a panel no wider than the narrowest feature: error below 1e-16
PANELS = 64
LEAST = 1e-18  # images and slabs of a correlated law with less mass are left out


def normal_cells(mean: FloatArray, deviation: FloatArray | float, grid: Grid, axis: int) -> FloatArray:
    """Masses of 1-D normal laws in the cells of one axis, wrapped on a ring.

    Phi((e_(i+1) - m)/s) - Phi((e_i - m)/s), taken in the tail that is small so that far cells keep
    their relative accuracy.
    Shapes: mean (n,), deviation a scalar or (n,) -> (n, cells).
    """
    mean = np.asarray(mean, dtype=float)[:, None]
    deviation = np.broadcast_to(np.asarray(deviation, dtype=float), mean.shape[:1])[:, None]
    edges = grid.edges(axis)
    if not grid.periodic[axis]:
        return _between((edges - mean) / deviation)
    length = grid.upper[axis] - grid.lower[axis]
    mean = grid.lower[axis] + np.mod(mean - grid.lower[axis], length)
    flat = deviation > RING_IS_FLAT * length
    width = np.where(flat, length, deviation)
    images = ceil(10 * float(width.max()) / length) + 1
    total = sum(_between((edges - mean + k * length) / width) for k in range(-images, images + 1))
    return np.where(flat, 1.0 / grid.cells[axis], total)


def _between(z: FloatArray) -> FloatArray:
    low, high = z[..., :-1], z[..., 1:]
    right = low > 0
    return np.asarray(ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low)))


def gaussian_masses(mean: FloatArray, covariance: FloatArray, grid: Grid) -> FloatArray:
    """Masses of a normal law in the cells, wrapped on rings.

    Independent axes are products of 1-D integrals; otherwise the last axis is integrated exactly
    given the others, and those by Gauss-Legendre on panels of at most one narrowest deviation.
    Shapes: mean (d,), covariance (d, d) -> (*cells).
    Raises: MeanFieldError for correlated axes if the law is too narrow for the cells or too wide for a ring.
    """
    deviation = np.sqrt(np.diag(covariance))
    if not np.any(covariance - np.diag(np.diag(covariance))):
        return _outer([normal_cells(mean[k : k + 1], deviation[k], grid, k)[0] for k in range(grid.dim)])
    narrowest = float(np.sqrt(np.linalg.eigvalsh(covariance)[0]))
    if max(grid.spacing) > PANELS * narrowest:
        raise MeanFieldError(
            f"the covariance has a deviation of {narrowest:.3g} across correlated axes, under 1/{PANELS} of a cell "
            f"{max(grid.spacing):.3g} wide: refine the grid, widen the law or drop the correlation"
        )
    images = []
    for k in range(grid.dim):
        length = grid.upper[k] - grid.lower[k]
        if grid.periodic[k] and deviation[k] > RING_IS_FLAT * length:
            raise MeanFieldError(
                f"axis {k}: a correlated normal law of deviation {deviation[k]:.3g} is too wide for a ring of length "
                f"{length:.3g}: take at most {RING_IS_FLAT:g} lengths or drop the correlation"
            )
        count = ceil(10 * deviation[k] / length) + 1 if grid.periodic[k] else 0
        wrapped = np.mod(mean[k] - grid.lower[k], length) + grid.lower[k] if grid.periodic[k] else mean[k]
        shifted = np.array([wrapped + i * length for i in range(-count, count + 1)])
        ends = np.array([grid.lower[k], grid.upper[k]])
        reach = _between((ends - shifted[:, None]) / deviation[k])[:, 0]
        images.append(shifted[reach > LEAST] if grid.periodic[k] else shifted)
    root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    out = np.zeros(grid.cells)
    for image in product(*images):
        out += _conditional(np.array(image, dtype=np.float64), root, grid, 0, narrowest)
    return out


def _conditional(mean: FloatArray, root: FloatArray, grid: Grid, axis: int, narrowest: float) -> FloatArray:
    """Masses on the axes from ``axis`` on of N(mean, root rootᵀ), one axis conditioned on the one before."""
    x, weight = axis_nodes(grid, axis, ceil(grid.spacing[axis] / narrowest))
    z = (x - mean[0]) / root[0, 0]
    weight = weight * np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * root[0, 0])
    if axis == grid.dim - 2:
        edges = (grid.edges(axis + 1) - mean[1] - root[1, 0] * z[:, None]) / root[1, 1]
        masses = weight[:, None] * _between(edges)
        return np.asarray(masses.reshape(grid.cells[axis], -1, grid.cells[axis + 1]).sum(axis=1))
    out = np.zeros(grid.cells[axis:])
    per_cell = len(x) // grid.cells[axis]
    for j in np.flatnonzero(weight > LEAST**2):
        shifted = np.asarray(mean[1:] + root[1:, 0] * z[j], dtype=np.float64)
        rest = _conditional(shifted, root[1:, 1:], grid, axis + 1, narrowest)
        out[j // per_cell] += weight[j] * rest
    return out


def axis_nodes(grid: Grid, axis: int, panels: int = 1, nodes: int = NODES) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on ``panels`` equal parts of each cell of one axis, cell by cell."""
    unit, weight = np.polynomial.legendre.leggauss(nodes)
    half = grid.spacing[axis] / panels / 2
    middles = grid.lower[axis] + half * (2 * np.arange(grid.cells[axis] * panels) + 1)
    return (middles[:, None] + half * unit).ravel(), np.tile(half * weight, len(middles))


def uniform_masses(lower: FloatArray, upper: FloatArray, grid: Grid) -> FloatArray:
    """Masses of the uniform law on a box in the cells, wrapped on rings; (*cells)."""
    parts = []
    for k in range(grid.dim):
        edges, length = grid.edges(k), grid.upper[k] - grid.lower[k]
        low, width = lower[k], upper[k] - lower[k]
        shifts, rest, turns = [0.0], width, 0.0
        if grid.periodic[k]:
            low = grid.lower[k] + np.mod(low - grid.lower[k], length)
            if width > length:
                # whole turns give every cell the same
                turns, rest = np.floor(width / length), np.mod(width, length)
            shifts = [0.0, length, 2.0 * length]
        # overlap of [low, low + rest] with each cell and its images
        ends = [np.clip(edges + shift, low, low + rest) for shift in shifts]
        parts.append(np.asarray((turns * grid.spacing[k] + sum(np.diff(e) for e in ends)) / width))
    return _outer(parts)


def function_masses(function: Callable[[FloatArray], FloatArray], grid: Grid) -> FloatArray:
    """Masses of a density given as a function of points (n, d) -> (n,), by Gauss-Legendre; (*cells).

    8, 6, 4 nodes per cell and axis in 1, 2, 3 dimensions: order 16, 12, 8.
    Raises: MeanFieldError if the function gives another shape, negative or non-finite values.
    """
    nodes = {1: NODES, 2: 6}.get(grid.dim, 4)
    axes = [axis_nodes(grid, k, 1, nodes) for k in range(grid.dim)]
    weight = _outer([w for _, w in axes[1:]]) if grid.dim > 1 else np.ones(())
    folded = tuple(n for cells in grid.cells[1:] for n in (cells, nodes))
    out = np.zeros(grid.cells)
    for cell in range(grid.cells[0]):  # one slab of cells at a time bounds the memory
        block = slice(cell * nodes, (cell + 1) * nodes)
        mesh = np.meshgrid(axes[0][0][block], *[x for x, _ in axes[1:]], indexing="ij")
        values = evaluate(function, np.stack([m.ravel() for m in mesh], axis=1)).reshape(nodes, *weight.shape)
        slab = np.tensordot(axes[0][1][block], values, axes=1) * weight
        out[cell] = slab.reshape(folded).sum(axis=tuple(range(1, len(folded), 2)))
    return out


def evaluate(function: Callable[[FloatArray], FloatArray], points: FloatArray) -> FloatArray:
    """Values of a user's density at points (n, d), checked: shape (n,), finite, not negative."""
    values = np.asarray(function(points), dtype=float)
    if values.shape != points.shape[:1]:
        raise MeanFieldError(f"a density must map points {points.shape} to {points.shape[:1]}, not to {values.shape}")
    bad = np.flatnonzero(~(values >= 0) | ~np.isfinite(values))
    if len(bad):
        raise MeanFieldError(f"the density is {values[bad[0]]} at {points[bad[0]]}: it must be finite and >= 0")
    return values


def _outer(parts: list[FloatArray]) -> FloatArray:
    return np.asarray(reduce(np.multiply.outer, parts))
