"""What an attention offers once the heads and the evaluation points are fixed: a map and its exact transposes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from meanfield_pde.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Target:
    """Where one component of the velocity is wanted: ``points`` (n, d), ``component`` in 0..d-1.

    Meaning: ``axes`` are the d factors when the points are a product of axes in C order, else empty. On the circle
    points are angles (n, 1) and the one component is the angular velocity.
    """

    points: FloatArray
    component: int
    axes: tuple[FloatArray, ...] = ()


class AssembledField(Protocol):
    """The velocity V_{rho,mu} at fixed targets for fixed heads, as a function of batches of token weights.

    Shapes: weights (B, n) >= 0 masses; moments (B, ...) what the field needs of them, made once a stage;
    velocities and cotangents one array (B, n_target) per target; to_mu (B, n); to_rho (K,) summed over the batch.
    """

    def moments(self, weights: FloatArray) -> FloatArray:
        """Everything the velocity and its transposes need of the token laws."""
        ...

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """Velocity component at each target."""
        ...

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Derivative of sum <cotangent, velocity> in the weights of occupied cells."""
        ...

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Derivative of sum <cotangent, velocity>, summed over the batch, in the weight of each head."""
        ...


class MeansTable(Protocol):
    """Softmax means of token laws at fixed nodes, which fields interpolate between.

    Shapes: weights (B, n) >= 0; moments (B, d + 2, Q) of Q nodes.
    """

    def moments(self, weights: FloatArray) -> FloatArray:
        """Means, 1/Z and Λ at the nodes."""
        ...

    def error(self, weights: FloatArray, moments: FloatArray) -> float:
        """Largest relative error between the nodes over a batch, of the means and of their first variation."""
        ...


@dataclass(frozen=True, slots=True)
class PrescribedField:
    """A velocity that does not look at the tokens: for trying a scheme alone.

    Shapes: ``given`` one array a target, in any shape that flattens to (n_target,).
    Meaning: ``still`` says that it is 0 everywhere.
    """

    given: tuple[FloatArray, ...]
    still: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "still", not any(v.any() for v in self.given))

    def moments(self, weights: FloatArray) -> FloatArray:
        """The weights, unused."""
        return weights

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """The given velocity for every law."""
        return tuple(np.tile(v.ravel(), (len(moments), 1)) for v in self.given)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """0: nothing depends on the token weights."""
        return np.zeros_like(moments)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """0, as for one head that does nothing."""
        return np.zeros(1)
