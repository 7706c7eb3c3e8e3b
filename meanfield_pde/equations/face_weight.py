"""Rates across faces by a weight other than that of Scharfetter and Gummel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError

FaceWeight = Callable[[FloatArray], FloatArray]
"""B(z) of a column of z = (psi[i+1] - psi[i])/beta, (n,) to (n,)."""


def weighted_rates(
    weight: FaceWeight, psi3: FloatArray, beta: float, spacing: float, ring: bool
) -> tuple[FloatArray, FloatArray]:
    """up = beta B(z)/h², dn = beta B(-z)/h² across the faces of an axis, as of `scharfetter_gummel.face_rates`.

    Shapes: ``psi3`` (outer, n, inner) → (outer, n, inner) on a ring, (outer, n - 1, inner) between walls.
    Raises: MeanFieldError for beta = 0, where there is no z.
    """
    if not beta > 0.0:
        raise MeanFieldError("a weight of one's own needs training.beta > 0: without noise fluxes are upwind")
    z = (np.roll(psi3, -1, axis=1) - psi3 if ring else np.diff(psi3, axis=1)) / beta
    up, dn = (np.reshape(weight(side.ravel()), z.shape) * (beta / spacing**2) for side in (z, -z))
    return np.ascontiguousarray(up, dtype=float), np.ascontiguousarray(dn, dtype=float)
