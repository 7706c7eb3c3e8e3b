"""Laws of whole problems of every attention, kind, scheme and splitting: mass, no time, more output, threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from meanfield_pde.equations.schemes import SCHEMES
from meanfield_pde.model.attention import ATTENTIONS
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import parse_problem

DRIFT = """
kind = "tokens"
[tokens]
lower = [0.0]
upper = [1.0]
cells = [CELLS]
periodic = [RING]
drift = { constant = [SPEED] }
noise = NOISE
[depth]
T = END
scheme = "SCHEME"
positivity = POSITIVE
splitting = "SPLITTING"
[[sequences]]
initial = { law = "uniform", lower = [0.1], upper = [0.55] }
"""
TRAINING = """
kind = "training"
attention = "ATTENTION"
MORE
[tokens]
lower = [-3.0]
upper = [3.0]
cells = [24]
[heads]
family = "FAMILY"
lower = [-2.0, -2.0THIRDLOW]
upper = [2.0, 2.0THIRDHIGH]
cells = [8, 7THIRD]
initial = { law = "gaussian", mean = MEAN, covariance = COVARIANCE }
[depth]
T = 0.3
layers = 2
shared = SHARED
scheme = "linear5"
[[sequences]]
initial = { law = "gaussian", mean = [0.4], covariance = [[0.2]] }
[[sequences]]
initial = { law = "gaussian", mean = [-0.3], covariance = [[0.15]] }
[[sequences]]
initial = { law = "gaussian", mean = [0.1], covariance = [[0.3]] }
[objective]
kind = "potential"
potential = { kind = "polynomial", coefficients = [0.5, -1.0, 0.5] }
[training]
beta = 0.1
weight_decay = 0.5
ds = 0.05
s_end = 0.4
splitting = "gibbs"
order = 2
control = "error"
tolerance = 1e-3
"""
HEADS = """
kind = "fokker-planck"
[heads]
lower = [-2.0, -3.141592653589793]
upper = [2.0, 3.141592653589793]
cells = [12, 10]
periodic = [false, true]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.1, 0.0], [0.0, 0.3]] }
[potential]
coefficients = [[0.0, 0.0, 0.5], [0.0]]
[training]
beta = 0.3
ds = 0.1
s_end = 0.4
"""
SHALLOW = """
kind = "shallow"
attention = "softmax"
[tokens]
lower = [-3.0]
upper = [3.0]
cells = [24]
[heads]
family = "scalar"
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [10, 9]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.1, 0.0], [0.0, 0.1]] }
[[sequences]]
initial = { law = "gaussian", mean = [0.4], covariance = [[0.2]] }
target = [0.1, 0.5]
[training]
beta = 0.1
weight_decay = 0.5
ds = 0.05
s_end = 0.2
"""


@pytest.fixture(autouse=True)
def _small_boxes() -> Iterator[None]:
    # boxes are small here, and that laws touch their walls is said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def drift(scheme: str, **changes: Any) -> Solution:
    values = {"CELLS": 20, "RING": False, "SPEED": 1.0, "NOISE": 1e-3, "END": 1.0, "POSITIVE": False,
              "SPLITTING": "strang"} | changes  # fmt: skip
    text = DRIFT.replace("SCHEME", scheme)
    for name, value in values.items():
        text = text.replace(name, str(value).lower() if isinstance(value, bool) else str(value))
    return solve(parse_problem(text))


def training(attention: str, shared: bool = False, *changes: str) -> Problem:
    alone = attention == "none"
    text = TRAINING.replace("ATTENTION", attention).replace("SHARED", str(shared).lower())
    text = text.replace("MORE", "window = 1.1" if attention == "windowed" else "")
    text = text.replace("FAMILY", "perceptron" if alone else "scalar")
    text = text.replace("THIRDLOW", ", -2.0" if alone else "").replace("THIRDHIGH", ", 2.0" if alone else "")
    text = text.replace("THIRD", ", 6" if alone else "")
    text = text.replace("MEAN", "[0.2, 0.3, 0.1]" if alone else "[0.2, 0.3]")
    size = 3 if alone else 2
    text = text.replace("COVARIANCE", str((0.1 * np.eye(size)).tolist()))
    return parse_problem(text, attention, changes)


TRAINABLE = tuple(name for name in ATTENTIONS if name != "aggregation")


# ---- mass --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splitting", ["strang", "lie"])
@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_drift_and_little_noise_at_a_wall_keep_the_mass(scheme: str, positivity: bool, splitting: str) -> None:
    for ring in (False, True):
        for speed, end, noise in ((1.0, 1.0, 1e-3), (3.0, 0.5, 1e-3), (-3.0, 0.5, 0.0), (-1.0, 0.7, 0.05)):
            changes = {"SPEED": speed, "END": end, "NOISE": noise, "RING": ring}
            found = drift(scheme, POSITIVE=positivity, SPLITTING=splitting, **changes)
            mass = found.mu.sum(axis=-1) / 20
            assert np.abs(mass - 1.0).max() <= 1e-12
            if positivity:
                assert found.mu.min() >= -1e-15
            # what the run says of itself is what is there
            assert found.certificates["mass_error_mu"] == pytest.approx(np.abs(mass - 1.0).max(), abs=2e-15)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("attention", TRAINABLE)
def test_both_laws_keep_their_mass_under_every_attention(attention: str, shared: bool) -> None:
    problem = training(attention, shared)
    found = solve(problem, threads=1)
    assert np.abs(found.mu.sum(axis=-1) * found.token_grid.cell_volume - 1.0).max() <= 1e-12
    mass = found.snapshots.sum(axis=tuple(range(2, found.snapshots.ndim))) * found.head_grid.cell_volume
    assert np.abs(mass - 1.0).max() <= 1e-12
    assert found.snapshots.min() >= 0.0


@pytest.mark.parametrize(("splitting", "order"), [("lie", 1), *((s, o) for s in ("strang", "gibbs") for o in (1, 2))])
@pytest.mark.parametrize("beta", [0.0, 1e-3])
def test_heads_that_drift_into_a_wall_keep_their_mass(splitting: str, beta: float, order: int) -> None:
    changes = ["heads.cells=[20, 10]", "potential.coefficients=[[0.0, -3.0], [0.0]]", f"training.beta={beta}",
               f"training.splitting={splitting}", f"training.order={order}", "training.ds=0.02"]  # fmt: skip
    found = solve(parse_problem(HEADS, "heads", changes))
    assert found.certificates["mass_error_rho"] <= 1e-12
    mass = found.snapshots.sum(axis=(2, 3)) * found.head_grid.cell_volume
    assert np.abs(mass - 1.0).max() <= 1e-12
    assert found.snapshots.min() >= 0.0


# ---- no time at all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splitting", ["strang", "lie"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_depth_gives_the_initial_law_back_in_every_bit(scheme: str, noise: float, splitting: str) -> None:
    none = drift(scheme, END=0.0, NOISE=noise, SPLITTING=splitting)
    some = drift(scheme, END=0.3, NOISE=noise, SPLITTING=splitting)
    assert np.isfinite(none.mu).all()
    for law in none.mu:
        np.testing.assert_array_equal(law, some.mu[0])
    assert none.depth_t[0] == none.depth_t[-1] == 0.0


@pytest.mark.parametrize("attention", TRAINABLE)
def test_training_without_depth_or_without_time_ends_where_it_begins(attention: str) -> None:
    shallow = solve(training(attention, True, "depth.T=0.0", "training.s_end=0.0", "output.times=[0.0]"))
    np.testing.assert_array_equal(shallow.mu[-1], shallow.mu[0])
    # the costate is the variation of the loss itself, 0.5 (1 - x)² at the centres, and no term of it is lost
    x = shallow.token_grid.centers(0)
    np.testing.assert_allclose(shallow.p[0], np.tile(0.5 * (1.0 - x) ** 2, (3, 1)), rtol=0, atol=1e-12)
    still = solve(training(attention, False, "training.s_end=0.0", "output.times=[0.0]"))
    moving = solve(training(attention, False, "output.times=[0.0]"))
    assert still.snapshot_s.tolist() == [0.0]
    np.testing.assert_array_equal(still.snapshots[0], moving.snapshots[0])
    np.testing.assert_array_equal(still.state.rho, moving.snapshots[0])
    assert still.history["loss"][0] == moving.history["loss"][0]
    assert still.outcome == "finished"


@pytest.mark.parametrize("text", [HEADS, SHALLOW], ids=["heads", "shallow"])
def test_no_training_time_gives_the_initial_heads_back(text: str) -> None:
    still = solve(parse_problem(text, "p", ["training.s_end=0.0", "output.times=[0.0]"]))
    moving = solve(parse_problem(text, "p", ["output.times=[0.0]"]))
    assert still.snapshot_s.tolist() == [0.0]
    assert still.state.step == 0
    np.testing.assert_array_equal(still.state.rho, moving.snapshots[0])
    assert np.isfinite(still.history["free_energy"]).all()


# ---- more output, more threads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["fixed", "error", "energy"])
@pytest.mark.parametrize("splitting", ["lie", "strang", "gibbs"])
@pytest.mark.parametrize("text", [HEADS, SHALLOW, "training"], ids=["heads", "shallow", "training"])
def test_asking_for_more_output_changes_no_bit(text: str, splitting: str, control: str) -> None:
    changes = [f"training.splitting={splitting}", f"training.control={control}",
               f"training.order={1 if splitting == 'lie' else 2}", "training.tolerance=1e-3"]  # fmt: skip

    def run(*more: str) -> Solution:
        if text == "training":
            return solve(training("softmax", False, *changes, *more))
        return solve(parse_problem(text, "p", [*changes, *more]))

    little = run("output.snapshots=2", "output.every=1000")
    much = run("output.times=[0.0, 0.033, 0.05, 0.1, 0.19]", "output.snapshots=9", "output.every=1")
    np.testing.assert_array_equal(little.state.rho, much.state.rho)
    np.testing.assert_array_equal(little.snapshots[-1], much.snapshots[-1])
    assert little.state.step == much.state.step
    assert set(little.snapshot_s) <= set(much.snapshot_s)
    assert {0.0, 0.033, 0.05, 0.1, 0.19} <= set(much.snapshot_s.tolist())
    for name, series in little.history.items():
        np.testing.assert_array_equal(series[-1], much.history[name][-1], err_msg=name)


@pytest.mark.parametrize("attention", TRAINABLE)
def test_adaptive_training_has_the_same_bits_on_any_number_of_threads(attention: str) -> None:
    problem = training(attention)
    one = solve(problem, threads=1)
    assert one.state.step > 1
    for threads in (2, 3):
        other = solve(problem, threads=threads)
        np.testing.assert_array_equal(other.state.rho, one.state.rho)
        np.testing.assert_array_equal(other.mu, one.mu)
        np.testing.assert_array_equal(other.p, one.p)
        for name, series in one.history.items():
            np.testing.assert_array_equal(other.history[name], series, err_msg=name)
