"""Neural ODE: heads v(x, theta) = w tanh(<a, x> + c) that look at no other token; (F) is then linear in mu."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadFunction, HeadMatrices, axes_of, head_matrices

BLOCK = 2**20  # activations at a time: bounds the memory


@dataclass(frozen=True, slots=True)
class Perceptrons:
    """The heads at given points, with each distinct inner part (a, c) kept once.

    Shapes: ``inner`` (n_A, d) distinct a, ``shift`` (n_A,) their c, ``index`` (K,) the inner part of each head,
    ``outer`` (K, d) its w.
    """

    inner: FloatArray
    shift: FloatArray
    index: IntArray
    outer: FloatArray

    def mean_outer(self, weights: FloatArray) -> FloatArray:
        """sum of weights · w over the heads that share an inner part, (n_A, d)."""
        columns = [np.bincount(self.index, weights * w, minlength=len(self.shift)) for w in self.outer.T]
        return np.stack(columns, axis=1, dtype=float)

    def contract(self, gradient: FloatArray) -> FloatArray:
        """<w_k, gradient of the inner part of head k>, (K,): the transpose of `mean_outer`."""
        return np.asarray((self.outer * gradient[self.index]).sum(axis=1))

    def speed(self, weights: FloatArray, reach: float) -> float:
        """A bound of every component of V, wherever tokens are: |tanh| <= 1."""
        return float(weights @ np.linalg.norm(self.outer, axis=1))


def perceptrons(theta: FloatArray, dim: int) -> Perceptrons:
    """Heads theta = (w.., a.., c) for tokens in R^dim.

    Shapes: theta (K, 2 dim + 1).
    Raises: MeanFieldError for a theta of another size.
    """
    names = axes_of("perceptron", dim)
    if theta.shape[1] != len(names):
        raise MeanFieldError(
            f"perceptron heads have axes {names}, so theta needs {len(names)} columns, not {theta.shape[1]}"
        )
    distinct, index = np.unique(theta[:, dim:], axis=0, return_inverse=True)
    return Perceptrons(
        np.ascontiguousarray(distinct[:, :dim]),
        np.ascontiguousarray(distinct[:, dim]),
        index.ravel().astype(np.int64),
        np.ascontiguousarray(theta[:, :dim]),
    )


def heads_at(family: str | HeadFunction, theta: FloatArray, dim: int) -> HeadMatrices | Perceptrons:
    """What the heads of a family at ``theta`` (K, q) are, for tokens in R^dim: matrices, or perceptrons."""
    return perceptrons(theta, dim) if family == "perceptron" else head_matrices(family, theta, dim)


@dataclass(frozen=True, slots=True)
class PerceptronField:
    """The assembled velocity V(x_f) = Σ_k rho_k w_k tanh(<a_k, x_f> + c_k), the same for every law.

    Meaning: on the ``circle`` targets are angles, x = (cos φ, sin φ), and the velocity is that along (−sin φ, cos φ).
    Cost: n_target · n_A activations once, and as many again for each call of `to_rho`.
    """

    heads: Perceptrons
    weights: FloatArray
    targets: tuple[Target, ...]
    circle: bool = False
    given: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        outer = self.heads.mean_outer(self.weights)
        given = []
        for target in self.targets:
            points, along = self._placed(target)
            values = np.empty(len(points))
            for block in self._blocks(len(points)):
                values[block] = ((self._activation(points[block]) @ outer) * along[block]).sum(axis=1)
            given.append(values)
        object.__setattr__(self, "given", tuple(given))

    def _placed(self, target: Target) -> tuple[FloatArray, FloatArray]:
        """Points (n_target, d) in the space of the heads, and the directions of the wanted component."""
        if self.circle:
            c, s = np.cos(target.points[:, 0]), np.sin(target.points[:, 0])
            return np.stack([c, s], axis=1), np.stack([-s, c], axis=1)
        along = np.zeros(target.points.shape)
        along[:, target.component] = 1.0
        return target.points, along

    def _blocks(self, count: int) -> list[slice]:
        rows = max(1, BLOCK // max(1, len(self.heads.shift)))
        return [slice(start, start + rows) for start in range(0, count, rows)]

    def _activation(self, points: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(points @ self.heads.inner.T + self.heads.shift))

    def moments(self, weights: FloatArray) -> FloatArray:
        """Nothing is needed of the laws but their number and size."""
        return np.broadcast_to(0.0, weights.shape)

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """The same velocity for every law, (B, n_target)."""
        return tuple(np.tile(v, (len(moments), 1)) for v in self.given)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """0: the velocity does not look at the tokens."""
        return np.zeros(moments.shape)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """<w_k, Σ_f g(f) tanh(<a_k, x_f> + c_k)>, summed over the batch, (K,)."""
        gradient = np.zeros((len(self.heads.shift), self.heads.outer.shape[1]))
        for target, g in zip(self.targets, cotangents, strict=True):
            points, along = self._placed(target)
            total = g.sum(axis=0)[:, None] * along
            for block in self._blocks(len(points)):
                gradient += self._activation(points[block]).T @ total[block]
        return self.heads.contract(gradient)
