"""One layer of depth dt by explicit Runge-Kutta methods; on the circle also by steps that leave it and come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.problem_particles import INTEGRATORS, RENORMALISED, RUNGE_KUTTA

Rate = Callable[[FloatArray, float], FloatArray]


@dataclass(frozen=True, slots=True)
class RungeKutta:
    """x + dt Σ_i b_i k_i, k_i = V(x + dt Σ_j a_ij k_j, t + c_i dt), c_i = Σ_j a_ij: V anew at each stage.

    Source: Hairer, Nørsett & Wanner (1993), II.1.
    """

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]

    def step(self, rate: Rate, x: FloatArray, t: float, dt: float) -> FloatArray:
        """x at t + dt."""
        slopes: list[FloatArray] = []
        for row in self.a:
            moved = x
            for share, slope in zip(row, slopes, strict=True):
                if share:
                    moved = moved + dt * share * slope
            slopes.append(rate(moved, t + sum(row) * dt))
        for share, slope in zip(self.b, slopes, strict=True):
            x = x + dt * share * slope
        return x


METHODS = {
    "euler": RungeKutta(1, ((),), (1.0,)),
    "midpoint": RungeKutta(2, ((), (0.5,)), (0.0, 1.0)),
    "heun": RungeKutta(2, ((), (1.0,)), (0.5, 0.5)),
    "rk4": RungeKutta(4, ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}


def check_integrator(name: str, circle: bool) -> None:
    """Refuse unknown integrators, and those of the circle elsewhere."""
    allowed = INTEGRATORS if circle else RUNGE_KUTTA
    if name not in allowed:
        hint = " lives on the circle; allowed: " + ", ".join(allowed) if name in RENORMALISED else (
            f" is not known; {nearest(str(name), allowed)}"
        )  # fmt: skip
        raise MeanFieldError(f"integrator = {name!r}{hint}")


def back_step(angles: FloatArray, along: FloatArray, outward: FloatArray, dt: float) -> FloatArray:
    """The angle of x + dt V for x on the unit circle, V given along (−sin, cos) and outward; near the old angle."""
    return np.asarray(angles + np.arctan2(dt * along, 1.0 + dt * outward))
