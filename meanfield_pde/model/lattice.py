"""Token cells as a product of axes: all that a velocity may know of a grid."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """Cells at the products of ``axes``.

    Shapes: axes one (n_k,) an axis, widths (d,), filters one (n_k, n_k) an axis or none at all.
    Meaning: ``filters`` turn samples f of a function along an axis into the samples of its inverse box filter, so that
    the sum of masses times ``filter @ f`` is the integral of f; on a ring they invert the filter mode by mode.
    ``circle``: the one axis holds angles of tokens (cos x, sin x) on the unit circle.
    """

    axes: tuple[FloatArray, ...]
    widths: FloatArray
    filters: tuple[FloatArray, ...] = ()
    circle: bool = False
    points: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        mesh = np.meshgrid(*self.axes, indexing="ij")
        object.__setattr__(self, "points", np.stack([m.ravel() for m in mesh], axis=1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each axis."""
        return tuple(len(a) for a in self.axes)

    @property
    def dim(self) -> int:
        """Dimension of the space in which A and W act: 2 for tokens on the circle."""
        return 2 if self.circle else len(self.axes)

    def samples(self, masses: FloatArray) -> FloatArray:
        """Weights q with sum q f the integral of any smooth f against the law of cell ``masses`` (B, n).

        Formula: q = max(filterᵀ masses, masses / 2) where there is mass, else 0. Half the mass is a bound that smooth
        laws never meet; it keeps q positive where a law is rough, and of degree 1 in the masses.
        """
        if not self.filters:
            return np.where(masses > 0.0, masses, 0.0)
        raw = self._along_axes(masses, transposed=True)
        return np.where(masses > 0.0, np.maximum(raw, 0.5 * masses), 0.0)

    def samples_transpose(self, masses: FloatArray, g: FloatArray) -> FloatArray:
        """Transpose of the derivative of `samples` at ``masses``, applied to g (B, n); it holds where there is mass."""
        if not self.filters:
            return np.where(masses > 0.0, g, 0.0)
        occupied = masses > 0.0
        free = occupied & (self._along_axes(masses, transposed=True) > 0.5 * masses)
        return self._along_axes(np.where(free, g, 0.0), transposed=False) + np.where(occupied & ~free, 0.5 * g, 0.0)

    def _along_axes(self, values: FloatArray, transposed: bool) -> FloatArray:
        """The filter of each axis, or its transpose, applied to each row; one product of one shape a row and axis."""
        out = np.empty_like(values)
        for b, row in enumerate(values):
            u = row.reshape(self.shape)
            for k, matrix in enumerate(self.filters):
                u = np.moveaxis(np.tensordot(matrix.T if transposed else matrix, u, axes=(1, k)), 0, k)
            out[b] = u.ravel()
        return out
