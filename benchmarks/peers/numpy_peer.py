"""Transport with plain numpy: flux-limited Lax-Wendroff (MC), an axis after the other, as a reader would write it."""

from __future__ import annotations

from math import ceil

import numpy as np
from problems import TURN, centres, relative_l1, rotated_gaussian, rotation
from protocol import Answer, Ask, answer, seconds_of

CFL = 0.9


def swept(u: np.ndarray, v: np.ndarray, ratio: float) -> np.ndarray:
    """One step along axis 0 at the velocity v of every line, ratio = dt/h; no flux at the walls.

    Source: LeVeque, Finite Volume Methods for Hyperbolic Problems (2002), eq. 6.41 with the limiter 6.39.
    """
    jump = np.diff(u, axis=0)
    behind, ahead = np.zeros_like(jump), np.zeros_like(jump)
    behind[1:], ahead[:-1] = jump[:-1], jump[1:]
    upwind = np.where(v > 0.0, behind, ahead)
    same = upwind * jump > 0.0
    size = np.minimum(np.minimum(2.0 * np.abs(jump), 2.0 * np.abs(upwind)), 0.5 * np.abs(jump + upwind))
    limited = np.where(same, np.sign(jump) * size, 0.0)
    flux = np.maximum(v, 0.0) * u[:-1] + np.minimum(v, 0.0) * u[1:]
    flux += 0.5 * np.abs(v) * (1.0 - np.abs(v) * ratio) * limited
    out = u.copy()
    out[:-1] -= ratio * flux
    out[1:] += ratio * flux
    return out


def transport(ask: Ask) -> Answer:
    n = ask["cells"]
    begun = rotated_gaussian(n, 0.0)
    x = centres(1.0, n)
    along_x, along_y = rotation(x, x)  # of each line: −2π y and 2π x
    whole = ceil(TURN * n / 2.0 * float(np.abs(along_x).max()) / CFL)
    steps = ask.get("steps") or whole
    ratio = TURN / whole * n / 2.0

    def run() -> np.ndarray:
        u = begun
        for _ in range(steps):
            u = swept(u, along_x[None, :], ratio)
            u = swept(u.T, along_y[None, :], ratio).T
        return u

    seconds, u = seconds_of(run)
    share = steps / whole
    error = relative_l1(u, rotated_gaussian(n)) if steps == whole else None
    return {"seconds": seconds / share, "steps": whole, "cell_steps": n * n * whole, "error": error,
            "extrapolated_from": None if steps == whole else steps}  # fmt: skip


if __name__ == "__main__":
    answer(transport, "numpy")
