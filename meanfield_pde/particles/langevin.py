"""Heads as points that move by noisy gradient descent: H heads in place of their law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, Flow, Moved
from meanfield_pde.particles.sampling import wrapped

# the key of the generator has two words of so many bits: the seed and the step
WORD = 64


@dataclass(frozen=True, slots=True)
class LangevinHeads:
    """H heads of weight 1/H a layer, each moving down ∇psi with noise.

    Formula: theta ← theta − ds ∇psi(theta) + sqrt(2 beta ds) xi, xi normal, psi = δL/δrho + (weight_decay/2)|theta|²,
    where |theta|² leaves out periodic axes.
    Meaning: ``box`` says which axes are rings; its walls are not felt. ``layer_lengths`` is (1.0,) when heads are
    shared over depth. The numbers xi of a step are those of a counter-based generator with the key (``seed``, step), in
    the order of rho: they depend on nothing else, so a run that goes on has no state of a generator to keep.
    Raises: MeanFieldError for beta or weight_decay below 0 or a seed beyond 64 bits.
    Source: Mei, Montanari & Nguyen (2018), noisy SGD; Salmon et al. (2011) for the generator, Philox.
    """

    box: Grid
    beta: float
    weight_decay: float = 0.0
    layer_lengths: tuple[float, ...] = (1.0,)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("beta", "weight_decay"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0.0):
                raise MeanFieldError(f"{name} = {value} must be finite and >= 0")
        if not 0 <= self.seed < 2**WORD:
            raise MeanFieldError(f"seed = {self.seed} must be >= 0 and below 2^{WORD} for the noise of particle heads")

    def flows_at(self, step: int) -> Mapping[str, Flow]:
        """The one flow, drift and noise at once, with the noise of the step after ``step`` of them."""

        def gibbs(rho: FloatArray, force: FloatArray, ds: float, order: int) -> Moved:
            down = force + self.weight_decay * np.where(self.box.periodic, 0.0, rho)
            moved = rho - ds * down + sqrt(2.0 * self.beta * ds) * self.noise(step, rho)
            return Moved(wrapped(moved, self.box), 0.0)

        return {"gibbs": gibbs}

    def noise(self, step: int, rho: FloatArray) -> FloatArray:
        """Normal numbers in the shape of rho for one step; 0 where nothing is noisy."""
        if self.beta == 0.0:
            return np.zeros(rho.shape)
        key = np.array([self.seed, step], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key)).standard_normal(rho.shape)

    def measure(self, rho: FloatArray) -> tuple[Measure, ...]:
        """The heads of each layer."""
        return tuple(Measure.particles(layer) for layer in rho)

    def driving(self, variation: FirstVariation) -> FloatArray:
        """∇δL/δrho at every head, (layers, H, q); the flow knows theta, so it adds the weight decay.

        Raises: MeanFieldError for tokens that give no gradient at the heads.
        """
        if variation.gradient is None:
            raise MeanFieldError("the tokens give no gradient at the heads: build them for heads that move")
        return variation.gradient

    def decay(self, rho: FloatArray) -> float:
        """The mean over heads of (weight_decay/2)|theta|², layers weighed by their lengths."""
        sizes = (rho[:, :, ~np.array(self.box.periodic)] ** 2).sum(axis=2).mean(axis=1)
        return float(0.5 * self.weight_decay * np.dot(self.layer_lengths, sizes))

    def regularisation(self, rho: FloatArray) -> float | None:
        """None: points have no entropy; `decay` is the rest."""
        return None

    def slope(self, rho: FloatArray, psi: FloatArray) -> float:
        """NaN: ∇log rho of points is not known."""
        return nan

    def distance(self, a: FloatArray, b: FloatArray) -> float:
        """NaN: a step has no other order to be compared with."""
        return nan

    def energy_change(self, a: FloatArray, b: FloatArray, psi: FloatArray) -> float:
        """NaN, as the free energy."""
        return nan
