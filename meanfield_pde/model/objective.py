"""What a run is asked to make small: losses of the final laws and their first variations on sampled points.

Every integral ∫ f dmu_T is ``values @ weights``, where ``values`` samples the inverse box filter of f at the
points (deconvolved by the caller, who knows the grid). So each variation is the exact derivative of the discrete
loss, which is the raw costate p_T at the points. Losses come one per sequence; whoever trains takes their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError


class Objective(Protocol):
    """A loss of the final law of every sequence."""

    def value_and_variation(self, weights: FloatArray, targets: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        """Loss of each sequence and its derivative by each weight: (B, n) masses → (B,), (B, n)."""
        ...

    def predict(self, weights: FloatArray) -> dict[str, FloatArray]:
        """What the model says about each sequence, by name, one row a sequence; no target needed."""
        ...


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """Features φ sampled at the points, ready to be summed: ∫ φ dmu = values @ weights.

    Shapes: ``values`` (F, n).
    Raises: MeanFieldError unless there is a feature and all values are finite.
    """

    values: FloatArray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise MeanFieldError(f"feature values {self.values.shape} must be (features, points), at least one of each")
        if not np.isfinite(self.values).all():
            raise MeanFieldError("feature values hold NaN or inf; every feature must be finite on the token box")

    def pooled(self, weights: FloatArray) -> FloatArray:
        """∫ φ dmu_b of each sequence: (B, n) → (B, F)."""
        _check_weights(weights, self.values.shape[1])
        # one product of one shape per sequence: the bits of a sequence do not depend on its batch
        return np.stack([self.values @ row for row in weights])

    def pull_back(self, gradient: FloatArray) -> FloatArray:
        """Transpose of ``pooled``: (B, F) → (B, n)."""
        return np.stack([row @ self.values for row in gradient])


@dataclass(frozen=True, slots=True)
class Potential:
    """Potential of the final law, ℓ = ∫ g dmu_T, with δℓ/δmu = g; it takes no targets.

    Shapes: ``values`` (n,), the inverse-filtered g at the points.
    """

    values: FloatArray

    def __post_init__(self) -> None:
        FeatureMap(np.atleast_2d(self.values))

    def value_and_variation(self, weights: FloatArray, targets: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        """ℓ_b = ∫ g dmu_b and g: (B, n) → (B,), (B, n). ``targets`` is not looked at."""
        return self.predict(weights)["features"][:, 0], np.tile(self.values, (len(weights), 1))

    def predict(self, weights: FloatArray) -> dict[str, FloatArray]:
        """``features`` (B, 1): the integral of g."""
        return {"features": FeatureMap(self.values[None, :]).pooled(weights)}


@dataclass(frozen=True, slots=True)
class PooledRegression:
    """Pooled least squares, ℓ = ½ |∫ φ dmu_T − y|², with δℓ/δmu = (∫ φ dmu_T − y)·φ."""

    features: FeatureMap

    def value_and_variation(self, weights: FloatArray, targets: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        """Loss and variation: weights (B, n), targets (B, F), or (B,) when F = 1 → (B,), (B, n).

        Raises: MeanFieldError for targets that are not finite or do not fit.
        """
        pooled = self.features.pooled(weights)
        wanted = _numbers(targets, "regression targets")
        if pooled.shape[1] == 1 and wanted.ndim == 1:
            wanted = wanted[:, None]
        if wanted.shape != pooled.shape:
            raise MeanFieldError(
                f"regression targets have shape {wanted.shape}, {pooled.shape} (sequences, features) is needed: "
                "give every sequence one number per feature"
            )
        residual = pooled - wanted
        return 0.5 * np.sum(residual**2, axis=1), self.features.pull_back(residual)

    def predict(self, weights: FloatArray) -> dict[str, FloatArray]:
        """``features`` (B, F): the pooled features, which are the prediction."""
        return {"features": self.features.pooled(weights)}


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Cross-entropy of a fixed linear readout, z = R ∫ φ dmu_T + c, ℓ = log Σ_k e^{z_k} − z_y.

    Shapes: ``readout`` (C, F), ``bias`` (C,). One row: the classes 0 and 1 with ℓ = log(1 + e^z) − y z;
    C ≥ 2 rows: the classes 0 … C − 1. Variation: (softmax(z) − e_y)ᵀ R φ.
    Raises: MeanFieldError for a readout or a bias that does not fit or is not finite.
    Source: Bishop, Pattern Recognition and Machine Learning (2006), eqs. 4.90 and 4.108.
    """

    features: FeatureMap
    readout: FloatArray
    bias: FloatArray

    def __post_init__(self) -> None:
        count = len(self.features.values)
        if self.readout.ndim != 2 or self.readout.shape[1] != count or not len(self.readout):
            raise MeanFieldError(f"readout {self.readout.shape} must be (classes, {count}), one column per feature")
        if self.bias.shape != self.readout.shape[:1]:
            raise MeanFieldError(f"bias {self.bias.shape} must be ({len(self.readout)},), one number per readout row")
        if not (np.isfinite(self.readout).all() and np.isfinite(self.bias).all()):
            raise MeanFieldError("readout and bias must be finite; remove NaN and inf first")

    @property
    def classes(self) -> int:
        """Number of classes: 2 for one row, else the number of rows."""
        return max(2, len(self.readout))

    def value_and_variation(self, weights: FloatArray, targets: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        """Loss and variation: weights (B, n), labels (B,) → (B,), (B, n).

        Raises: MeanFieldError for labels that are not whole numbers in 0 … classes − 1.
        """
        scores = self._logits(self.features.pooled(weights))
        labels = self._labels(targets, len(scores))
        # the binary case is the softmax over the scores (0, z)
        full = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
        rows = np.arange(len(full))
        losses = _log_sum_exp(full - full[rows, labels][:, None])
        gradient = _softmax(full)
        # minus the other classes rather than p − 1: a sure answer keeps its digits
        gradient[rows, labels] = 0.0
        gradient[rows, labels] = -gradient.sum(axis=1)
        gradient = gradient[:, full.shape[1] - scores.shape[1] :]
        return losses, self.features.pull_back(np.stack([row @ self.readout for row in gradient]))

    def predict(self, weights: FloatArray) -> dict[str, FloatArray]:
        """``features`` (B, F), ``logits`` (B, C) as the readout gives them, ``probabilities`` (B, classes)."""
        pooled = self.features.pooled(weights)
        scores = self._logits(pooled)
        full = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
        return {"features": pooled, "logits": scores, "probabilities": _softmax(full)}

    def _logits(self, pooled: FloatArray) -> FloatArray:
        return np.stack([self.readout @ row for row in pooled]) + self.bias

    def _labels(self, targets: ArrayLike | None, count: int) -> IntArray:
        given = _numbers(targets, "labels")
        if given.shape != (count,):
            raise MeanFieldError(f"labels have shape {given.shape}: give one label for each of the {count} sequences")
        wrong = (given != np.floor(given)) | (given < 0) | (given >= self.classes)
        if wrong.any():
            where = int(np.argmax(wrong))
            raise MeanFieldError(
                f"the label of sequence {where} is {given[where]:g}; allowed: whole numbers from 0 to "
                f"{self.classes - 1} (one readout row means two classes, C rows mean C)"
            )
        return given.astype(np.int64)


@dataclass(frozen=True, slots=True)
class EnergyDistance:
    """Squared energy distance to a target law ν on the same cells, D² = −Σ q_i q_j |x_i − x_j|, q = mu − ν.

    This is 2E|X−Y| − E|X−X'| − E|Y−Y'| with the masses at the cell centres. On one axis it is 2h Σ (F − G)²
    over the faces, where both distribution functions are exact, and so spectrally accurate for smooth laws; for
    d ≥ 2 it is second order in h. Variation: −2 Σ_j |x_i − x_j| q_j.
    Meaning: ``shape`` counts the cells of each axis, ``spacing`` is their width; axes have walls, not rings.
    Raises: MeanFieldError if shape and spacing do not fit.
    Source: Székely and Rizzo, J. Statist. Plann. Inference 143 (2013), 1249, eqs. 2.1 and 2.5.
    """

    shape: tuple[int, ...]
    spacing: tuple[float, ...]

    def __post_init__(self) -> None:
        positive = min(self.shape, default=0) >= 1 and all(0 < h < np.inf for h in self.spacing)
        if len(self.shape) != len(self.spacing) or not positive:
            raise MeanFieldError(f"shape {self.shape} and spacing {self.spacing} need one positive entry per axis each")

    def value_and_variation(self, weights: FloatArray, targets: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        """Loss and variation: weights (B, n), target masses (B, n), or (n,) for all → (B,), (B, n).

        Raises: MeanFieldError for target masses that are not finite or do not fit.
        """
        _check_weights(weights, prod(self.shape))
        wanted = _numbers(targets, "target masses")
        if wanted.shape not in (weights.shape, weights.shape[1:]):
            raise MeanFieldError(
                f"target masses have shape {wanted.shape}, {weights.shape} (sequences, cells) is needed: "
                "give the target law on the cells of the tokens"
            )
        difference = weights - wanted
        spread = self._mean_distance(difference)
        return -np.sum(difference * spread, axis=1), -2.0 * spread

    def predict(self, weights: FloatArray) -> dict[str, FloatArray]:
        """Nothing: the final law itself is the prediction."""
        _check_weights(weights, prod(self.shape))
        return {}

    def _mean_distance(self, q: FloatArray) -> FloatArray:
        """Σ_j |x_i − x_j| q_j for each row of q."""
        if len(self.shape) == 1:
            left = np.cumsum(np.cumsum(q, axis=1), axis=1)[:, :-1]
            right = np.cumsum(np.cumsum(q[:, ::-1], axis=1), axis=1)[:, :-1]
            out = np.zeros_like(q)
            out[:, 1:] += left
            out[:, :-1] += right[:, ::-1]
            return out * self.spacing[0]
        from scipy.signal import fftconvolve  # imported late: one axis does not need it

        steps = [h * np.arange(1 - n, n) for n, h in zip(self.shape, self.spacing, strict=True)]
        kernel = np.sqrt(sum(np.square(x) for x in np.meshgrid(*steps, indexing="ij", sparse=True)))
        inner = tuple(slice(n - 1, 2 * n - 1) for n in self.shape)
        return np.stack([fftconvolve(row.reshape(self.shape), kernel)[inner].ravel() for row in q])


def deconvolved_polynomial(coefficients: Sequence[float] | FloatArray, h: float) -> FloatArray:
    """Ascending coefficients of the polynomial f̃ whose mean over every interval of length h is f at its centre.

    f̃ = f − h²/24 f'' + 7h⁴/5760 f'''' − … exactly, for any degree: the mean of y^m over the interval is
    Σ_k C(m, 2k) x^{m−2k} (h/2)^{2k}/(2k+1), a triangular system that is solved from the top.
    Shapes: ``coefficients`` (m + 1,) → (m + 1,). Raises: MeanFieldError for coefficients or h that are not finite.
    """
    out = _numbers(coefficients, "polynomial coefficients").copy()
    if out.ndim != 1 or not np.isfinite(h):
        raise MeanFieldError(f"a polynomial needs a flat list of coefficients and a finite width, not h = {h}")
    for power in range(len(out) - 3, -1, -1):
        for k in range(1, (len(out) - 1 - power) // 2 + 1):
            above = power + 2 * k
            out[power] -= comb(above, 2 * k) * (0.5 * h) ** (2 * k) / (2 * k + 1) * out[above]
    return out


def _check_weights(weights: FloatArray, points: int) -> None:
    if weights.ndim != 2 or weights.shape[1] != points:
        raise MeanFieldError(f"weights {weights.shape} must be (sequences, {points}), one mass per point")


def _numbers(given: ArrayLike | None, name: str) -> FloatArray:
    if given is None:
        raise MeanFieldError(f"{name} are missing: give every sequence its target")
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as fault:
        raise MeanFieldError(f"{name} must be numbers, the same count for every sequence ({fault})") from fault
    if not np.isfinite(values).all():
        raise MeanFieldError(f"{name} hold NaN or inf; every target must be finite")
    return values


def _log_sum_exp(z: FloatArray) -> FloatArray:
    rows, first = np.arange(len(z)), z.argmax(axis=1)
    top = z[rows, first]
    rest = np.exp(z - top[:, None])
    rest[rows, first] = 0.0
    return np.asarray(top + np.log1p(rest.sum(axis=1)))


def _softmax(z: FloatArray) -> FloatArray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))
