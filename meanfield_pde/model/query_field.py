"""The velocity of softmax attention at scattered points, and its exact transposes in points, law and heads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.softmax import softmax_to_points, softmax_to_weights
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.softmax_direct import SoftmaxSums


@dataclass(frozen=True, slots=True)
class QueryField:
    """V(x) = Σ_A W̄_A m(A x) + constant − leak x at any x, by sums over the cells of one law.

    Meaning: ``heads`` with ``weights`` (K,); ``points`` (n, d) and ``widths`` (d,) of the token cells; ``constant``
    (d,) and ``leak`` of the prescribed drift. Cost: n · Q · n_A exponentials.
    """

    heads: HeadMatrices
    weights: FloatArray
    points: FloatArray
    widths: FloatArray
    constant: FloatArray
    leak: float = 0.0
    values: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", self.heads.mean_values(self.weights))

    def _keys(self, x: FloatArray) -> FloatArray:
        return np.ascontiguousarray(np.einsum("aij,xj->axi", self.heads.scores, x).reshape(-1, x.shape[1]))

    def velocity(self, x: FloatArray, masses: FloatArray) -> FloatArray:
        """V at the points x (Q, d) for the law of ``masses`` (n,), (Q, d)."""
        mean = SoftmaxSums(self.points, masses, self.widths).means(self._keys(x))[0].reshape(-1, *x.shape)
        return np.asarray(np.einsum("aij,axj->xi", self.values, mean) + self.constant - self.leak * x)

    def transposed(
        self, x: FloatArray, masses: FloatArray, g: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives of Σ <g, V(x)> in the points (Q, d), in the masses (n,) and in the head weights (K,)."""
        sums, keys = SoftmaxSums(self.points, masses, self.widths), self._keys(x)
        to_keys = np.ascontiguousarray(np.einsum("aij,xi->axj", self.values, g).reshape(keys.shape))
        # means and partition sums are made once for all three
        known = (keys, *sums.arrays, *sums.means(keys), to_keys)
        key_out, point_out, to_mass = np.empty_like(keys), np.zeros_like(self.points), np.zeros(len(masses))
        softmax_to_points(*known, key_out, point_out)
        softmax_to_weights(*known, to_mass)
        to_x = np.einsum("aij,axi->xj", self.heads.scores, key_out.reshape(-1, *x.shape)) - self.leak * g
        to_rho = self.heads.contract(np.einsum("xi,axj->aij", g, known[5].reshape(-1, *x.shape)))
        return np.asarray(to_x), to_mass, to_rho
