"""Softmax attention in two and three dimensions by interpolating the table at every key A x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.local_interpolation import add_at_keys, add_at_keys_transpose
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.softmax_matrix import mixed_means
from meanfield_pde.model.tensor_table import TensorTable


@dataclass(frozen=True, slots=True)
class KeyField:
    """The assembled field V(x)_c = sum_A u_{A,c}(A x), where u_{A,c} = sum_{c'} (W̄_A)_{c c'} m_{c'} at the nodes.

    Shapes: ``values`` (n_A, d, d) mean values; scores (n_A, 3, 3) and points (n_target, 3) filled up in front with
    zeros to three axes, as the kernels want them.
    Cost: n_target n_A 8^d + d n_A Q multiply-adds a law and stage; nothing to build.
    """

    table: TensorTable
    heads: HeadMatrices
    targets: tuple[Target, ...]
    values: FloatArray
    scores: FloatArray
    points: tuple[FloatArray, ...]
    inverse: FloatArray

    @classmethod
    def assemble(
        cls, table: TensorTable, heads: HeadMatrices, weights: FloatArray, targets: tuple[Target, ...]
    ) -> KeyField:
        """The field of heads of the given weights (K,). Raises: MeanFieldError for a table on Chebyshev nodes."""
        if table.coefficients is not None:
            raise MeanFieldError("keys one by one need a table on uniform nodes; Chebyshev nodes serve the matrix")
        spare = 3 - len(table.nodes)
        scores = np.pad(heads.scores, ((0, 0), (spare, 0), (spare, 0)))
        points = tuple(np.pad(t.points, ((0, 0), (spare, 0))) for t in targets)
        inverse = np.pad(0.5 * (table.size - 1) / np.array(table.reach), (spare, 0))
        return cls(table, heads, targets, heads.mean_values(weights), scores, points, inverse)

    @property
    def _shape(self) -> tuple[int, ...]:
        dim = len(self.table.nodes)
        return (*(1,) * (3 - dim), *(self.table.size,) * dim)

    def moments(self, weights: FloatArray) -> FloatArray:
        """The table of each law, (B, d + 2, Q)."""
        return self.table.moments(weights)

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """Interpolated mixtures of means at each target, (B, n_target); one score matrix at a time."""
        out = []
        batch = len(moments)
        for target, points in zip(self.targets, self.points, strict=True):
            found = np.zeros((batch, len(points)))
            for a, row in enumerate(self.values[:, target.component]):
                if row.any():
                    mixed = self._mixed(row, moments)
                    add_at_keys(self.scores[a], points, self.inverse, mixed, found)
            out.append(found)
        return tuple(out)

    def _mixed(self, row: FloatArray, moments: FloatArray) -> FloatArray:
        used = np.flatnonzero(row)
        mixed = row[used[0]] * moments[:, used[0]]
        for c in used[1:]:
            mixed += row[c] * moments[:, c]
        return np.asarray(mixed.reshape(len(moments), *self._shape))

    def _spread(self, a: int, points: FloatArray, g: FloatArray) -> FloatArray:
        """The interpolation at the keys of one score matrix transposed, (B, Q)."""
        out = np.zeros((len(g), *self._shape))
        add_at_keys_transpose(self.scores[a], points, self.inverse, g, out)
        return out.reshape(len(g), -1)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Table transpose of the interpolation transposed, (B, n)."""
        dim, count = self.table.keys.shape
        total = np.zeros((len(moments), dim, count))
        for target, points, g in zip(self.targets, self.points, cotangents, strict=True):
            for a, row in enumerate(self.values[:, target.component]):
                if row.any():
                    spread = self._spread(a, points, g)
                    for c in np.flatnonzero(row):
                        total[:, c] += row[c] * spread
        return self.table.to_weights(total, moments)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """The interpolation transposed against the means, (K,); one law at a time."""
        dim, _ = self.table.keys.shape
        gradient = np.zeros((len(self.values), dim, dim))
        for target, points, g in zip(self.targets, self.points, cotangents, strict=True):
            chosen = mixed_means(self.heads, target.component)
            for a in range(len(self.values)):
                for law in range(len(moments)):
                    spread = self._spread(a, points, g[law : law + 1])[0]
                    for c in chosen:
                        gradient[a, target.component, c] += spread @ moments[law, c]
        return self.heads.contract(gradient)
