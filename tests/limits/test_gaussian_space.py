"""Gaussian tokens under full matrices: the exact solution by independent formulas, and the orders reached on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.library import Exact
from meanfield_pde.problem import Drift, Problem
from meanfield_pde.studies import order_runs


def moments(exact: Exact, t: float, dim: int) -> tuple[np.ndarray, np.ndarray]:
    known = exact.observables(t)
    s = np.empty((dim, dim))
    for i in range(dim):
        for j in range(i, dim):
            s[i, j] = s[j, i] = known[f"covariance_b0_{i}{j}"]
    return np.array([known[f"mean_b0_{i}"] for i in range(dim)]), s


def with_heads(name: str, w: np.ndarray, a: np.ndarray, **more: object) -> tuple[Problem, Exact]:
    problem, exact = library.get(name, points=[[*w.ravel().tolist(), *a.ravel().tolist()]], **more)
    assert exact is not None
    return problem, exact


@pytest.mark.parametrize(("name", "dim"), [("softmax_plane", 2), ("softmax_space", 3)])
def test_for_w_the_identity_the_inverse_covariance_is_linear_in_depth(name: str, dim: int) -> None:
    problem, _ = library.get(name)
    assert problem.heads is not None
    a = 0.4 * np.array(problem.heads.points[0][dim * dim :]).reshape(dim, dim)
    _, exact = with_heads(name, np.eye(dim), a)
    _, start = moments(exact, 0.0, dim)
    for t in (0.1, 0.5):
        m, s = moments(exact, t, dim)
        np.testing.assert_allclose(np.linalg.inv(s), np.linalg.inv(start) - t * (a + a.T), rtol=0, atol=1e-11)
        # the mean by differences of the solution itself: ṁ = (I + ΣA) m
        h = 1e-4
        slope = (moments(exact, t + h, dim)[0] - moments(exact, t - h, dim)[0]) / (2 * h)
        np.testing.assert_allclose(slope, m + s @ a @ m, rtol=0, atol=1e-7)


def test_in_multiples_of_the_identity_it_is_the_solution_on_a_line() -> None:
    w, a, s0, t = -0.7, 0.8, 0.45, 0.5
    _, exact = with_heads(
        "softmax_plane", w * np.eye(2), a * np.eye(2), m0=(0.3, 0.0), covariance=[[s0, 0.0], [0.0, s0]]
    )
    m, s = moments(exact, t, 2)
    variance = s0 / (1 - 2 * w * a * s0 * t)
    np.testing.assert_allclose(s, variance * np.eye(2), atol=1e-13)
    np.testing.assert_allclose(m, [0.3 * np.exp(w * t) * np.sqrt(variance / s0), 0.0], atol=1e-13)


def test_many_tokens_move_as_the_formula_says() -> None:
    # the affine law of motion is that of softmax over the tokens of a Gaussian: means of e^{<Ax,y>} by Gauss-Hermite
    problem, exact = library.get("softmax_plane")
    assert exact is not None
    assert problem.heads is not None
    w, a = np.array(problem.heads.points[0]).reshape(2, 2, 2)
    m, s = moments(exact, 0.0, 2)
    node, weight = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack([g.ravel() for g in np.meshgrid(node, node, indexing="ij")])
    y = m[:, None] + np.linalg.cholesky(s) @ grid
    mass = np.outer(weight, weight).ravel()

    def velocity(x: np.ndarray) -> np.ndarray:
        e = mass * np.exp((a @ x).T @ y - (a @ x).T @ m[:, None])
        return np.asarray(w @ (y @ e.T) / e.sum(axis=1))

    v = velocity(y)
    slope_m = v @ mass / mass.sum()
    slope_s = (v * mass) @ (y - m[:, None]).T / mass.sum()
    h = 1e-4
    (m1, s1), (m2, s2) = moments(exact, h, 2), moments(exact, 2 * h, 2)
    # one-sided, error h²
    np.testing.assert_allclose((4 * m1 - m2 - 3 * m) / (2 * h), slope_m, atol=1e-6)
    np.testing.assert_allclose((4 * s1 - s2 - 3 * s) / (2 * h), slope_s + slope_s.T, atol=1e-6)


def test_several_heads_enter_by_their_averages() -> None:
    problem, _ = library.get("softmax_plane")
    assert problem.heads is not None
    one = np.array(problem.heads.points[0])
    two = np.array([-0.2, 0.1, 0.0, -0.3, 0.5, 0.7, -0.1, 0.4])
    _, exact = library.get("softmax_plane", points=[one.tolist(), two.tolist()], weights=(1.0, 3.0))
    # the same A twice: W is averaged
    mixed = np.r_[0.25 * one[:4] + 0.75 * two[:4], one[4:]]
    _, other = library.get("softmax_plane", points=[mixed.tolist()])
    assert exact is not None
    assert other is not None
    assert exact.observables(0.5) == pytest.approx(other.observables(0.5), abs=1e-12)


def test_what_has_no_exact_solution_is_refused() -> None:
    problem, _ = library.get("softmax_plane")
    assert problem.tokens is not None
    with pytest.raises(MeanFieldError, match="blows up at depth"):
        with_heads("softmax_plane", np.eye(2), 3.0 * np.eye(2))
    pushed = replace(problem, tokens=replace(problem.tokens, drift=Drift(constant=(0.1, 0.0))))
    with pytest.raises(MeanFieldError, match="no constant drift"):
        library.exact_of(pushed)
    with pytest.raises(MeanFieldError, match="attention = 'softmax'"):
        library.exact_of(replace(problem, attention="linear"))


def order(problem: Problem, exact: Exact, grids: tuple[int, int], scheme: str = "weno5z") -> float:
    assert problem.depth is not None
    errors = []
    for n in grids:
        law = order_runs.token_law(problem, scheme, n, grids[0])
        assert exact.mu is not None
        errors.append(float((np.abs(law.values - exact.mu(problem.depth.T, law.grid)) * law.weight).sum()))
    return float(np.log(errors[0] / errors[1]) / np.log(grids[1] / grids[0]))


@pytest.mark.parametrize("identity", [False, True])
def test_shearing_heads_in_the_plane_reach_order_four(identity: bool) -> None:
    problem, exact = library.get("softmax_plane")
    assert exact is not None
    if identity:
        a = 0.5 * np.array([[0.5, 0.7], [-0.1, 0.4]])
        problem, exact = with_heads("softmax_plane", np.eye(2), a, T=0.3)
    with threadpool_limits(limits=1, user_api="blas"):
        assert order(problem, exact, (36, 72)) >= 4.0


def test_full_matrices_in_space_reach_order_three_and_a_half() -> None:
    problem, _ = library.get("softmax_space")
    assert problem.depth is not None
    problem = replace(problem, depth=replace(problem.depth, T=0.25))
    exact = library.exact_of(problem)
    assert exact is not None
    with threadpool_limits(limits=1, user_api="blas"):
        assert order(problem, exact, (18, 26)) >= 3.5
