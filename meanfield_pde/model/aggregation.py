"""Attraction by |x| on a line: V(x) = −w ∫ sign(x − y) mu(dy), exactly by the masses on both sides of a face."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice


@dataclass(frozen=True, slots=True)
class AggregationField:
    """Velocities −w̄ (M_left − M_right)/M at the targets, w̄ the mean value of the heads, for any law of mass M.

    Meaning: the attraction of tokens under the interaction energy ½ ∫∫ |x − y| dmu dmu, made of degree 0 in mu by the
    mass. ``below`` counts the cells to the left of each target; at a face the masses are exact.
    Raises: MeanFieldError unless the tokens live on a line between walls.
    Source: Carrillo, DiFrancesco, Figalli, Laurent and Slepčev (2011), section 4.
    """

    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    lattice: Lattice
    below: tuple[IntArray, ...] = field(init=False, repr=False)
    value: float = field(init=False)

    def __post_init__(self) -> None:
        if len(self.lattice.axes) != 1 or self.lattice.circle:
            raise MeanFieldError("attention = 'aggregation' is for tokens on a line: take one axis between walls")
        cells = self.lattice.axes[0]
        below = tuple(np.searchsorted(cells, t.points[:, 0]) for t in self.targets)
        object.__setattr__(self, "below", below)
        object.__setattr__(self, "value", float(self.heads.mean_values(self.weights).sum()))

    def moments(self, weights: FloatArray) -> FloatArray:
        """Mass in the first j cells, j = 0..n: (B, n + 1)."""
        return np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1)], axis=1)

    @staticmethod
    def _sides(moments: FloatArray, below: IntArray) -> FloatArray:
        """(M_left − M_right)/M, (B, n_target)."""
        whole = moments[:, -1:]
        return np.asarray((2.0 * moments[:, below] - whole) / whole)

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """−w̄ (M_left − M_right)/M at each target."""
        return tuple(-self.value * self._sides(moments, below) for below in self.below)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the masses of the cells, (B, n): −w̄ Σ_f g_f (±1 − (M_left − M_right)/M)/M."""
        out = np.zeros((len(moments), moments.shape[1] - 1))
        for g, below in zip(cotangents, self.below, strict=True):
            for law, row in enumerate(g):
                # all cells left of a target count for it with +1, the others with −1
                starts = np.bincount(below, row, minlength=moments.shape[1])
                right_of = np.cumsum(starts[::-1])[::-1][1:]
                signed = 2.0 * right_of - row.sum() - row @ self._sides(moments[law : law + 1], below)[0]
                out[law] -= self.value * signed / moments[law, -1]
        return out

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the weights of the heads, (K,): −w_k Σ_f g_f (M_left − M_right)/M."""
        total = 0.0
        for g, below in zip(cotangents, self.below, strict=True):
            total -= float((g * self._sides(moments, below)).sum())
        return self.heads.contract(np.full_like(self.heads.scores, total))
