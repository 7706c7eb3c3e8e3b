"""The whole verdict on trajectories whose truth is known: right runs, planted faults, too little data, heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import SUM, VALUE, Alternative
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.problem import Particles, Problem
from meanfield_pde.training.particle_runs import run_training
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.reading import from_arrays
from meanfield_pde.validation.statistical_diagnosis import StatisticalDiagnosis
from meanfield_pde.validation.trajectory import Trajectory
from meanfield_pde.validation.verdict import Verdict, validate

TIMES = (0.0, 0.5, 1.0)
LINE = replace(
    library.get("torch_line", cells=128)[0],
    particles=Particles(layers=10, integrator="euler"),
)
OWN = 39


def carried(
    count: int = 400, seed: int = 5, fault: Alternative | None = None, shift: float = 0.0, integrator: str = "euler"
) -> np.ndarray:
    start = initial_tokens(LINE, count, seed=seed)
    start = Measure.particles(start.points + shift, start.weights)
    return Motion(particle_tokens(LINE, way="direct"), integrator, 10, fault).run(start, 1.0, TIMES).x


def data(tokens: np.ndarray, times: tuple[float, ...] = TIMES, **arrays: Any) -> Trajectory:
    return from_arrays({"tokens": tokens, "t": np.array(times), **arrays})


def judged(tokens: np.ndarray, problem: Problem = LINE, times: tuple[float, ...] = TIMES, **more: Any) -> Verdict:
    return validate(problem, data(tokens, times), own=OWN, **more)


@pytest.fixture(scope="module")
def right() -> Verdict:
    return judged(carried())


def test_a_right_run_passes_both_verdicts(right: Verdict) -> None:
    assert right.identity is not None
    assert right.limit is not None
    assert right.identity.passed
    assert right.limit.passed
    assert right.exit_code == 0
    assert right.diagnosis is None
    # both routes look at the same numbers
    assert right.limit.p_clt is not None
    assert abs(right.limit.p - right.limit.p_clt) < 0.3
    assert len(right.limit.smooth) == 12
    assert len(right.limit.distances) == 12


def test_the_same_data_give_the_same_numbers_with_any_number_of_threads(right: Verdict) -> None:
    again = judged(carried(), threads=2)
    assert again.limit == right.limit
    assert again.detectable == right.detectable


def test_a_fault_is_seen_by_both_and_named() -> None:
    verdict = judged(carried(fault=SUM))
    assert verdict.exit_code == 3
    assert verdict.identity is not None
    assert verdict.limit is not None
    assert not verdict.identity.passed
    assert not verdict.limit.passed
    # the least that ranks can say is 1/40; the central limit says more
    assert verdict.limit.p == pytest.approx(1.0 / 40.0)
    assert verdict.limit.p_clt is not None
    assert verdict.limit.p_clt < 1e-3
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.best is not None
    assert verdict.diagnosis.best.name == "missing 1/H"


def test_without_the_first_tokens_the_limit_alone_judges_and_names() -> None:
    verdict = judged(carried(2000, fault=VALUE.at(1.5))[1:], times=TIMES[1:])
    assert verdict.identity is not None
    assert verdict.identity.passed is None
    assert verdict.exit_code == 3
    assert isinstance(verdict.diagnosis, StatisticalDiagnosis)
    best = verdict.diagnosis.best
    assert best is not None
    assert best.name == "value scale"
    assert best.value == pytest.approx(1.5, abs=0.15)


def test_another_initial_law_passes_identity_and_not_the_limit() -> None:
    verdict = judged(carried(shift=0.3))
    assert verdict.identity is not None
    assert verdict.identity.passed
    assert verdict.limit is not None
    assert not verdict.limit.passed
    assert isinstance(verdict.diagnosis, StatisticalDiagnosis)
    assert verdict.diagnosis.fits[0].name == "initial law"


def test_an_integrator_that_is_not_declared_is_found_and_taken_for_the_limit() -> None:
    verdict = judged(carried(integrator="heun"), replace(LINE, particles=Particles(layers=10)))
    assert verdict.code.integrator == "heun"
    assert verdict.passed
    without = judged(carried()[1:], replace(LINE, particles=Particles(layers=10)), TIMES[1:])
    assert any("no integrator is declared" in note for note in without.notes)


def test_where_nothing_is_declared_or_found_the_limit_takes_steps_that_fit() -> None:
    bare = replace(LINE, particles=None, depth=replace(LINE.depth, layers=1))
    verdict = judged(carried(fault=SUM), bare)
    assert verdict.exit_code == 3
    assert verdict.limit is not None
    assert not verdict.limit.passed
    alone = judged(carried()[1:], bare, TIMES[1:])
    assert (alone.code.integrator, alone.code.layers) == ("rk4", 32)
    assert alone.passed


def test_copies_of_a_run_are_not_independent() -> None:
    verdict = judged(np.stack([carried(), carried()]))
    assert verdict.limit is None
    assert verdict.without is not None
    assert "run 1 (counted from 0) is the same" in verdict.without


def test_several_runs_are_judged_by_their_mean() -> None:
    runs = np.stack([carried(seed=seed) for seed in range(100, 108)])
    verdict = judged(runs)
    assert verdict.passed
    one = judged(runs[0])
    assert verdict.limit is not None
    assert one.limit is not None
    ratio = verdict.limit.smooth[0].noise / one.limit.smooth[0].noise
    assert ratio == pytest.approx(8.0**-0.5)
    # a shift of all tokens shows √8 times as clearly
    moved, of_one = judged(runs + 0.05, asked=("limit",)), judged(runs[0] + 0.05, asked=("limit",))
    assert moved.limit is not None
    assert of_one.limit is not None
    by_eight = moved.limit.smooth[0].z - verdict.limit.smooth[0].z
    assert by_eight == pytest.approx(8.0**0.5 * (of_one.limit.smooth[0].z - one.limit.smooth[0].z), rel=1e-6)
    assert not moved.passed


def test_what_tells_nothing_is_not_judged() -> None:
    weights = np.linspace(1.0, 2.0, 400)
    verdict = validate(LINE, data(carried()[1:], TIMES[1:], weights=weights), own=OWN)
    assert verdict.passed is None
    assert verdict.exit_code == 4
    assert verdict.without is not None
    assert "weights" in verdict.without
    quantiles = replace(LINE, particles=replace(LINE.particles or Particles(), sampling="quantile"))
    verdict = judged(carried()[1:], quantiles, TIMES[1:])
    assert verdict.exit_code == 4


def test_wrong_input_is_refused_before_any_work() -> None:
    tokens = carried()
    for words, more in (
        ("verdict = 'both'", {"asked": ("both",)}),
        ("level = 5", {"level": 5}),
    ):
        with pytest.raises(MeanFieldError, match=words):
            judged(tokens, **more)
    with pytest.raises(MeanFieldError, match="runs = 10: take 39"):
        validate(LINE, data(tokens), own=10)
    with pytest.raises(MeanFieldError, match="no edge of the 10 layers"):
        judged(tokens, times=(0.0, 0.33, 1.0), asked=("limit",))
    with pytest.raises(FileError, match="dimension"):
        judged(np.concatenate([tokens, tokens], axis=2))
    with pytest.raises(FileError, match="outside the box"):
        judged(tokens + 40.0)


def test_coarse_grids_are_said() -> None:
    coarse = replace(LINE, tokens=replace(LINE.tokens, cells=(36,)))
    verdict = judged(carried(4000), coarse, asked=("limit",))
    assert verdict.limit is not None
    assert any("error of the grid" in note for note in verdict.limit.notes)


TRAINED = replace(
    library.get("torch_train", ds=0.5, s_end=4.0, times=())[0],
    particles=Particles(tokens=40, heads=40, layers=5, integrator="euler", sampling="quantile"),
)
SMALL = replace(
    TRAINED,
    tokens=replace(TRAINED.tokens, cells=(64,)),
    heads=replace(TRAINED.heads, cells=(40, 40)),
)


def trained(problem: Problem, seed: int) -> Trajectory:
    run = run_training(problem, seed=seed, times=(2.0,))
    return from_arrays({"heads": run.theta, "t": run.s, "loss": run.loss, "loss_times": run.loss_s})


def test_recorded_heads_and_losses_are_judged_by_their_law() -> None:
    verdict = validate(SMALL, trained(SMALL, 3), own=OWN)
    assert verdict.passed
    assert verdict.limit is not None
    names = {one.name for one in verdict.limit.smooth}
    assert {"w", "a", "w a", "loss"} <= names
    assert any("identity is for tokens" in note for note in verdict.notes)
    other = replace(SMALL, training=replace(SMALL.training, weight_decay=0.5))
    verdict = validate(SMALL, trained(other, 3), own=OWN)
    assert verdict.exit_code == 3
