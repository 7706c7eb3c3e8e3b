"""Linear attention: v(x, theta; mu) = W M2 A x, M2 = ∫ y yᵀ mu(dy)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice


@dataclass(frozen=True, slots=True)
class LinearField:
    """The assembled field of linear attention, for any A and W.

    Formula: V_c(x) = Σ_ijk G_cijk M2_ij x_k, G_cijk = Σ_A W̄_ci A_jk, M2 = Σ masses (y yᵀ - diag(h²/12)), which removes
    the box filter exactly. `moments` is M2, (B, d, d).
    Shapes: squares (n, d, d) = y yᵀ - diag(h²/12); tensors (d, d, d), one a target, indexed [i, j, k].
    Cost: n d² multiply-adds a law and stage, whatever the number of heads.
    """

    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    lattice: Lattice
    squares: FloatArray = field(init=False, repr=False)
    tensors: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        y, h = self.lattice.points, self.lattice.widths
        object.__setattr__(self, "squares", y[:, :, None] * y[:, None, :] - np.diag(h * h / 12.0))
        values = self.heads.mean_values(self.weights)
        made = tuple(np.einsum("ai,ajk->ijk", values[:, t.component, :], self.heads.scores) for t in self.targets)
        object.__setattr__(self, "tensors", made)

    def moments(self, weights: FloatArray) -> FloatArray:
        """Second moments of each law, (B, d, d)."""
        flat = self.squares.reshape(len(self.squares), -1)
        return np.stack([(w[:, None] * flat).sum(axis=0).reshape(self.squares.shape[1:]) for w in weights])

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """V at each target, (B, n_target)."""
        out = []
        for target, tensor in zip(self.targets, self.tensors, strict=True):
            # one product of one shape a law, so that its bits do not depend on its batch
            slopes = [(one[:, :, None] * tensor).sum(axis=(0, 1)) for one in moments]
            out.append(np.stack([target.points @ slope for slope in slopes]))
        return tuple(out)

    def _pulled(self, cotangents: tuple[FloatArray, ...]) -> list[FloatArray]:
        """Σ_x g(x) x of each target, (B, d)."""
        return [
            np.stack([(row[:, None] * target.points).sum(axis=0) for row in g])
            for target, g in zip(self.targets, cotangents, strict=True)
        ]

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the masses, (B, n)."""
        out = np.zeros((len(moments), len(self.squares)))
        for tensor, along in zip(self.tensors, self._pulled(cotangents), strict=True):
            for law, one in enumerate(along):
                out[law] += (self.squares * (tensor @ one)).sum(axis=(1, 2))
        return out

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the head weights, (K,): <W_k, Σ_x g(x) e_c ⊗ M2 A_k x>."""
        gradient = np.zeros_like(self.heads.scores)
        for target, along in zip(self.targets, self._pulled(cotangents), strict=True):
            gradient[:, target.component] += np.einsum("bij,ajk,bk->ai", moments, self.heads.scores, along)
        return self.heads.contract(gradient)
