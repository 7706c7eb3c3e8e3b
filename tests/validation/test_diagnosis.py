"""Files with a planted fault: each is rejected, and the fault is named."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.particles.alternatives import FREE, SCORE, Alternative, carry_altered
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.problem import Problem
from meanfield_pde.validation.diagnosis import Diagnosis, diagnose
from meanfield_pde.validation.identity import identity_verdict
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.reading import from_arrays, read_trajectory
from meanfield_pde.validation.trajectory import Trajectory

PROBLEM, _ = library.get("heun_plane")
PLANTED = {
    "score": ("score scale", 1.1),
    "value": ("value scale", 1.1),
    "transpose_a": ("transpose of A", None),
    "transpose_w": ("transpose of W", None),
    "axis": ("wrong axis", None),
    "sum": ("missing 1/H", None),
    "frozen": ("frozen softmax", None),
    "order": ("order-1 integrator", None),
    "layers": ("other steps", None),
}


def planted(name: str) -> Trajectory:
    return read_trajectory(str(files("meanfield_pde.data") / "particles" / f"{name}.npz"), PROBLEM)


def fresh(alternative: Alternative | None) -> Trajectory:
    start = initial_tokens(PROBLEM, 80, seed=2)
    run = Motion(particle_tokens(PROBLEM), "heun", 8, alternative).run(start, 1.0, (0.0, 0.5, 1.0))
    return from_arrays({"tokens": run.x, "t": run.t}, problem=PROBLEM)


def found(data: Trajectory, problem: Problem = PROBLEM) -> Diagnosis:
    verdict = identity_verdict(problem, data)
    assert verdict.passed is False
    return diagnose(problem, data, verdict)


def test_the_right_file_passes() -> None:
    assert identity_verdict(PROBLEM, planted("right")).passed


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_fault_is_named(name: str) -> None:
    wanted, value = PLANTED[name]
    diagnosis = found(planted(f"wrong_{name}"))
    best = diagnosis.best
    assert best is not None
    assert best.name == wanted
    assert best.residual <= 1e-13
    assert (best.value is None) == (value is None)
    if value is not None:
        assert best.value == pytest.approx(value, abs=1e-12)
    assert diagnosis.words.startswith(f"{wanted}: ")
    # others leave over much more; scales are not fitted where nothing needs them
    assert all(fit.residual > 1e-6 and not fit.explains for fit in diagnosis.fits[1:])
    fitted = any("scale" in fit.name for fit in diagnosis.fits)
    assert fitted == (value is not None or wanted == "other steps")


def test_what_has_no_name_is_none_of_these() -> None:
    data = planted("right")
    kicked = data.points.copy()
    kicked[:, 1:] *= 1.001
    diagnosis = found(replace(data, points=kicked))
    assert diagnosis.best is None
    assert diagnosis.words.startswith("None of these: the nearest is ")


def test_a_fault_is_named_without_declared_steps() -> None:
    best = found(fresh(SCORE.at(1.1)), replace(PROBLEM, particles=None)).best
    assert best is not None
    assert (best.name, round(best.value or 0.0, 12)) == ("score scale", 1.1)


def test_values_of_the_wrong_sign_and_many_times_too_large_are_fitted() -> None:
    data = fresh(None)
    heads = PROBLEM.heads
    assert heads is not None
    for c in (-1.0, 3.0, 0.1):
        theta = np.array(heads.points)
        theta[:, :4] /= c
        wrong = replace(PROBLEM, heads=replace(heads, points=tuple(tuple(row) for row in theta.tolist())))
        best = found(data, wrong).best
        assert best is not None
        assert best.name == "value scale"
        assert best.value == pytest.approx(c, abs=1e-10)


def test_tokens_off_the_circle_are_named() -> None:
    problem, _ = library.get("torch_circle", layers=60)
    start = initial_tokens(problem, 200, seed=4)
    run = carry_altered(particle_tokens(problem), start, 3.0, 60, "renormalised", (0.0, 1.0, 2.0), FREE)
    data = from_arrays({"angles": run.x[:, :, 0], "t": run.t}, problem=problem)
    best = found(data, problem).best
    assert best is not None
    assert best.name == "off the circle"


def test_there_is_nothing_to_explain_where_identity_does_not_apply() -> None:
    data = planted("right")
    late = replace(data, times=data.times + 0.1)
    with pytest.raises(MeanFieldError, match="diagnose by statistics"):
        diagnose(PROBLEM, late, identity_verdict(PROBLEM, late))
