"""A token side without tokens: a given potential with interactions of two heads, for Fokker–Planck problems alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.problem import Potential


@dataclass(frozen=True, slots=True)
class GivenPotential:
    """A potential V, attraction to the mean, and attraction of angles.

    Formula: L = ∫ V + (kappa/4) ∬ |theta − theta'|² − (K/2) Σ over rings ∬ cos(theta − theta') under rho and rho × rho,
    δL/δrho = V + (kappa/2) ∫ |theta − theta'|² drho − K Σ over rings ∫ cos(theta − theta') drho.
    Shapes: ``values`` (K,), V at the head points. ``interaction`` is kappa, ``cosine`` K, ``rings`` the axes of angles.
    Source: Desai and Zwanzig 1978; Sakaguchi 1988 (the noisy Kuramoto model of equal oscillators).
    """

    values: FloatArray
    interaction: float = 0.0
    cosine: float = 0.0
    rings: tuple[int, ...] = ()

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
        for axis in self.rings if self.cosine else ():
            cos, sin = np.cos(law.points[:, axis]), np.sin(law.points[:, axis])
            along, across = float(law.weights @ cos), float(law.weights @ sin)
            potential = potential - self.cosine * (along * cos + across * sin)
            loss -= 0.5 * self.cosine * (along**2 + across**2)
        return FirstVariation(loss, np.asarray(potential)[None], TokenReport())

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The loss alone."""
        return self.first_variation(rho).loss


def given_potential(potential: Potential, grid: Grid, points: FloatArray) -> GivenPotential:
    """The potential of a problem at the head points (K, dim): polynomials of each axis, harmonics of each ring."""
    values = np.zeros(len(points))
    for axis, coefficients in enumerate(potential.coefficients):
        values += np.polynomial.polynomial.polyval(points[:, axis], coefficients)
    for axis, pairs in enumerate(potential.harmonics):
        angle = 2.0 * np.pi * points[:, axis] / (grid.upper[axis] - grid.lower[axis])
        for k, (a, b) in enumerate(pairs, start=1):
            values += a * np.cos(k * angle) + b * np.sin(k * angle)
    rings = tuple(axis for axis, ring in enumerate(grid.periodic) if ring)
    return GivenPotential(values, potential.interaction, potential.cosine, rings)
