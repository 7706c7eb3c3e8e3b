"""Tokens on the circle: growth of a small mode about the uniform law, and Kuramoto oscillators of one frequency."""

from __future__ import annotations

from math import exp, expm1
from typing import NamedTuple

import numpy as np
from scipy.special import iv

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.law_rings import Harmonic, WrappedCauchy
from meanfield_pde.laws import Law, cell_averages
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.parameters import Parameter, at, vector, whole
from meanfield_pde.problem import Problem, Sequence

POINTS: dict[str, Parameter] = {
    "points": at("heads.points", lambda value: tuple(vector(2)(point) for point in value)),
    "weights": at("heads.weights", lambda value: tuple(float(v) for v in value)),
}
MODES_PARAMETERS: dict[str, Parameter] = {
    "amplitude": at("sequences.0.initial.amplitude"),
    "mode": at("sequences.0.initial.mode", whole),
    "phase": at("sequences.0.initial.mean"),
    "noise": at("tokens.noise"),
    "w": at("heads.points.0.0"),
    "inverse_temperature": at("heads.points.0.1"),
    **POINTS,
}
KURAMOTO_PARAMETERS: dict[str, Parameter] = {
    "r0": at("sequences.0.initial.resultant"),
    "phase": at("sequences.0.initial.mean"),
    "coupling": at("heads.points.0.0"),
    **POINTS,
}


class Growth(NamedTuple):
    """Rates of mode k and mode 2k about the uniform law, and what the square of mode k feeds into mode 2k."""

    rate: float
    double: float
    feed: float


def growth(k: int, heads: FloatArray, weights: FloatArray, normalised: bool, noise: float = 0.0) -> Growth:
    """Rates of mode k about the uniform law for scalar heads (w, a), and what feeds mode 2k.

    Formula: unnormalised Σ rho w k² I_k(a)/a, softmax Σ rho w k² I_k(a)/(a I_0(a)), less ``noise`` k²; with
    mu = (1 + e1 cos kφ + e2 cos 2kφ)/2π, e1' = rate e1 and e2' = double e2 + feed e1² up to third order.
    Shapes: heads (K, 2), weights (K,) of sum 1.
    Source: docs/mathematics.md 5.1; expansion of v = (w/a) ∂_φ ∫ e^{a cos(φ − ψ)} mu(dψ), or of its logarithm.
    """
    w, a = heads.T
    partition = iv(0, a) if normalised else np.ones(len(a))

    def each(mode: int) -> FloatArray:
        nothing = a == 0.0
        quotient = iv(mode, a) / np.where(nothing, 1.0, a)
        return np.where(nothing, 0.5 if mode == 1 else 0.0, quotient) / partition

    ratio = iv(k, a) / partition if normalised else np.zeros(len(a))
    feed = float(weights @ (w * k**2 * each(k) * (1.0 - ratio)))
    rates = [float(weights @ (w * m**2 * each(m))) - noise * m**2 for m in (k, 2 * k)]
    return Growth(rates[0], rates[1], feed)


def modes_exact(problem: Problem) -> Exact:
    """A uniform law with a small mode k, to second order in its amplitude ε; a constant drift c turns it.

    Formula: mu = (1 + ε e^{rt} cos k(φ − φ0 − ct) + ε2 cos 2k(φ − φ0 − ct))/2π with the rate r of `growth` and
    ε2 = feed ε² (e^{2rt} − e^{r2 t})/(2r − r2), r2 the rate of mode 2k; what is left out is of order (ε e^{rt})³.
    Raises: MeanFieldError when the problem no longer has this form.
    """
    heads, weights, turn, noise = _scalar_heads(problem)
    laws = []
    for law in _ring_laws(problem):
        require(isinstance(law, Harmonic), problem, f"a sequence is {law.law}", "harmonic laws")
        assert isinstance(law, Harmonic)
        laws.append((int(np.ravel(law.mode)[0]), float(np.ravel(law.amplitude)[0]), float(np.ravel(law.mean)[0])))
    rates = {k: growth(k, heads, weights, problem.attention == "softmax", noise) for k, _, _ in laws}

    def amplitudes(k: int, size: float, t: float) -> tuple[float, float]:
        rate, double, feed = rates[k]
        gap = 2.0 * rate - double
        fed = t if gap == 0.0 else expm1(gap * t) / gap
        return size * exp(rate * t), feed * size**2 * fed * exp(double * t)

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, (k, size, _) in enumerate(laws):
            first, second = amplitudes(k, size, t)
            out |= {f"mode{k}_b{b}": 0.5 * abs(first), f"mode{2 * k}_b{b}": 0.5 * abs(second)}
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        rows = []
        for k, size, mean in laws:
            first, second = amplitudes(k, size, t)
            angle = grid.centers(0) - mean - turn * t
            wave = first * np.sinc(k / grid.cells[0]) * np.cos(k * angle)
            wave += second * np.sinc(2 * k / grid.cells[0]) * np.cos(2 * k * angle)
            rows.append((1.0 + wave) / (2.0 * np.pi))
        return np.stack(rows)

    return Exact(observables, "docs/mathematics.md 5.1, modes on the circle, to second order", mu=mu)


def kuramoto_exact(problem: Problem) -> Exact:
    """Poisson kernels under heads with A = 0, φ' = ŵ r sin(φ_m − φ), keep their form; a drift c turns them.

    Formula: r² = 1/(1 + (1/r0² − 1) e^{−ŵ t}), ŵ the mean of w.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: Ott and Antonsen (2008); docs/mathematics.md 5.1.
    """
    heads, weights, turn, noise = _scalar_heads(problem)
    require(noise == 0.0, problem, f"tokens.noise = {noise:g}", "no noise")
    require(not heads[:, 1].any(), problem, "a head has a != 0", "heads (w, 0)")
    w = float(weights @ heads[:, 0])
    laws = []
    for law in _ring_laws(problem):
        require(isinstance(law, WrappedCauchy), problem, f"a sequence is {law.law}", "wrapped-cauchy laws")
        assert isinstance(law, WrappedCauchy)
        laws.append((float(np.ravel(law.resultant)[0]), float(np.ravel(law.mean)[0])))

    def resultant(r0: float, t: float) -> float:
        return r0 / (r0**2 + (1.0 - r0**2) * exp(-w * t)) ** 0.5 if r0 else 0.0

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, (r0, _) in enumerate(laws):
            r = resultant(r0, t)
            out |= {f"mode1_b{b}": r, f"mode2_b{b}": r**2}
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        moved = [WrappedCauchy(mean + turn * t, resultant(r0, t)) for r0, mean in laws]
        return np.stack([cell_averages(law, grid)[0] for law in moved])

    return Exact(observables, "docs/mathematics.md 5.1, Kuramoto", mu=mu)


def _scalar_heads(problem: Problem) -> tuple[FloatArray, FloatArray, float, float]:
    """Heads (K, 2), their weights (K,) of sum 1, the constant drift and the noise, of tokens on the circle."""
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    attention = problem.attention
    allowed = attention in ("softmax", "unnormalised")
    require(allowed, problem, f"attention = {attention!r}", "softmax or unnormalised attention")
    assert problem.tokens is not None
    assert problem.heads is not None
    require(problem.tokens.periodic == (True,), problem, "the tokens have walls", "tokens on the circle")
    require(problem.tokens.drift.flow is None, problem, "tokens.drift.flow is set", "a constant drift at most")
    finite = problem.heads.family == "scalar" and bool(problem.heads.points)
    require(finite, problem, "the heads are others", "family = 'scalar' with heads.points")
    weights = np.array(problem.heads.weights) if problem.heads.weights else np.ones(len(problem.heads.points))
    turn = float((problem.tokens.drift.constant or (0.0,))[0])
    return np.array(problem.heads.points, dtype=float), weights / weights.sum(), turn, problem.tokens.noise


def _ring_laws(problem: Problem) -> list[Law]:
    out: list[Law] = []
    for k, entry in enumerate(problem.sequences):
        require(isinstance(entry, Sequence), problem, f"sequences[{k}] is a file", "laws in the problem itself")
        assert isinstance(entry, Sequence)
        if entry.role == "train":
            out.append(entry.initial)
    return out
