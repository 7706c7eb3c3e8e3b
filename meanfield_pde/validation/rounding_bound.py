"""How far two codes of the same motion of tokens may drift apart by rounding alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.tokens import ParticleTokens, Trajectory
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.precision import DOUBLE, Precision

# deviations of a sum of rounding errors that are never seen, and what products of bounds of first order leave out
LAMBDA, SAFETY = 8.0, 2.0
# relative size of the perturbations that measure how errors grow, and tokens that are enough for it
SMALL, ENOUGH = 1e-7, 512


def gamma(n: int, u: float) -> float:
    """Relative error of a sum of n terms, over the sum of their sizes: min(n, λ√n) u to first order.

    Source: Higham (2002), eq. (4.4); with λ√n Higham and Mary (2019), Theorem 2.4, but for a chance of 2e^{−λ²/2}.
    """
    return min(float(n), LAMBDA * sqrt(n)) * u


@dataclass(frozen=True, slots=True)
class Sizes:
    """What enters the bound of one velocity: reach R, largest score S, bound B of its terms, largest drift D."""

    reach: float
    score: float
    terms: float
    drift: float


def sizes_of(model: ParticleTokens, run: Trajectory) -> Sizes:
    """The sizes along a run of our own.

    Formula: B = Σ_k rho_k ‖W_k‖ R, linear times ‖A_k‖ R², unnormalised times e^S, perceptrons Σ_k rho_k |w_k|;
    S = max ‖A‖ R², l2 half as much more, perceptrons max (‖a‖ R + |c|). Norms are row sums.
    """
    reach = 1.0 if model.circle else float(np.abs(run.x).max())
    score = terms = 0.0
    for law, made in zip(model.heads, model.made, strict=True):
        if isinstance(made, HeadMatrices):
            norms = np.abs(made.scores).sum(axis=2).max(axis=1)[made.index]
            here = float(norms.max()) * reach**2 * (1.5 if model.attention == "l2" else 1.0)
            of_values = np.abs(made.values).sum(axis=2).max(axis=1) * reach
            if model.attention == "linear":
                of_values = of_values * norms * reach**2
            if model.attention == "unnormalised":
                of_values = of_values * np.exp(here)
            terms = max(terms, float(law.weights @ of_values))
        else:
            here = float((np.abs(made.inner).sum(axis=1) * reach + np.abs(made.shift)).max())
            terms = max(terms, made.speed(law.weights, reach))
        score = max(score, here)
    drift = 0.0
    if model.drift is not None:
        drift = max(float(np.abs(model.drift(x, float(t))).max()) for x, t in zip(run.x, run.t, strict=True))
    return Sizes(reach, score, terms, drift)


def error_of_velocity(model: ParticleTokens, count: int, sizes: Sizes, u: float) -> float:
    """Largest error of one velocity in arithmetic of unit roundoff u.

    Formula: (2γ_N + γ_H + 2 (d + 2) S u + 16 u) B + 8 u D.
    """
    dim = 2 if model.circle else model.dim
    heads = max((len(law.weights) for law in model.heads), default=0)
    of_scores = 2.0 * (dim + 2) * sizes.score * u
    return (2.0 * gamma(count, u) + gamma(heads, u) + of_scores + 16.0 * u) * sizes.terms + 8.0 * u * sizes.drift


def growth_of(motion: Motion, start: Measure, T: float, times: tuple[float, ...]) -> FloatArray:
    """G[j, m], the largest growth of a perturbation from time j to time m, as ratios of its largest size.

    Meaning: perturbations of the first tokens by random numbers, by a shift along each axis and by a stretch, carried
    with the tokens (at least 512 of them, or half, evenly taken).
    Shapes: result (times, times), upper triangle.
    """
    circle = motion.model.circle
    stride = max(1, len(start.points) // max(ENOUGH, (len(start.points) + 1) // 2))
    x, w = start.points[::stride], start.weights[::stride]
    if not w.sum() > 0.0:
        x, w = start.points, start.weights
    size = SMALL * max(float(np.abs(x).max()), 1e-3)
    shape = np.random.default_rng(0).uniform(-1.0, 1.0, x.shape)
    ways = [shape, *(np.broadcast_to(axis, x.shape) for axis in np.eye(x.shape[1]))]
    if not circle:
        ways.append(x - w @ x / w.sum())
    if motion.model.box is not None and not circle:
        motion = replace(motion, model=replace(motion.model, box=None))  # so that nothing jumps round a ring
    own = motion.run(Measure.particles(x, w), T, times).x
    out = np.zeros((len(times), len(times)))
    for way in ways:
        largest = float(np.abs(way).max())
        if not largest > 0.0:
            continue
        moved = x + size / largest * way
        apart = motion.run(Measure.particles(moved, w), T, times).x - own
        if circle:
            apart = (apart + np.pi) % (2.0 * np.pi) - np.pi
        sizes = np.abs(apart).max(axis=(1, 2))
        out = np.maximum(out, sizes[None, :] / np.maximum(sizes[:, None], np.finfo(float).tiny))
    return np.triu(out)


def rounding_bounds(motion: Motion, start: Measure, T: float, run: Trajectory, data: Precision) -> FloatArray:
    """How far tokens of another code in the precision of ``data`` may be from our own ``run``, at each of its times.

    Formula: 2 Σ_j n_j δ max(G[j−1, m], G[j, m]) + 2 u_s R (1 + G[0, m]): n_j layers between times j − 1 and j, each
    with δ = dt (e(u) + e(2^{-53}) + 4 τ B) + (2 s + 4) u R of both codes, e of `error_of_velocity`, s stages, τ the
    error of our table, u and u_s of arithmetic and storage.
    Source: docs/mathematics.md, "Rounding".
    """
    model, layers, stages = motion.heads, motion.layers, motion.stages
    sizes = sizes_of(model, run)
    count, u = len(start.points), data.arithmetic
    reach = max(sizes.reach, np.pi if model.circle else 0.0)
    of_velocity = sum(error_of_velocity(model, count, sizes, one) for one in (u, DOUBLE))
    table = 4.0 * (run.table_error or 0.0) * sizes.terms
    each = T / layers * (of_velocity + table) + (2 * stages + 4) * (u + DOUBLE) * reach
    steps = np.array([round(float(t) * layers / T) for t in run.t])
    growth = growth_of(motion, start, T, tuple(run.t.tolist()))
    bounds = np.zeros(len(run.t))
    for m in range(len(bounds)):
        made = sum(float(steps[j] - steps[j - 1]) * max(growth[j - 1, m], growth[j, m]) for j in range(1, m + 1))
        bounds[m] = each * made + 2.0 * (data.storage + DOUBLE) * reach * (1.0 + growth[0, m])
    return SAFETY * bounds
