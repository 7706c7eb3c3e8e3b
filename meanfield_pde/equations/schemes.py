"""Reconstructions of cell averages to faces by name, and which of them have a transpose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.kernels import reconstruction as kernel
from meanfield_pde.kernels import reconstruction_transpose as transposed


class Reconstruction(Protocol):
    """Cells to faces, upwind of the sign of v3. Walls or a ring by the number of faces (n - 1 or n)."""

    @property
    def order(self) -> int:
        """Order of accuracy on smooth data."""
        ...

    @property
    def width(self) -> int:
        """The least number of cells on an axis."""
        ...

    def faces(self, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Reconstruct u3 (outer, n, inner) at the faces of v3, out3 (outer, faces, inner)."""
        ...


@runtime_checkable
class DualReconstruction(Reconstruction, Protocol):
    """A reconstruction whose linearisation has a transpose usable for the costate."""

    def cells(self, u3: FloatArray, g3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Add R'(u3)ᵀ g3 to out3 (outer, n, inner)."""
        ...


def _weights(offsets: tuple[int, ...]) -> FloatArray:
    """Weights of cells at ``offsets`` (0 is the cell upwind of the face) that give the face value exactly for
    polynomials of degree len(offsets) - 1 (Shu 1998, eq. 2.11); exact multiples of 1/60 up to order 5."""
    left = np.array(offsets, dtype=float) - 0.5
    powers = np.arange(len(offsets))
    averages = ((left + 1.0)[None, :] ** (powers[:, None] + 1) - left[None, :] ** (powers[:, None] + 1)) / (
        powers[:, None] + 1
    )
    return np.asarray(np.rint(60.0 * np.linalg.solve(averages, 0.5**powers)) / 60.0)


def centred_weights(width: int) -> FloatArray:
    """Weights of the centred stencil about the upwind cell, (width,)."""
    return _weights(tuple(range(-(width // 2), width // 2 + 1)))


# Order 5 with plain one-sided stencils has a growing mode where the wind leaves a wall (eigenvalue +0.009 V/h).
# Twice the stencil at -1..3 less that at 0..4 on the second face is as exact and has none.
SECOND_FACE = tuple(value / 60.0 for value in (-6.0, 42.0, 17.0, 17.0, -13.0, 3.0))


@lru_cache(maxsize=64)
def stencils(width: int, cells: int, periodic: bool) -> tuple[IntArray, FloatArray, BoolArray]:
    """Cell indices and weights of every face for both winds, one-sided where the centred stencil leaves the box.

    Shapes: index (2, faces, k), coefficient (2, faces, k), inner (2, faces), with k = width, or 6 when width = 5:
    the sixth cell has weight 0 but on the second face that the wind reaches from a wall.
    """
    faces = cells - (not periodic)
    half = width // 2
    columns = width + (width == 5)
    index = np.zeros((2, faces, columns), dtype=np.int64)
    coefficient = np.zeros((2, faces, columns))
    inner = np.empty((2, faces), dtype=np.bool_)
    for wind, step in ((0, 1), (1, -1)):
        for face in range(faces):
            upwind = face if wind == 0 else face + 1
            shift = 0
            if not periodic:
                ends = sorted((upwind - step * half, upwind + step * half))
                # shift in cells that brings the stencil back inside, counted along the wind
                shift = step * (max(0, -ends[0]) - max(0, ends[1] - cells + 1))
            offsets = tuple(range(-half + shift, half + 1 + shift))
            weights = tuple(_weights(offsets))
            if width == 5 and shift == 1 and cells > width:
                offsets, weights = (*offsets, offsets[-1] + 1), SECOND_FACE
            index[wind, face, : len(offsets)] = [(upwind + step * k) % cells for k in offsets]
            coefficient[wind, face, : len(offsets)] = weights
            inner[wind, face] = shift == 0
    for array in (index, coefficient, inner):
        array.setflags(write=False)
    return index, coefficient, inner


def _stencils_of(order: int, u3: FloatArray, v3: FloatArray) -> tuple[IntArray, FloatArray, BoolArray]:
    return stencils(order, u3.shape[1], v3.shape[1] == u3.shape[1])


LINEAR = {1: kernel.UPWIND, 3: kernel.LINEAR3, 5: kernel.LINEAR5}


def _faces(scheme: Linear | Muscl | WenoZ, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
    """Faces by the kernel, which takes an axis and what is behind it as one row."""
    u2, v2, out2 = (np.reshape(a, (len(a), -1), copy=False) for a in (u3, v3, out3))
    kernel.faces(u2, v2, u3.shape[2], *_stencils_of(scheme.width, u3, v3), scheme.kind, out2)


@dataclass(frozen=True, slots=True)
class Linear:
    """Unlimited upwind-biased reconstruction of order 1, 3 or 5 (Shu 1998, table 2.1); its own exact dual."""

    order: int

    @property
    def width(self) -> int:
        """Cells that an axis needs."""
        return self.order

    @property
    def kind(self) -> int:
        """Its code in the kernels."""
        return LINEAR[self.order]

    def faces(self, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """R u at the faces."""
        _faces(self, u3, v3, out3)

    def cells(self, u3: FloatArray, g3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Add Rᵀ g."""
        index, coefficient, _ = _stencils_of(self.order, u3, v3)
        transposed.linear_cells(g3, v3, index, coefficient, out3)


@dataclass(frozen=True, slots=True)
class Muscl:
    """Piecewise linear reconstruction with a TVD limiter (van Leer 1979): order 2, at extrema 1, no usable dual."""

    limiter: int
    order: int = 2
    width: int = 3
    order_at_extrema: int = 1

    @property
    def kind(self) -> int:
        """Its code in the kernels."""
        return self.limiter

    def faces(self, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """R(u) at the faces."""
        _faces(self, u3, v3, out3)


@dataclass(frozen=True, slots=True)
class WenoZ:
    """WENO-Z of order 5 (Borges et al. 2008), with the transpose of its derivative, nonlinear weights included."""

    order: int = 5
    width: int = 5

    @property
    def kind(self) -> int:
        """Its code in the kernels."""
        return kernel.WENO5Z

    def faces(self, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """R(u) at the faces."""
        _faces(self, u3, v3, out3)

    def cells(self, u3: FloatArray, g3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Add R'(u)ᵀ g."""
        transposed.weno5z_cells(u3, g3, v3, *_stencils_of(self.order, u3, v3), out3)


def kernel_code(scheme: Reconstruction) -> int | None:
    """The code of a scheme in the kernels; None for one that reconstructs by itself, as with faces of its own."""
    for known in (Linear, Muscl, WenoZ):
        if isinstance(scheme, known) and type(scheme).faces is known.faces:
            return scheme.kind
    return None


SCHEMES: dict[str, Reconstruction] = {
    "upwind1": Linear(1),
    "linear3": Linear(3),
    "linear5": Linear(5),
    "muscl-minmod": Muscl(kernel.MINMOD),
    "muscl-mc": Muscl(kernel.MC),
    "muscl-vanleer": Muscl(kernel.VANLEER),
    "muscl-vanalbada": Muscl(kernel.VANALBADA),
    "weno5z": WenoZ(),
}


def scheme(name: str) -> Reconstruction:
    """The reconstruction of that name. Raises: MeanFieldError with the nearest name."""
    if name not in SCHEMES:
        raise MeanFieldError(f"depth.scheme = {name!r} is unknown: {nearest(name, SCHEMES)}")
    return SCHEMES[name]
