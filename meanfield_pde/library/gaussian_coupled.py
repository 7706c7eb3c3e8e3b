"""Scalar heads trained by one Gaussian sequence: shared over depth, or one law a layer with leaking tokens."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, head_samples
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_closure import GaussianClosure
from meanfield_pde.library.gaussian_tokens import gaussian_leak, gaussian_sequences
from meanfield_pde.library.parameters import Changes, Interval, Parameter, at, vector, widened
from meanfield_pde.problem import Problem


def _target(b: Any) -> Changes:
    b = float(b)
    return {("objective", "potential", "coefficients"): (0.5 * b * b, -b, 0.5)}


def _covariance(value: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    C_ww, C_wa, C_aa = vector(3)(value)
    return (C_ww, C_wa), (C_wa, C_aa)


PARAMETERS: dict[str, Parameter] = {
    "m0": at("sequences.0.initial.mean.0"),
    "s0": at("sequences.0.initial.covariance.0.0"),
    "b": _target,
    "eta0": at("heads.initial.mean", vector(2)),
    "C0": at("heads.initial.covariance", _covariance),
    "leak": at("tokens.drift.leak"),
}


def closure_of(problem: Problem) -> GaussianClosure:
    """The closed system of a training problem.

    Raises: MeanFieldError when the problem no longer has one: one Gaussian training sequence, a quadratic
    potential as loss, a Gaussian law of scalar heads, no drift but a leak.
    """
    require(problem.kind == "training", problem, f"kind = '{problem.kind}'", "kind = 'training'")
    assert problem.heads is not None
    assert problem.depth is not None
    assert problem.training is not None
    assert problem.objective is not None
    laws = gaussian_sequences(problem)
    require(len(laws) == 1, problem, f"{len(laws)} sequences train", "one training sequence")
    kind, potential = problem.objective.kind, problem.objective.potential
    require(kind == "potential", problem, f"objective.kind = '{kind}'", "objective.kind = 'potential'")
    assert potential is not None
    quadratic = potential.kind == "polynomial" and not any(potential.coefficients[3:])
    require(quadratic, problem, "objective.potential is no polynomial of degree 2", "one, such as (x - b)²/2")
    initial = problem.heads.initial
    require(isinstance(initial, Gaussian), problem, "heads.initial is not gaussian", "a gaussian law of heads")
    assert isinstance(initial, Gaussian)
    q0, q1, q2 = (*potential.coefficients, 0.0, 0.0)[:3]
    layers = 1 if problem.depth.shared else problem.depth.layers
    return GaussianClosure(
        *laws[0],
        gaussian_leak(problem),
        (float(q0), float(q1), float(q2)),
        tuple(np.linspace(0.0, problem.depth.T, layers + 1).tolist()),
        problem.depth.shared,
        float(problem.training.beta),
        float(problem.training.weight_decay),
        (float(initial.mean[0]), float(initial.mean[1])),
        (float(initial.covariance[0][0]), float(initial.covariance[0][1]), float(initial.covariance[1][1])),
    )


def exact(problem: Problem) -> Exact:
    """Loss, free energy, laws of heads and tokens, and the gradient at any training time.

    Meaning: mean and covariance are those of the heads' law averaged over depth, rho and first_variation one a
    layer.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.2.
    """
    closure = closure_of(problem)
    closure.loss_of(*closure.state(0.0))  # refuses a blow-up at once

    def observables(s: float) -> dict[str, float]:
        eta, C = closure.state(s)
        share = np.diff(closure.edges)
        share = share / share.sum() if share.sum() > 0.0 else np.full(len(share), 1.0 / len(share))
        mean = share @ eta
        centred = eta - mean
        covariance = np.einsum("g,gij->ij", share, C + centred[:, :, None] * centred[:, None, :])
        m, variance = closure.tokens(eta, C)
        return {
            "loss": closure.loss_of(eta, C),
            "free_energy": closure.free_energy(eta, C),
            "mean_0": float(mean[0]),
            "mean_1": float(mean[1]),
            "covariance_00": float(covariance[0, 0]),
            "covariance_01": float(covariance[0, 1]),
            "covariance_11": float(covariance[1, 1]),
            "token_mean": m,
            "token_variance": variance,
        }

    def rho(s: float, grid: Grid) -> FloatArray:
        eta, C = closure.state(s)
        laws = [Gaussian((mean[0], mean[1]), tuple(map(tuple, cov.tolist()))) for mean, cov in zip(eta, C, strict=True)]
        return np.stack([head_samples(law, grid) for law in laws])

    def first_variation(s: float, grid: Grid) -> FloatArray:
        c1, c2 = closure.gradient(*closure.state(s))
        w, a = grid.centers(0)[:, None], grid.centers(1)[None, :]
        return c1[:, None, None] * w + c2[:, None, None] * (w * a)

    return Exact(observables, "docs/mathematics.md 5.2", rho=rho, first_variation=first_variation)


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with boxes of tokens and heads that hold their laws at every depth and training time."""
    assert problem.training is not None
    closure = closure_of(problem)
    heads: tuple[list[Interval], list[Interval]] = ([], [])
    tokens: list[Interval] = []
    for s in np.linspace(0.0, problem.training.s_end, 9).tolist():
        eta, C = closure.state(s)
        for k in range(2):
            deviation = np.sqrt(C[:, k, k])
            heads[k].extend((float(m), float(d), 5.3) for m, d in zip(eta[:, k], deviation, strict=True))
        for t in np.linspace(0.0, closure.edges[-1], 5).tolist():
            m, variance = closure.tokens(eta, C, t)
            tokens.append((m, variance**0.5, 6.5))
    problem = widened(problem, "tokens", "", given, [tokens])
    return widened(problem, "heads", "head_", given, list(heads))
