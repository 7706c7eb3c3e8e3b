"""A reconstruction that knows no wind: smooth in the velocity, for orders in the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray

# of the cells at -2 .. 2 about the one left of a face
CENTRAL = (0.0, -1.0 / 12.0, 7.0 / 12.0, 7.0 / 12.0, -1.0 / 12.0)


@dataclass(frozen=True, slots=True)
class Central:
    """(7 (u_f + u_{f+1}) - u_{f-1} - u_{f+2}) / 12, the mean of two cells at the faces next to walls; its own dual."""

    order: int = 2
    width: int = 4

    def faces(self, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """R u at the faces."""
        beside, beyond = _weights(v3.shape[1], u3.shape[1])
        for shift, weight in ((-1, beyond), (0, beside), (1, beside), (2, beyond)):
            term = weight * np.roll(u3, -shift, axis=1)[:, : v3.shape[1]]
            if shift == -1:
                out3[:] = term
            else:
                out3 += term

    def cells(self, u3: FloatArray, g3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Add Rᵀ g."""
        faces, n = v3.shape[1], u3.shape[1]
        beside, beyond = _weights(faces, n)
        for shift, weight in ((-1, beyond), (0, beside), (1, beside), (2, beyond)):
            part = np.zeros_like(out3)
            part[:, :faces] = weight * g3
            out3 += np.roll(part, shift, axis=1)


def _weights(faces: int, n: int) -> tuple[FloatArray, FloatArray]:
    """Weights of the two cells beside a face and of the two beyond, (faces, 1); what lies beyond a wall has none."""
    beyond = np.full((faces, 1), -1.0 / 12.0)
    if faces < n:
        beyond[[0, -1]] = 0.0
    return 0.5 - beyond, beyond
