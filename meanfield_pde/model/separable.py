"""Attentions whose kernel is a product over axes, at products of axes: sums axis by axis, with no table.

For a diagonal A, e^{<Ax,y>} and e^{<Ax,y> - <Ay,y>/2} are products over axes, so sums over cells at all points of a
product of axes are small matrix products K_k[x_k, y_k], one per axis and distinct entry of A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.box_filter import log_sinhc, mean_shift
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import LARGEST, UNDERFLOW, shares
from meanfield_pde.model.lattice import Lattice

KERNELS = ("softmax", "unnormalised", "l2")
# numbers in an intermediate product: as many heads at a time as stay in a cache of the processor
CHUNK = 2**17
# bytes of kernels beyond which sums run over pairs instead
KEPT = 2**30


@dataclass(frozen=True, slots=True)
class AxisKernel:
    """One axis at one row of positions x (m,): K (n_a, m, n) for each distinct a, and what the box filter adds.

    Meaning: softmax K = e^{a x y - max_y}, with ``shift`` (n_a, m) to subtract from means; unnormalised
    K = e^{a x y}/sinhc(a x h/2) with the same shift; l2 K = e^{-a (x - y)²/2 - max_y}, shift 0.
    """

    kernel: FloatArray
    shift: FloatArray

    @classmethod
    def build(cls, name: str, scales: FloatArray, x: FloatArray, y: FloatArray, h: float) -> AxisKernel:
        """The kernel of one axis for distinct entries ``scales`` (n_a,) of A."""
        if name == "l2":
            score = -0.5 * scales[:, None, None] * (x[:, None] - y[None, :]) ** 2
            score -= score.max(axis=2, keepdims=True)
            return cls(np.exp(score), np.zeros((len(scales), len(x))))
        keys = scales[:, None] * x[None, :]
        score = keys[:, :, None] * y
        score -= log_sinhc(keys, h)[:, :, None] if name == "unnormalised" else score.max(axis=2, keepdims=True)
        return cls(np.exp(score), mean_shift(keys, h))


def separable(heads: HeadMatrices, targets: tuple[Target, ...]) -> bool:
    """Whether sums go axis by axis: every A diagonal, every target a product of axes, kernels within `KEPT` bytes."""
    if not (heads.diagonal and all(target.axes for target in targets)):
        return False
    distinct = [len(np.unique(column)) for column in np.diagonal(heads.scores, axis1=1, axis2=2).T]
    # each axis has one kernel at centres and one at faces
    largest = [max((len(t.axes[k]) for t in targets), default=0) for k in range(len(distinct))]
    return sum(16 * count * n * n for count, n in zip(distinct, largest, strict=True)) <= KEPT


@dataclass(frozen=True, slots=True)
class SeparableField:
    """The assembled field of one of `KERNELS` for diagonal A at products of axes.

    Formula: softmax and l2 v = W m, m_j = Σ y_j K w/Σ K w - shift_j; unnormalised v = W Σ (y - shift) K w; w the masses
    of cells, for l2 the sample weights of the lattice. `moments` is the masses themselves.
    Cost: about 2 n_A n Σ_k n_k multiply-adds a target and law for heads of W = w I.
    Memory: 8 n_a n_k² bytes an axis and kind of position (centres, faces).
    """

    name: str
    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    lattice: Lattice
    kernels: tuple[tuple[AxisKernel, ...], ...] = field(default=(), repr=False)
    index: IntArray = field(init=False, repr=False)
    rows: tuple[FloatArray, ...] = field(init=False, repr=False)
    wanted: tuple[tuple[int, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        diagonals = np.diagonal(self.heads.scores, axis1=1, axis2=2)
        found = [np.unique(column, return_inverse=True) for column in diagonals.T]
        object.__setattr__(self, "index", np.stack([inverse.ravel() for _, inverse in found], axis=1))
        values = self.heads.mean_values(self.weights)
        object.__setattr__(self, "rows", tuple(values[:, t.component, :] for t in self.targets))
        # a mean that no head of any weight uses is not made
        used = np.asarray(self.heads.values.any(axis=0))
        object.__setattr__(self, "wanted", tuple(tuple(np.flatnonzero(used[t.component])) for t in self.targets))
        if not self.kernels:
            object.__setattr__(self, "kernels", self._build([distinct for distinct, _ in found]))

    def _build(self, scales: list[FloatArray]) -> tuple[tuple[AxisKernel, ...], ...]:
        made: dict[tuple[int, bytes], AxisKernel] = {}
        for target in self.targets:
            for k, x in enumerate(target.axes):
                key = (k, x.tobytes())
                if key not in made:
                    y, h = self.lattice.axes[k], float(self.lattice.widths[k])
                    made[key] = AxisKernel.build(self.name, scales[k], x, y, h)
        return tuple(tuple(made[k, x.tobytes()] for k, x in enumerate(t.axes)) for t in self.targets)

    def _runs(self) -> Iterator[tuple[slice, tuple[slice, ...]]]:
        """Heads in a row whose entry of each axis stays or goes up by one: their kernels are views, not copies."""
        most = max(1, CHUNK // max(prod(self.lattice.shape), 1))
        start, count = 0, len(self.index)
        while start < count:
            stop, step = start + 1, None
            while stop < count and stop - start < most:
                change = self.index[stop] - self.index[stop - 1]
                if ((change != 0) & (change != 1)).any() or (step is not None and (change != step).any()):
                    break
                stop, step = stop + 1, change
            first, last = self.index[start], self.index[stop - 1]
            yield slice(start, stop), tuple(slice(int(a), int(b) + 1) for a, b in zip(first, last, strict=True))
            start = stop

    @property
    def _normalised(self) -> bool:
        return self.name != "unnormalised"

    def moments(self, weights: FloatArray) -> FloatArray:
        """The masses themselves, (B, n)."""
        return weights

    def _summed(self, masses: FloatArray) -> FloatArray:
        return self.lattice.samples(masses) if self.name == "l2" else masses

    def _sums(
        self, which: int, at: tuple[slice, ...], w: FloatArray
    ) -> tuple[FloatArray, dict[int, FloatArray], dict[int, FloatArray]]:
        """Partition sums, first moments and box shifts by component, (heads of a run, *target shape), of one law."""
        target, kernels = self.targets[which], self.kernels[which]
        c, dim = target.component, len(target.axes)
        others = [k for k in range(dim) if k != c]
        cells = w.reshape(1, *self.lattice.shape)
        along = [_shaped(y, k, dim) for k, y in enumerate(self.lattice.axes)]
        part = _applied(kernels, at, others, cells)
        total = _applied(kernels, at, [c], part)
        first, shift = {}, {}
        for j in self.wanted[which]:
            if j == c:
                first[j] = _applied(kernels, at, [c], part * along[c])
            else:
                first[j] = _applied(kernels, at, [*others, c], cells * along[j])
            shift[j] = _shaped(kernels[j].shift[at[j]], j, dim)
        return total, first, shift

    def _means(self, which: int, run: slice, at: tuple[slice, ...], w: FloatArray) -> _Means:
        total, first, shift = self._sums(which, at, w)
        if not self._normalised:
            return _Means({j: m - shift[j] * total for j, m in first.items()}, shift, np.ones_like(total), [])
        thin = np.argwhere(~(total > UNDERFLOW).reshape(len(total), -1))
        total = np.where(total > UNDERFLOW, total, 1.0)
        raw = {j: m / total for j, m in first.items()}
        redone = []
        for i in np.unique(thin[:, 0]):
            x = thin[thin[:, 0] == i, 1]
            head = run.start + int(i)
            share, mean = self._direct(head, self.targets[which].points[x], w)
            for j in raw:
                raw[j].reshape(len(total), -1)[i, x] = mean[:, j]
            redone.append((int(i), x, share, mean))
        return _Means({j: m - shift[j] for j, m in raw.items()}, raw, total, redone)

    def _direct(self, head: int, x: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """e^{score}/Z (points, cells) and first moments (points, d) at single points, shifted by the true maximum."""
        y, scale = self.lattice.points, np.diagonal(self.heads.scores[head])
        share = shares((x * scale) @ y.T - (0.5 * (y * y) @ scale if self.name == "l2" else 0.0), w)
        return share, (share * w) @ y

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """Σ_A (W̄_A m(A x))_c at each target, W̄_A the mean of W over the heads of score A; (B, n_target)."""
        out = []
        laws = self._summed(moments)
        for which, (target, rows) in enumerate(zip(self.targets, self.rows, strict=True)):
            values = np.zeros((len(laws), len(target.points)))
            for law, w in enumerate(laws):
                for run, at in self._runs():
                    means = self._means(which, run, at, w).means
                    for j in self.wanted[which]:
                        values[law] += rows[run, j] @ means[j].reshape(run.stop - run.start, -1)
            out.append(values)
        return tuple(out)

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the masses, (B, n): Σ_A Σ_x g Σ_j W̄_j (y_j - first_j/Z) K(x, y)/Z, first_j/Z -> shift_j and
        Z -> 1 where nothing is normalised."""
        laws = self._summed(moments)
        out = np.zeros_like(laws)
        for which, (rows, g) in enumerate(zip(self.rows, cotangents, strict=True)):
            for law, w in enumerate(laws):
                for run, at in self._runs():
                    out[law] += self._run_to_mu(which, run, at, w, rows[run], g[law])
        return self.lattice.samples_transpose(moments, out) if self.name == "l2" else out

    def _run_to_mu(
        self, which: int, run: slice, at: tuple[slice, ...], w: FloatArray, rows: FloatArray, g: FloatArray
    ) -> FloatArray:
        target, kernels = self.targets[which], self.kernels[which]
        c, dim = target.component, len(target.axes)
        others = [k for k in range(dim) if k != c]
        found = self._means(which, run, at, w)
        share = g.reshape(1, *(len(x) for x in target.axes)) / found.total
        extra = np.zeros(len(w))
        for i, x, kernel, mean in found.redone:
            share.reshape(len(share), -1)[i, x] = 0.0
            both = g[x, None] * rows[i]
            extra += (both.T @ kernel * self.lattice.points.T).sum(axis=0) - (both * mean).sum(axis=1) @ kernel
        weighted = {j: rows[:, j].reshape(-1, *(1,) * dim) * share for j in self.wanted[which]}
        pulled = np.zeros_like(share)
        for j, v in weighted.items():
            pulled = pulled - v * found.raw[j]
        part = _applied_transpose(kernels, at, [c], pulled)
        if c in weighted:
            part += _shaped(self.lattice.axes[c], c, dim) * _applied_transpose(kernels, at, [c], weighted[c])
        total = _applied_transpose(kernels, at, others, part)
        for j, v in weighted.items():
            if j != c:
                total = total + _shaped(self.lattice.axes[j], j, dim) * _applied_transpose(kernels, at, range(dim), v)
        return np.asarray(total.sum(axis=0).ravel() + extra)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the head weights, (K,): <W_k, Σ_x g(x) e_c ⊗ m(A_k x)>."""
        gradient = np.zeros_like(self.heads.scores)
        laws = self._summed(moments)
        for which, (target, g) in enumerate(zip(self.targets, cotangents, strict=True)):
            for law, w in enumerate(laws):
                for run, at in self._runs():
                    for j, mean in self._means(which, run, at, w).means.items():
                        gradient[run, target.component, j] += mean.reshape(len(mean), -1) @ g[law]
        return self.heads.contract(gradient)


@dataclass(frozen=True, slots=True)
class _Means:
    """What one law makes at a target: means by component, what the transpose subtracts from y, partition sums, and
    (head, points, kernel, first moments) of the sums that were redone."""

    means: dict[int, FloatArray]
    raw: dict[int, FloatArray]
    total: FloatArray
    redone: list[tuple[int, IntArray, FloatArray, FloatArray]]


def _shaped(values: FloatArray, axis: int, dim: int) -> FloatArray:
    """An array (n,) or (heads, n) of one axis, to broadcast against (heads, *axes)."""
    lead = values.shape[0] if values.ndim == 2 else 1
    return values.reshape(lead, *(values.shape[-1] if k == axis else 1 for k in range(dim)))


def _applied(
    kernels: tuple[AxisKernel, ...], at: tuple[slice, ...], axes: list[int] | range, u: FloatArray
) -> FloatArray:
    for k in axes:
        u = _product(kernels[k].kernel[at[k]], u, k)
    return u


def _applied_transpose(
    kernels: tuple[AxisKernel, ...], at: tuple[slice, ...], axes: list[int] | range, u: FloatArray
) -> FloatArray:
    for k in axes:
        u = _product(kernels[k].kernel[at[k]].transpose(0, 2, 1), u, k)
    return u


def _product(matrices: FloatArray, u: FloatArray, axis: int) -> FloatArray:
    """matrices (1 or heads, m, n) along one axis of u (1 or heads, .., n, ..), one BLAS product a head and slice."""
    before, n, after = prod(u.shape[1 : axis + 1]), u.shape[axis + 1], prod(u.shape[axis + 2 :])
    if after == 1:
        moved = np.matmul(u.reshape(len(u), before, n), matrices.transpose(0, 2, 1))
    else:
        moved = np.matmul(matrices[:, None], u.reshape(len(u), before, n, after))
    return np.asarray(moved).reshape(len(moved), *u.shape[1 : axis + 1], matrices.shape[1], *u.shape[axis + 2 :])


def refuse_overflow(heads: HeadMatrices, targets: tuple[Target, ...], lattice: Lattice) -> None:
    """Refuse heads of an unnormalised kernel that would reach beyond e^600. Raises: MeanFieldError with the size."""
    far = np.array([float(np.abs(y).max()) for y in lattice.axes])
    for target in targets:
        reach = np.abs(target.points).max(axis=0) if len(target.points) else np.zeros(len(far))
        largest = float((np.abs(heads.scores) @ reach @ far).max())
        if largest > LARGEST:
            raise MeanFieldError(
                f"attention = 'unnormalised' reaches e^{largest:.0f} on this box, at most e^{LARGEST:.0f} can be "
                "summed: make the box of the heads or of the tokens smaller, or take attention = 'softmax'"
            )
