"""Gaussian tokens under other attentions than softmax stay Gaussian: mean shift (A3), L2 (A4) and Sinkhorn (A5).

All three kernels are products over axes for A = a I, so a normal law with independent axes evolves axis by axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import exp, log, sqrt, tanh

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import gaussian_masses
from meanfield_pde.library.exact import Exact, require, token_moments
from meanfield_pde.library.gaussian_tokens import gaussian_entries, gaussian_leak
from meanfield_pde.library.parameters import Parameter, at, vector, widened
from meanfield_pde.problem import Heads, Problem

HEAD: dict[str, Parameter] = {"w": at("heads.points.0.0"), "a": at("heads.points.0.1")}
LINE: dict[str, Parameter] = {
    "m0": at("sequences.0.initial.mean.0"),
    "s0": at("sequences.0.initial.covariance.0.0"),
} | HEAD
PLANE: dict[str, Parameter] = {"m0": at("sequences.0.initial.mean", vector(2)), "s0": at(
    "sequences.0.initial.covariance", lambda value: tuple(tuple(row) for row in np.diag(vector(2)(value)).tolist())
)} | HEAD  # fmt: skip
Flow = Callable[[float, float, float], tuple[float, float]]
"""(m0, s0, t) -> mean and variance of one axis at depth t."""


def l2_flow(m0: float, s0: float, w: float, a: float, leak: float, t: float) -> tuple[float, float]:
    """Mean and variance under v = w m̃(x) - leak x, m̃ the mean of mu tilted by e^{-a |x - y|²/2}, ε = 1/a.

    Formula: without a leak s = ε/W0((ε/s0) e^{ε/s0 - 2wt}), m = m0 e^{wt}; for w = leak (mean shift)
    s = ε W0((s0/ε) e^{s0/ε - 2wt}), m = m0; W0 of Lambert, from log z as the omega function of Wright.
    Source: docs/mathematics.md 5.1, A3 and A4; from ṡ = 2 s (w s/(s + ε) - leak).
    """
    from scipy.special import wrightomega  # imported late: listing problems needs none of it

    epsilon = 1.0 / a
    if leak == 0.0:
        ratio = epsilon / s0
        return m0 * exp(w * t), epsilon / float(wrightomega(log(ratio) + ratio - 2.0 * w * t))
    ratio = s0 / epsilon
    return m0, epsilon * float(wrightomega(log(ratio) + ratio - 2.0 * w * t))


def sinkhorn_flow(m0: float, s0: float, w: float, a: float, t: float) -> tuple[float, float]:
    """Mean and variance under v = w E_π[y | x], π the coupling of mu with itself for the score a x y, ε = 1/a.

    Formula: s = (ε/2) sinh θ, θ - coth(θ/2) = θ0 - coth(θ0/2) + 2wt, m = m0 e^{wt}.
    Source: docs/mathematics.md 5.1, A5; from ṡ = 2 w c, c = (-ε + √(ε² + 4 s²))/2.
    """
    from scipy.optimize import brentq

    epsilon = 1.0 / a

    def level(theta: float) -> float:
        return theta - 1.0 / tanh(0.5 * theta)

    start = float(np.arcsinh(2.0 * s0 / epsilon))
    wanted = level(start) + 2.0 * w * t
    # level(θ) < θ - 2/θ, and level(θ) > θ - 1.2 from θ = 3 on
    low, high = 1.0 / (2.0 + abs(wanted)), max(wanted, 0.0) + 3.0
    theta = float(brentq(lambda x: level(x) - wanted, low, high, xtol=1e-15, rtol=1e-14))
    return m0 * exp(w * t), 0.5 * epsilon * float(np.sinh(theta))


def _l2_of(problem: Problem) -> Flow:
    w, a = one_score(problem)
    leak = gaussian_leak(problem)
    require(leak in (0.0, w), problem, f"tokens.drift.leak = {leak:g}", f"no leak, or one of E[w] = {w:g}")
    return lambda m0, s0, t: l2_flow(m0, s0, w, a, leak, t)


def _sinkhorn_of(problem: Problem) -> Flow:
    w, a = one_score(problem)
    leak = gaussian_leak(problem)
    require(leak == 0.0, problem, f"tokens.drift.leak = {leak:g}", "no leak")
    return lambda m0, s0, t: sinkhorn_flow(m0, s0, w, a, t)


FLOWS = {"l2": (_l2_of, "A3 and A4"), "sinkhorn": (_sinkhorn_of, "A5")}


def exact(problem: Problem) -> Exact:
    """Mean and variance of every Gaussian sequence in depth, axis by axis; `l2_flow` and `sinkhorn_flow`.

    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.1, A3 to A5.
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    given = problem.attention or "none"
    require(given in FLOWS, problem, f"attention = '{given}'", f"attention = {' or '.join(map(repr, FLOWS))}")
    flow_of, source = FLOWS[given]
    laws, flow = axis_laws(problem), flow_of(problem)

    def at_depth(t: float) -> list[list[tuple[float, float]]]:
        return [[flow(m0, s0, t) for m0, s0 in axes] for axes in laws]

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, axes in enumerate(at_depth(t)):
            out |= token_moments(b, *_normal(axes))
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        masses = [gaussian_masses(*_normal(axes), grid) for axes in at_depth(t)]
        return np.stack(masses) / grid.cell_volume

    return Exact(observables, f"docs/mathematics.md 5.1, {source}", mu=mu)


def _normal(axes: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    return np.array([m for m, _ in axes]), np.diag([s for _, s in axes])


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with a token box that holds its laws at every depth."""
    assert problem.depth is not None
    flow = FLOWS[problem.attention or ""][0](problem)
    depths = np.linspace(0.0, problem.depth.T, 9).tolist()
    boxes = [
        [(m, sqrt(s), 6.5) for m, s in (flow(m0, s0, t) for t in depths for m0, s0 in axes)]
        for axes in zip(*axis_laws(problem), strict=True)
    ]
    return widened(problem, "tokens", "", given, boxes)


def axis_laws(problem: Problem) -> list[list[tuple[float, float]]]:
    """Mean and variance of each axis of each training sequence.

    Raises: MeanFieldError unless all are Gaussian with independent axes.
    """
    out = []
    for k, role, law in gaussian_entries(problem):
        covariance = np.array(law.covariance)
        tied = bool((covariance != np.diag(np.diag(covariance))).any())
        require(not tied, problem, f"sequences[{k}] has correlated axes", "independent ones")
        if role == "train":
            out.append(list(zip(law.mean, np.diag(covariance).tolist(), strict=True)))
    return out


def one_score(problem: Problem) -> tuple[float, float]:
    """E[w] and the one a > 0 of scalar heads. Raises: MeanFieldError when they have several."""
    heads: Heads | None = problem.heads
    family = None if heads is None else heads.family
    require(family == "scalar", problem, f"heads.family = {family!r}", "heads.family = 'scalar'")
    assert heads is not None
    require(bool(heads.points), problem, "heads are a law on a box", "heads.points with one a")
    points = np.array(heads.points, dtype=float)
    weights = np.array(heads.weights) if heads.weights else np.ones(len(points))
    scores = sorted(set(points[:, 1].tolist()))
    require(len(scores) == 1 and scores[0] > 0.0, problem, f"heads have a = {scores}", "one a > 0")
    if not np.isfinite(1.0 / scores[0]):
        raise MeanFieldError(f"a = {scores[0]:g} is too small: take a larger one")
    return float(weights @ points[:, 0] / weights.sum()), scores[0]
