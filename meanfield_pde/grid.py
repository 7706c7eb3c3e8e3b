"""A box cut into equal cells, with walls or a ring on each axis: the owner of cell volume."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure

LEAST_CELLS = 10  # between walls, for the one-sided differences of the deconvolution

@dataclass(frozen=True, slots=True)
class Grid:
    """Finite-volume grid on [lower, upper], one entry per axis.

    Meaning: ``cells`` counts cells; a wall axis has cells - 1 inner faces (no flux through the
    two walls), a periodic axis has as many faces as cells. Face f lies between the cells f and
    f + 1 (modulo cells). Arrays on the grid have shape (..., *cells), densities are per volume.
    Raises: MeanFieldError for an empty box, too few cells or entries that do not fit.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    cells: tuple[int, ...]
    periodic: tuple[bool, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.lower), len(self.upper), len(self.cells), len(self.periodic)}
        if len(lengths) != 1 or not self.cells:
            raise MeanFieldError(
                f"lower {self.lower}, upper {self.upper}, cells {self.cells}, periodic {self.periodic} "
                "must have one entry per axis each"
            )
        for axis, (low, high, n) in enumerate(zip(self.lower, self.upper, self.cells, strict=True)):
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise MeanFieldError(f"axis {axis}: lower = {low} must be finite and below upper = {high}")
            if n < 3:
                raise MeanFieldError(f"axis {axis}: cells = {n} is too few; take at least 3")

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.cells)

    @property
    def size(self) -> int:
        """Number of cells."""
        return prod(self.cells)

    @property
    def spacing(self) -> tuple[float, ...]:
        """Cell width of each axis."""
        return tuple((b - a) / n for a, b, n in zip(self.lower, self.upper, self.cells, strict=True))

    @property
    def cell_volume(self) -> float:
        """Volume of one cell."""
        return prod(self.spacing)

    def face_count(self, axis: int) -> int:
        """Faces along one axis: cells on a ring, cells - 1 between walls."""
        return self.cells[axis] - (not self.periodic[axis])

    def centers(self, axis: int) -> FloatArray:
        """Cell centres of one axis, shape (cells,)."""
        return self.lower[axis] + self.spacing[axis] * (np.arange(self.cells[axis], dtype=np.float64) + 0.5)

    def faces(self, axis: int) -> FloatArray:
        """Positions of the faces that carry flux along one axis, shape (face_count,)."""
        return self.lower[axis] + self.spacing[axis] * np.arange(1, self.face_count(axis) + 1, dtype=np.float64)

    def edges(self, axis: int) -> FloatArray:
        """All cell edges of one axis with both ends, shape (cells + 1,)."""
        return np.linspace(self.lower[axis], self.upper[axis], self.cells[axis] + 1)

    def points(self) -> FloatArray:
        """Cell centres in C order, shape (size, dim)."""
        return _mesh([self.centers(k) for k in range(self.dim)])

    def face_points(self, axis: int) -> FloatArray:
        """Midpoints of the faces normal to ``axis`` in C order, shape (faces, dim)."""
        return _mesh(list(self.face_axes(axis)))

    def face_axes(self, axis: int) -> tuple[FloatArray, ...]:
        """The factors that `face_points` is the product of."""
        return tuple(self.faces(k) if k == axis else self.centers(k) for k in range(self.dim))

    def face_shape(self, axis: int) -> tuple[int, ...]:
        """Shape of an array on the faces normal to ``axis``."""
        return tuple(self.face_count(k) if k == axis else n for k, n in enumerate(self.cells))

    def integral(self, density: FloatArray) -> FloatArray:
        """Sum over cells times cell volume; shape of the leading axes."""
        axes = tuple(range(density.ndim - self.dim, density.ndim))
        return np.asarray(density.sum(axis=axes) * self.cell_volume)

    def measure(self, density: FloatArray) -> Measure:
        """The measure of cell masses of one density, shape (*cells,)."""
        return Measure(self.points(), density.ravel() * self.cell_volume, np.array(self.spacing))

    def wall_mass(self, density: FloatArray) -> FloatArray:
        """Mass in the cells that touch a wall, shape of the leading axes; 0 on a torus."""
        inner = tuple(slice(None) if ring else slice(1, -1) for ring in self.periodic)
        weight = np.ones(self.cells)
        weight[inner] = 0.0
        return self.integral(density * weight)

    def deconvolve(self, values: FloatArray) -> FloatArray:
        """Inverse box filter of a function sampled at cell centres, shape (..., *cells).

        f - h²/24 f'' + 7 h⁴/5760 f'''' on each wall axis (sixth-order differences, one-sided at the
        walls); mode k divided by sinc(k h/2) on a ring. Summed against cell averages it gives the
        integral of f against the law itself (docs/mathematics.md, 3.1).
        Raises: MeanFieldError with fewer than 10 cells on a wall axis.
        """
        out = np.array(values, dtype=float)
        for axis in range(self.dim):
            position = out.ndim - self.dim + axis
            out = _deconvolve_ring(out, position) if self.periodic[axis] else _deconvolve_walls(out, position)
        return out

    def filters(self) -> tuple[FloatArray, ...]:
        """`deconvolve` as one matrix (cells, cells) an axis; () where an axis has too few cells for it.

        Their product over axes applied to samples f gives the integrand whose sum with masses is the integral of f.
        """
        if any(n < LEAST_CELLS and not ring for n, ring in zip(self.cells, self.periodic, strict=True)):
            return ()
        return tuple(
            (_deconvolve_ring if ring else _deconvolve_walls)(np.eye(n), 0)
            for n, ring in zip(self.cells, self.periodic, strict=True)
        )

    def refilter(self, values: FloatArray) -> FloatArray:
        """Box filter to second order, u + δ²u/24 per axis: turns the raw costate into the reported one."""
        out = np.array(values, dtype=float)
        for axis in range(self.dim):
            u = np.moveaxis(out, out.ndim - self.dim + axis, -1)
            if self.periodic[axis]:
                second = np.roll(u, 1, -1) - 2 * u + np.roll(u, -1, -1)
            else:
                second = np.empty_like(u)
                second[..., 1:-1] = u[..., :-2] - 2 * u[..., 1:-1] + u[..., 2:]
                # at a wall the curvature is extrapolated from the two cells next to it
                second[..., 0] = 2 * second[..., 1] - second[..., 2] if u.shape[-1] > 3 else second[..., 1]
                second[..., -1] = 2 * second[..., -2] - second[..., -3] if u.shape[-1] > 3 else second[..., -2]
            out = np.moveaxis(u + second / 24.0, -1, out.ndim - self.dim + axis)
        return np.ascontiguousarray(out)


def _mesh(axes: list[FloatArray]) -> FloatArray:
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def _deconvolve_ring(values: FloatArray, axis: int) -> FloatArray:
    n = values.shape[axis]
    modes = np.fft.rfft(values, axis=axis)
    shape = [1] * values.ndim
    shape[axis] = -1
    return np.fft.irfft(modes / np.sinc(np.arange(modes.shape[axis]) / n).reshape(shape), n, axis=axis)


def _deconvolve_walls(values: FloatArray, axis: int) -> FloatArray:
    if values.shape[axis] < LEAST_CELLS:
        raise MeanFieldError(
            f"deconvolution needs at least {LEAST_CELLS} cells between walls, not {values.shape[axis]}"
        )
    from findiff import Diff  # imported late: it brings sympy

    second = Diff(axis, 1.0, acc=6) ** 2
    fourth = Diff(axis, 1.0, acc=4) ** 4
    return np.asarray(values - second(values) / 24.0 + 7.0 / 5760.0 * fourth(values))
