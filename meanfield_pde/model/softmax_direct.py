"""Softmax attention by direct summation: v(x, theta; mu) = W m(A x), m(z) = ∇ log ∫ e^{<z,y>} mu(dy)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.softmax import softmax_means, softmax_to_points, softmax_to_weights
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices


@dataclass(frozen=True, slots=True)
class SoftmaxSums:
    """Direct softmax means of one measure: points (n, d), weights (n,), cell widths (d,)."""

    points: FloatArray
    weights: FloatArray
    widths: FloatArray

    def __post_init__(self) -> None:
        if not (self.weights > 0).any():
            raise MeanFieldError("softmax of a measure without mass: give at least one positive weight")

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Points by coordinate, weights, the mask (0 occupied, -inf empty) and widths, as the kernels want them."""
        mask = np.where(self.weights > 0, 0.0, -np.inf)
        return np.ascontiguousarray(self.points.T), np.maximum(self.weights, 0.0), mask, self.widths

    def means(self, keys: FloatArray) -> tuple[FloatArray, FloatArray]:
        """m(z) and log ∫ e^{<z,y>} (sum over cells) at keys (K, d): shapes (K, d), (K,)."""
        out, log_z = np.empty_like(keys), np.empty(len(keys))
        softmax_means(keys, *self.arrays, out, log_z)
        return out, log_z

    def to_weights(self, keys: FloatArray, g: FloatArray) -> FloatArray:
        """Derivative of sum <g, m(keys)> in the weights, shape (n,); 0 where there is no mass."""
        out = np.zeros(len(self.weights))
        softmax_to_weights(keys, *self.arrays, *self.means(keys), g, out)
        return out

    def to_points(self, keys: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Derivatives of sum <g, m(keys)> in the keys (K, d) and in the points (n, d)."""
        key_out, point_out = np.empty_like(keys), np.zeros_like(self.points)
        softmax_to_points(keys, *self.arrays, *self.means(keys), g, key_out, point_out)
        return key_out, point_out


@dataclass(frozen=True, slots=True)
class DirectField:
    """The assembled field by direct summation, for any measure and dimension; each distinct A is scored once.

    Meaning: ``heads`` and their ``weights`` (K,), the ``targets``, and the ``points`` (n, d) and ``widths`` (d,)
    of the token measures whose weights arrive in batches. ``keys`` A x and the ``rows`` of mean values that make the
    wanted component are made once per target. `moments` is the weights themselves.
    Cost: n · n_target · n_A exponentials a law.
    """

    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    points: FloatArray
    widths: FloatArray
    keys: tuple[FloatArray, ...] = field(init=False, repr=False)
    rows: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = self.heads.mean_values(self.weights)
        keys = [
            np.einsum("aij,xj->axi", self.heads.scores, t.points).reshape(-1, t.points.shape[1]) for t in self.targets
        ]
        object.__setattr__(self, "keys", tuple(np.ascontiguousarray(k) for k in keys))
        object.__setattr__(self, "rows", tuple(values[:, t.component, :] for t in self.targets))

    def moments(self, weights: FloatArray) -> FloatArray:
        """The weights themselves, (B, n)."""
        return weights

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """V(x)_c = sum_A (W̄_A m(A x))_c, W̄_A the mean of W over the heads of score A; shape (B, n_target) each."""
        out = []
        for target, keys, rows in zip(self.targets, self.keys, self.rows, strict=True):
            values = np.empty((len(moments), len(target.points)))
            for law, weights in enumerate(moments):
                mean = SoftmaxSums(self.points, weights, self.widths).means(keys)[0]
                mean = mean.reshape(len(rows), len(target.points), -1)
                values[law] = np.einsum("ai,axi->x", rows, mean)
            out.append(values)
        return tuple(out)

    @staticmethod
    def _key_cotangents(rows: FloatArray, g: FloatArray) -> FloatArray:
        both = rows[:, None, :] * g[None, :, None]
        return np.ascontiguousarray(both.reshape(-1, both.shape[-1]))

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the token weights, (B, n)."""
        out = np.zeros_like(moments)
        for keys, rows, g in zip(self.keys, self.rows, cotangents, strict=True):
            for law, weights in enumerate(moments):
                sums = SoftmaxSums(self.points, weights, self.widths)
                out[law] += sums.to_weights(keys, self._key_cotangents(rows, g[law]))
        return out

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the head weights, (K,): <W_k, sum_x g(x) e_c ⊗ m(A_k x)>."""
        dim = self.points.shape[1]
        gradient = np.zeros((len(self.heads.scores), dim, dim))
        for target, keys, g in zip(self.targets, self.keys, cotangents, strict=True):
            for law, weights in enumerate(moments):
                mean = SoftmaxSums(self.points, weights, self.widths).means(keys)[0]
                mean = mean.reshape(len(self.heads.scores), len(target.points), dim)
                gradient[:, target.component, :] += np.einsum("x,axi->ai", g[law], mean)
        return self.heads.contract(gradient)

    def to_points(
        self, cotangents: tuple[FloatArray, ...], moments: FloatArray
    ) -> tuple[tuple[FloatArray, ...], FloatArray]:
        """Transposes in the evaluation points, (B, n_target, d) each, and in the token points, (B, n, d)."""
        token_out = np.zeros((len(moments), *self.points.shape))
        target_out = []
        for target, keys, rows, g in zip(self.targets, self.keys, self.rows, cotangents, strict=True):
            moved = np.empty((len(moments), *target.points.shape))
            for law, weights in enumerate(moments):
                sums = SoftmaxSums(self.points, weights, self.widths)
                key_out, point_out = sums.to_points(keys, self._key_cotangents(rows, g[law]))
                token_out[law] += point_out
                shaped = key_out.reshape(len(self.heads.scores), len(target.points), -1)
                moved[law] = np.einsum("aij,axi->xj", self.heads.scores, shaped)
            target_out.append(moved)
        return tuple(target_out), token_out
