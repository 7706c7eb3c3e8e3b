"""Laws that a stepper of one's own must keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanfield_pde.equations.runge_kutta import Stepper
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.studies.scheme_laws import EXACT, Law

STEPS = 40
MOST_BELOW = 0.15


def own_stepper(name: str, given: Any) -> Stepper:
    """A stepper that is one. Raises: MeanFieldError for another object, or an order that is no integer >= 1."""
    if not isinstance(given, Stepper):
        raise MeanFieldError(
            f"stepper {name!r} is a {type(given).__name__}: give a Stepper(order, rows) of "
            "meanfield_pde.equations.runge_kutta"
        )
    if isinstance(given.order, bool) or not isinstance(given.order, int) or given.order < 1:
        raise MeanFieldError(f"stepper {name!r} has order = {given.order!r}: it must be an integer >= 1")
    return given


def stepper_laws(stepper: Stepper) -> list[Law]:
    """Every law with what was measured.

    Meaning: the weights of a row sum to 1, so that mass is kept; they are >= 0, so that what a forward Euler step keeps
    a step keeps; the stability polynomial is e^z to the order; and the order is that on u' = cos(t) u - u², t <= 1.
    """
    weights = np.concatenate([np.array(row) for row in stepper.rows])
    sums = max(abs(sum(row) - 1.0) for row in stepper.rows)
    coefficients = np.zeros(stepper.order + 1)
    found = stepper.polynomial[: stepper.order + 1]
    coefficients[: len(found)] = found
    factorials = np.cumprod([1.0, *range(1, stepper.order + 1)])
    errors = [abs(_solved(stepper, steps) - _EXACT) for steps in (STEPS, 2 * STEPS)]
    order = float(np.log2(errors[0] / errors[1])) if errors[1] > 0.0 else float("inf")
    return [
        Law("rows sum to 1", float(sums), EXACT),
        Law("weights are >= 0", float(max(0.0, -weights.min())), 0.0),
        Law("stability polynomial is that of its order", float(np.abs(coefficients * factorials - 1.0).max()), EXACT),
        Law("order short of the declared one by", stepper.order - order, MOST_BELOW, f"of order {order:.2f}"),
    ]


def _solved(stepper: Stepper, steps: int) -> float:
    """u(1) of u' = cos(t) u - u², u(0) = 1/2."""
    u, dt = 0.5, 1.0 / steps
    for step in range(steps):
        now, euler = u, []
        for row, node in zip(stepper.rows, stepper.nodes, strict=True):
            rate = np.cos((step + node) * dt) * now - now * now
            euler.append(now + stepper.share * dt * rate)
            now = row[0] * u + sum(weight * one for weight, one in zip(row[1:], euler, strict=True))
        u = float(now)
    return u


def _exact() -> float:
    """1/u = w solves w' = 1 - cos(t) w: w(1) = e^{-sin 1} (2 + ∫ e^{sin t} dt), by Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    integral = float((0.5 * weights * np.exp(np.sin(0.5 * (nodes + 1.0)))).sum())
    return float(1.0 / (np.exp(-np.sin(1.0)) * (2.0 + integral)))


_EXACT = _exact()
