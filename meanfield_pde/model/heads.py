"""Head families: how a point theta of the head space gives the matrices A (scores) and W (values)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError, nearest

HeadFunction = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""A user's own family: theta (K, q) -> A (K, d, d), W (K, d, d)."""
RADIAL = "radial"
FAMILIES = ("scalar", "rotation", "diagonal", "matrix", "perceptron", RADIAL)
# heads that look at no other token
ALONE = ("perceptron", RADIAL)
# axes that are angles: they live on a ring of length 2 pi
ANGLES = ("phi",)


def axes_of(family: str, dim: int) -> tuple[str, ...]:
    """The names of the axes of theta, for tokens in R^dim.

    Formula: `scalar` (w, a): W = w I, A = a I; `rotation` (w, a, phi): W = w I, A = a R(phi), d = 2;
    `diagonal` (w, a0, ..): W = w I, A = diag(a0, ..); `matrix` the entries of W and then of A, row by row;
    `perceptron` (w.., a.., c): v = w tanh(<a, x> + c); `radial` (r): neurons of weights of length r in any direction.
    Raises: MeanFieldError for an unknown family, or one that does not exist in this dimension.
    """
    if family == "scalar":
        return ("w", "a")
    if family == "rotation":
        if dim != 2:
            raise MeanFieldError(
                f"heads.family = 'rotation' turns tokens in the plane, but they live in dimension {dim}: "
                "take tokens with two axes or on the circle, or family = 'scalar'"
            )
        return ("w", "a", "phi")
    if family == "diagonal":
        return ("w", *(f"a{k}" for k in range(dim)))
    if family == "matrix":
        return tuple(f"{name}{j}{k}" for name in "wa" for j in range(dim) for k in range(dim))
    if family == "perceptron":
        single = dim == 1
        return (*(("w",) if single else (f"w{k}" for k in range(dim))),
                *(("a",) if single else (f"a{k}" for k in range(dim))), "c")  # fmt: skip
    if family == RADIAL:
        return ("r",)
    raise MeanFieldError(f"heads.family = {family!r} is unknown: {nearest(family, FAMILIES)}")


@dataclass(frozen=True, slots=True)
class HeadMatrices:
    """The heads at given points, with each distinct score matrix kept once.

    Shapes: ``scores`` (n_A, d, d) distinct A, ``index`` (K,) the A of each head, ``values`` (K, d, d) its W.
    """

    scores: FloatArray
    index: IntArray
    values: FloatArray

    @property
    def diagonal(self) -> bool:
        """Whether every score matrix is diagonal, so that e^{<Ax,y>} is a product over axes."""
        off = ~np.eye(self.scores.shape[1], dtype=bool)
        return not self.scores[:, off].any()

    def mean_values(self, weights: FloatArray) -> FloatArray:
        """sum of weights · W over the heads that share a score matrix, shape (n_A, d, d)."""
        count = len(self.scores)
        flat = self.values.reshape(len(weights), -1)
        columns = [np.bincount(self.index, weights * column, minlength=count) for column in flat.T]
        return np.stack(columns, axis=1, dtype=float).reshape(count, *self.values.shape[1:])

    def speed(self, weights: FloatArray, reach: float) -> float:
        """A bound of |V| on every axis where means stay within ``reach``: sum of weights |W| reach."""
        return float(weights @ np.abs(self.values).max(axis=(1, 2))) * reach

    def contract(self, gradient: FloatArray) -> FloatArray:
        """<W_k, gradient of the A of head k>, shape (K,): the transpose of `mean_values`."""
        return np.asarray(np.einsum("kij,kij->k", self.values, gradient[self.index]))


def head_matrices(family: str | HeadFunction, theta: FloatArray, dim: int) -> HeadMatrices:
    """The matrices of heads at ``theta`` for tokens in R^dim; the formulas are those of `axes_of`.

    Shapes: theta (K, q).
    Raises: MeanFieldError for an unknown family, a theta of the wrong size, or a function whose A and W do not fit.
    """
    if callable(family):
        return _from_function(family, theta, dim)
    names = axes_of(family, dim)
    if theta.shape[1] != len(names):
        raise MeanFieldError(
            f"{family} heads have axes {names}, so theta needs {len(names)} columns, not {theta.shape[1]}"
        )
    identity = np.eye(dim)
    if family == "matrix":
        square = theta.reshape(len(theta), 2, dim, dim)
        return _distinct(square[:, 1], square[:, 0])
    values = theta[:, 0, None, None] * identity
    if family == "scalar":
        distinct, index = np.unique(theta[:, 1], return_inverse=True)
        return HeadMatrices(distinct[:, None, None] * identity, index.astype(np.int64), values)
    rest, index = np.unique(theta[:, 1:], axis=0, return_inverse=True)
    if family == "rotation":
        c, s = np.cos(rest[:, 1]), np.sin(rest[:, 1])
        turned = np.stack([np.stack([c, -s], axis=1), np.stack([s, c], axis=1)], axis=1)
        return HeadMatrices(rest[:, 0, None, None] * turned, index.ravel().astype(np.int64), values)
    return HeadMatrices(rest[:, :, None] * identity, index.ravel().astype(np.int64), values)


def _distinct(scores: FloatArray, values: FloatArray) -> HeadMatrices:
    dim = scores.shape[1]
    flat, index = np.unique(scores.reshape(len(scores), -1), axis=0, return_inverse=True)
    return HeadMatrices(flat.reshape(-1, dim, dim), index.ravel().astype(np.int64), np.ascontiguousarray(values))


def _from_function(family: HeadFunction, theta: FloatArray, dim: int) -> HeadMatrices:
    made = family(theta.copy())
    if not isinstance(made, tuple) or len(made) != 2:
        raise MeanFieldError(f"the head function gives a {type(made).__name__}; it must give the pair (A, W)")
    wanted = (len(theta), dim, dim)
    found = []
    for name, one in zip("AW", made, strict=True):
        given = np.asarray(one)
        if given.shape != wanted or given.dtype.kind not in "iuf":
            raise MeanFieldError(
                f"the head function gives {name} of shape {given.shape} and type {given.dtype}; for {len(theta)} heads "
                f"and tokens in dimension {dim} it must be {wanted}, of real numbers"
            )
        if not np.isfinite(given).all():
            raise MeanFieldError(f"{name} of the head function is not finite: check it on the head box")
        found.append(given.astype(float))
    return _distinct(*found)
