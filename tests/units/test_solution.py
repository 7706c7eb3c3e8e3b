"""What a solution says beyond its arrays: predictions without targets, warnings, observers, losses that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Uniform
from meanfield_pde.measure import Measure
from meanfield_pde.output.record import Observer
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import (
    Depth,
    Drift,
    Feature,
    Heads,
    Objective,
    Problem,
    Sequence,
    Tokens,
)

SHORT = {"cells": 96, "head_cells": 16, "layers": 4, "s_end": 0.1, "snapshots": 2}


@pytest.fixture(scope="module")
def solution() -> Solution:
    return solve(library.get("gaussian_coupled", **SHORT)[0])


def gaussian(mean: float, variance: float) -> Sequence:
    return Sequence(Gaussian((mean,), ((variance,),)))


def test_new_laws_need_no_targets_and_are_carried_by_the_trained_heads(solution: Solution) -> None:
    prediction = solution.predict([gaussian(0.5, 0.4), gaussian(-0.3, 0.5)])
    assert prediction.labels is None
    # Gaussian tokens stay Gaussian: m_T and s_T in closed form from the moments of rho
    grid = solution.head_grid
    assert grid is not None
    w = solution.rho[0].ravel() * grid.cell_volume
    mean_w, kappa = w @ grid.points()[:, 0], w @ grid.points().prod(axis=1)
    tokens = solution.token_grid
    assert tokens is not None
    for law, (m0, s0) in zip(prediction.mu, ((0.5, 0.4), (-0.3, 0.5)), strict=True):
        s = s0 / (1.0 - 2.0 * kappa * s0)
        measure = tokens.measure(law)
        assert measure.mean()[0] == pytest.approx(m0 * np.exp(mean_w) * np.sqrt(s / s0), rel=1e-5)
        assert measure.covariance()[0, 0] == pytest.approx(s, rel=1e-4)


def test_features_of_regression_are_predicted_without_labels() -> None:
    problem, _ = library.get("gaussian_coupled", **SHORT)
    loss = Objective("regression", features=(Feature("polynomial", (0.0, 1.0)),))
    known = replace(gaussian(0.5, 0.4), target=0.7)
    trained = solve(replace(problem, reference=None, objective=loss, sequences=(known,)))
    found = trained.predict([gaussian(0.2, 0.3)])
    grid = trained.token_grid
    assert grid is not None
    assert found.outputs["features"][0, 0] == pytest.approx(grid.measure(found.mu[0]).mean()[0], rel=1e-12)


def test_observers_see_every_moment_and_change_no_bit(solution: Solution) -> None:
    seen: list[tuple[float, float]] = []
    watch = Observer(lambda m: m.variation.loss, lambda m: not m.side, lambda s, loss: seen.append((s, loss)))
    watched = solve(library.get("gaussian_coupled", **SHORT)[0], observers=(watch,))
    np.testing.assert_array_equal(watched.rho, solution.rho)
    assert [loss for _, loss in seen] == solution.history["loss"].tolist()
    assert [s for s, _ in seen] == solution.history["s"].tolist()


def tokens_problem(points: tuple[tuple[float, float], ...], **more: object) -> Problem:
    given: dict[str, object] = {
        "kind": "tokens",
        "attention": "softmax",
        "tokens": Tokens((-4.0,), (4.0,), (64,)),
        "heads": Heads("scalar", points=points),
        "depth": Depth(T=1.0, layers=4),
        "sequences": (gaussian(0.3, 0.4),),
    }
    return Problem(**(given | more))


def test_a_law_that_blows_up_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="touches the wall|under-resolved|below the grid scale"):
        solve(tokens_problem(((0.5, 1.0),), depth=Depth(T=6.0, layers=4)))


def test_a_law_narrower_than_a_cell_is_warned_of() -> None:
    narrow = (gaussian(0.3, 0.2),)
    still = tokens_problem((), attention=None, heads=None, depth=Depth(T=2.0, layers=4), sequences=narrow)
    moving = replace(still, tokens=Tokens((-4.0,), (4.0,), (64,), drift=Drift(leak=3.0)))
    with pytest.warns(UserWarning, match="below the grid scale"):
        solve(moving)


def test_tokens_without_heads_move_by_their_drift_alone() -> None:
    still = tokens_problem((), attention=None, heads=None)
    moved = solve(replace(still, tokens=Tokens((-4.0,), (5.0,), (96,), drift=Drift(constant=(0.7,)))))
    grid = moved.token_grid
    assert grid is not None
    assert grid.measure(moved.mu[-1, 0]).mean()[0] == pytest.approx(1.0, abs=1e-5)
    assert moved.certificates["table_size"] is None


def test_a_table_that_cannot_resolve_is_refused() -> None:
    rough = (Sequence(Uniform((-1.0,), (1.0,))),)
    with pytest.raises(NotConvergedError, match="softmax table errs by"):
        solve(tokens_problem(((-1.0, 3000.0),), sequences=rough, depth=Depth(T=0.01)))


def test_losses_on_a_ring_are_refused() -> None:
    ring = Tokens((0.0,), (1.0,), (32,), (True,))
    loss = Objective("potential", potential=Feature("polynomial", (0.0, 1.0)))
    with pytest.raises(MeanFieldError, match="a polynomial jumps at the seam of a periodic token axis"):
        tokens_problem((), attention=None, heads=None, tokens=ring, objective=loss)


def test_weight_decay_leaves_angles_alone() -> None:
    grid = Grid((-1.0, -1.0), (3.0, 1.0), (16, 4), (True, False))
    decay = FokkerPlanckHeads(grid, 0.1, weight_decay=2.0).confinement
    assert np.array_equal(decay, np.tile(grid.centers(1) ** 2, (16, 1)))


def test_particles_need_one_row_each() -> None:
    with pytest.raises(MeanFieldError, match=r"give \(n, d\)"):
        Measure.particles(np.array([0.1, 0.2, 0.3]))


@pytest.mark.parametrize(
    ("changes", "queries", "message"),
    [
        ({"attention": "l2"}, ((0.1,),), "queries are carried by 'softmax' alone"),
        ({}, ((40.0,),), r"sequences\[0\].queries\[0\] = \(40.0,\) is outside the box"),
        ({"tokens": Tokens((-4.0,), (5.0,), (64,), noise=0.1)}, ((0.1,),), "has no noise of its own"),
    ],
)
def test_queries_of_new_sequences_are_checked_like_those_of_the_problem(
    changes: dict[str, Any], queries: tuple[tuple[float, ...], ...], message: str
) -> None:
    law = Gaussian((0.0,), ((0.3,),))
    solution = solve(tokens_problem(((-0.5, 0.8),), **changes))
    carried = solution.predict(Sequence(law)).mu
    assert carried.shape[0] == 1
    with pytest.raises(MeanFieldError, match=message):
        solution.predict([Sequence(law, queries=queries)])
    with pytest.raises(MeanFieldError, match=r"sequences\[0\] = .* is no sequence"):
        solution.predict([law])


def test_a_depth_crossed_in_a_few_steps_since_little_moves_is_warned_of() -> None:
    """The growth of a small mode on the circle is 3 % off in one step, and V is too small to say so."""
    problem, _ = library.get("circle_modes")
    assert problem.tokens is not None
    assert problem.depth is not None
    still = replace(problem.tokens, drift=Drift())
    one = replace(problem, tokens=still, depth=replace(problem.depth, layers=1))
    with pytest.warns(UserWarning, match="depth is crossed in steps of 2, since V is small"):
        solve(one)
    assert not solve(replace(one, depth=replace(problem.depth, layers=32))).warnings
