"""In-context regression by queries: the exact loss and gradient, the closed system, and a run against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import sqrtm

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.laws import Gaussian
from meanfield_pde.library.in_context import loss_and_slope
from meanfield_pde.problem import Drift, Heads
from meanfield_pde.training.assemble import assemble

TASKS = [
    (np.array([[0.25, -0.125], [-0.125, 0.1825]]), np.array([[0.4, 0.0], [-0.7, 0.2]]), np.array([-0.3, 0.1])),
    (np.array([[0.25, 0.05], [0.05, 0.15]]), np.array([[0.4, 0.1], [0.9, 0.0]]), np.array([0.2, 0.5])),
]


def test_loss_of_the_affine_query_map_and_its_slope() -> None:
    def plain(K: float) -> float:
        total = 0.0
        for S, points, targets in TASKS:
            M = np.linalg.inv(np.real(sqrtm(np.eye(2) - 2.0 * K * S)))
            total += 0.25 * sum((M @ x - np.array([0.0, y]))[1] ** 2 for x, y in zip(points, targets, strict=True))
        return total / 2

    loss, slope = loss_and_slope(TASKS, 1, 0.8)
    assert loss == pytest.approx(plain(0.8), rel=1e-12)
    assert slope == pytest.approx((plain(0.8 + 1e-5) - plain(0.8 - 1e-5)) / 2e-5, rel=1e-8)
    with pytest.raises(MeanFieldError, match="blows up where T E"):
        loss_and_slope(TASKS, 1, 1.5)


def test_loss_and_gradient_of_the_shipped_problem_against_the_closed_form() -> None:
    errors = []
    for cells in ((28, 22), (42, 33)):
        problem, exact = library.get(
            "in_context_regression", cells=cells, head_cells=12, head_lower=0.1, head_upper=1.9
        )
        assert exact is not None
        assert exact.first_variation is not None
        ready = assemble(problem)
        assert ready.state is not None
        assert ready.heads is not None
        assert ready.head_grid is not None
        found = ready.tokens.first_variation(ready.heads.measure(ready.state.rho))
        rho = ready.state.rho[0].ravel() / ready.state.rho.sum()
        known = exact.first_variation(0.0, ready.head_grid).ravel()
        gap, size = (v - rho @ v for v in (found.potential[0] - known, known))
        errors.append((abs(found.loss - exact.observables(0.0)["loss"]), rho @ np.abs(gap) / (rho @ np.abs(size))))
    order = np.log(np.array(errors[0]) / np.array(errors[1])) / np.log(1.5)
    assert order.min() >= 3.0
    assert max(errors[1]) <= 0.03


def test_the_closed_system_learns_in_context() -> None:
    _, exact = library.get("in_context_regression")
    assert exact is not None
    first, last = exact.observables(0.0), exact.observables(2.8)
    assert last["loss"] < 0.2 * first["loss"]
    # the law of the heads in the closed system is the law it starts from
    assert (first["mean_0"], first["covariance_00"]) == (1.0, 0.03)
    h = 1e-4
    ahead, behind = exact.observables(1.0 + h), exact.observables(1.0 - h)
    here = exact.observables(1.0)
    # η' = −(λ + c2 J)η with η_w = η_a, and C_wa' = −2λ C_wa − 2 c2 C_ww
    c2 = -(ahead["mean_0"] - behind["mean_0"]) / (2 * h) / here["mean_0"] - 0.001
    slope = (ahead["covariance_01"] - behind["covariance_01"]) / (2 * h)
    assert slope == pytest.approx(-0.002 * here["covariance_01"] - 2.0 * c2 * here["covariance_00"], rel=1e-5)


def test_problems_that_lost_their_form_have_no_exact_solution() -> None:
    problem, _ = library.get("in_context_regression")
    assert problem.tokens is not None
    assert problem.heads is not None
    first = problem.sequences[0]
    for changed, message in (
        (replace(problem, tokens=replace(problem.tokens, drift=Drift(0.1))), "tokens.drift or tokens.noise is set"),
        (replace(problem, sequences=(replace(first, initial=Gaussian((0.1, 0.0), ((0.2, 0.0), (0.0, 0.2)))),)),
         "no gaussian law without mean"),
        (replace(problem, heads=Heads("diagonal", (0.0,) * 3, (2.0,) * 3, (12,) * 3, initial=Gaussian(
            (1.0,) * 3, ((0.03, 0.0, 0.0), (0.0, 0.03, 0.0), (0.0, 0.0, 0.03))))), "the heads are others"),
    ):  # fmt: skip
        with pytest.raises(MeanFieldError, match=message):
            library.exact_of(changed)
