"""Runs with particles on either side or both: the same bits after a break or a kill, their files, what is refused."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from small_runs import assert_same
from victims import SIDES, begin, differences, ended, forked, go_on, problem_text, whole_record

from meanfield_pde.cli.main import main
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output.file_checks import check_solution
from meanfield_pde.output.file_schema import read_result
from meanfield_pde.output.report import read_run, summary
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import load_problem, parse_problem
from meanfield_pde.studies.orders import orders
from meanfield_pde.training.particle_runs import run_training
from meanfield_pde.training.stationary import stationary
from meanfield_pde.training.stopping import Stop

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*touches the wall", "ignore:.*free energy rose", "ignore:.*accurate to"
)


def problem(sides: tuple[str, ...], shared: bool = True, end: float = 0.2) -> Problem:
    return parse_problem(problem_text(shared=shared, sides=sides, end=end), "corner.toml")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sides", SIDES)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(sides: tuple[str, ...], shared: bool, tmp_path: Path) -> None:
    whole = run(problem(sides, shared), tmp_path / "whole", threads=1)
    run(problem(sides, shared), tmp_path / "part", threads=2, stop=Stop(steps=4))
    resumed, note = resume(tmp_path / "part", threads=1)
    assert "step 4" in note
    assert_same(resumed, whole)
    np.testing.assert_array_equal(resumed.points, whole.points)
    np.testing.assert_array_equal(resumed.mu, whole.mu)
    assert not differences(tmp_path / "part" / "result.h5", tmp_path / "whole" / "result.h5")
    # more output, the same states
    more = solve(replace(problem(sides, shared), output=replace(whole.problem.output, times=(0.011, 0.1), snapshots=7)))
    assert whole.state is not None
    assert more.state is not None
    np.testing.assert_array_equal(more.state.rho, whole.state.rho)


@pytest.mark.parametrize("sides", SIDES)
def test_a_killed_run_goes_on_bit_for_bit(sides: tuple[str, ...], tmp_path: Path) -> None:
    text, whole, victim = problem_text(sides=sides), tmp_path / "whole", tmp_path / "victim"
    run(problem(sides, end=0.04), tmp_path / "warm", threads=1)
    began = time.monotonic()
    assert ended(forked(lambda: begin(text, whole), tmp_path / "log")) == 0, (tmp_path / "log").read_text()
    length = time.monotonic() - began
    kills = 0
    for share in (0.25, 0.4, 0.3):
        pid = forked(lambda: go_on(text, victim), tmp_path / "log")
        time.sleep(share * length)
        os.kill(pid, signal.SIGKILL)
        kills += ended(pid) == -signal.SIGKILL
        assert whole_record(victim)
    assert kills
    assert ended(forked(lambda: go_on(text, victim), tmp_path / "log")) == 0, (tmp_path / "log").read_text()
    assert not differences(victim / "result.h5", whole / "result.h5")


@pytest.mark.parametrize("sides", SIDES)
def test_the_files_hold_heads_and_tokens(sides: tuple[str, ...], tmp_path: Path) -> None:
    found = run(problem(sides, shared=False), tmp_path / "run", threads=1)
    read = read_result(tmp_path / "run" / "result.h5")
    assert_same(read, found)
    np.testing.assert_array_equal(read.points, found.points)
    with h5py.File(tmp_path / "run" / "result.h5") as file:
        kept = file["heads/points" if "heads" in sides else "heads/rho"]
        assert kept.shape == ((5, 2, 9, 2) if "heads" in sides else (5, 2, 16, 15))
        assert ("tokens/points" in file) == ("tokens" in sides)
        assert file["tokens/t"].shape == (3,)
        if "tokens" in sides:
            assert file["tokens/points"].shape == (3, 2, 12, 1)
            assert file["tokens/mu"].size == 0
        assert ("penalised_loss" in file["history"]) == ("heads" in sides)
        assert ("free_energy" in file["history"]) == ("heads" not in sides)
    facts = summary(found)
    assert facts["particles"] == {side: {"tokens": 12, "heads": 9}[side] for side in sides}
    assert (facts["free_energy"] is None) == ("heads" in sides)
    assert facts["energy_rise"] is None or "heads" not in sides
    assert not [text for text in facts["warnings"] if "heads" in sides and ("rho" in text or "free energy" in text)]
    if "heads" in sides:
        decay = 0.25 * (found.rho**2).sum(axis=2).mean(axis=1).mean() * 0.4
        assert facts["penalised_loss"] == pytest.approx(facts["loss"] + decay, rel=1e-13)
        assert found.head_grid is None
        for wrong in (found.snapshots[:, :, 1:], np.where(found.snapshots > 0, np.nan, 1.0)):
            with pytest.raises(FileError, match="does not fit its own problem"):
                check_solution(tmp_path, replace(found, snapshots=wrong))
    if "tokens" not in sides:
        with pytest.raises(FileError, match="whose tokens are a law"):
            check_solution(tmp_path, replace(found, points=np.zeros((3, 2, 12, 1))))
    if "tokens" in sides:
        for points in (found.points[:, :, 1:], np.full(found.points.shape, np.nan)):
            with pytest.raises(FileError, match="tokens/points"):
                check_solution(tmp_path, replace(found, points=points))
    # laws carried through the trained heads, with tokens in the limit
    prediction = found.predict()
    assert prediction.mu.shape == (2, 32)
    # the loss of few tokens is near that of their law
    assert prediction.outputs["features"].mean() == pytest.approx(facts["loss"], abs=0.3)


def test_what_run_does_is_what_run_training_does(tmp_path: Path) -> None:
    given = problem(("tokens", "heads"))
    written, direct = run(given, tmp_path / "run", threads=1), run_training(given, times=given.output.times)
    np.testing.assert_array_equal(written.rho[0], direct.theta[-1])
    np.testing.assert_array_equal(written.history["loss"][[0, -1]], direct.loss[[0, -1]])


def test_the_command_line_runs_shows_and_resumes_a_corner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "corner.toml", tmp_path / "out"
    path.write_text(problem_text(sides=("tokens", "heads"), end=0.2))

    def said(*words: str) -> tuple[int, str]:
        code, caught = main([*words]), capsys.readouterr()
        return code, caught.out + caught.err

    assert said("run", str(path), "-o", str(out), "--steps", "3")[0] == 130
    code, words = said("show", str(out))
    assert code == 0
    assert "12 tokens a sequence" in words
    assert "9 heads in place of their law" in words
    code, words = said("resume", str(out))
    assert code == 0
    assert "free energy" not in words
    code, words = said("show", str(out), "--json", "-f")
    facts = json.loads(words)
    assert [Path(one).stem for one in facts["figures"]] == ["tokens", "heads", "training", "certificates"]
    assert facts["particles"] == {"tokens": 12, "heads": 9}
    code, words = said("resume", str(out), "--set", "particles.heads=10")
    assert code == 2
    assert "particles.heads was 9 and is 10" in words
    (out / "result.h5").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_run(out).snapshots.shape[1:] == (1, 9, 2)


def test_what_is_for_laws_on_grids_is_refused() -> None:
    for sides in SIDES:
        with pytest.raises(MeanFieldError, match="heads at rest"):
            stationary(problem(sides))
        with pytest.raises(MeanFieldError, match="orders are those of schemes on grids"):
            orders(problem(sides))
        with pytest.raises(MeanFieldError, match="--scheduler"):
            solve(problem(sides), split=lambda tokens: tokens)


def test_observables_of_particles_stand_beside_the_exact_ones(tmp_path: Path) -> None:
    from meanfield_pde.cli.compare import observables_of

    data = Path(__file__).parents[2] / "data" / "problems" / "gaussian_coupled.toml"
    given = load_problem(data, ["training.order=1", "training.s_end=0.1",
                                'particles={tokens=25,heads=7,sides=["tokens","heads"]}'])  # fmt: skip
    found = solve(given)
    values = observables_of(found)
    assert values["mean_1"] == pytest.approx(found.rho[0, :, 1].mean(), rel=1e-14)
    assert values["covariance_01"] == pytest.approx(np.cov(found.rho[0].T, bias=True)[0, 1], rel=1e-12)
    assert values["token_mean"] == pytest.approx(found.points[-1, 0].mean(), rel=1e-14)
