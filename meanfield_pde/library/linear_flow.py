"""Linear attention with W = w I, A = a I: one linear map moves every law (A6), and its costate is known (A7)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import sqrt
from pathlib import Path

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Atoms, Gaussian, Law, Mixture, Uniform, cell_averages
from meanfield_pde.library.exact import Exact, require, token_moments
from meanfield_pde.library.gaussian_tokens import fitted_on_a_line, gaussian_leak, head_moments
from meanfield_pde.library.parameters import Parameter, at
from meanfield_pde.problem import Feature, Problem, Sequence

PARAMETERS: dict[str, Parameter] = {"w": at("heads.points.0.0"), "a": at("heads.points.0.1")}
NODES = 160
Function = Callable[[FloatArray], FloatArray]


def moments(problem: Problem, law: Law) -> tuple[FloatArray, FloatArray]:
    """Mean (d,) and second moments ∫ y yᵀ (d, d) of a law. Raises: MeanFieldError where they have no closed form."""
    if isinstance(law, Gaussian):
        mean = np.array(law.mean)
        return mean, np.array(law.covariance) + np.outer(mean, mean)
    if isinstance(law, Uniform):
        low, high = np.array(law.lower), np.array(law.upper)
        mean = 0.5 * (low + high)
        return mean, np.diag((high - low) ** 2 / 12.0) + np.outer(mean, mean)
    if isinstance(law, Atoms):
        points, weights = np.array(law.points, dtype=float), np.array(law.weights or (1.0,) * len(law.points))
        share = weights / weights.sum()
        return share @ points, (share[:, None] * points).T @ points
    if isinstance(law, Mixture):
        parts = [moments(problem, part) for part in law.components]
        share = np.array(law.weights) / sum(law.weights)
        total = [sum(float(s) * part[i] for s, part in zip(share, parts, strict=True)) for i in range(2)]
        return np.asarray(total[0]), np.asarray(total[1])
    require(False, problem, f"a sequence is a {law.law} law", "gaussian, uniform or atomic laws, or mixtures of them")
    raise AssertionError


def pushed(law: Law, matrix: FloatArray) -> Law:
    """The image of a law under x -> matrix x. Raises: MeanFieldError for a uniform law that is turned."""
    if isinstance(law, Gaussian):
        covariance = matrix @ np.array(law.covariance) @ matrix.T
        covariance = 0.5 * (covariance + covariance.T)
        return Gaussian(tuple((matrix @ np.array(law.mean)).tolist()), tuple(map(tuple, covariance.tolist())))
    if isinstance(law, Uniform):
        scale = np.diag(matrix)
        if np.abs(matrix - np.diag(scale)).max() > 1e-14 * np.abs(scale).max():
            raise MeanFieldError("the image of a box is no box: take a uniform law whose second moments are diagonal")
        return Uniform(tuple((scale * law.lower).tolist()), tuple((scale * law.upper).tolist()))
    if isinstance(law, Atoms):
        return Atoms(tuple(map(tuple, (np.array(law.points, dtype=float) @ matrix.T).tolist())), law.weights)
    assert isinstance(law, Mixture)
    return Mixture(law.weights, tuple(pushed(part, matrix) for part in law.components))


def expected(law: Law, f: Function) -> float:
    """∫ f dmu of a law on a line, by Gauss quadrature of each part."""
    if isinstance(law, Gaussian):
        node, weight = np.polynomial.hermite_e.hermegauss(NODES)
        return float(weight @ f(law.mean[0] + sqrt(law.covariance[0][0]) * node) / weight.sum())
    if isinstance(law, Uniform):
        node, weight = np.polynomial.legendre.leggauss(NODES)
        return float(0.5 * weight @ f(0.5 * (law.lower[0] + law.upper[0] + (law.upper[0] - law.lower[0]) * node)))
    if isinstance(law, Atoms):
        share = np.array(law.weights or (1.0,) * len(law.points))
        return float(share @ f(np.array(law.points, dtype=float)[:, 0]) / share.sum())
    assert isinstance(law, Mixture)
    share = np.array(law.weights) / sum(law.weights)
    return float(share @ np.array([expected(part, f) for part in law.components]))


def flow_map(second: FloatArray, kappa: float, t: float) -> FloatArray:
    """The map (I - 2 κ t M2(0))^{-1/2} that linear attention has made at depth t.

    Raises: MeanFieldError when it blows up before t, with the depth 1/(2 κ λ), λ the largest eigenvalue of M2(0).
    """
    value, vector = np.linalg.eigh(second)
    left = 1.0 - 2.0 * kappa * t * value
    if left.min() <= 0.0:
        depth = 1.0 / (2.0 * kappa * float(value.max()))
        raise MeanFieldError(
            f"linear attention blows up at depth {depth:g}, before {t:g} (E[w a] = {kappa:g} > 0): take a smaller "
            "depth.T, E[w a] or narrower laws"
        )
    return np.asarray((vector / np.sqrt(left)) @ vector.T)


def exact(problem: Problem) -> Exact:
    """Every law is moved by x(t) = (I - 2κ t M2(0))^{-1/2} x(0), κ = ∫ w a drho; on a line with p for a potential.

    Formula: p(t, x) = g(Λx) + κ τ Λ³ x² ∫ y g'(Λy) mu_t(dy), Λ = (1 - 2κ M2(t) τ)^{-1/2}, τ = T - t.
    Raises: MeanFieldError when the problem no longer has this form or blows up before its last depth.
    Source: docs/mathematics.md 5.1, A6 and A7.
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    require(problem.attention == "linear", problem, f"attention = '{problem.attention}'", "attention = 'linear'")
    assert problem.heads is not None
    assert problem.depth is not None
    family, end = problem.heads.family, problem.depth.T
    require(family == "scalar", problem, f"heads.family = {family!r}", "heads.family = 'scalar'")
    leak = gaussian_leak(problem)
    require(leak == 0.0, problem, f"tokens.drift.leak = {leak:g}", "no leak")
    laws, kappa = _laws(problem), head_moments(problem, problem.heads)[1]
    seconds = [moments(problem, law)[1] for law in laws]
    for second in seconds:  # refuses a blow-up before the end
        flow_map(second, kappa, end)

    def at_depth(t: float) -> list[Law]:
        return [pushed(law, flow_map(second, kappa, t)) for law, second in zip(laws, seconds, strict=True)]

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, law in enumerate(at_depth(t)):
            mean, second = moments(problem, law)
            out |= token_moments(b, mean, second - np.outer(mean, mean))
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        return np.stack([cell_averages(law, grid, Path(problem.base))[0] for law in at_depth(t)])

    potential = None if problem.objective is None else problem.objective.potential
    if potential is None or len(seconds[0]) > 1:
        return Exact(observables, "docs/mathematics.md 5.1, A6", mu=mu)
    g, slope = _terminal(potential)

    def pull(law: Law, scale: float) -> float:
        return expected(law, lambda y: y * slope(scale * y))

    def p(t: float, grid: Grid) -> FloatArray:
        x, tau = grid.centers(0), end - t
        rows = []
        for law in at_depth(t):
            scale = float(flow_map(moments(problem, law)[1], kappa, tau)[0, 0])
            rows.append(g(scale * x) + kappa * tau * scale**3 * x * x * pull(law, scale))
        return np.stack(rows)

    return Exact(observables, "docs/mathematics.md 5.1, A6 and A7", mu=mu, p=p)


def _laws(problem: Problem) -> list[Law]:
    out = []
    for k, entry in enumerate(problem.sequences):
        require(isinstance(entry, Sequence), problem, f"sequences[{k}] is a file", "laws")
        assert isinstance(entry, Sequence)
        if entry.role == "train":
            out.append(entry.initial)
    require(bool(out), problem, "no sequence has role 'train'", "one that has")
    return out


def _terminal(feature: Feature) -> tuple[Function, Function]:
    """g and g' of a potential on a line."""
    if feature.kind == "polynomial":
        g = np.polynomial.Polynomial(feature.coefficients)
        return g, g.deriv()
    assert feature.width is not None
    center, width = feature.center[0], feature.width

    def bump(x: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-0.5 * ((x - center) / width) ** 2))

    return bump, lambda x: np.asarray(-(x - center) / width**2 * bump(x))


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with a token box that holds its laws at every depth, as wide as normal laws of their moments."""
    return fitted_on_a_line(problem, given, exact(problem), 5.0)
