"""Softmax attention from a table of m(z) on Chebyshev nodes: one small matrix product a stage (d = 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.line_velocity import CHECK_KEYS
from meanfield_pde.kernels.log_laplace import (
    box_mean_shift,
    chebyshev_sum,
    chebyshev_sum_transpose,
    matrix_rows,
    table_error,
    table_moments,
    table_moments_transpose,
)
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices

# cells at which the first variation is checked
CHECK_CELLS = 9
SIZES = (24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True, slots=True)
class SoftmaxTable:
    """Nodes, exponentials and the interpolation of m(z) on |z| <= reach, fixed by the token cells.

    Shapes: points (n,), nodes (q,), kernel (n, q) = exp(z_q y_j - shift_q), interpolation (q, q) from node
    values to Chebyshev coefficients; check_keys (13,) lie between the nodes, check_rows (13, q) interpolate there;
    node_shift and check_shift are what the box filter adds to the means.
    Memory: 16 n q bytes.
    """

    points: FloatArray
    width: float
    reach: float
    nodes: FloatArray
    kernel: FloatArray
    kernel_t: FloatArray
    interpolation: FloatArray
    check_keys: FloatArray
    check_rows: FloatArray
    node_shift: FloatArray
    check_shift: FloatArray

    @classmethod
    def build(cls, points: FloatArray, width: float, reach: float, size: int) -> SoftmaxTable:
        """The table with ``size`` Chebyshev nodes of the first kind for cells at ``points`` (n,)."""
        angle = np.pi * (np.arange(size) + 0.5) / size
        nodes = reach * np.cos(angle)
        score = nodes[:, None] * points[None, :]
        kernel_t = np.exp(score - score.max(axis=1, keepdims=True))
        interpolation = 2.0 / size * np.cos(np.arange(size)[:, None] * angle[None, :])
        interpolation[0] *= 0.5
        rows = np.polynomial.chebyshev.chebvander(CHECK_KEYS, size - 1) @ interpolation
        kernel = np.ascontiguousarray(kernel_t.T)
        shifts = [np.array([box_mean_shift(z, width) for z in keys]) for keys in (nodes, reach * CHECK_KEYS)]
        return cls(points, width, reach, nodes, kernel, kernel_t, interpolation, reach * CHECK_KEYS, rows, *shifts)

    def moments(self, weights: FloatArray) -> FloatArray:
        """Softmax means (B, 3, q) of laws (B, n); see the kernel for the other two rows."""
        out = np.empty((len(weights), 3, len(self.nodes)))
        table_moments(self.kernel, self.nodes, self.points, self.width, weights, out)
        return out

    def error(self, weights: FloatArray, moments: FloatArray) -> float:
        """Largest relative error at keys between the nodes over a batch, of m and of its first variation."""
        return float(
            table_error(
                self.check_rows,
                self.check_keys,
                self.check_shift,
                self.nodes,
                self.node_shift,
                self.points,
                self.width,
                weights,
                moments,
                CHECK_CELLS,
            )
        )


def table_reach(heads: HeadMatrices, targets: tuple[Target, ...]) -> tuple[float, ...]:
    """Largest |(A x)_k| over heads and targets on each axis k, at least a hair above 0."""
    largest = np.full(heads.scores.shape[1], 1e-6)
    for target in targets:
        if target.points.size:
            box = np.abs(target.points).max(axis=0)
            largest = np.maximum(largest, (np.abs(heads.scores) @ box).max(axis=0))
    return tuple(largest.tolist())


@dataclass(frozen=True, slots=True)
class TabulatedField:
    """The assembled field V(x_f) = sum_q M[f, q] m_q, M linear in the head weights and fixed during a sweep in depth.

    Shapes: matrices_t (q, n_target) and matrices (n_target, q), one per target.
    Cost: q (2 n + n_target) multiply-adds a stage; building M costs n_target · n_A · q + n_target · q².
    """

    table: SoftmaxTable
    heads: HeadMatrices
    targets: tuple[Target, ...]
    matrices: tuple[FloatArray, ...]
    matrices_t: tuple[FloatArray, ...]

    @classmethod
    def assemble(
        cls, table: SoftmaxTable, heads: HeadMatrices, weights: FloatArray, targets: tuple[Target, ...]
    ) -> TabulatedField:
        """Build M for heads of the given weights (K,).

        Raises: MeanFieldError for tokens in more than one dimension.
        """
        if heads.scores.shape[1] != 1:
            raise MeanFieldError("the table of softmax means is for tokens on a line; use the direct field for d >= 2")
        mean_values = heads.mean_values(weights)[:, 0, 0]
        scales = np.ascontiguousarray(heads.scores[:, 0, 0])
        transposed = []
        for target in targets:
            basis = np.empty((len(table.nodes), len(target.points)))
            chebyshev_sum(np.ascontiguousarray(target.points[:, 0]) / table.reach, scales, mean_values, basis)
            transposed.append(np.ascontiguousarray(table.interpolation.T @ basis))
        return cls(table, heads, targets, tuple(np.ascontiguousarray(m.T) for m in transposed), tuple(transposed))

    def moments(self, weights: FloatArray) -> FloatArray:
        """The table of each law, (B, 3, q)."""
        return self.table.moments(weights)

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """M m at each target, (B, n_target)."""
        out = []
        for matrix_t in self.matrices_t:
            values = np.empty((len(moments), matrix_t.shape[1]))
            matrix_rows(matrix_t, moments[:, 0], values)
            out.append(values)
        return tuple(out)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Table transpose of Mᵀ g, (B, n)."""
        table = self.table
        total = np.zeros((len(moments), len(table.nodes)))
        part = np.empty_like(total)
        for matrix, g in zip(self.matrices, cotangents, strict=True):
            matrix_rows(matrix, g, part)
            total += part
        out = np.empty((len(moments), len(table.points)))
        table_moments_transpose(table.kernel_t, table.nodes, table.points, table.width, moments, total, out)
        return out

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Interpolation rows of each head against the outer products of g and m, (K,)."""
        scales = np.ascontiguousarray(self.heads.scores[:, 0, 0])
        gradient = np.zeros(len(scales))
        part = np.empty_like(gradient)
        for target, g in zip(self.targets, cotangents, strict=True):
            basis = self.table.interpolation @ (np.ascontiguousarray(moments[:, 0]).T @ g)
            chebyshev_sum_transpose(
                np.ascontiguousarray(target.points[:, 0]) / self.table.reach, scales, np.ascontiguousarray(basis), part
            )
            gradient += part
        return self.heads.contract(gradient[:, None, None])
