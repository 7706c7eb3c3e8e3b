"""Laws that collapse: attraction by |x| with its exact law and transposes, softmax attention past its blow-up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde import library, solve
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.laws import Uniform
from meanfield_pde.model.aggregation import AggregationField
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.output.solution import Solution

AXIS = np.linspace(-1.0, 1.0, 12)
THETA = np.array([[0.7, 0.1], [-0.2, 0.4], [1.1, 0.1]])


def aggregation(points: np.ndarray, weights: np.ndarray) -> AggregationField:
    targets = (Target(points[:, None], 0),)
    return AggregationField(head_matrices("scalar", THETA, 1), weights, targets, Lattice((AXIS,), np.array([0.18])))


def test_velocity_and_transposes_of_aggregation() -> None:
    rng = np.random.default_rng(0)
    faces, heads = 0.5 * (AXIS[1:] + AXIS[:-1]), np.array([0.5, 0.3, 0.2])
    field, masses = aggregation(faces, heads), rng.random((2, 12))
    sign = np.sign(faces[:, None] - AXIS)

    def plain(masses: np.ndarray, heads: np.ndarray) -> np.ndarray:
        return -(heads @ THETA[:, 0]) * (masses @ sign.T) / masses.sum(axis=1, keepdims=True)

    moments = field.moments(masses)
    np.testing.assert_allclose(field.velocity(moments)[0], plain(masses, heads), rtol=0, atol=1e-15)
    g, step = rng.normal(size=(2, 11)), 1e-6
    by_mass = field.to_mu((g,), moments)
    for j in range(12):
        change = step * np.eye(12)[j]
        slope = (g * (plain(masses + change, heads) - plain(masses - change, heads))).sum(axis=1) / (2 * step)
        np.testing.assert_allclose(by_mass[:, j], slope, rtol=0, atol=1e-8)
    expected = [(g * plain(masses, np.eye(3)[k])).sum() for k in range(3)]
    np.testing.assert_allclose(field.to_rho((g,), moments), expected, rtol=1e-13)
    with pytest.raises(MeanFieldError, match="take one axis between walls"):
        AggregationField(field.heads, heads, (), Lattice((AXIS, AXIS), np.array([0.18, 0.18])))


def collapsed(cells: int, c: float, T: float, scheme: str, positivity: bool) -> tuple[Solution, float]:
    """A run of the shipped problem about another middle, and its distance W1 to the exact law."""
    problem, _ = library.get("aggregation", cells=cells, T=T, scheme=scheme, positivity=positivity)
    law = Uniform((c - 1.0,), (c + 1.0,))
    problem = replace(problem, sequences=(replace(problem.sequences[0], initial=law),))
    if T > 1.0:
        with pytest.warns(UserWarning, match="concentrated below the grid scale"):
            solution = solve(problem)
    else:
        solution = solve(problem)
    grid = problem.tokens.grid()
    masses = solution.mu[-1, 0] * grid.spacing[0]
    if T > 1.0:
        return solution, float(masses @ np.abs(grid.centers(0) - c))
    below = np.clip(0.5 + 0.5 * (grid.edges(0)[1:] - c) / (1.0 - T), 0.0, 1.0)
    return solution, float(np.abs(np.cumsum(masses) - below).sum() * grid.spacing[0])


@pytest.mark.parametrize(("scheme", "positivity"), [("upwind1", False), ("weno5z", True)])
@pytest.mark.parametrize("T", [0.8, 1.5])
def test_aggregation_through_its_collapse(scheme: str, positivity: bool, T: float) -> None:
    cells, errors = (48, 96, 192), []
    for n in cells:
        solution, error = collapsed(n, 0.0 if T > 1.0 else 0.13, T, scheme, positivity)
        found = solution.certificates
        assert np.isfinite(solution.mu).all()
        assert found["mass_error_mu"] <= 1e-14
        assert found["min_mu"] >= 0.0
        # |V| <= 1: no more steps than a constant velocity takes
        assert found["depth_steps"] <= T / (4.0 / n) / 0.5 + 2
        errors.append(error)
    assert -np.polyfit(np.log(cells), np.log(errors), 1)[0] >= 0.5
    assert errors[-1] <= 0.03


def test_the_exact_law_shrinks_at_constant_speed() -> None:
    problem, exact = library.get("aggregation", w=0.5)
    assert exact is not None
    assert exact.observables(0.6) == pytest.approx({"mean_b0": 0.0, "variance_b0": 0.7**2 / 3})
    assert exact.observables(2.5) == {"mean_b0": 0.0, "variance_b0": 0.0}
    solution = solve(replace(problem, depth=replace(problem.depth, T=0.9, scheme="weno5z")))
    x, h = problem.tokens.grid().centers(0), 4.0 / 128
    assert solution.mu[-1, 0] @ x**2 * h - h * h / 12 == pytest.approx(0.55**2 / 3, rel=2e-2)


@pytest.mark.parametrize(("scheme", "positivity"), [("upwind1", False), ("weno5z", True)])
def test_softmax_attention_past_its_blow_up(scheme: str, positivity: bool) -> None:
    # the variance of the law is infinite at t = 2.232; the walls hold what has left
    problem, _ = library.get("softmax_gaussian", m0=0.5, s0=0.4, w=0.7, a=0.8, lower=-8.0, upper=8.0, cells=96)
    depth = replace(problem.depth, T=2.5, scheme=scheme, positivity=positivity)
    with pytest.warns(UserWarning, match="mu ") as caught:
        solution = solve(replace(problem, reference=None, depth=depth))
    said = " ".join(str(w.message) for w in caught)
    assert "mu touches the wall" in said
    assert "concentrated below the grid scale" in said
    found = solution.certificates
    assert np.isfinite(solution.mu).all()
    assert found["mass_error_mu"] <= 1e-14
    assert found["min_mu"] >= 0.0
    # means stay in the box, so |V| <= .7 · 8
    assert found["depth_steps"] <= 2.5 * 0.7 * 8.0 / (16.0 / 96) / 0.5 * 1.1 + 2
