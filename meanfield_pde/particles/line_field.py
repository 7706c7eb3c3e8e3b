"""Softmax attention of many heads for tokens on a line by a table, with its exact transpose: cost O(N) a stage.

With L the farthest token and A the largest |a|, V(L u) = Σ_k rho_k w_k m(ã_k A L u), ã_k = a_k/A. Interpolating m on
keys A L u_q by Chebyshev polynomials makes V a Chebyshev sum with coefficients G m, G = I B I, where I takes values
at the nodes to coefficients and B_rq = Σ_k rho_k w_k T_q(ã_k u_r). G holds for all layers, sequences and L.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.line_tokens import line_tokens, line_tokens_transpose
from meanfield_pde.kernels.line_velocity import CHECK_KEYS
from meanfield_pde.kernels.log_laplace import chebyshev_sum, chebyshev_sum_transpose
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.softmax_cost import chebyshev_size
from meanfield_pde.model.softmax_table import SIZES
from meanfield_pde.particles.head_cotangents import HeadCotangents

# keys and tokens reach at least so far: derivatives are not taken over intervals of nearly no length
LEAST = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class LineField:
    """V of heads of given weights at the tokens themselves.

    Shapes: unit (q + 13,) nodes and keys to check at on [-1, 1]; interpolation and mixture G (q, q); rows (13, q).
    """

    heads: HeadMatrices
    reach: float
    unit: FloatArray
    interpolation: FloatArray
    rows: FloatArray
    mixture: FloatArray

    @classmethod
    def build(cls, heads: HeadMatrices, weights: FloatArray, size: int) -> LineField:
        """The field with ``size`` nodes for heads of weights (K,)."""
        scores = heads.scores[:, 0, 0]
        reach = max(float(np.abs(scores).max()), LEAST)
        angle = np.pi * (np.arange(size) + 0.5) / size
        nodes = np.cos(angle)
        interpolation = 2.0 / size * np.cos(np.arange(size)[:, None] * angle[None, :])
        interpolation[0] *= 0.5
        rows = chebyshev.chebvander(CHECK_KEYS, size - 1) @ interpolation
        basis = np.empty((size, size))
        chebyshev_sum(nodes, scores / reach, heads.mean_values(weights)[:, 0, 0], basis)
        mixture = interpolation @ basis.T @ interpolation
        return cls(heads, reach, np.concatenate([nodes, CHECK_KEYS]), interpolation, rows, mixture)

    @property
    def size(self) -> int:
        """Nodes of the table."""
        return len(self.mixture)

    def zeros(self) -> FloatArray:
        """A cotangent of the heads to add to."""
        return np.zeros_like(self.mixture)

    def velocity(self, x: FloatArray, masses: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...], float]:
        """V at tokens x (B, n, 1), what `back` needs of it, and the largest error of the table."""
        line = x[:, :, 0]
        velocity = np.empty(line.shape)
        coefficients, half = np.empty((len(x), self.size)), np.empty(len(x))
        kept = (self.reach, LEAST, self.unit, self.mixture, self.rows)
        error = line_tokens(line, masses, *kept, velocity, np.empty(coefficients.shape), coefficients, half)
        return velocity[:, :, None], (coefficients, half), float(error)

    def back(
        self, x: FloatArray, masses: FloatArray, saved: tuple[FloatArray, ...], g: FloatArray, total: FloatArray
    ) -> FloatArray:
        """Cotangents g (B, n, 1) of V carried to the tokens; those of the heads are added to ``total``."""
        out = np.empty(x.shape[:2])
        kept = (self.reach, self.unit[: self.size], self.mixture)
        line_tokens_transpose(x[:, :, 0], masses, *kept, *saved, np.ascontiguousarray(g[:, :, 0]), out, total)
        return out[:, :, None]

    def to_heads(self, total: FloatArray) -> HeadCotangents:
        """What the sum of all cotangents says about each head: <W, m> by weight, by W and by A.

        Formula: with Ḡ the sum, B̄ = Iᵀ Ḡ Iᵀ and f(ã) = Σ B̄_rq T_q(ã u_r), a polynomial in ã: w f(ã), f(ã) and
        w f'(ã)/A.
        """
        nodes = self.unit[: self.size]
        basis = self.interpolation.T @ total @ self.interpolation.T
        # f at the nodes, which are enough for a polynomial of its degree
        at_nodes = np.empty(self.size)
        chebyshev_sum_transpose(nodes, nodes, np.ascontiguousarray(basis.T), at_nodes)
        series = self.interpolation @ at_nodes
        scaled = self.heads.scores[:, 0, 0] / self.reach
        values: FloatArray = np.asarray(chebyshev.chebval(scaled, series), dtype=float)[self.heads.index]
        slopes = chebyshev.chebval(scaled, chebyshev.chebder(series))[self.heads.index] / self.reach
        w = self.heads.values[:, 0, 0]
        return HeadCotangents(w * values, (w * slopes)[:, None, None], values[:, None, None])


def sizes_from(heads: HeadMatrices, x: FloatArray, tolerance: float) -> list[int]:
    """Sizes of table to try for heads and first tokens x (B, n, 1), the least that may resolve them first."""
    reach = max(float(np.abs(heads.scores).max()), LEAST)
    spread = 0.5 * float(np.ptp(x[:, :, 0], axis=1).max())
    first = chebyshev_size(reach * max(float(np.abs(x).max()), LEAST) * max(spread, LEAST), tolerance)
    return [size for size in SIZES if size >= first]
