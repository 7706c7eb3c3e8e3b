"""When a run stops early, what it leaves, and that going on gives the bits of a run that never stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_runs import TEXT, assert_same, problem

from meanfield_pde.cli.main import main
from meanfield_pde.errors import FileError, MeanFieldError, NotFiniteError
from meanfield_pde.output import checkpoints, files
from meanfield_pde.output.checkpoints import Checkpoints, checkpoint_files, newest
from meanfield_pde.output.file_schema import read_checkpoint, read_result
from meanfield_pde.output.origin import Origin
from meanfield_pde.output.record import Recorder
from meanfield_pde.output.report import read_run
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.segments import Segments
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Output
from meanfield_pde.training.scheduler import Training
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stopping import Stop

# ---- asked to stop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["fixed", "error", "energy"])
def test_twenty_steps_are_ten_and_ten_in_every_bit(control: str, tmp_path: Path) -> None:
    # not only the fields: also times, counters, rows and snapshots, though row 10 is none that was asked for
    this = problem(training__control=f"'{control}'", training__tolerance="3e-3", training__s_end="4.0")
    whole = run(this, tmp_path / "whole", stop=Stop(steps=20))
    part = run(this, tmp_path / "part", stop=Stop(steps=10))
    assert part.state is not None
    assert part.state.step == 10
    assert part.outcome.startswith("stopped: steps = 10 ")
    assert not part.is_done
    # the moment it stopped at is the last row and snapshot of what it hands out
    assert part.history["s"][-1] == part.state.s == part.snapshot_s[-1]
    on, note = resume(tmp_path / "part", stop=Stop(steps=10))
    assert "step 10" in note
    assert on.state is not None
    assert on.state.step == 20
    assert_same(on, whole)
    assert_same(read_run(tmp_path / "part"), whole)
    done, _ = resume(tmp_path / "part")
    assert done.is_done
    assert_same(done, solve(this))


def test_the_clock_stops_a_run_before_its_time_is_over(tmp_path: Path) -> None:
    this = problem(training__s_end="1e5", output__snapshots="2")
    stopped = run(this, tmp_path / "r", stop=Stop(seconds=0.5))
    assert stopped.outcome.startswith("stopped: the 0.5 s on the clock are over")
    assert stopped.state is not None
    assert newest(tmp_path / "r").checkpoint is not None
    assert checkpoint_files(tmp_path / "r")[-1][0] == stopped.state.step
    with pytest.raises(MeanFieldError, match="must be positive"):
        Stop(seconds=float("nan"))
    for steps in (0, True, 2.5):
        with pytest.raises(MeanFieldError, match="at least 1"):
            Stop(steps=steps)
    for given, words in (({"threads": 0}, "threads = 0"), ({"threads": 1.5}, "threads = 1.5"),
                         ({"memory": np.nan}, "memory = nan"), ({"memory": "2GB"}, "memory = '2GB'")):  # fmt: skip
        with pytest.raises(MeanFieldError, match=words):
            solve(this, **given)


def test_heads_at_rest_end_a_run_at_the_gibbs_state(tmp_path: Path) -> None:
    this = problem(training__s_end="500.0", training__ds="0.5", training__rest="1e-7", potential__interaction="0.0")
    found = run(this, tmp_path / "r")
    assert found.outcome.startswith("at rest: slope")
    assert found.is_done
    assert found.state is not None
    assert 5.0 < found.state.s < 400.0
    assert found.history["slope"][-1] <= 1e-7 < found.history["slope"][-2]
    x = this.heads.grid().centers(0) if this.heads is not None else np.empty(0)
    gibbs = np.exp(-(x**4 / 4 - x**2 / 2) / 0.3)
    # a slope σ bounds the distance by σ/sqrt(2 λ) with the gap λ of the double well, here about .1
    assert np.abs(found.rho[0] - gibbs / (gibbs.sum() * 0.25)).sum() * 0.25 < 1e-6
    # a lower mark goes on
    further, _ = resume(tmp_path / "r", ["training.rest=1e-9"])
    assert further.state is not None
    assert further.state.s > found.state.s


def test_the_exit_code_says_whether_there_is_more_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TEXT, encoding="utf-8")
    folder = tmp_path / "out"
    assert main(["run", str(path), "-o", str(folder), "--steps", "5"]) == 130
    said = capsys.readouterr().err
    assert "stopped: s = 0.25 of 1, step 5" in said
    assert f"steps = 5 were asked for; s = 0.25; state saved: go on with `meanfield-pde resume {folder}`" in said
    assert main(["resume", str(folder), "--minutes", "0"]) == 2
    assert "--minutes 0 must be positive" in capsys.readouterr().err
    assert main(["resume", str(folder), "--steps", "3"]) == 130
    assert "resumed from step-0000000005.h5" in capsys.readouterr().err
    assert main(["resume", str(folder)]) == 0
    assert_same(read_result(folder / "result.h5"), solve(problem()))


# ---- an earlier checkpoint ---------------------------------------------------------------------------------------


def test_an_earlier_checkpoint_can_be_taken_and_the_later_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    whole = run(problem(output__checkpoint_keep="4"), folder)
    assert [step for step, _ in checkpoint_files(folder)] == [8, 12, 16, 20]
    with pytest.raises(FileError, match="no checkpoint of step 7: there are 8, 12, 16, 20"):
        resume(folder, step=7)
    part, note = resume(folder, step=12, stop=Stop(steps=1))
    assert "from step-0000000012.h5" in note
    assert part.state is not None
    assert part.state.step == 13
    assert [step for step, _ in checkpoint_files(folder)] == [8, 12, 13]
    on, _ = resume(folder)
    assert_same(on, whole)


@pytest.mark.parametrize("spacing", ["checkpoint_s=0.2", "checkpoint_minutes=1e-9", "checkpoint_every=4"])
def test_steps_training_time_and_minutes_make_checkpoints(spacing: str, tmp_path: Path) -> None:
    key, value = spacing.split("=")
    changes = {"output__checkpoint_every": "1000", "output__checkpoint_keep": "100", f"output__{key}": value}
    run(problem(**changes), tmp_path / "r")
    found = [step for step, _ in checkpoint_files(tmp_path / "r")]
    assert found == (list(range(1, 21)) if "minutes" in key else [4, 8, 12, 16, 20])


def test_a_run_that_fails_keeps_its_last_good_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Training.step

    def poisoned(self: Training, moment: Moment, ds: float) -> object:
        trial = step(self, moment, ds)
        if moment.state.step == 6:
            trial.rho[0, 5] = np.nan
        return trial

    with monkeypatch.context() as patch:
        patch.setattr(Training, "step", poisoned)
        with pytest.raises(NotFiniteError):
            run(problem(), tmp_path / "r")
    found = newest(tmp_path / "r").checkpoint
    assert found is not None
    assert found.state.step == 6
    on, _ = resume(tmp_path / "r")
    assert_same(on, solve(problem()))


def test_a_run_whose_first_checkpoint_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object) -> None:
        raise FileError(f"cannot write {path}: no room")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_checkpoint", full)
        with pytest.raises(FileError, match="no room"):
            run(problem(), tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert run(problem(), tmp_path / "r").is_done


def test_an_error_of_a_listener_leaves_the_state_saved(tmp_path: Path) -> None:
    def listener(moment: Moment) -> None:
        if moment.state.step == 7:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(problem(), tmp_path / "r", progress=listener)
    assert [step for step, _ in checkpoint_files(tmp_path / "r")] == [4, 7]


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    run(problem(), tmp_path / "r", stop=Stop(steps=5))
    shutil.rmtree(tmp_path / "r" / "segments")
    (tmp_path / "r" / "segments").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match=r"cannot make the folder .*segments: File exists; clear the way"):
        resume(tmp_path / "r")


def test_a_state_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "segments").mkdir()
    keeper = Checkpoints(tmp_path, Origin(TEXT), Output(), Segments(tmp_path / "segments", ""))
    good = TrainingState(0.1, 1, 0.1, np.ones((1, 4)))
    keeper.save(good, Recorder())
    with pytest.raises(FileError, match="rho is not finite at s = 0"):
        keeper.save(TrainingState(0.2, 2, 0.1, np.full((1, 4), np.nan)), Recorder())
    assert [step for step, _ in checkpoint_files(tmp_path)] == [1]


# ---- files of others ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "words"), [("SCHEMA", "file schema 99"), ("NUMERICS", "numerics version 99")])
def test_other_layouts_and_other_numerics_are_refused_with_both_numbers(
    number: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    here = getattr(files, number)
    with monkeypatch.context() as patch:
        patch.setattr(files, number, 99)
        run(problem(), folder, stop=Stop(steps=5))
    with pytest.raises(FileError, match=words) as caught:
        resume(folder)
    assert f" {here}" in str(caught.value)
    if number == "NUMERICS":
        # what was computed can still be looked at
        assert read_result(folder / "result.h5").state is not None
    else:
        with pytest.raises(FileError, match=words):
            read_result(folder / "result.h5")


def test_another_processor_or_version_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files, "provenance", lambda: {"numba": "0.1", "processor": "an abacus"})
        run(problem(), tmp_path / "r", stop=Stop(steps=5))
    _, note = resume(tmp_path / "r")
    assert "equal bits are not promised, only 1e-11" in note
    assert "processor was an abacus and is" in note


def test_only_one_writer_works_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    seen: list[str] = []

    def other(moment: Moment) -> None:
        if moment.state.step == 3:
            with pytest.raises(FileError, match="still being worked on by another process"):
                resume(folder)
            seen.append(read_run(folder).outcome if checkpoint_files(folder) else "")

    run(problem(output__checkpoint_every="1"), folder, progress=other, stop=Stop(steps=5))
    assert len(seen) == 1
    assert seen[0].startswith("not finished: s = 0.1")
    done, _ = resume(folder)
    assert done.is_done


def test_no_file_is_left_open_and_a_reader_blocks_no_writer(tmp_path: Path) -> None:
    import h5py

    folder = tmp_path / "r"
    run(problem(), folder, stop=Stop(steps=5))
    with h5py.File(folder / "result.h5", "r") as result, h5py.File(checkpoint_files(folder)[-1][1], "r") as kept:
        assert kept["state/step"][()] == 5
        on, _ = resume(folder)
        # the reader goes on seeing what it opened
        assert result["state/step"][()] == 5
    assert_same(read_result(folder / "result.h5"), on)
    assert checkpoints.checkpoint_files(folder)[-1][0] == read_checkpoint(checkpoint_files(folder)[-1][1]).state.step
