"""Strong-stability-preserving Runge–Kutta steppers as data: convex combinations of forward Euler steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.polynomial import Polynomial

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest


@dataclass(frozen=True, slots=True)
class Stepper:
    """e_i = u_i + share dt L(u_i), u_{i+1} = row_0 u_0 + sum_j row_{j+1} e_j, i = 0..stages - 1 (Shu & Osher 1988).

    Shapes: ``rows`` one a stage, row i of i + 2 weights >= 0 that sum to 1.
    Meaning: ``nodes`` say where in the step each stage is evaluated, as a share of dt (what a step makes of u' = 1);
    ``recalled`` are the stages whose e a row behind the next one looks at.
    Raises: MeanFieldError for rows of the wrong length, or a share that is not in (0, 1].
    """

    order: int
    rows: tuple[tuple[float, ...], ...]
    share: float = 1.0
    nodes: tuple[float, ...] = field(init=False)
    recalled: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        if not (self.rows and 0.0 < self.share <= 1.0):
            raise MeanFieldError(f"a stepper needs rows, and a share in (0, 1]: {len(self.rows)} rows, {self.share:g}")
        for i, row in enumerate(self.rows):
            if len(row) != i + 2:
                raise MeanFieldError(f"row {i} of a stepper has {len(row)} weights: row i has i + 2")
        nodes = [0.0]
        for row in self.rows[:-1]:
            nodes.append(sum(weight * (node + self.share) for weight, node in zip(row[1:], nodes, strict=True)))
        object.__setattr__(self, "nodes", tuple(nodes))
        seen = {j for i, row in enumerate(self.rows) for j, weight in enumerate(row[1:-1]) if weight and j < i}
        object.__setattr__(self, "recalled", frozenset(seen))

    @property
    def stages(self) -> int:
        """Evaluations of the rate a step."""
        return len(self.rows)

    @property
    def polynomial(self) -> FloatArray:
        """Coefficients of the stability function, ascending: what a step makes of u' = z u."""
        now, euler = Polynomial([1.0]), []
        for row in self.rows:
            euler.append(now * Polynomial([1.0, self.share]))
            now = sum((weight * one for weight, one in zip(row[1:], euler, strict=True)), Polynomial([row[0]]))
        return np.asarray(now.coef)


@dataclass(slots=True)
class RowsTransposed:
    """The rows of a stepper on the way back: cotangents of u_{i+1} in, of e_i out, the last stage first.

    Meaning: ``start`` gathers what falls to u_0 itself.
    """

    stepper: Stepper
    start: FloatArray
    recalled: dict[int, FloatArray] = field(default_factory=dict)

    def euler(self, stage: int, ahead: FloatArray) -> FloatArray:
        """The cotangent of e_i, from that of u_{i+1} and those of later rows."""
        row = self.stepper.rows[stage]
        if row[0]:
            self.start += row[0] * ahead
        for j in self.stepper.recalled:
            if j < stage and row[j + 1]:
                self.recalled[j] = self.recalled.get(j, 0.0) + row[j + 1] * ahead
        out = ahead if row[-1] == 1.0 else row[-1] * ahead
        return out + self.recalled[stage] if stage in self.recalled else out


def _simple(*bases: float) -> tuple[tuple[float, ...], ...]:
    """Rows u_{i+1} = base_i u_0 + (1 - base_i) e_i."""
    return tuple((base, *(0.0,) * i, 1.0 - base) for i, base in enumerate(bases))


STEPPERS = {
    "ssprk1": Stepper(1, _simple(0.0)),
    "ssprk2": Stepper(2, _simple(0.0, 0.5)),
    "ssprk3": Stepper(3, _simple(0.0, 0.75, 1.0 / 3.0)),
    # Ketcheson (2008), figure 6.1
    "ssprk104": Stepper(
        4,
        (*_simple(0.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0), (0.04, *(0.0,) * 4, 0.36, *(0.0,) * 4, 0.6)),
        share=1.0 / 6.0,
    ),
}


def stepper(name: str) -> Stepper:
    """The stepper of that name. Raises: MeanFieldError with the nearest name.

    Source: Gottlieb, Shu & Tadmor (2001); Ketcheson (2008).
    """
    if name not in STEPPERS:
        raise MeanFieldError(f"depth.stepper = {name!r} is unknown: {nearest(name, STEPPERS)}")
    return STEPPERS[name]


@cache
def courant_limit(coefficients: tuple[float, ...], method: Stepper) -> float:
    """Largest Courant number at which every Fourier mode of a linear upwind-biased scheme is not amplified.

    Formula: max over k of |P(-c (1 - e^{-ik}) r(k))| <= 1, r(k) the symbol of the reconstruction, P the stability
    polynomial (von Neumann). 0 when no positive number will do.
    Shapes: coefficients (width,), upwind to downwind about the upwind cell.
    """
    width = len(coefficients)
    k = np.linspace(0.0, np.pi, 721)[1:]
    offsets = np.arange(width) - width // 2
    symbol = (np.exp(1j * np.outer(k, offsets)) @ np.array(coefficients)) * (1.0 - np.exp(-1j * k))

    polynomial = method.polynomial

    def amplified(c: float) -> bool:
        growth = np.abs(np.polynomial.polynomial.polyval(-c * symbol, polynomial))
        return bool(growth.max() > 1.0 + 1e-12)

    if amplified(0.01):
        return 0.0
    low, high = 0.01, 4.0 * method.stages
    while high - low > 1e-8:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if amplified(middle) else (middle, high)
    return round(low, 6)
