"""A motion of tokens: a model carried by an integrator in layers, as it is or wrong in one way."""

from __future__ import annotations

from dataclasses import dataclass

from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import OF_HEADS, Alternative, altered, carry_altered
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.particles.tokens import ParticleTokens, Trajectory, carry
from meanfield_pde.problem_particles import RENORMALISED


@dataclass(frozen=True, slots=True)
class Motion:
    """How tokens move: the right way, or that of an ``alternative``."""

    model: ParticleTokens
    integrator: str
    layers: int
    alternative: Alternative | None = None

    @property
    def heads(self) -> ParticleTokens:
        """The model with the heads that act: those of the alternative where it is one of other heads."""
        if self.alternative is None or self.alternative.name not in OF_HEADS:
            return self.model
        return altered(self.model, self.alternative)

    @property
    def stages(self) -> int:
        """Velocities in a layer."""
        return 1 if self.integrator in RENORMALISED else len(METHODS[self.integrator].b)

    def run(self, start: Measure, T: float, times: tuple[float, ...]) -> Trajectory:
        """Tokens carried from depth 0 through layers of length T/layers, kept at layer edges."""
        if self.alternative is None:
            return carry(self.model, start, T, self.layers, self.integrator, times)
        return carry_altered(self.model, start, T, self.layers, self.integrator, times, self.alternative)
