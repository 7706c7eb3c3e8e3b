"""Softmax attention for d = 2, 3 by one matrix from table to faces, the same for every stage of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.tensor_means import batch_times, batch_times_transpose
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.tensor_table import TensorTable

# bytes of basis functions held at once while the matrix is built or contracted
CHUNK = 2**23


@dataclass(frozen=True, slots=True)
class MatrixField:
    """The assembled field V(x_f)_c = sum_{c', q} M_c[f, c', q] m_{c'}(z_q), M linear in the head weights.

    Shapes: matrices one (n_target, P Q) a target, for the P means c' in ``columns`` of that target which any W of
    the heads mixes into its component (c' = c alone where every W is a multiple of the identity).
    Cost: P Q n_target multiply-adds a law and stage; building M or `to_rho` costs n_target n_A (P Q + 30 d q).
    """

    table: TensorTable
    heads: HeadMatrices
    targets: tuple[Target, ...]
    columns: tuple[tuple[int, ...], ...]
    matrices: tuple[FloatArray, ...]

    @classmethod
    def assemble(
        cls, table: TensorTable, heads: HeadMatrices, weights: FloatArray, targets: tuple[Target, ...]
    ) -> MatrixField:
        """Build M for heads of the given weights (K,). Raises: MeanFieldError for a table on uniform nodes."""
        if table.coefficients is None:
            raise MeanFieldError("a matrix needs a table on Chebyshev nodes; uniform nodes serve keys one by one")
        values = heads.mean_values(weights)
        columns = tuple(mixed_means(heads, target.component) for target in targets)
        matrices = []
        for target, chosen in zip(targets, columns, strict=True):
            count, size = len(target.points), table.size
            out = np.empty((count, len(chosen) * table.keys.shape[1]))
            for faces, basis in _bases(table, heads, target):
                n = len(basis[0])
                first = np.concatenate([basis[0] * values[:, target.component, c] for c in chosen], axis=1)
                rest = basis[1] if len(basis) == 2 else _products(basis[1], basis[2])
                out[faces] = (first @ rest.transpose(0, 2, 1)).reshape(n, -1)
            assert out.shape[1] == len(chosen) * size ** len(basis)
            matrices.append(out)
        return cls(table, heads, targets, columns, tuple(matrices))

    def moments(self, weights: FloatArray) -> FloatArray:
        """The table of each law, (B, d + 2, Q)."""
        return self.table.moments(weights)

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """M m at each target, (B, n_target)."""
        out = []
        for matrix, chosen in zip(self.matrices, self.columns, strict=True):
            values = np.empty((len(moments), len(matrix)))
            batch_times(matrix, _rows(moments, chosen), values)
            out.append(values)
        return tuple(out)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Table transpose of Mᵀ g, (B, n)."""
        dim, count = self.table.keys.shape
        total = np.zeros((len(moments), dim, count))
        for matrix, chosen, g in zip(self.matrices, self.columns, cotangents, strict=True):
            part = np.empty((len(moments), matrix.shape[1]))
            batch_times_transpose(matrix, g, part)
            total[:, list(chosen)] += part.reshape(len(moments), len(chosen), count)
        return self.table.to_weights(total, moments)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """The basis functions of each head at each face against the outer products of g and m, (K,)."""
        size, count = self.table.size, len(self.heads.scores)
        dim = len(self.table.nodes)
        gradient = np.zeros((count, dim, dim))
        for target, chosen, g in zip(self.targets, self.columns, cotangents, strict=True):
            means = _rows(moments, chosen)
            for faces, basis in _bases(self.table, self.heads, target):
                n = len(basis[0])
                pairs = (np.ascontiguousarray(g[:, faces].T) @ means).reshape(n, len(chosen) * size, -1)
                rest = basis[1] if dim == 2 else _products(basis[1], basis[2])
                half = (pairs @ rest).reshape(n, len(chosen), size, count)
                gradient[:, target.component, list(chosen)] += np.einsum("fia,fcia->ac", basis[0], half)
        return self.heads.contract(gradient)


def mixed_means(heads: HeadMatrices, component: int) -> tuple[int, ...]:
    """The components of m that enter a component of W m for some head."""
    mixed = tuple(np.flatnonzero(heads.values[:, component, :].any(axis=0)).tolist())
    return mixed or (component,)


def _rows(moments: FloatArray, chosen: tuple[int, ...]) -> FloatArray:
    return np.ascontiguousarray(moments[:, list(chosen)].reshape(len(moments), -1))


def _products(first: FloatArray, second: FloatArray) -> FloatArray:
    """Products (n, q, A), (n, q, A) -> (n, q², A)."""
    n, size, count = first.shape
    return np.asarray((first[:, :, None] * second[:, None]).reshape(n, size * size, count))


def _bases(
    table: TensorTable, heads: HeadMatrices, target: Target
) -> Iterator[tuple[slice, tuple[FloatArray, ...]]]:
    """The cardinal functions of the nodes at the keys A x, (n, q, n_A) an axis, for slices of n targets."""
    size, count, dim = table.size, len(heads.scores), len(table.nodes)
    step = max(1, CHUNK // (8 * count * size * (dim if dim == 2 else size)))
    for start in range(0, len(target.points), step):
        faces = slice(start, min(start + step, len(target.points)))
        axes = zip(heads.scores.transpose(1, 0, 2), table.nodes, table.reach, strict=True)
        keys = ((target.points[faces] @ scores.T / reach, nodes / reach) for scores, nodes, reach in axes)
        yield faces, tuple(_cardinal(z, unit) for z, unit in keys)


def _cardinal(z: FloatArray, nodes: FloatArray) -> FloatArray:
    """Cardinal functions of Chebyshev nodes in [-1, 1] at keys (n, n_A), (n, q, n_A).

    Formula: l_j(z) = (w_j / (z - z_j)) / sum_k w_k / (z - z_k), w_j = (-1)^j sin of the angle of z_j.
    Source: Berrut and Trefethen (2004), eqs. 4.2 and 5.3.
    """
    weights = np.sqrt(1.0 - nodes**2)
    weights[1::2] *= -1.0
    gap = z[:, None, :] - nodes[:, None]
    hit = gap == 0.0
    gap[hit] = 1.0
    np.divide(weights[:, None], gap, out=gap)
    on_node = hit.any(axis=1)
    gap /= gap.sum(axis=1)[:, None]
    if on_node.any():
        gap.transpose(0, 2, 1)[on_node] = hit.transpose(0, 2, 1)[on_node]
    return gap
