"""Head families: how a point theta of the head space gives the matrices A (scores) and W (values)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError, nearest

AXES = {"scalar": ("w", "a")}


@dataclass(frozen=True, slots=True)
class HeadMatrices:
    """The heads at given points, with each distinct score matrix kept once.

    Shapes: ``scores`` (n_A, d, d) distinct A, ``index`` (K,) the A of each head, ``values`` (K, d, d) its W.
    """

    scores: FloatArray
    index: IntArray
    values: FloatArray

    def mean_values(self, weights: FloatArray) -> FloatArray:
        """sum of weights · W over the heads that share a score matrix, shape (n_A, d, d)."""
        count = len(self.scores)
        flat = self.values.reshape(len(weights), -1)
        columns = [np.bincount(self.index, weights * column, minlength=count) for column in flat.T]
        return np.stack(columns, axis=1, dtype=float).reshape(count, *self.values.shape[1:])

    def contract(self, gradient: FloatArray) -> FloatArray:
        """<W_k, gradient of the A of head k>, shape (K,): the transpose of `mean_values`."""
        return np.asarray(np.einsum("kij,kij->k", self.values, gradient[self.index]))


def head_matrices(family: str, theta: FloatArray, dim: int) -> HeadMatrices:
    """The matrices of heads at ``theta`` for tokens in R^dim.

    Formula: `scalar` theta = (w, a): W = w I, A = a I.
    Shapes: theta (K, q).
    Raises: MeanFieldError for an unknown family or a theta of the wrong size.
    """
    if family not in AXES:
        raise MeanFieldError(f"heads.family = {family!r} is unknown: {nearest(family, AXES)}")
    if theta.shape[1] != len(AXES[family]):
        raise MeanFieldError(
            f"{family} heads have axes {AXES[family]}, so theta needs {len(AXES[family])} columns, not {theta.shape[1]}"
        )
    identity = np.eye(dim)
    distinct, index = np.unique(theta[:, 1], return_inverse=True)
    return HeadMatrices(
        scores=distinct[:, None, None] * identity,
        index=index.astype(np.int64),
        values=theta[:, 0, None, None] * identity,
    )
