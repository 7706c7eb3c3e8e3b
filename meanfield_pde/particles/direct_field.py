"""Softmax attention of many heads at the tokens themselves by direct sums, with its exact transpose, memory O(N)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.token_means_transpose import token_means_transpose
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.head_cotangents import HeadCotangents
from meanfield_pde.particles.velocity import attention_velocity


@dataclass(frozen=True, slots=True, eq=False)
class DirectField:
    """V = Σ_k rho_k W_k m(A_k x) at the tokens.

    Meaning: heads that share a score matrix are summed first; derivatives by A are there where each has its own.
    """

    heads: HeadMatrices
    weights: FloatArray

    def zeros(self) -> FloatArray:
        """A cotangent of the heads to add to: Σ g mᵀ, and the cotangent of the scores, for each A."""
        return np.zeros((2, *self.heads.scores.shape))

    def velocity(self, x: FloatArray, masses: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...], float]:
        """V at tokens x (B, n, d), nothing to keep, and no error of a table."""
        sums = [attention_velocity("softmax", self.heads, self.weights, one, w, one)
                for one, w in zip(x, masses, strict=True)]  # fmt: skip
        return np.stack(sums), (), 0.0

    def back(
        self, x: FloatArray, masses: FloatArray, saved: tuple[FloatArray, ...], g: FloatArray, total: FloatArray
    ) -> FloatArray:
        """Cotangents g (B, n, d) of V carried to the tokens; those of the heads are added to ``total``."""
        mean_values, out = self.heads.mean_values(self.weights), np.zeros(x.shape)
        means, to_keys = np.empty(x.shape[1:]), np.empty(x.shape[1:])
        for b in range(len(x)):
            points_t, to_points = np.ascontiguousarray(x[b].T), np.zeros(x.shape[:0:-1])
            for k, (score, value) in enumerate(zip(self.heads.scores, mean_values, strict=True)):
                keys, pull = np.ascontiguousarray(x[b] @ score.T), np.ascontiguousarray(g[b] @ value)
                token_means_transpose(keys, points_t, masses[b], pull, means, to_keys, to_points)
                total[0, k] += g[b].T @ means
                total[1, k] += to_keys.T @ x[b]
                out[b] += to_keys @ score
            out[b] += to_points.T
        return out

    def to_heads(self, total: FloatArray) -> HeadCotangents:
        """What the sum of all cotangents says about each head; by A it is that of the head's whole share, over it.

        Meaning: heads that share their A with others, or weigh nothing, have NaN by A.
        """
        index = self.heads.index
        values = total[0, index]
        alone = (np.bincount(index)[index] == 1) & (self.weights != 0.0)
        share = np.where(alone, self.weights, np.nan)[:, None, None]
        return HeadCotangents(self.heads.contract(total[0]), total[1, index] / share, values)
