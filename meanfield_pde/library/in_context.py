"""Heads trained by queries among Gaussian tokens without mean: the loss depends on E[w a] alone, heads stay Gaussian.

With K = T E[w a] a query moves by M = (I − 2 K S)^{−1/2}, S the covariance of its sequence; δL/δrho = c2 w a + const,
c2 = T L'(K), and η' = −(λI + c2 J)η, C' = −(λI + c2 J)C − C(λI + c2 J) + 2βI, J = [[0, 1], [1, 0]].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, head_samples
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_closure import ATOL, RTOL, J, packed, unpacked
from meanfield_pde.library.parameters import Parameter, at, vector
from meanfield_pde.problem import Problem, Sequence

PARAMETERS: dict[str, Parameter] = {"eta0": at("heads.initial.mean", vector(2))}
Task = tuple[FloatArray, FloatArray, FloatArray]
"""Covariance (d, d), queries (Q, d) and targets (Q,) of a sequence."""


def loss_and_slope(tasks: list[Task], axis: int, K: float) -> tuple[float, float]:
    """L(K) = mean ½ |(M x_q)_axis − y_q|² over sequences and queries, and L'(K); dM/dK = S M³.

    Raises: MeanFieldError when a covariance blows up before K.
    """
    loss, slope = 0.0, 0.0
    for covariance, points, targets in tasks:
        value, frame = np.linalg.eigh(covariance)
        left = 1.0 - 2.0 * K * value
        if not (left > 0.0).all():
            raise MeanFieldError(
                f"the covariance of the tokens blows up where T E[w a] = {0.5 / value.max():g}, and it is {K:g}: "
                "take a smaller depth.T or smaller heads"
            )
        row = frame[axis]
        error = points @ (frame @ (row / np.sqrt(left))) - targets
        loss += 0.5 * float(np.mean(error**2)) / len(tasks)
        slope += float(np.mean(error * (points @ (frame @ (row * value / left**1.5))))) / len(tasks)
    return loss, slope


def exact(problem: Problem) -> Exact:
    """Loss, mean and covariance of the heads, and the gradient at any training time.

    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.6.
    """
    tasks = _tasks(problem)
    assert problem.heads is not None
    assert problem.depth is not None
    assert problem.training is not None
    assert problem.objective is not None
    assert problem.objective.query is not None
    initial, term, keys = problem.heads.initial, problem.objective.query, problem.training
    scalar = isinstance(initial, Gaussian) and problem.heads.family == "scalar" and problem.depth.shared
    require(scalar, problem, "the heads are others", "shared scalar heads with a gaussian law")
    assert isinstance(initial, Gaussian)
    length, axis, weight = problem.depth.T, term.axis, term.weight
    start = packed(np.array([initial.mean]), np.array([initial.covariance]))

    def c2(eta: FloatArray, C: FloatArray) -> float:
        slope = loss_and_slope(tasks, axis, length * float(C[0, 0, 1] + eta[0, 0] * eta[0, 1]))[1]
        return weight * length * slope

    def rate(_: float, y: FloatArray) -> FloatArray:
        eta, C = unpacked(y)
        matrix = keys.weight_decay * np.eye(2) + c2(eta, C) * J
        return packed(-eta @ matrix, -matrix @ C - C @ matrix + 2.0 * keys.beta * np.eye(2))

    def state(s: float) -> tuple[FloatArray, FloatArray]:
        from scipy.integrate import solve_ivp  # imported late: listing problems needs none of it

        if s == 0.0:
            return unpacked(start)
        found: Any = solve_ivp(rate, (0.0, s), start, method="DOP853", t_eval=[s], rtol=RTOL, atol=ATOL)
        return unpacked(np.asarray(found.y[:, -1]))

    def observables(s: float) -> dict[str, float]:
        eta, C = state(s)
        K = length * float(C[0, 0, 1] + eta[0, 0] * eta[0, 1])
        out = {"loss": weight * loss_and_slope(tasks, axis, K)[0]}
        out |= {"mean_0": float(eta[0, 0]), "mean_1": float(eta[0, 1])}
        return out | {f"covariance_{i}{j}": float(C[0, i, j]) for i, j in ((0, 0), (0, 1), (1, 1))}

    def rho(s: float, grid: Grid) -> FloatArray:
        eta, C = state(s)
        law = Gaussian((float(eta[0, 0]), float(eta[0, 1])), tuple(map(tuple, C[0].tolist())))
        return head_samples(law, grid)[None]

    def first_variation(s: float, grid: Grid) -> FloatArray:
        return np.asarray(c2(*state(s)) * grid.centers(0)[:, None] * grid.centers(1)[None])[None]

    observables(0.0)  # refuses a blow-up at once
    source = "docs/mathematics.md 5.6"
    # no order is claimed: the wide box of a law that spreads is expensive to refine
    return Exact(observables, source, rho=rho, first_variation=first_variation, order=0)


def _tasks(problem: Problem) -> list[Task]:
    require(problem.kind == "training", problem, f"kind = '{problem.kind}'", "kind = 'training'")
    assert problem.objective is not None
    assert problem.tokens is not None
    require(problem.attention == "softmax", problem, f"attention = '{problem.attention}'", "attention = 'softmax'")
    kind, tokens = problem.objective.kind, problem.tokens
    require(kind == "query-regression", problem, f"objective.kind = '{kind}'", "objective.kind = 'query-regression'")
    free = tokens.drift == type(tokens.drift)() and tokens.noise == 0.0
    require(free, problem, "tokens.drift or tokens.noise is set", "attention alone")
    out = []
    for k, entry in enumerate(problem.sequences):
        centred = isinstance(entry, Sequence) and isinstance(entry.initial, Gaussian) and not any(entry.initial.mean)
        require(centred, problem, f"sequences[{k}] is no gaussian law without mean", "such sequences")
        assert isinstance(entry, Sequence)
        assert isinstance(entry.initial, Gaussian)
        if entry.role == "train":
            covariance = np.array(entry.initial.covariance)
            out.append((covariance, np.array(entry.queries), np.array(entry.query_targets)))
    return out
