"""Exact solutions of the other attentions against digits and integrations, and the solver against them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Atoms, Gaussian, Mixture, Uniform
from meanfield_pde.library.gaussian_attentions import l2_flow, sinkhorn_flow
from meanfield_pde.library.linear_flow import flow_map
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Feature, Problem
from meanfield_pde.studies import order_runs
from meanfield_pde.studies.orders import orders

EPSILON = 0.3
DIGITS = {
    "mean_shift": {"mean_b0": 0.5, "variance_b0": 0.1321830509},
    "l2_gaussian": {"mean_b0": 1.0068763538, "variance_b0": 1.0263487277},
    "sinkhorn_gaussian": {"mean_b0": 1.0068763538, "variance_b0": 1.2221776929},
}


def exact_of(name: str, **parameters: Any) -> Any:
    exact = library.get(name, **parameters)[1]
    assert exact is not None
    return exact


# ---- the formulas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIGITS)
def test_check_values(name: str) -> None:
    assert exact_of(name, m0=0.5, s0=0.4).observables(1.0) == pytest.approx(DIGITS[name], abs=1e-10)


@pytest.mark.parametrize(
    ("m0", "s0", "w", "epsilon"), [(0.5, 0.4, 0.7, 0.3), (-0.3, 2.0, -1.1, 0.02), (1.0, 0.01, 0.6, 5.0)]
)
def test_gaussian_flows_solve_their_equations(m0: float, s0: float, w: float, epsilon: float) -> None:
    def coupled(s: float) -> float:
        return 0.5 * (-epsilon + np.sqrt(epsilon**2 + 4 * s * s))

    rates = {
        "l2": lambda m, s: (w * m, 2 * w * s * s / (s + epsilon)),
        "shift": lambda m, s: (0.0, 2 * w * (s * s / (s + epsilon) - s)),
        "sinkhorn": lambda m, s: (w * m, 2 * w * coupled(s)),
    }
    found = {
        "l2": l2_flow(m0, s0, w, 1 / epsilon, 0.0, 0.8),
        "shift": l2_flow(m0, s0, w, 1 / epsilon, w, 0.8),
        "sinkhorn": sinkhorn_flow(m0, s0, w, 1 / epsilon, 0.8),
    }
    for name, rate in rates.items():
        wanted = solve_ivp(lambda t, y, r=rate: r(*y), (0, 0.8), [m0, s0], method="DOP853", rtol=1e-12, atol=1e-15)
        assert found[name] == pytest.approx(tuple(wanted.y[:, -1]), rel=1e-9)


def test_two_diracs_to_the_digits() -> None:
    assert np.sqrt(exact_of("two_diracs").observables(1.0)["variance_b0"]) == pytest.approx(1.82687363, abs=5e-9)


def test_linear_flow_of_any_law_against_its_tokens() -> None:
    """The second moment by its own equation, and each token carried by it."""
    laws = (
        Uniform((-0.4,), (1.6,)),
        Atoms(((-1.0,), (0.5,), (0.7,)), (1.0, 2.0, 1.0)),
        Mixture((1.0, 3.0), (Gaussian((-0.5,), ((0.2,),)), Uniform((0.0,), (1.0,)))),
    )
    problem, _ = library.get("linear_flow")
    for law in laws:
        one = replace(problem, sequences=(replace(problem.sequences[0], initial=law),))
        exact = library.exact_of(one)
        assert exact is not None
        start = exact.observables(0.0)
        second = start["variance_b0"] + start["mean_b0"] ** 2
        at = solve_ivp(lambda t, y: [0.6 * y[0] ** 2, 0.3 * y[0] * y[1]], (0, 1), [second, 1.0], rtol=1e-12, atol=1e-14)
        end = exact.observables(1.0)
        assert end["variance_b0"] + end["mean_b0"] ** 2 == pytest.approx(at.y[0, -1], rel=1e-9)
        assert end["mean_b0"] == pytest.approx(start["mean_b0"] * at.y[1, -1], rel=1e-9)
    # and the map itself in the plane
    second = np.array([[0.7, 0.2], [0.2, 0.5]])
    y = solve_ivp(
        lambda t, y: np.concatenate([(2 * -0.4 * y[:4].reshape(2, 2) @ y[:4].reshape(2, 2)).ravel(),
                                     (-0.4 * y[:4].reshape(2, 2) @ y[4:].reshape(2, 2)).ravel()]),
        (0, 0.9), np.concatenate([second.ravel(), np.eye(2).ravel()]), method="DOP853", rtol=1e-12, atol=1e-14,
    ).y[:, -1]  # fmt: skip
    np.testing.assert_allclose(flow_map(second, -0.4, 0.9), y[4:].reshape(2, 2), rtol=1e-9)
    with pytest.raises(MeanFieldError, match=r"blows up at depth 1\.5\d*, before 2"):
        flow_map(np.array([[1.0]]), 0.3333, 2.0)


@pytest.mark.parametrize(
    "feature", [Feature("bump", center=(1.4,), width=0.5), Feature("polynomial", (0.3, -1.0, 0.4, 0.2))]
)
def test_costate_of_linear_attention_is_the_derivative_of_the_loss(feature: Feature) -> None:
    """dL/d(mass at x) by adding a small atom to the law and moving all by the exact flow."""
    problem, _ = library.get("linear_costate")
    assert problem.objective is not None
    problem = replace(problem, objective=replace(problem.objective, potential=feature))
    exact = library.exact_of(problem)
    assert exact is not None
    assert exact.p is not None
    kappa, T, at = -0.3, 1.0, 0.3
    parts = ((0.6, 1.6, 0.06), (0.4, 2.5, 0.1))

    def g(x: np.ndarray) -> np.ndarray:
        if feature.kind == "bump":
            return np.exp(-0.5 * ((x - 1.4) / 0.5) ** 2)
        return 0.3 - x + 0.4 * x**2 + 0.2 * x**3

    second0 = sum(c * (m * m + s) for c, m, s in parts)
    scale = 1 / np.sqrt(1 - 2 * kappa * second0 * at)

    def loss(mass: float, x: float) -> float:
        # mu_t + mass δ_x, not normalised, moved on from depth t
        second = second0 * scale**2 + mass * x * x
        grow = 1 / np.sqrt(1 - 2 * kappa * second * (T - at))
        total = mass * float(g(np.array(grow * x)))
        for c, m, s in parts:

            def integrand(z: float, m: float = m, s: float = s) -> float:
                return float(g(np.array(grow * scale * (m + np.sqrt(s) * z)))) * np.exp(-0.5 * z * z)

            total += c * quad(integrand, -9, 9, epsabs=1e-13, epsrel=1e-12)[0] / np.sqrt(2 * np.pi)
        return total

    grid = Grid((0.2,), (3.2,), (5,), (False,))
    p = exact.p(at, grid)[0]
    for x, value in zip(grid.centers(0), p, strict=True):
        step = 1e-3
        slope = (8 * (loss(step, x) - loss(-step, x)) - (loss(2 * step, x) - loss(-2 * step, x))) / (12 * step)
        assert value == pytest.approx(slope, rel=1e-7, abs=1e-8)


# ---- the solver against them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIGITS)
def test_the_solver_reaches_the_digits(name: str) -> None:
    """Sinkhorn to 1e-6, the others to 1e-7, on the shipped grids."""
    problem, exact = library.get(name)
    assert problem.tokens is not None
    solution = solve(problem)
    grid = problem.tokens.grid()
    law = grid.measure(solution.mu[-1, 0])
    found = {"mean_b0": float(law.mean()[0]), "variance_b0": float(law.covariance()[0, 0])}
    assert found == pytest.approx(DIGITS[name], abs=1e-6 if name == "sinkhorn_gaussian" else 1e-7)
    assert exact is not None
    assert exact.mu is not None
    assert grid.integral(np.abs(solution.mu[-1] - exact.mu(1.0, grid))).max() <= 1e-5
    # nothing is tabulated, so nothing is said of a table
    assert solution.certificates["table_error"] is None
    assert solution.certificates["table_size"] is None


CASES = [
    ("mean_shift", "weno5z", (64, 128), 4.85), ("l2_gaussian", "linear5", (64, 128), 4.85),
    ("linear_flow", "weno5z", (64, 128, 256), 4.85), ("sinkhorn_gaussian", "linear5", (64, 128), 4.85),
    ("l2_plane", "weno5z", (44, 88), 3.85), ("linear_plane", "weno5z", (44, 88, 176), 3.85),
]  # fmt: skip


@pytest.mark.parametrize(("name", "scheme", "cells", "least"), CASES)
def test_laws_have_the_order_of_the_scheme(name: str, scheme: str, cells: tuple[int, ...], least: float) -> None:
    problem, exact = library.get(name)
    rows = orders(problem, exact, cells=cells, schemes=[scheme])["rows"]
    row = next(row for row in rows if row["norm"] == "L1")
    assert row["flow"] == "mu"
    assert row["fitted"] >= least


@pytest.mark.parametrize(("scheme", "least"), [("linear5", 4.5), ("weno5z", 3.5)])
def test_reported_costate_of_linear_attention_has_order_three_and_a_half(scheme: str, least: float) -> None:
    problem, exact = library.get("linear_costate")
    rows = orders(problem, exact, cells=(128, 256, 512) if scheme == "weno5z" else (128, 256), schemes=[scheme])["rows"]
    assert [(row["flow"], row["norm"], row["declared"]) for row in rows] == [("costate", "L1(mu)", 4)]
    assert rows[0]["fitted"] >= least


def test_beside_a_standstill_the_dual_of_upwinding_errs_by_the_cell_width_and_nowhere_else() -> None:
    """V = κ M2 x turns its sign at x = 0: p is of order 1 in the cells beside it, of order 4 and more elsewhere."""
    problem, _ = library.get("linear_flow")
    costate, _ = library.get("linear_costate")
    problem = replace(problem, objective=costate.objective)
    exact = library.exact_of(problem)
    assert exact is not None
    assert exact.p is not None
    worst = {}
    for n in (128, 256):
        law = order_runs.costate(problem, "linear5", n, 64)
        x = law.grid.centers(0)
        gap = np.abs(law.values - exact.p(0.0, law.grid))[0]
        near = np.abs(x) < 6 * law.grid.spacing[0]
        worst[n] = float(gap[near].max()), float((gap * law.weight[0])[~near].sum())
    assert 0.7 < np.log2(worst[128][0] / worst[256][0]) < 1.5
    assert np.log2(worst[128][1] / worst[256][1]) > 4.0


def test_two_diracs_on_grids_have_order_one_half_in_the_wasserstein_distance() -> None:
    problem, exact = library.get("two_diracs")
    rows = orders(problem, exact, cells=(128, 256, 512), schemes=["upwind1"])["rows"]
    row = next(row for row in rows if row["norm"] == "W1")
    assert not row["short"]
    assert row["fitted"] >= 0.45
    # where the two clumps are on average is of order 1
    places = {}
    for n in (128, 256):
        law = order_runs.token_law(problem, "upwind1", n, n)
        places[n] = float((law.values[0] * law.weight) @ np.abs(law.grid.centers(0)))
    assert abs(2 * places[256] - places[128] - 1.82687363) < 2e-3


# ---- boxes and refusals ------------------------------------------------------------------------------------------


def test_boxes_hold_the_laws_of_other_parameters() -> None:
    wide, exact = library.get("l2_plane", m0=(0.5, 0.0), s0=(0.9, 0.2), w=0.4)
    assert wide.tokens is not None
    assert exact is not None
    assert wide.tokens.upper[0] > 5.0
    assert wide.tokens.upper[1] == 3.6
    assert exact.observables(0.0)["covariance_b0_11"] == pytest.approx(0.2)
    assert library.get("linear_flow", w=0.9)[0].tokens != library.get("linear_flow")[0].tokens


def _sequence(problem: Problem, law: Any) -> Problem:
    return replace(problem, sequences=(replace(problem.sequences[0], initial=law),))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("mean_shift", lambda p: replace(p, tokens=replace(p.tokens, drift=replace(p.tokens.drift, leak=0.4))),
         r"leak = 0\.4, but .* needs no leak, or one of E\[w\] = 1"),
        ("sinkhorn_gaussian", lambda p: replace(p, heads=replace(p.heads, points=((0.7, 1.0), (0.7, 2.0)))),
         r"heads have a = \[1\.0, 2\.0\]"),
        ("l2_gaussian", lambda p: replace(p, attention="linear"), "attention = 'linear'"),
        ("l2_plane", lambda p: _sequence(p, Gaussian((0.0, 0.0), ((0.3, 0.1), (0.1, 0.3)))), "correlated axes"),
        ("linear_flow", lambda p: replace(p, attention="l2"), "needs attention = 'linear'"),
        ("linear_flow", lambda p: replace(p, heads=replace(p.heads, points=((2.0, 0.6),))), "blows up at depth"),
        ("two_diracs", lambda p: _sequence(p, Atoms(((-1.0,), (0.9,)))), "no pair of equal opposite atoms"),
    ],
)  # fmt: skip
def test_a_problem_that_lost_its_form_is_refused(name: str, change: Any, says: str) -> None:
    with pytest.raises(MeanFieldError, match=says):
        library.exact_of(change(library.get(name)[0]))
