"""Atoms to cells: linear deposit between neighbouring centres, or a Gaussian kernel of given bandwidth."""

from __future__ import annotations

from itertools import product

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import normal_cells

CHUNK_BYTES = 64 * 2**20
BLOCK = 8192  # atoms at a time: bounds the memory of the shares


def atom_masses(points: FloatArray, weights: FloatArray, grid: Grid, bandwidth: float | None = None) -> FloatArray:
    """Cell masses of weighted atoms.

    Without a bandwidth each atom is shared between the two nearest centres of each axis, which keeps
    its mass and mean to rounding; with one each atom is a Gaussian of that deviation, integrated
    exactly. On a ring positions are wrapped. What lies outside is left out: on a wall axis that is,
    without a bandwidth, everything beyond the first and last centre, since no positive cell masses
    have such a mean.
    Shapes: points (n, d), weights (n,) -> (*cells).
    """
    out = np.zeros(grid.cells)
    for start in range(0, len(points), BLOCK):
        block = slice(start, start + BLOCK)
        out += AtomSpread(points[block], grid, bandwidth)(weights[block])
    return out


class AtomSpread:
    """The linear map from weights on fixed points to cell masses, prepared once for many weights."""

    def __init__(self, points: FloatArray, grid: Grid, bandwidth: float | None = None) -> None:
        points = np.asarray(points, dtype=float)
        if points.ndim != 2 or points.shape[1] != grid.dim:
            shape = f"dimension {points.shape[1]}" if points.ndim == 2 else f"shape {points.shape}"
            raise MeanFieldError(f"the points have {shape} and the grid has dimension {grid.dim}: they must agree")
        self.grid = grid
        self.parts: list[FloatArray] = []
        if bandwidth is None:
            self.index, self.share = linear_shares(points, grid)
        else:
            self.parts = [normal_cells(points[:, k], bandwidth, grid, k) for k in range(grid.dim)]

    def __call__(self, weights: FloatArray) -> FloatArray:
        """Cell masses (*cells) of weights (n,)."""
        if not self.parts:
            shares = (weights[:, None] * self.share).ravel()
            masses = np.bincount(self.index.ravel(), shares, self.grid.size).astype(np.float64)
            return masses.reshape(self.grid.cells)
        first, *rest = self.parts
        columns = self.grid.size // self.grid.cells[0]
        chunk = max(1, CHUNK_BYTES // (8 * columns))
        out = np.zeros((self.grid.cells[0], columns))
        for start in range(0, len(weights), chunk):
            block = slice(start, start + chunk)
            other = np.ones((len(weights[block]), 1))
            for part in rest:
                other = (other[:, :, None] * part[block][:, None, :]).reshape(len(other), -1)
            out += (weights[block, None] * first[block]).T @ other
        return out.reshape(self.grid.cells)


def linear_shares(points: FloatArray, grid: Grid) -> tuple[IntArray, FloatArray]:
    """Flat cells and shares of the 2^d nearest centres of each point; shares 0 for a point outside.

    Shapes: points (n, d) -> (n, 2^d) twice.
    """
    inside = np.ones(len(points), dtype=bool)
    cells: list[tuple[IntArray, IntArray]] = []
    shares: list[tuple[FloatArray, FloatArray]] = []
    for axis in range(grid.dim):
        n = grid.cells[axis]
        u = (points[:, axis] - grid.lower[axis]) / grid.spacing[axis] - 0.5
        if not grid.periodic[axis]:
            rounding = 1e-12 * n
            inside &= (u >= -rounding) & (u <= n - 1 + rounding)
            u = np.clip(u, 0, n - 1)
        below = np.floor(u)
        part = u - below
        # wrapped as whole numbers: u itself modulo n may round to n; between walls the cell n has share 0
        cells.append((np.mod(below, n).astype(np.int64), np.mod(below + 1, n).astype(np.int64)))
        shares.append((1.0 - part, part))
    index = np.empty((len(points), 2**grid.dim), dtype=np.int64)
    share = np.empty(index.shape)
    for corner, sides in enumerate(product((0, 1), repeat=grid.dim)):
        index[:, corner] = np.ravel_multi_index([cells[k][s] for k, s in enumerate(sides)], grid.cells)
        share[:, corner] = np.prod([shares[k][s] for k, s in enumerate(sides)], axis=0) * inside
    return index, share
