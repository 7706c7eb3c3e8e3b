"""A token side without tokens: a given potential with quadratic interaction, for Fokker–Planck problems alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, TokenReport


@dataclass(frozen=True, slots=True)
class GivenPotential:
    """L(rho) = ∫ V drho + (kappa/4) ∬ |theta - theta'|² drho drho, so δL/δrho = V + (kappa/2) ∫ |theta - theta'|² drho.

    Shapes: ``values`` (K,), V at the head points. ``interaction`` is kappa.
    """

    values: FloatArray
    interaction: float

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss and potential of one law."""
        (law,) = rho
        loss = float(law.weights @ self.values)
        potential = self.values
        if self.interaction:
            square = (law.points**2).sum(axis=1)
            mean, second, mass = law.weights @ law.points, law.weights @ square, law.mass
            potential = potential + 0.5 * self.interaction * (mass * square - 2.0 * law.points @ mean + second)
            loss += 0.5 * self.interaction * float(mass * second - mean @ mean)
        return FirstVariation(loss, np.asarray(potential)[None], TokenReport())

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The loss alone."""
        return self.first_variation(rho).loss
