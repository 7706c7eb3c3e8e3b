"""Harmonics as features of tokens on rings: exact integrals, the loss that they make, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, VonMises, WrappedCauchy, cell_averages
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Depth, Drift, Feature, Heads, Objective, Problem, Sequence, Tokens, Training
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.grid_side import feature_values

PI = np.pi
RING = Tokens((-PI,), (PI,), (24,), (True,))


def test_integrals_of_harmonics_are_exact_for_cell_averages() -> None:
    # ∫ cos k(x − m) of a wrapped Cauchy law is r^k, on any ring and however few the cells
    grid = Grid((-1.0,), (2.0,), (9,), (True,))
    u = cell_averages(WrappedCauchy(0.4, 0.6), grid)[0] * grid.spacing[0]
    # the first alias of mode k is 9 − k, of size r^(9 − k): take a law that has none
    law = np.ones(9) / 9 + 0.1 * np.cos(2 * PI * 2 * grid.centers(0) / 3.0 + 0.3) * np.sinc(2 / 9) / 9
    value = feature_values(Feature("harmonic", (0.5, -2.0), mode=2), grid)
    assert value @ law == pytest.approx(0.05 * (0.5 * np.cos(0.3) + 2.0 * np.sin(0.3)), rel=1e-14)
    assert feature_values(Feature("harmonic", (1.0,), mode=3), grid) @ law == pytest.approx(0.0, abs=1e-16)
    fine = Grid((-1.0,), (2.0,), (90,), (True,))
    u = cell_averages(WrappedCauchy(0.4, 0.6), fine)[0] * fine.spacing[0]
    for k in (1, 3, 7):
        phase = 2 * PI * k * 0.4 / 3.0
        feature = Feature("harmonic", (np.cos(phase), np.sin(phase)), mode=k)
        assert feature_values(feature, fine) @ u == pytest.approx(0.6**k, rel=1e-14)


def test_a_harmonic_on_one_axis_of_a_cylinder() -> None:
    grid = Grid((0.0, -1.0), (1.0, 3.0), (10, 12), (False, True))
    value = feature_values(Feature("harmonic", (0.0, 1.0), axis=1, mode=1), grid).reshape(10, 12)
    wanted = np.sin(2 * PI * grid.centers(1) / 4.0) / np.sinc(1 / 12)
    np.testing.assert_allclose(value, np.tile(wanted, (10, 1)), rtol=1e-14)


def problem(objective: Objective, tokens: Tokens = RING, target: object = (0.1,)) -> Problem:
    law = VonMises(0.0, 1.0) if len(tokens.cells) == 1 and tokens.periodic == (True,) else Gaussian((0.0,), ((0.1,),))
    return Problem(
        kind="tokens",
        tokens=tokens,
        depth=Depth(T=0.1),
        sequences=(Sequence(law, target),),
        objective=objective,
    )


def regression(feature: Feature) -> Objective:
    return Objective("regression", features=(feature,))


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        (Feature("harmonic", (1.0,)), r"features\[0\]\.mode is missing"),
        (Feature("harmonic", (1.0,), mode=0), "mode = 0 is too small"),
        (Feature("harmonic", (1.0, 2.0, 3.0), mode=1), "give those of cos and sin"),
        (Feature("harmonic", (), mode=1), "coefficients is missing: give those of cos and sin"),
        (Feature("harmonic", (1.0,), axis=1, mode=1), "axis = 1 does not exist"),
        (Feature("harmonic", (1.0,), mode=1, width=0.3), "a harmonic has no center or width"),
        (Feature("harmonic", (1.0,), mode=12), "mode = 12 is not resolved by tokens.cells = 24 .* at least 25 cells"),
        (Feature("polynomial", (0.0, 1.0), mode=1), "a polynomial has no mode"),
        (Feature("polynomial", (0.0, 1.0)), "a polynomial jumps at the seam"),
        (Feature("bump", center=(0.0,), width=0.3), "a bump jumps at the seam"),
        (Feature("harmonik", (1.0,)), "did you mean 'harmonic'"),
    ],
)
def test_features_that_do_not_fit_a_ring_are_refused(feature: Feature, says: str) -> None:
    with pytest.raises(MeanFieldError, match=says):
        problem(regression(feature))


def test_harmonics_need_a_ring_and_distances_a_line() -> None:
    walls = Tokens((-2.0,), (2.0,), (24,))
    with pytest.raises(MeanFieldError, match="a harmonic lives on a ring, but axis 0 has walls"):
        problem(regression(Feature("harmonic", (1.0,), mode=1)), walls)
    with pytest.raises(MeanFieldError, match="'energy-distance' on a periodic token axis is not covered"):
        problem(Objective("energy-distance"), target=VonMises(0.0, 2.0))
    with pytest.raises(MeanFieldError, match=r"objective\.potential: a bump jumps"):
        problem(Objective("potential", potential=Feature("bump", center=(0.0,), width=0.3)), target=None)


def test_the_loss_of_a_law_that_turns() -> None:
    # a constant drift turns the law: ∫ cos x dmu = (I1/I0) cos(mean)
    turning = replace(RING, cells=(96,), drift=Drift(constant=(2.0,)))
    loss = Objective("potential", potential=Feature("harmonic", (0.0, 1.0), mode=1))
    ready = assemble(problem(loss, turning, target=None))
    assert ready.tokens is not None
    assert ready.fixed_heads is not None
    wanted = 0.44639 * np.sin(0.2)
    assert ready.tokens.loss(ready.fixed_heads) == pytest.approx(wanted, rel=1e-4)


def test_heads_on_the_circle_learn_to_gather_tokens() -> None:
    # regression of the mean direction: rotation heads with the ring axis phi
    trained = Problem(
        kind="training",
        attention="softmax",
        tokens=replace(RING, cells=(32,)),
        heads=Heads(
            "rotation",
            (-4.0, -3.0, -PI),
            (4.0, 3.0, PI),
            (24, 18, 8),
            (False, False, True),
            Gaussian((0.2, 0.3, 0.0), ((0.1, 0.0, 0.0), (0.0, 0.05, 0.0), (0.0, 0.0, 0.5))),
        ),
        depth=Depth(layers=2, shared=False),
        sequences=tuple(Sequence(WrappedCauchy(m, 0.4), (0.7 * np.cos(m), 0.7 * np.sin(m))) for m in (0.3, -2.0)),
        objective=Objective(
            "regression", features=(Feature("harmonic", (1.0,), mode=1), Feature("harmonic", (0.0, 1.0), mode=1))
        ),
        training=Training(beta=0.002, ds=1.0, s_end=10.0, weight_decay=0.02),
    )
    solution = solve(trained)
    loss = solution.history["loss"]
    assert loss[-1] < 0.7 * loss[0]
    assert solution.certificates["energy_rise"] == 0.0
    assert float(solution.certificates["costate_drift"] or 0.0) <= 1e-13
