"""Gaussian tokens moved by given heads: softmax attention (A1), with a leak (A2), with token noise."""

from __future__ import annotations

from collections.abc import Collection
from math import sqrt

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import gaussian_masses
from meanfield_pde.laws import Gaussian, Law, Mixture, Uniform
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_flow import flow
from meanfield_pde.library.parameters import Parameter, at, vector, widened
from meanfield_pde.problem import Heads, Problem, Sequence

PARAMETERS: dict[str, Parameter] = {
    "m0": at("sequences.0.initial.mean.0"),
    "s0": at("sequences.0.initial.covariance.0.0"),
    "w": at("heads.points.0.0"),
    "a": at("heads.points.0.1"),
    "points": at("heads.points", lambda value: tuple(vector(2)(point) for point in value)),
    "weights": at("heads.weights", lambda value: tuple(float(v) for v in value)),
}
LEAK = {"leak": at("tokens.drift.leak")}
NOISE = {"noise": at("tokens.noise")}


def exact(problem: Problem) -> Exact:
    """Mean and variance of every Gaussian sequence in depth.

    Formula: s = 1/(e^{2ℓt}/s0 − κ (e^{2ℓt} − 1)/ℓ), m = m0 e^{ŵt} √(s/s0), ŵ = ∫ w drho, κ = ∫ w a drho.
    With token noise D the variance has the source 2D (`gaussian_flow.flow`).
    Raises: MeanFieldError when the problem no longer has this form or blows up before its last depth.
    Source: docs/mathematics.md 5.1, A1 and A2, and with noise.
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    require(problem.attention == "softmax", problem, f"attention = {problem.attention!r}", "attention = 'softmax'")
    assert problem.tokens is not None
    assert problem.heads is not None
    assert problem.depth is not None
    laws, leak, noise = gaussian_sequences(problem), gaussian_leak(problem, noisy=True), problem.tokens.noise
    w, kappa = head_moments(problem, problem.heads)
    for law in laws:  # refuses a blow-up before the end
        flow(*law, w, kappa, leak, problem.depth.T, noise)

    def at_depth(t: float) -> list[tuple[float, float]]:
        return [flow(m0, s0, w, kappa, leak, t, noise) for m0, s0 in laws]

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, (m, s) in enumerate(at_depth(t)):
            out |= {f"mean_b{b}": m, f"variance_b{b}": s}
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        masses = [gaussian_masses(np.array([m]), np.array([[s]]), grid) for m, s in at_depth(t)]
        return np.stack(masses) / grid.cell_volume

    source = "5.1, with noise" if noise else "5.1, A2" if leak else "5.1, A1"
    return Exact(observables, f"docs/mathematics.md {source}", mu=mu)


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with a token box that holds its laws at every depth."""
    return fitted_on_a_line(problem, given, exact(problem), 6.5)


def fitted_on_a_line(problem: Problem, given: Collection[str], known: Exact, least: float) -> Problem:
    """The problem with a token box that holds ``least`` deviations of its laws on a line at every depth."""
    assert problem.depth is not None
    depths = [known.observables(t) for t in np.linspace(0.0, problem.depth.T, 9).tolist()]
    laws = [(at_t[f"mean_b{b}"], sqrt(at_t[f"variance_b{b}"]), least) for at_t in depths for b in range(len(at_t) // 2)]
    return widened(problem, "tokens", "", given, [laws])


def gaussian_sequences(problem: Problem) -> list[tuple[float, float]]:
    """Mean and variance of each training sequence. Raises: MeanFieldError unless all are Gaussian in one dimension."""
    out = []
    for k, role, law in gaussian_entries(problem):
        require(len(law.mean) == 1, problem, f"sequences[{k}] has several dimensions", "tokens on a line")
        if role == "train":
            out.append((float(law.mean[0]), float(law.covariance[0][0])))
    return out


def gaussian_entries(problem: Problem) -> list[tuple[int, str, Gaussian]]:
    """Place, role and law of each sequence. Raises: MeanFieldError unless all are Gaussian and one has to train."""
    out = []
    for k, entry in enumerate(problem.sequences):
        single = isinstance(entry, Sequence) and isinstance(entry.initial, Gaussian)
        require(single, problem, f"sequences[{k}] is not a gaussian law", "gaussian sequences")
        assert isinstance(entry, Sequence)
        assert isinstance(entry.initial, Gaussian)
        out.append((k, entry.role, entry.initial))
    require(any(role == "train" for _, role, _ in out), problem, "no sequence has role 'train'", "one that has")
    return out


def gaussian_leak(problem: Problem, noisy: bool = False) -> float:
    """The leak of the drift. Raises: MeanFieldError for a ring, any other drift, or noise unless ``noisy``."""
    assert problem.tokens is not None
    drift, noise = problem.tokens.drift, problem.tokens.noise
    require(noisy or noise == 0.0, problem, f"tokens.noise = {noise:g}", "no token noise")
    require(not any(problem.tokens.periodic), problem, "tokens.periodic is set", "walls")
    require(drift.flow is None, problem, f"tokens.drift.flow = {drift.flow!r}", "no flow")
    require(not any(drift.constant), problem, f"tokens.drift.constant = {drift.constant}", "no constant drift")
    return float(drift.leak)


def head_moments(problem: Problem, heads: Heads) -> tuple[float, float]:
    """E[w] and E[w a] of scalar heads given as points or as a law."""
    if not heads.points:
        return _law_moments(problem, heads.initial)
    weights = np.array(heads.weights) if heads.weights else np.ones(len(heads.points))
    w, a = np.array(heads.points, dtype=float).T
    return float(weights @ w / weights.sum()), float(weights @ (w * a) / weights.sum())


def _law_moments(problem: Problem, law: Law | None) -> tuple[float, float]:
    if isinstance(law, Gaussian):
        return law.mean[0], law.covariance[0][1] + law.mean[0] * law.mean[1]
    if isinstance(law, Uniform):
        w, a = (0.5 * (low + high) for low, high in zip(law.lower, law.upper, strict=True))
        return w, w * a
    if isinstance(law, Mixture):
        parts = np.array([_law_moments(problem, part) for part in law.components])
        share = np.array(law.weights) / sum(law.weights)
        return float(share @ parts[:, 0]), float(share @ parts[:, 1])
    require(False, problem, "heads.initial has no moments in closed form", "points, or a gaussian, uniform or mixture")
    raise AssertionError
