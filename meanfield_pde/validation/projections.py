"""Projections of a law on two or three axes to lines, and of one on rings to rings: its characteristic function."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, gcd
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.validation.line_laws import LineLaw, masses_line

GOLDEN = (1 + np.sqrt(5)) / 2
# directions on lines by dimension, and the largest entry of covectors on rings
DIRECTIONS, COVECTORS = {2: 32, 3: 64}, {2: 3, 3: 2}
# edges of a projected law for each mode of its series: what masses_line adds is far below what the grid leaves
OVERSAMPLED = 4


@dataclass(frozen=True, slots=True)
class Projections:
    """A law in R^d seen along fixed directions: x ↦ ⟨direction, x − origin⟩ and the law of its values.

    Shapes: directions (k, d), origin (d,).
    Meaning: directions are unit vectors, so that no two points come further apart. On rings of lengths L they are
    parallel to (k_1/L_1, …) for whole numbers k, and values are on a ring of length 1/|(k_1/L_1, …)|.
    """

    directions: FloatArray
    origin: FloatArray
    laws: tuple[LineLaw, ...]

    def of(self, points: FloatArray) -> FloatArray:
        """The values (k, n) of points (n, d)."""
        return np.asarray(self.directions @ (np.asarray(points, dtype=float) - self.origin).T)

    @property
    def dim(self) -> int:
        """Number of axes of the law."""
        return len(self.origin)


def half_sphere(dim: int, count: int) -> FloatArray:
    """``count`` fixed unit vectors, one of each pair ±v, spread evenly: shape (count, dim), dim 2 or 3.

    Angles π(j + ½)/count in the plane; in space the spiral of golden turns with heights (j + ½)/count.
    Source: González 2010 (spiral).
    """
    j = np.arange(count) + 0.5
    if dim == 2:
        angle = np.pi * j / count
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    height, turn = j / count, 2 * np.pi * j / GOLDEN
    flat = np.sqrt(1 - height**2)
    return np.stack([flat * np.cos(turn), flat * np.sin(turn), height], axis=1)


def covectors(dim: int, most: int) -> FloatArray:
    """Whole vectors with entries up to ``most`` and no common divisor, one of each pair ±k: shape (count, dim)."""
    rows = [k for k in product(range(-most, most + 1), repeat=dim) if gcd(*k) == 1 and next(v for v in k if v) > 0]
    return np.array(rows, dtype=float)


def project(density: FloatArray, grid: Grid, count: int | None = None) -> Projections:
    """The laws of ⟨direction, x⟩ under cell averages on two or three axes, all walls or all rings.

    From cell masses the characteristic function is φ(ξ) = Σ_j m_j e^{−i⟨ξ, x_j⟩}/Π_k sinc(ξ_k h_k/2), of spectral
    accuracy for smooth laws (docs/mathematics.md, 3.1) up to |ξ_k| h_k = π, where it is cut off. Its Fourier series
    along a direction gives masses between equally spaced edges, read as `masses_line`. What the cut leaves below 0 is
    removed by isotonic regression.
    Shapes: density (*cells). ``count``: directions, 32 in the plane and 64 in space; on rings all covectors up to 3, 2.
    Raises: MeanFieldError for other dimensions, and where walls and rings are mixed.
    """
    if grid.dim not in DIRECTIONS or density.shape != grid.cells or len(set(grid.periodic)) != 1:
        raise MeanFieldError(
            f"cell averages {density.shape} on axes of which {grid.periodic} are rings cannot be projected: two or "
            "three axes are needed, all of them walls or all rings; compare energies by pairs or smooth statistics"
        )
    masses = density * grid.cell_volume / grid.integral(density)
    sides = np.array(grid.upper) - np.array(grid.lower)
    if grid.periodic[0]:
        turns = covectors(grid.dim, COVECTORS[grid.dim]) / sides
        lengths = 1.0 / np.sqrt((turns**2).sum(axis=1))
        directions, starts = turns * lengths[:, None], np.zeros(len(turns))
    else:
        directions = half_sphere(grid.dim, count or DIRECTIONS[grid.dim])
        lengths, starts = np.abs(directions) @ sides, np.minimum(directions * sides, 0.0).sum(axis=1)
    with threadpool_limits(limits=1, user_api="blas"):  # products too small for more threads
        laws = [_along(masses, grid, *line) for line in zip(directions, starts, lengths, strict=True)]
    return Projections(directions, np.array(grid.lower), tuple(laws))


def _along(masses: FloatArray, grid: Grid, direction: FloatArray, start: float, length: float) -> LineLaw:
    """The law of ⟨direction, x − lower⟩ on [start, start + length] for cell masses (*cells)."""
    fastest = float((np.abs(direction) * np.array(grid.spacing)).max())
    modes = ceil(length / (2 * fastest))
    frequency = 2 * np.pi / length * np.arange(modes)
    series: Any = masses
    for axis in reversed(range(grid.dim)):
        xi, h = frequency * direction[axis], grid.spacing[axis]
        wave = np.exp(-1j * xi[:, None] * (grid.centers(axis) - grid.lower[axis]))
        wave /= np.sinc(xi * h / (2 * np.pi))[:, None]
        # the first contraction makes the frequencies the last axis, the others run along it
        series = series @ wave.T if axis == grid.dim - 1 else np.einsum("...jr,rj->...r", series, wave)
    cells = OVERSAMPLED * modes
    width = length / cells
    series = series * np.exp(1j * frequency * (start + 0.5 * width)) * np.sinc(frequency * width / (2 * np.pi))
    edges = start + width * np.arange(cells + 1, dtype=np.float64)
    return masses_line(edges, np.asarray(np.fft.irfft(series, cells), dtype=np.float64), grid.periodic[0])
