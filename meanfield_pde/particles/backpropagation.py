"""Tokens carried through layers by softmax attention, and a loss of the last ones carried back exactly.

The transpose of a Runge-Kutta step x' = x + dt Σ b_i k_i, k_i = V(X_i), X_i = x + dt Σ_j a_ij k_j is, for i = s, .., 1,
k̄_i = dt b_i x̄' + dt Σ_{j>i} a_ji X̄_j, X̄_i = V'(X_i)ᵀ k̄_i, and x̄ = x̄' + Σ X̄_i: the derivative of the very steps taken.
Source: Hager (2000), Runge-Kutta methods in optimal control and the transformed adjoint system, Theorem 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import NotFiniteError
from meanfield_pde.particles.head_cotangents import HeadCotangents
from meanfield_pde.particles.integrators import Rate, RungeKutta


class TokenField(Protocol):
    """V of fixed heads at the tokens themselves, (B, n, d) with masses (B, n), and its transpose."""

    def zeros(self) -> FloatArray:
        """A cotangent of the heads to add to."""
        ...

    def velocity(self, x: FloatArray, masses: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...], float]:
        """V, what `back` needs of it, and the error of a table."""
        ...

    def back(
        self, x: FloatArray, masses: FloatArray, saved: tuple[FloatArray, ...], g: FloatArray, total: FloatArray
    ) -> FloatArray:
        """Cotangents of V carried to the tokens; those of the heads are added to ``total``."""
        ...

    def to_heads(self, total: FloatArray) -> HeadCotangents:
        """What the sum of all cotangents says about each head."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Equal layers of depth T, each one step of a Runge-Kutta method; V also drifts by ``constant`` − ``leak`` x.

    Meaning: a field holds for an equal share of the layers.
    """

    T: float
    count: int
    method: RungeKutta
    constant: FloatArray
    leak: float

    @property
    def edges(self) -> FloatArray:
        """Depths between the layers, (count + 1,)."""
        return np.array([self.T * k / self.count for k in range(self.count + 1)])

    def length(self, layer: int) -> float:
        """Depth of a layer, from its edges, so that steps do not add up rounding."""
        return self.T * (layer + 1) / self.count - self.T * layer / self.count


class Stage(NamedTuple):
    """Tokens at a stage and what the way back needs of their velocity."""

    x: FloatArray
    saved: tuple[FloatArray, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Tokens at the layer edges (layers + 1, B, n, d), all stages on the way, and the largest error of a table."""

    nodes: FloatArray
    stages: tuple[tuple[Stage, ...], ...]
    error: float


def carry(
    fields: Sequence[TokenField], layers: Layers, x: FloatArray, masses: FloatArray, tolerance: float
) -> Path | None:
    """Tokens x (B, n, d) through all layers; None once the error of a table is beyond ``tolerance``.

    Raises: NotFiniteError when tokens run away.
    """
    nodes, steps, worst = [x], [], 0.0
    for layer in range(layers.count):
        field, stages = fields[layer * len(fields) // layers.count], list[Stage]()
        errors: list[float] = []
        rate = _recorded(field, layers, masses, tolerance, f"layer {layer + 1} of {layers.count}", stages, errors)
        x = layers.method.step(rate, x, 0.0, layers.length(layer))
        if not errors[-1] <= tolerance:
            return None
        worst = max(worst, *errors)
        nodes.append(x)
        steps.append(tuple(stages))
    if not np.isfinite(x).all():
        raise NotFiniteError(f"tokens are not finite after layer {layers.count} of {layers.count}")
    return Path(np.stack(nodes), tuple(steps), worst)


def _recorded(
    field: TokenField,
    layers: Layers,
    masses: FloatArray,
    tolerance: float,
    where: str,
    stages: list[Stage],
    errors: list[float],
) -> Rate:
    """The rate of tokens, which leaves what the way back needs in ``stages`` and the errors of tables in ``errors``."""

    def rate(x: FloatArray, t: float) -> FloatArray:
        if errors and not errors[-1] <= tolerance:
            return np.zeros(x.shape)  # a step that is given up
        if not np.isfinite(x).all():
            raise NotFiniteError(f"tokens are not finite in {where}")
        velocity, saved, error = field.velocity(x, masses)
        stages.append(Stage(x, saved))
        errors.append(error)
        if layers.leak or layers.constant.any():
            velocity = velocity + (layers.constant - layers.leak * x)
        return velocity

    return rate


def carry_back(
    fields: Sequence[TokenField], layers: Layers, path: Path, masses: FloatArray, g: FloatArray
) -> tuple[FloatArray, tuple[HeadCotangents, ...]]:
    """Derivatives g (B, n, d) by the last tokens carried back to the first tokens, and what they say about the heads.

    Meaning: the cotangents of the heads are those of each field, by weight ∂L/∂rho of the layers that it holds for.
    """
    totals = [field.zeros() for field in fields]
    a, b = layers.method.a, layers.method.b
    for layer in reversed(range(layers.count)):
        part, dt = layer * len(fields) // layers.count, layers.length(layer)
        pulled: dict[int, FloatArray] = {}
        for i in reversed(range(len(b))):
            slope = dt * b[i] * g
            for j, back in pulled.items():
                if a[j][i]:
                    slope = slope + dt * a[j][i] * back
            stage = path.stages[layer][i]
            pulled[i] = fields[part].back(stage.x, masses, stage.saved, slope, totals[part])
            if layers.leak:
                pulled[i] = pulled[i] - layers.leak * slope
        for i in range(len(b)):
            g = g + pulled[i]
    return g, tuple(field.to_heads(total) for field, total in zip(fields, totals, strict=True))
