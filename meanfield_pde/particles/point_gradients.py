"""Any token side for heads that are points and move: the gradient of its first variation by differences."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.measure import Measure
from meanfield_pde.model.head_gradients import by_stencil, stencil
from meanfield_pde.model.sides import FirstVariation, TokenSide


@dataclass(frozen=True, slots=True)
class PointGradients:
    """A token side that also gives ∇_theta δL/δrho at the heads, by the central difference of order 6 in theta.

    Meaning: the exact δL/δrho of ``tokens`` is asked for at points beside the heads too, where the weights are 0, so
    that loss and tokens stay what they are. The step of the difference is 6e-3 max(1, |theta_i|).
    """

    tokens: TokenSide

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss, δL/δrho and its gradient at the heads."""
        found = self.tokens.first_variation(tuple(with_stencil(law) for law in rho))
        count = len(rho[0].points)
        gradient = np.stack([
            by_stencil(law.points, row[count:].reshape(-1, count))
            for law, row in zip(rho, found.potential, strict=True)
        ])
        return replace(found, potential=found.potential[:, :count], gradient=gradient)

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The loss alone."""
        return self.tokens.loss(rho)


def with_stencil(law: Measure) -> Measure:
    """Heads with the points of their stencil beside them, of weight 0."""
    beside: FloatArray = stencil(law.points).reshape(-1, law.dim)
    return Measure.particles(np.concatenate([law.points, beside]), np.concatenate([law.weights, np.zeros(len(beside))]))
