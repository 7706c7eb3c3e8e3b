"""Attention with any kernel by sums over all pairs of points and cells, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.box_filter import log_sinhc, mean_shift
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice

# below this a shifted partition sum has lost digits to underflow and is redone with its own largest score
UNDERFLOW = 1e-200
# largest exponent: an empty cell may have any score, and it is capped, not infinite
LARGEST = 600.0
# pairs in a block, and bytes of kernels that are kept for a whole sweep instead of being made again each stage
BLOCK, KEPT = 2**20, 2**28


def shares(score: FloatArray, weights: FloatArray) -> FloatArray:
    """e^{score}/Z, Z = Σ weights e^{score}, shifted by the largest score of a cell with weight; a row of 0 if none.

    Shapes: score (m, n), -inf where a cell does not count; weights (n,) >= 0; result (m, n).
    Raises: MeanFieldError for weights without mass.
    """
    occupied = weights > 0.0
    if not occupied.any():
        raise MeanFieldError("attention of a law without mass: give at least one positive weight")
    top = score[:, occupied].max(axis=1, keepdims=True)
    seen = np.isfinite(top)
    out = np.where(seen, np.exp(np.minimum(score - np.where(seen, top, 0.0), LARGEST)), 0.0)
    total = out @ np.where(occupied, weights, 0.0)
    return np.asarray(out / np.where(total > 0.0, total, 1.0)[:, None])


def coverage(x: FloatArray, y: FloatArray, widths: FloatArray, window: float) -> FloatArray:
    """The part of each cell at y that lies within ``window`` of x, (m, n): clip((r - |x - y|)/h + 1/2, 0, 1).

    Meaning: h is the extent of the cell in the direction of x - y, so that it is exact on a line.
    """
    apart = x[:, None, :] - y[None, :, :]
    distance = np.sqrt((apart**2).sum(axis=2))
    extent = np.where(distance > 0.0, np.abs(apart) @ widths / np.where(distance > 0.0, distance, 1.0), widths.max())
    return np.asarray(np.clip((window - distance) / extent + 0.5, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class PairSums:
    """The assembled field by sums over all pairs, for any A and any targets.

    Formula: v = W Σ y k w/Σ k w, k = e^{<Ax,y> + tilt(y)} times the part of the cell within ``window`` of x; where it
    is not ``normalised``, v = W ∫ y e^{<Ax,y>} mu(dy), the box filter removed exactly. w are the masses of cells, or
    the sample weights of the lattice where ``sampled``. `moments` is the masses themselves.
    Shapes: tilt (n_A, n) or None.
    Cost: n · n_target · n_A multiply-adds a law and stage; as many exponentials once a sweep if the kernels fit into
    `KEPT` bytes, else each stage.
    """

    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    lattice: Lattice
    normalised: bool = True
    sampled: bool = False
    tilt: FloatArray | None = None
    window: float | None = None
    blocks: dict[tuple[int, int, int], FloatArray] | None = field(default=None, repr=False)
    rows: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = self.heads.mean_values(self.weights)
        object.__setattr__(self, "rows", tuple(values[:, t.component, :] for t in self.targets))
        pairs = len(self.heads.scores) * len(self.lattice.points) * sum(len(t.points) for t in self.targets)
        if self.blocks is None:
            kept: dict[tuple[int, int, int], FloatArray] = {}
            if 8 * pairs <= KEPT:
                kept = {key: self._kernel(self._score(key[2], x)) for key, x in self._all_blocks()}
            object.__setattr__(self, "blocks", kept)

    def _all_blocks(self) -> Iterator[tuple[tuple[int, int, int], FloatArray]]:
        """(target, first point, head) and the points of every block."""
        size = max(1, BLOCK // max(len(self.lattice.points), 1))
        for which, target in enumerate(self.targets):
            for start in range(0, len(target.points), size):
                for head in range(len(self.heads.scores)):
                    yield (which, start, head), target.points[start : start + size]

    def _score(self, head: int, x: FloatArray) -> FloatArray:
        keys = x @ self.heads.scores[head].T
        score = keys @ self.lattice.points.T
        if not self.normalised:
            for k, h in enumerate(self.lattice.widths):
                score -= log_sinhc(keys[:, k], float(h))[:, None]
        if self.tilt is not None:
            score += self.tilt[head]
        if self.window is not None:
            part = coverage(x, self.lattice.points, self.lattice.widths, self.window)
            score += np.log(part, out=np.full_like(part, -np.inf), where=part > 0.0)
        return np.asarray(score)

    def _kernel(self, score: FloatArray) -> FloatArray:
        if not self.normalised:
            return np.exp(score)
        top = score.max(axis=1, keepdims=True)
        return np.exp(score - np.where(np.isfinite(top), top, 0.0))

    def _shift(self, head: int, x: FloatArray) -> FloatArray:
        """What the box filter adds to y, (m, d)."""
        if self.normalised:
            return np.zeros_like(x)
        keys = x @ self.heads.scores[head].T
        return np.stack([mean_shift(keys[:, k], float(h)) for k, h in enumerate(self.lattice.widths)], axis=1)

    def _solved(
        self, key: tuple[int, int, int], x: FloatArray, w: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Kernel (m, n), over its sum where normalised, the mean (m, d) it gives, what the transpose takes from y."""
        kept = None if self.blocks is None else self.blocks.get(key)
        kernel = self._kernel(self._score(key[2], x)) if kept is None else kept
        y = self.lattice.points
        sums = kernel @ np.concatenate([w[:, None], w[:, None] * y], axis=1)
        total, first = sums[:, :1], sums[:, 1:]
        if not self.normalised:
            shift = self._shift(key[2], x)
            return kernel, first - shift * total, shift
        thin = np.flatnonzero(~(total[:, 0] > UNDERFLOW))
        kernel = kernel / np.where(total > UNDERFLOW, total, 1.0)
        mean = first / np.where(total > UNDERFLOW, total, 1.0)
        if len(thin):
            kernel[thin] = shares(self._score(key[2], x[thin]), w)
            mean[thin] = (kernel[thin] * w) @ y
        return kernel, mean, mean

    def _laws(self, masses: FloatArray) -> FloatArray:
        return self.lattice.samples(masses) if self.sampled else masses

    def moments(self, weights: FloatArray) -> FloatArray:
        """The masses themselves, (B, n)."""
        return weights

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """Σ_A (W̄_A mean_A(x))_c at each target, W̄_A the mean of W over the heads of score A; (B, n_target)."""
        laws = self._laws(moments)
        out = tuple(np.zeros((len(laws), len(t.points))) for t in self.targets)
        for law, w in enumerate(laws):
            for key, x in self._all_blocks():
                which, start, head = key
                out[which][law, start : start + len(x)] += self._solved(key, x, w)[1] @ self.rows[which][head]
        return out

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the masses, (B, n): Σ_A Σ_x g W̄_c·(y - mean) k(x, y)/Z."""
        laws = self._laws(moments)
        out, y = np.zeros_like(laws), self.lattice.points
        for law, w in enumerate(laws):
            for key, x in self._all_blocks():
                which, start, head = key
                kernel, _, taken = self._solved(key, x, w)
                g = cotangents[which][law, start : start + len(x)]
                row = self.rows[which][head]
                pulled = np.concatenate([row[:, None] * g, -(taken @ row)[None] * g]) @ kernel
                out[law] += (pulled[:-1] * y.T).sum(axis=0) + pulled[-1]
        return self.lattice.samples_transpose(moments, out) if self.sampled else out

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the head weights, (K,): <W_k, Σ_x g(x) e_c ⊗ mean_k(x)>."""
        gradient = np.zeros_like(self.heads.scores)
        for law, w in enumerate(self._laws(moments)):
            for key, x in self._all_blocks():
                which, start, head = key
                g = cotangents[which][law, start : start + len(x)]
                gradient[head, self.targets[which].component] += g @ self._solved(key, x, w)[1]
        return self.heads.contract(gradient)
