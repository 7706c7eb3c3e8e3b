"""Tokens on a line under one perceptron, x' = w tanh(a x + c): the flow in closed form, for any initial law."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from scipy.special import ndtr

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Law, Mixture, Uniform
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_tokens import fitted_on_a_line
from meanfield_pde.library.parameters import Parameter, at, vector
from meanfield_pde.problem import Problem, Sequence

PARAMETERS: dict[str, Parameter] = {
    "m0": at("sequences.0.initial.mean.0"),
    "s0": at("sequences.0.initial.covariance.0.0"),
    "w": at("heads.points.0.0"),
    "a": at("heads.points.0.1"),
    "c": at("heads.points.0.2"),
    "points": at("heads.points", lambda value: tuple(vector(3)(point) for point in value)),
}
NODES = 64  # Gauss-Legendre nodes on each of as many parts of an interval, for the moments


def flow(w: float, a: float, c: float, t: float, x: FloatArray) -> FloatArray:
    """Where x is after depth t (before, for t < 0): sinh(a x(t) + c) = e^{a w t} sinh(a x + c)."""
    if a == 0.0:
        return np.asarray(x + w * np.tanh(c) * t)
    return np.asarray((np.arcsinh(np.exp(a * w * t) * np.sinh(a * x + c)) - c) / a)


def exact(problem: Problem) -> Exact:
    """The law carried by the flow: cell averages from its distribution function, mean and variance by quadrature.

    Formula: mu_t(x_1, x_2) = mu_0(X(−t, x_1), X(−t, x_2)) with the map of `flow`.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.1; separation of variables.
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    assert problem.tokens is not None
    assert problem.heads is not None
    heads, drift = problem.heads, problem.tokens.drift
    family = heads.family if isinstance(heads.family, str) else "a function"
    require(family == "perceptron", problem, f"heads.family is {family}", "family = 'perceptron'")
    require(len(problem.tokens.cells) == 1, problem, "the tokens have several axes", "tokens on a line")
    require(not any(problem.tokens.periodic), problem, "tokens.periodic is set", "walls")
    moved = drift.leak or any(drift.constant) or drift.flow is not None
    require(not moved, problem, "tokens.drift is set", "no drift")
    require(problem.tokens.noise == 0, problem, f"tokens.noise = {problem.tokens.noise:g}", "no noise")
    inner = {point[1:] for point in heads.points}
    require(len(inner) == 1, problem, f"{len(inner)} different (a, c) among heads.points", "one (a, c)")
    a, c = inner.pop()
    weights = np.array(heads.weights) if heads.weights else np.ones(len(heads.points))
    w = float(weights @ np.array([point[0] for point in heads.points]) / weights.sum())
    laws: list[Law] = []
    for k, entry in enumerate(problem.sequences):
        known = isinstance(entry, Sequence) and _has_distribution(entry.initial)
        require(known, problem, f"sequences[{k}] is another law", "gaussian or uniform laws and their mixtures")
        assert isinstance(entry, Sequence)
        if entry.role == "train":
            laws.append(entry.initial)

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, law in enumerate(laws):
            x, weight = _quadrature(law)
            moved = flow(w, a, c, t, x)
            mean = float(weight @ moved)
            out |= {f"mean_b{b}": mean, f"variance_b{b}": float(weight @ (moved - mean) ** 2)}
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        before = flow(w, a, c, -t, grid.edges(0))
        return np.stack([_masses(law, before) for law in laws]) / grid.cell_volume

    return Exact(observables, "docs/mathematics.md 5.1, neural ODE", mu=mu)


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with a token box that holds its laws at every depth."""
    return fitted_on_a_line(problem, given, exact(problem), 6.0)


def _has_distribution(law: Law) -> bool:
    if isinstance(law, Mixture):
        return all(_has_distribution(part) for part in law.components)
    return isinstance(law, Gaussian | Uniform)


def _masses(law: Law, edges: FloatArray) -> FloatArray:
    """Masses between edges, each taken in the tail that is small."""
    if isinstance(law, Gaussian):
        z = (edges - law.mean[0]) / law.covariance[0][0] ** 0.5
        low, high = z[:-1], z[1:]
        right = low > 0
        return np.asarray(ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low)))
    if isinstance(law, Uniform):
        return np.asarray(np.diff(np.clip((edges - law.lower[0]) / (law.upper[0] - law.lower[0]), 0.0, 1.0)))
    assert isinstance(law, Mixture)
    share = np.array(law.weights) / sum(law.weights)
    return np.asarray(np.tensordot(share, np.stack([_masses(part, edges) for part in law.components]), 1))


def _quadrature(law: Law) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights that integrate smooth functions against a law to rounding."""
    if isinstance(law, Mixture):
        share = np.array(law.weights) / sum(law.weights)
        parts = [_quadrature(part) for part in law.components]
        weights = [s * weight for s, (_, weight) in zip(share, parts, strict=True)]
        return np.concatenate([x for x, _ in parts]), np.concatenate(weights)
    unit, weight = np.polynomial.legendre.leggauss(NODES)
    middles = (2.0 * np.arange(NODES) + 1.0 - NODES) / NODES
    x, each = (middles[:, None] + unit / NODES).ravel(), np.tile(0.5 * weight / NODES, NODES)
    if isinstance(law, Uniform):
        return 0.5 * (law.lower[0] + law.upper[0]) + 0.5 * (law.upper[0] - law.lower[0]) * x, each
    assert isinstance(law, Gaussian)
    z = 12.0 * x
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return law.mean[0] + law.covariance[0][0] ** 0.5 * z, 24.0 * each * density
