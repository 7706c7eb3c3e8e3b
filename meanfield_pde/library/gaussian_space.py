"""Gaussian tokens in two and three dimensions under softmax heads with full matrices: they stay Gaussian.

Λ of N(m, Σ) is quadratic, so a head (W, A) moves a token by W(m + ΣA x), an affine map: with B = ∫ WΣA drho,
ṁ = (∫ W drho + B − ℓ) m, Σ̇ = BΣ + ΣBᵀ − 2ℓΣ + 2D I, ℓ the leak and D the token noise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import gaussian_masses
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_tokens import gaussian_entries
from meanfield_pde.library.parameters import Parameter, at, vector, widened
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.problem import Problem

RTOL, ATOL = 1e-13, 1e-15
# a variance beyond this is taken for a blow-up
LARGEST = 1e6


def parameters(dim: int) -> dict[str, Parameter]:
    """Mean, covariance and heads as keywords."""
    square = vector(dim, vector(dim))
    heads = vector(2 * dim * dim)
    return {
        "m0": at("sequences.0.initial.mean", vector(dim)),
        "covariance": at("sequences.0.initial.covariance", square),
        "points": at("heads.points", lambda value: tuple(heads(point) for point in value)),
        "weights": at("heads.weights", lambda value: tuple(float(v) for v in value)),
        "leak": at("tokens.drift.leak"),
    }


def exact(problem: Problem) -> Exact:
    """Mean and covariance of every Gaussian sequence in depth, integrated to 1e-13.

    Raises: MeanFieldError when the problem no longer has this form or blows up before its last depth.
    Source: docs/mathematics.md 5.1, in R^d.
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    require(problem.attention == "softmax", problem, f"attention = {problem.attention!r}", "attention = 'softmax'")
    assert problem.tokens is not None
    assert problem.heads is not None
    assert problem.depth is not None
    tokens, heads = problem.tokens, problem.heads
    dim = len(tokens.cells)
    require(bool(heads.points), problem, "the heads are not finitely many", "heads.points")
    drift = tokens.drift
    require(drift.flow is None, problem, f"tokens.drift.flow = {drift.flow!r}", "no flow")
    require(not any(drift.constant), problem, f"tokens.drift.constant = {drift.constant}", "no constant drift")
    require(heads.family is not None, problem, "heads.family is missing", "a head family")
    assert heads.family is not None
    matrices = head_matrices(heads.family, np.array(heads.points, dtype=float), dim)
    share = np.array(heads.weights) if heads.weights else np.ones(len(heads.points))
    w, a = matrices.values, matrices.scores[matrices.index]
    laws = _sequences(problem, dim)
    end, leak, noise = problem.depth.T, drift.leak, tokens.noise
    flows = [_flow(m, s, w, a, share / share.sum(), leak, noise, end) for m, s in laws]

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, flow in enumerate(flows):
            m, s = flow(t)
            out |= {f"mean_b{b}_{i}": float(m[i]) for i in range(dim)}
            out |= {f"covariance_b{b}_{i}{j}": float(s[i, j]) for i in range(dim) for j in range(i, dim)}
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        return np.stack([gaussian_masses(*flow(t), grid) for flow in flows]) / grid.cell_volume

    # the grids that can be afforded in space do not resolve a law well enough for limiters to show their order
    return Exact(observables, "docs/mathematics.md 5.1, in R^d", mu=mu, order=0 if dim == 3 else None)


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with a token box that holds its laws at every depth."""
    assert problem.tokens is not None
    assert problem.depth is not None
    known = exact(problem)
    depths = [known.observables(t) for t in np.linspace(0.0, problem.depth.T, 9).tolist()]
    count = sum(key.startswith("mean") for key in depths[0]) // len(problem.tokens.cells)
    laws = [
        [(d[f"mean_b{b}_{k}"], float(np.sqrt(d[f"covariance_b{b}_{k}{k}"])), 5.0) for d in depths for b in range(count)]
        for k in range(len(problem.tokens.cells))
    ]
    return widened(problem, "tokens", "", given, laws)


def _sequences(problem: Problem, dim: int) -> list[tuple[FloatArray, FloatArray]]:
    out = []
    for k, role, law in gaussian_entries(problem):
        require(len(law.mean) == dim, problem, f"sequences[{k}] is not a law in {dim} dimensions", "gaussian sequences")
        if role == "train":
            out.append((np.array(law.mean), np.array(law.covariance)))
    return out


class _Far:
    """The event that ends an integration: an entry of the state beyond `LARGEST`."""

    terminal = True

    def __call__(self, _: float, state: FloatArray) -> float:
        return float(np.abs(state).max()) - LARGEST


def _flow(
    m0: FloatArray,
    s0: FloatArray,
    w: FloatArray,
    a: FloatArray,
    share: FloatArray,
    leak: float,
    noise: float,
    end: float,
) -> Callable[[float], tuple[FloatArray, FloatArray]]:
    """Mean and covariance at any depth up to ``end``. Raises: MeanFieldError when the covariance blows up before."""
    dim = len(m0)
    mean_w = np.einsum("k,kij->ij", share, w)

    def rate(_: float, state: FloatArray) -> FloatArray:
        m, s = state[:dim], state[dim:].reshape(dim, dim)
        b = np.einsum("k,kij,jl,klm->im", share, w, s, a)
        grow = b @ s - leak * s
        return np.concatenate([(mean_w + b) @ m - leak * m, (grow + grow.T + 2.0 * noise * np.eye(dim)).ravel()])

    @lru_cache(maxsize=64)
    def at_depth(t: float) -> tuple[FloatArray, FloatArray]:
        from scipy.integrate import solve_ivp

        state = np.concatenate([m0, s0.ravel()])
        if t > 0.0:
            found = solve_ivp(rate, (0.0, t), state, method="DOP853", rtol=RTOL, atol=ATOL, events=_Far())
            if found.status != 0:
                raise MeanFieldError(
                    f"the covariance of the tokens blows up at depth {found.t[-1]:g}, before {t:g}: "
                    "take a smaller depth.T, smaller heads or a narrower initial law"
                )
            state = found.y[:, -1]
        s = state[dim:].reshape(dim, dim)
        return state[:dim], 0.5 * (s + s.T)

    at_depth(end)
    return at_depth
