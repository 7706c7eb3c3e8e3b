"""Attention of tokens on the unit circle: x = (cos φ, sin φ), one ring of angles, speed along x^⊥ = (−sin φ, cos φ).

`softmax`: φ' = <x^⊥, W m(A x)>, m(z) = ∫ y e^{<z,y>} dmu / ∫ e^{<z,y>} dmu.
`unnormalised`: φ' = <x^⊥, W ∫ y e^{<A x, y>} dmu>.
With A x = r (cos α, sin α) and u the angle of y less α the kernel is e^{r cos u}; (cos u, sin u) is y in the frame of
the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import factorial

import numpy as np
from scipy.special import bernoulli

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.circle import circle_sums, circle_sums_transpose
from meanfield_pde.model.field import AssembledField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice

ORDER = 16  # of the series that inverts the box filter: its rest is (r h / 2 pi)^18
MOST_BYTES = 2e9  # of the kernels of one field
RESOLVED = 2.0  # largest r h: beyond it the inverse filter of the kernel may change its sign


def inverse_filtered(radius: FloatArray, u: FloatArray, width: float) -> FloatArray:
    """Inverse box filter of e^{r (cos u − 1)}, and of it times cos u and times sin u, each to relative rounding.

    Formula: Σ_k B_2k(½) (h^2k/(2k)!) f^(2k) with the Taylor coefficients of f at u by the recurrence of exp of a
    series: every value is the kernel there times a factor, so that small values are as accurate as large ones.
    Shapes: radius and u broadcast to (...); returns (3, ...).
    """
    radius, u = np.broadcast_arrays(radius, u)
    c, s = np.cos(u), np.sin(u)
    turns = (c, -s, -c, s, c)
    scale = [width**k / factorial(k) for k in range(ORDER + 1)]
    cosine = [turns[k % 4] * scale[k] for k in range(ORDER + 1)]
    sine = [turns[(k + 3) % 4] * scale[k] for k in range(ORDER + 1)]
    taylor = [np.ones_like(c)]
    for k in range(1, ORDER + 1):
        taylor.append(radius / k * sum(j * cosine[j] * taylor[k - j] for j in range(1, k + 1)))
    out = np.zeros((3, *c.shape))
    numbers = bernoulli(ORDER)
    for k in range(0, ORDER + 1, 2):
        weight = (2.0 ** (1 - k) - 1.0) * numbers[k]  # B_k(1/2)
        out[0] += weight * taylor[k]
        out[1] += weight * sum(cosine[j] * taylor[k - j] for j in range(k + 1))
        out[2] += weight * sum(sine[j] * taylor[k - j] for j in range(k + 1))
    return np.asarray(out * np.exp(-2.0 * radius * np.sin(0.5 * u) ** 2))


@dataclass(frozen=True, slots=True, eq=False)
class CircleKernel:
    """The kernels of all distinct A at one target, with the box filter inverted; fixed by cells and heads.

    Meaning: where every A turns and scales (A x at the angle of x plus a constant) one row a score serves all targets
    that lie a whole number of cells apart, since it depends on the difference of angles alone; else a row a target.
    Shapes: rows (3, n_A, lines, length), starts (F,), radii (n_A, F) = |A x|, angles (n_A, F) of A x.
    Memory: 24 n_A n bytes · 2, or 24 n_A F n.
    """

    rows: FloatArray
    starts: IntArray
    radii: FloatArray
    angles: FloatArray

    @classmethod
    def build(cls, lattice: Lattice, target: Target, heads: HeadMatrices) -> CircleKernel:
        """Kernels for the heads at a target.

        Raises: MeanFieldError if the rows are over 2e9 bytes, or the cells do not resolve the kernel.
        """
        at, where, scores = lattice.axes[0], target.points[:, 0], heads.scores
        n, h, count = len(at), float(lattice.widths[0]), len(where)
        from_first = (where - at[0]) / h
        whole = np.rint(from_first - from_first[0])
        turning = np.array_equal(scores[:, 0, 0], scores[:, 1, 1]) and np.array_equal(scores[:, 0, 1], -scores[:, 1, 0])
        shared = turning and float(np.abs(from_first - from_first[0] - whole).max()) < 1e-9
        needed = 24.0 * len(scores) * n * (2 if shared else count)
        if needed > MOST_BYTES:
            raise MeanFieldError(
                f"attention on the circle needs {needed:.3g} bytes for {len(scores)} score matrices at {count} faces "
                f"and {n} cells, over the budget of {MOST_BYTES:.3g}: take fewer heads or cells, or the families "
                "scalar and rotation, which need one row a score"
            )
        keys = np.einsum("aij,fj->afi", scores, np.stack([np.cos(where), np.sin(where)], axis=1))
        radii, angles = np.hypot(keys[..., 0], keys[..., 1]), np.arctan2(keys[..., 1], keys[..., 0])
        if shared:
            # exactly equal at all targets, so that turning the law by whole cells turns the velocity
            radii = np.repeat(np.hypot(scores[:, 0, 0], scores[:, 1, 0])[:, None], count, axis=1)
            turn = np.arctan2(scores[:, 1, 0], scores[:, 0, 0])[:, None]
            angles = where + turn
        largest = float(radii.max(initial=0.0))
        if largest * h > RESOLVED:
            raise MeanFieldError(
                f"{n} cells do not resolve e^{{<Ax,y>}} on the circle for |A x| up to {largest:.3g}: "
                f"take at least {int(np.ceil(2.0 * np.pi * largest / RESOLVED))} cells, or smaller A"
            )
        if shared:
            u = (np.arange(n) - from_first[0]) * h - turn
            row = inverse_filtered(radii[:, :1], u, h)[:, :, None, :]
            rows, starts = np.concatenate([row, row], axis=3), np.mod(-whole.astype(np.int64), n)
        else:
            rows = np.empty((3, len(scores), count, n))
            for a in range(len(scores)):  # one score at a time bounds the memory of the series
                rows[:, a] = inverse_filtered(radii[a, :, None], at - angles[a, :, None], h)
            starts = np.zeros(count, dtype=np.int64)
        return cls(np.ascontiguousarray(rows), starts, radii, angles)

    def sums(self, weights: FloatArray) -> FloatArray:
        """∫ e^{r (cos u − 1)} (1, cos u, sin u) dmu for masses (n,) of one law: (3, n_A, F)."""
        if not (weights > 0).any():
            raise MeanFieldError("attention to a law without mass: give at least one positive weight")
        out = np.empty((3, *self.radii.shape))
        circle_sums(self.rows, self.starts, weights, out)
        return out

    def frame(self) -> FloatArray:
        """The unit vectors along and across each key, (n_A, F, 2, 2): [..., 0] along, [..., 1] across."""
        c, s = np.cos(self.angles), np.sin(self.angles)
        return np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)


@dataclass(frozen=True, slots=True)
class CircleField:
    """The assembled angular velocity of softmax attention on the circle, or of the unnormalised kernel.

    Meaning: `moments` is the weights themselves. ``rows`` hold x^⊥ᵀ W̄_A in the frame of the key, times e^r without
    the division by the partition sum.
    Shapes: rows (2, n_A, F) per target.
    Cost: 3 n n_A F multiply-adds a law.
    """

    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    kernels: tuple[CircleKernel, ...]
    normalised: bool
    rows: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = self.heads.mean_values(self.weights)
        rows = []
        for target, kernel in zip(self.targets, self.kernels, strict=True):
            row = np.einsum("fi,aij,afjk->kaf", _tangents(target), values, kernel.frame())
            rows.append(np.ascontiguousarray(row if self.normalised else row * np.exp(kernel.radii)))
        object.__setattr__(self, "rows", tuple(rows))

    def moments(self, weights: FloatArray) -> FloatArray:
        """The weights themselves, (B, n)."""
        return weights

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """Angular velocity at each target, (B, n_target)."""
        out = []
        for kernel, rows in zip(self.kernels, self.rows, strict=True):
            values = np.empty((len(moments), rows.shape[2]))
            for law, weights in enumerate(moments):
                sums = kernel.sums(weights)
                each = rows[0] * sums[1] + rows[1] * sums[2]
                values[law] = (each / sums[0] if self.normalised else each).sum(axis=0)
            out.append(values)
        return tuple(out)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the token weights, (B, n); 0 where there is no mass."""
        out = np.zeros_like(moments)
        for kernel, rows, g in zip(self.kernels, self.rows, cotangents, strict=True):
            for law, weights in enumerate(moments):
                into = np.zeros((3, *rows.shape[1:]))
                into[1:] = rows * g[law]
                if self.normalised:
                    sums = kernel.sums(weights)
                    into[1:] /= sums[0]
                    into[0] = -(into[1] * sums[1] + into[2] * sums[2]) / sums[0]
                circle_sums_transpose(kernel.rows, kernel.starts, into, out[law])
        return np.where(moments > 0.0, out, 0.0)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the head weights, (K,): <W_k, sum_f g(f) x^⊥ ⊗ (mean of y at A_k x)>."""
        gradient = np.zeros((len(self.heads.scores), 2, 2))
        for target, kernel, g in zip(self.targets, self.kernels, cotangents, strict=True):
            frame, tangents = kernel.frame(), _tangents(target)
            for law, weights in enumerate(moments):
                sums = kernel.sums(weights)
                factor = 1.0 / sums[0] if self.normalised else np.exp(kernel.radii)
                mean = np.einsum("afjk,kaf->afj", frame, sums[1:] * factor)
                gradient += np.einsum("f,fi,afj->aij", g[law], tangents, mean)
        return self.heads.contract(gradient)


def circle_field(
    heads: HeadMatrices,
    weights: FloatArray,
    targets: tuple[Target, ...],
    lattice: Lattice,
    normalised: bool,
    like: AssembledField | None,
) -> CircleField:
    """The assembled field of heads of given weights (K,); the kernels of ``like`` are shared if its heads are these.

    Raises: MeanFieldError for kernels over their budget or not resolved by the cells.
    """
    if isinstance(like, CircleField) and like.heads is heads:
        return replace(like, weights=weights)
    kernels = tuple(CircleKernel.build(lattice, target, heads) for target in targets)
    return CircleField(heads, weights, targets, kernels, normalised)


def _tangents(target: Target) -> FloatArray:
    angle = target.points[:, 0]
    return np.stack([-np.sin(angle), np.cos(angle)], axis=1)
