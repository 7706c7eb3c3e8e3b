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
