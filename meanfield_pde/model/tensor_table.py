"""Softmax means m(z) = ∇Λ(z) of laws on a lattice in two and three dimensions, on tensor nodes.

e^{<z,y>} is a product over axes, so sums over all cells at all nodes are one small matrix product an axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.log_laplace import box_mean_shift
from meanfield_pde.kernels.tensor_means import add_lost_nodes, finish_means, start_transpose
from meanfield_pde.model.lattice import Lattice

# nodes an axis, by dimension
CHEBYSHEV_SIZES = {2: (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96), 3: (6, 8, 10, 12, 16, 20, 24, 28, 32, 40)}
UNIFORM_SIZES = {2: (16, 24, 32, 48, 64, 96, 128, 192, 256, 384), 3: (12, 16, 24, 32, 48, 64, 96)}
# points of the local interpolation on uniform nodes, per axis
POINTS = 8
CHECK_KEYS = 13
CHECK_CELLS = 9


@dataclass(frozen=True, slots=True, eq=False)
class TensorTable:
    """Nodes and exponentials for keys |z_k| <= reach_k, fixed by the lattice.

    Shapes: nodes (q,) an axis; kernels (2 q, n_k) an axis, e^{z y - shift} above y e^{z y - shift}; over all
    Q = q^d nodes in C order: keys (d, Q), shift (Q,) the maximum of <z, y> over all cells, filter_shift (d, Q) what
    the box filter adds to the means. ``coefficients`` (q, q) turns values at Chebyshev nodes into coefficients; it is
    None where nodes are uniform and interpolation is local, by `POINTS` of them. check_keys (13, d) lie between the
    nodes, check_rows (13, q) an axis interpolate there.
    Memory: 16 q sum n_k + 8 (2 d + 1) Q bytes, and 8 (d + 2) Q bytes of moments a law.
    """

    lattice: Lattice
    reach: tuple[float, ...]
    nodes: tuple[FloatArray, ...]
    coefficients: FloatArray | None
    check_keys: FloatArray
    check_rows: tuple[FloatArray, ...]
    kernels: tuple[FloatArray, ...] = field(init=False, repr=False)
    keys: FloatArray = field(init=False, repr=False)
    shift: FloatArray = field(init=False, repr=False)
    filter_shift: FloatArray = field(init=False, repr=False)
    points_t: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kernels, shifts, filters = [], [], []
        for z, y, width in zip(self.nodes, self.lattice.axes, self.lattice.widths.tolist(), strict=True):
            score = np.outer(z, y)
            top = score.max(axis=1)
            e = np.exp(score - top[:, None])
            kernels.append(np.concatenate([e, e * y]))
            shifts.append(top)
            filters.append(np.array([box_mean_shift(key, width) for key in z]))
        object.__setattr__(self, "kernels", tuple(kernels))
        object.__setattr__(self, "keys", _mesh(self.nodes))
        object.__setattr__(self, "shift", _mesh(tuple(shifts)).sum(axis=0))
        object.__setattr__(self, "filter_shift", _mesh(tuple(filters)))
        object.__setattr__(self, "points_t", np.ascontiguousarray(self.lattice.points.T))

    @classmethod
    def chebyshev(cls, lattice: Lattice, reach: tuple[float, ...], size: int) -> TensorTable:
        """Chebyshev nodes of the first kind, ``size`` an axis."""
        angle = np.pi * (np.arange(size) + 0.5) / size
        coefficients = 2.0 / size * np.cos(np.arange(size)[:, None] * angle[None, :])
        coefficients[0] *= 0.5
        check = _spread_keys(len(reach))
        rows = tuple(np.polynomial.chebyshev.chebvander(c, size - 1) @ coefficients for c in check.T)
        return cls(lattice, reach, tuple(r * np.cos(angle) for r in reach), coefficients, check * reach, rows)

    @classmethod
    def uniform(cls, lattice: Lattice, reach: tuple[float, ...], size: int) -> TensorTable:
        """Equally spaced nodes from -reach to reach, ``size`` an axis."""
        unit = np.linspace(-1.0, 1.0, size)
        check = _spread_keys(len(reach))
        rows = tuple(local_rows(c, size) for c in check.T)
        return cls(lattice, reach, tuple(r * unit for r in reach), None, check * reach, rows)

    @property
    def size(self) -> int:
        """Nodes an axis."""
        return len(self.nodes[0])

    def moments(self, weights: FloatArray) -> FloatArray:
        """Means, 1/Z and Λ at all nodes, (B, d + 2, Q), of laws (B, n); see `finish_means`."""
        dim, batch, size = len(self.nodes), len(weights), self.size
        out = np.empty((batch, dim + 2, self.keys.shape[1]))
        total = weights.reshape(batch, *self.lattice.shape)
        firsts: list[FloatArray] = []
        for axis, kernel in enumerate(self.kernels):
            firsts = [_along(kernel[:size], f, axis) for f in firsts]
            both = _along(kernel, total, axis)
            total = both.take(range(size), axis=axis + 1)
            firsts.append(both.take(range(size, 2 * size), axis=axis + 1))
        for c, first in enumerate(firsts):
            out[:, c] = first.reshape(batch, -1)
        finish_means(
            total.reshape(batch, -1), self.shift, self.filter_shift, self.keys, self.points_t, weights, out
        )
        return out

    def to_weights(self, g: FloatArray, moments: FloatArray) -> FloatArray:
        """Derivative of sum <g, m> in the weights, (B, n), for g (B, d, Q)."""
        dim, batch, size = len(self.nodes), len(g), self.size
        slope, offset = np.empty_like(g), np.empty((batch, g.shape[2]))
        lost = start_transpose(moments, self.filter_shift, g, slope, offset)
        shape = (batch, *(size,) * dim)
        total, firsts = offset.reshape(shape), [slope[:, c].reshape(shape) for c in range(dim)]
        for axis in range(dim - 1, -1, -1):
            back = np.ascontiguousarray(self.kernels[axis].T)
            total = _along(back, np.concatenate([total, firsts.pop()], axis=axis + 1), axis)
            firsts = [_along(back[:, :size], f, axis) for f in firsts]
        out = np.ascontiguousarray(total.reshape(batch, -1))
        if lost:
            add_lost_nodes(moments, self.filter_shift, self.keys, self.points_t, g, out)
        return out

    def error(self, weights: FloatArray, moments: FloatArray) -> float:
        """Largest relative error at keys between the nodes over a batch, of m and of its first variation.

        Meaning: m is compared with direct sums, relative to the largest |m| or the spread of the law; the first
        variation e^{<z,y> - Λ(z)} (y - m(z)), which carries the costate, at cells y spread over the law (the ends of
        each axis among them), relative to its size. NaN when anything is not finite.
        """
        widths, points, z = self.lattice.widths, self.lattice.points, self.check_keys
        filters = np.array([[box_mean_shift(key, h) for key, h in zip(row, widths, strict=True)] for row in z])
        dim = len(self.nodes)
        worst = 0.0
        for w, table in zip(weights, moments, strict=True):
            held = np.flatnonzero(w > 0.0)
            y, mass = points[held], w[held]
            score = z @ y.T
            top = score.max(axis=1, keepdims=True)
            e = mass * np.exp(score - top)
            partition, mean = e.sum(axis=1), e @ y
            mean /= partition[:, None]
            log_z = top[:, 0] + np.log(partition)
            centre = mass @ y / mass.sum()
            spread = np.sqrt(mass @ (y - centre) ** 2 / mass.sum()).max() + widths.max()
            found = self._at_checks(table[:dim])
            gap = float(np.abs(found.T - (mean - filters)).max())
            # NaN must not be lost in a maximum
            worst = float(np.maximum(worst, gap / max(spread, float(np.abs(mean - filters).max()))))
            for place in y[_spread_cells(y)]:
                at_nodes = np.exp(place @ self.keys - table[dim + 1])
                varied = self._at_checks(at_nodes * (place[:, None] - table[:dim] - self.filter_shift))
                at_keys = np.exp(z @ place - log_z)[:, None]
                size = float((at_keys * (np.abs(place - mean) + widths)).max())
                gap = float(np.abs(varied.T - at_keys * (place - mean)).max())
                worst = float(np.maximum(worst, gap / size))
        return worst

    def _at_checks(self, values: FloatArray) -> FloatArray:
        """Interpolates rows (r, Q) to (r, 13)."""
        shape = values.reshape(len(values), *(self.size,) * len(self.nodes))
        out = shape @ self.check_rows[-1].T
        for rows in self.check_rows[-2::-1]:
            out = np.einsum("...qk,kq->...k", out, rows)
        return np.asarray(out)


def local_rows(unit: FloatArray, size: int) -> FloatArray:
    """Rows (k, size) of local interpolation at keys in [-1, 1] from ``size`` uniform nodes."""
    place = 0.5 * (unit + 1.0) * (size - 1)
    first = np.clip(np.floor(place).astype(int) - POINTS // 2 + 1, 0, size - POINTS)
    rows = np.zeros((len(unit), size))
    for k, (p, start) in enumerate(zip(place, first, strict=True)):
        t, i = p - start, np.arange(POINTS)
        for j in range(POINTS):
            others = i != j
            rows[k, start + j] = np.prod((t - i[others]) / (j - i[others]))
    return rows


def _spread_keys(dim: int) -> FloatArray:
    """Keys (13, dim) in [-1, 1]^dim: multiples of the roots of x^{d+1} = x + 1 spread evenly over the angles."""
    root = {1: 1.618033988749895, 2: 1.324717957244746, 3: 1.2207440846057596}[dim]
    count = np.arange(1, CHECK_KEYS + 1)[:, None]
    return np.asarray(np.cos(np.pi * ((count * root ** -np.arange(1.0, dim + 1.0)) % 1.0)))


def _spread_cells(y: FloatArray) -> list[int]:
    """Nine cells of points y (n, d): those at the ends of each axis, the others evenly through the list."""
    ends = [int(i) for axis in y.T for i in (axis.argmin(), axis.argmax())]
    rest = max(CHECK_CELLS - len(ends), 1)
    return sorted({*ends, *np.linspace(0, len(y) - 1, rest + 2)[1:-1].astype(int).tolist()})


def _along(matrix: FloatArray, a: FloatArray, axis: int) -> FloatArray:
    """The matrix applied along one axis of a (B, *shape): products of one shape each, whatever the batch."""
    if axis == a.ndim - 2:
        return np.asarray(a @ matrix.T)
    split = a.reshape(*a.shape[: axis + 2], -1)
    return np.asarray((matrix @ split).reshape(*a.shape[: axis + 1], len(matrix), *a.shape[axis + 2 :]))


def _mesh(axes: tuple[FloatArray, ...]) -> FloatArray:
    return np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")])
