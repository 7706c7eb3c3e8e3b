"""The library's doors: names, parameters, boxes, and the refusal of what lost its form."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.laws import Density, Gaussian, Mixture, Uniform
from meanfield_pde.problem import Drift, Feature, Problem
from meanfield_pde.problem_file import dump_problem, load_problem, parse_problem

EXACT = ("gaussian_coupled", "gaussian_layerwise", "in_context_regression",
         "softmax_gaussian", "softmax_leak", "noisy_softmax", "softmax_plane", "softmax_space",
         "variable_speed_ring", "logistic_walls", "jiang_shu", "sine_power", "zalesak_disk", "leveque_deformation",
         "aggregation", "two_diracs", "mean_shift", "l2_gaussian", "l2_plane", "sinkhorn_gaussian", "linear_flow",
         "linear_plane", "linear_costate", "circle_modes", "kuramoto", "neural_ode", "ornstein_uhlenbeck", "slab",
         "double_well", "desai_zwanzig", "noisy_kuramoto", "shallow_gaussian")  # fmt: skip


def test_names_files_and_texts_say_the_same() -> None:
    assert library.NAMES[: len(EXACT)] == EXACT
    readme = (files("meanfield_pde.data") / "problems" / "README.md").read_text(encoding="utf-8")
    for name in library.NAMES:
        problem, exact = library.get(name)
        assert problem == load_problem(library.path_of(name))
        assert parse_problem(dump_problem(problem)) == problem
        assert (problem.reference == name) == (name in EXACT)
        # a problem may also refer to the exact solution of another one of its form
        assert (problem.reference is not None) == (exact is not None)
        assert f"| `{name}` |" in readme
        assert problem.title


def test_parameters_reach_the_problem_and_the_exact_solution() -> None:
    problem, exact = library.get(
        "gaussian_coupled", m0=-0.3, s0=0.3, T=0.8, b=0.4, weight_decay=0.7, beta=0.08, eta0=(0.1, -0.2),
        C0=(0.05, 0.01, 0.03), s_end=0.5, cells=64, head_cells=48, scheme="linear5", layers=7, times=[0.25]
    )  # fmt: skip
    assert (problem.tokens, problem.heads, problem.depth, problem.training) != (None,) * 4
    text = dump_problem(problem)
    for line in ("cells = [64]", "cells = [48, 48]", 'scheme = "linear5"', "T = 0.8", "layers = 7", "beta = 0.08",
                 "mean = [-0.3]", "mean = [0.1, -0.2]", "times = [0.25]", "s_end = 0.5"):  # fmt: skip
        assert line in text
    assert exact is not None
    assert exact.observables(0.0) == pytest.approx(
        library_free_numbers(-0.3, 0.3, 0.8, 0.4, 0.7, 0.08, (0.1, -0.2), (0.05, 0.01, 0.03)), rel=1e-12
    )
    again = library.exact_of(parse_problem(text))
    assert again is not None
    assert again.observables(0.5) == exact.observables(0.5)


def library_free_numbers(m0: float, s0: float, T: float, b: float, decay: float, beta: float, eta: Any, C0: Any) -> Any:
    """The observables at s = 0 written out."""
    w, kappa = eta[0], C0[1] + eta[0] * eta[1]
    s = s0 / (1 - 2 * kappa * s0 * T)
    m = m0 * np.exp(w * T) * np.sqrt(s / s0)
    loss = 0.5 * ((m - b) ** 2 + s)
    square = eta[0] ** 2 + eta[1] ** 2 + C0[0] + C0[2]
    entropy = 0.5 * np.log((2 * np.pi * np.e) ** 2 * (C0[0] * C0[2] - C0[1] ** 2))
    return {"loss": loss, "free_energy": loss + 0.5 * decay * square - beta * entropy, "mean_0": eta[0],
            "mean_1": eta[1], "covariance_00": C0[0], "covariance_01": C0[1], "covariance_11": C0[2],
            "token_mean": m, "token_variance": s}  # fmt: skip


def test_boxes_widen_for_wider_laws_and_stay_when_given() -> None:
    plain, _ = library.get("gaussian_coupled", beta=0.04)
    wide, _ = library.get("gaussian_coupled", m0=2.0, s0=1.5, T=0.3, beta=0.3)
    kept, _ = library.get("gaussian_coupled", m0=2.0, s0=1.5, T=0.3, lower=-10.0, upper=12)
    for problem in (plain, wide, kept):
        assert problem.tokens is not None
        assert problem.heads is not None
    assert (plain.tokens.lower, plain.tokens.upper, plain.heads.cells) == ((-4.5,), (5.5,), (96, 96))
    assert wide.tokens.grid().lower[0] <= 2.0 - 7 * 1.5**0.5
    assert wide.tokens.grid().spacing[0] == pytest.approx(10 / 128, rel=0.01)
    assert wide.heads.upper[0] > 2.2
    assert (kept.tokens.lower, kept.tokens.upper) == ((-10.0,), (12.0,))


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("gaussian_couple", {}, "did you mean 'gaussian_coupled'?"),
        ("gaussian_coupled", {"betta": 0.1}, "did you mean 'beta'?"),
        ("gaussian_coupled", {"beta": "much"}, "beta = 'much' cannot be used"),
        ("gaussian_coupled", {"C0": (0.1, 0.0)}, "C0 = .* it must have 3 entries"),
        ("gaussian_coupled", {"head_cells": 48.5}, "it must be an integer"),
        ("gaussian_coupled", {"beta": -0.1}, "training.beta = -0.1"),
        ("softmax_gaussian", {"points": ((1.0, 2.0),), "w": 1.0}, "both set heads.points"),
        ("slab", {"interaction": 1.0}, "has no parameter 'interaction'"),
    ],
)
def test_what_cannot_be_a_parameter_is_refused(name: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(MeanFieldError, match=says):
        library.get(name, **given)


def _changed(problem: Problem, section: str, **changes: Any) -> Problem:
    return replace(problem, **{section: replace(getattr(problem, section), **changes)})


@pytest.mark.parametrize(
    ("name", "section", "changes", "says"),
    [
        ("gaussian_coupled", "objective", {"potential": Feature("polynomial", (0.0, 0.0, 0.0, 1.0))}, "degree 2"),
        ("gaussian_coupled", "heads", {"initial": Uniform((-1.0, -1.0), (1.0, 1.0))}, "heads.initial is not gaussian"),
        ("gaussian_coupled", "tokens", {"drift": Drift(constant=(1.0,))}, "no constant drift"),
        ("ornstein_uhlenbeck", "potential", {"coefficients": ((0.0, 0.0, 0.5, 1.0),)}, "degree 2 at most"),
        ("ornstein_uhlenbeck", "heads", {"initial": Uniform((-1.0,), (1.0,))}, "a gaussian law"),
        ("slab", "heads", {"upper": (2.0,), "initial": Uniform((0.0,), (1.0,))}, "walls at 0 and 1"),
        ("slab", "heads", {"initial": Gaussian((0.5,), ((0.001,),))}, "uniform on"),
        ("slab", "heads", {"initial": Density(library.SlabMode(2.0))}, "SlabMode"),
        ("slab", "training", {"weight_decay": 0.1}, "weight_decay = 0.1"),
        ("double_well", "potential", {"coefficients": ((0.0, 0.1, -0.5, 0.0, 0.25),)}, "c2 x² . c4 x⁴"),
        ("double_well", "potential", {"interaction": -1.0}, "an attraction"),
    ],
)
def test_a_problem_that_lost_its_form_is_refused(name: str, section: str, changes: dict[str, Any], says: str) -> None:
    problem = _changed(library.get(name)[0], section, **changes)
    with pytest.raises(MeanFieldError, match=says) as refusal:
        library.exact_of(problem)
    assert "remove the key reference" in str(refusal.value)
    assert library.exact_of(replace(problem, reference=None)) is None


def test_sequences_that_are_not_gaussian_are_refused() -> None:
    problem, _ = library.get("softmax_gaussian")
    one = problem.sequences[0]
    mixed = replace(one, initial=Mixture((1.0, 1.0), (Gaussian((0.0,), ((1.0,),)), Gaussian((1.0,), ((1.0,),)))))
    with pytest.raises(MeanFieldError, match=r"sequences\[1\] is not a gaussian law"):
        library.exact_of(replace(problem, sequences=(one, mixed)))
    with pytest.raises(MeanFieldError, match="did you mean 'softmax_leak'"):
        library.exact_of(replace(problem, reference="softmax_leek"))
    held_out = replace(one, initial=Gaussian((1.0,), ((0.2,),)), role="held-out")
    exact = library.exact_of(replace(problem, sequences=(held_out, one)))
    assert exact is not None
    assert exact.observables(0.0) == {"mean_b0": 0.3, "variance_b0": pytest.approx(0.49, rel=1e-14)}


def test_every_parameter_is_listed_and_numerical_ones_keep_the_exact_solution() -> None:
    assert {"m0", "eta0", "C0", "beta", "head_cells", "ds"} <= set(library.parameters_of("gaussian_coupled"))
    assert {"alpha", "interaction", "cells"} <= set(library.parameters_of("ornstein_uhlenbeck"))
    assert "head_cells" not in library.parameters_of("slab")
    _, one = library.get("gaussian_layerwise")
    _, other = library.get("gaussian_layerwise", cells=64, ds=0.1, order=1, scheme="linear3")
    assert one is not None
    assert other is not None
    assert one.observables(0.3) == other.observables(0.3)
