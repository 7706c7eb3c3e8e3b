"""Strong-stability-preserving Runge–Kutta steppers as data: convex combinations of forward Euler steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest


@dataclass(frozen=True, slots=True)
class Stepper:
    """u_i = base_i u_0 + (1 - base_i)(u_{i-1} + dt L(u_{i-1})), i = 1..stages (Shu & Osher 1988).

    ``polynomial`` holds the coefficients of the stability function, ascending.
    """

    order: int
    base: tuple[float, ...]
    polynomial: tuple[float, ...]

    @property
    def stages(self) -> int:
        """Evaluations of the rate a step."""
        return len(self.base)

    @property
    def nodes(self) -> tuple[float, ...]:
        """Where in the step each stage is evaluated, as a share of dt: c_{i+1} = (1 - base_i)(c_i + 1)."""
        out = [0.0]
        for base in self.base[:-1]:
            out.append((1.0 - base) * (out[-1] + 1.0))
        return tuple(out)


STEPPERS = {
    "ssprk1": Stepper(1, (0.0,), (1.0, 1.0)),
    "ssprk2": Stepper(2, (0.0, 0.5), (1.0, 1.0, 0.5)),
    "ssprk3": Stepper(3, (0.0, 0.75, 1.0 / 3.0), (1.0, 1.0, 0.5, 1.0 / 6.0)),
}


def stepper(name: str) -> Stepper:
    """The stepper of that name (Gottlieb, Shu & Tadmor 2001). Raises: MeanFieldError with the nearest name."""
    if name not in STEPPERS:
        raise MeanFieldError(f"depth.stepper = {name!r} is unknown: {nearest(name, STEPPERS)}")
    return STEPPERS[name]


def courant_limit(coefficients: FloatArray, method: Stepper) -> float:
    """Largest Courant number at which every Fourier mode of a linear upwind-biased scheme is not amplified.

    Formula: max over k of |P(-c (1 - e^{-ik}) r(k))| <= 1, r(k) the symbol of the reconstruction, P the stability
    polynomial (von Neumann). 0 when no positive number will do.
    Shapes: coefficients (width,), upwind to downwind about the upwind cell.
    """
    width = len(coefficients)
    k = np.linspace(0.0, np.pi, 721)[1:]
    offsets = np.arange(width) - width // 2
    symbol = (np.exp(1j * np.outer(k, offsets)) @ coefficients) * (1.0 - np.exp(-1j * k))

    def amplified(c: float) -> bool:
        growth = np.abs(np.polynomial.polynomial.polyval(-c * symbol, method.polynomial))
        return bool(growth.max() > 1.0 + 1e-12)

    if amplified(0.01):
        return 0.0
    low, high = 0.01, 4.0
    while high - low > 1e-8:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if amplified(middle) else (middle, high)
    return round(low, 6)
