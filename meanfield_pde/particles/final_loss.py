"""The loss of the last tokens and its derivative by each of them: what an objective says of particles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import NotFiniteError
from meanfield_pde.model import objective as losses
from meanfield_pde.problem import Feature, Objective, given
from meanfield_pde.problem_particles import check_final_loss


@dataclass(frozen=True, slots=True)
class FinalLoss:
    """A loss of finitely many tokens for every sequence, with one target each (None where the kind has none).

    Raises: MeanFieldError for kinds and features that particles do not have.
    """

    objective: Objective
    targets: FloatArray | None

    def __post_init__(self) -> None:
        check_final_loss(self.objective)

    @property
    def _features(self) -> tuple[Feature, ...]:
        objective = self.objective
        single = objective.kind == "potential"
        return (given(objective.potential, "objective.potential"),) if single else objective.features

    def value_and_gradient(self, x: FloatArray, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss of each sequence and its derivative by each token, tokens (B, n, d) of masses (B, n) → (B,), (B, n, d).

        Raises: NotFiniteError where a feature overflows.
        Formula: ∂ℓ/∂x_i = w_i ∇p_T(x_i), p_T = δℓ/δmu; the variation at a feature's gradient is that gradient of p_T.
        """
        found, gradient = np.empty(len(x)), np.empty(x.shape)
        for b, (points, w) in enumerate(zip(x, masses, strict=True)):
            loss = self._on(points)
            # columns of weight 0 hold the derivatives of the features: they change no integral
            weights = np.concatenate([w, np.zeros(points.size)])[None]
            targets = None if self.targets is None else self.targets[b : b + 1]
            one, variation = loss.value_and_variation(weights, targets)
            found[b] = one[0]
            gradient[b] = w[:, None] * variation[0, len(w) :].reshape(points.shape)
        return found, gradient

    def _on(self, points: FloatArray) -> losses.Objective:
        objective = self.objective
        made = [feature_and_gradient(feature, points) for feature in self._features]
        values = np.stack([np.concatenate([value, slope.ravel()]) for value, slope in made])
        if not np.isfinite(values).all():
            raise NotFiniteError("the features of the last tokens are not finite: the tokens ran away")
        if objective.kind == "potential":
            return losses.Potential(values[0])
        readout = np.array(objective.readout) if objective.readout else np.eye(len(values))
        bias = np.array(objective.bias) if objective.bias else np.zeros(len(readout))
        if objective.kind == "cross-entropy":
            return losses.CrossEntropy(losses.FeatureMap(values), readout, bias)
        values = readout @ values
        # the masses sum to 1, so a constant added to a feature, and not to its derivative, is the bias
        values[:, : len(points)] += bias[:, None]
        return losses.PooledRegression(losses.FeatureMap(values))


def feature_and_gradient(feature: Feature, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A polynomial or a bump at points (n, d), and its gradient there, (n,), (n, d)."""
    slope = np.zeros(points.shape)
    if feature.kind == "polynomial":
        series, along = np.polynomial.Polynomial(feature.coefficients), points[:, feature.axis]
        slope[:, feature.axis] = series.deriv()(along)
        return np.asarray(series(along)), slope
    width = given(feature.width, "objective.features.width")
    offset = (points - np.array(feature.center)) / width
    bump = np.exp(-0.5 * (offset**2).sum(axis=1))
    return bump, -offset / width * bump[:, None]
