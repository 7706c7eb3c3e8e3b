"""The record of a run on disk, and what it was begun from: nothing of it is lost or taken from elsewhere in silence."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import assert_same, problem

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output import segments
from meanfield_pde.output.file_schema import read_result, read_segment
from meanfield_pde.output.report import read_run
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.segments import read_segments
from meanfield_pde.output.solve import solve
from meanfield_pde.problem_file import load_problem
from meanfield_pde.training.stopping import Stop

SAMPLED = """
kind = "training"
attention = "softmax"
[tokens]
lower = [-3.0]
upper = [3.0]
cells = [24]
[heads]
family = "scalar"
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [16, 17]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.1, 0.0], [0.0, 0.1]] }
[depth]
T = 0.2
scheme = "linear5"
[[sequences]]
initial = { law = "samples", file = "x.npy", bandwidth = 0.3 }
[objective]
kind = "potential"
potential = { kind = "polynomial", coefficients = [0.0, 1.0] }
[training]
beta = 0.1
weight_decay = 0.5
ds = 0.1
s_end = 0.5
"""


def test_segments_hold_each_row_once_in_order_through_any_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FULL_ROWS", 3)
    this = problem(output__every="1", output__checkpoint_every="2", output__checkpoint_keep="20")
    folder = tmp_path / "r"
    run(this, folder, stop=Stop(steps=7))
    resume(folder, step=6, stop=Stop(steps=5))
    whole, _ = resume(folder)
    assert_same(whole, solve(this))
    parts, fault = read_segments(folder / "segments")
    assert fault is None
    assert len(parts) > 4
    times = np.concatenate([part.record.history["s"] for part in parts])
    assert (np.diff(times) > 0).all()
    np.testing.assert_array_equal(times, whole.history["s"])
    np.testing.assert_array_equal(np.concatenate([part.record.snapshot_s for part in parts]), whole.snapshot_s)
    # far back: the segments of the time that is given up go with the first new one
    back, _ = resume(folder, step=4, stop=Stop(steps=1))
    parts, fault = read_segments(folder / "segments")
    assert fault is None
    assert back.state is not None
    assert parts[-1].record.history["s"][-1] == back.state.s == 0.25


def test_a_full_segment_is_never_touched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FULL_ROWS", 3)
    folder = tmp_path / "r"
    run(problem(output__every="1"), folder, stop=Stop(steps=9))
    first = folder / "segments" / "000000.h5"
    before = (first.stat().st_ino, first.stat().st_mtime_ns)
    resume(folder)
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == before


def test_a_damaged_segment_is_replaced_by_the_result_that_holds_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FULL_ROWS", 3)
    folder = tmp_path / "r"
    this = problem(output__every="1")
    run(this, folder, stop=Stop(steps=12))
    damaged = folder / "segments" / "000001.h5"
    damaged.write_bytes(damaged.read_bytes()[:-900])
    on, note = resume(folder)
    assert "000001.h5 is not a whole segment of a record" in note
    assert "that of result.h5 is taken" in note
    assert damaged.with_suffix(".damaged").exists()
    assert_same(on, solve(this))
    assert read_segments(folder / "segments")[1] is None


def test_what_is_lost_for_good_is_said_in_this_result_and_in_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FULL_ROWS", 3)
    folder = tmp_path / "r"
    this = problem(output__every="1")
    run(this, folder, stop=Stop(steps=12))
    (folder / "segments" / "000001.h5").unlink()
    (folder / "result.h5").unlink()
    lost = "the record of s from 0.2 up to 0.6 is lost"
    assert lost in read_run(folder).outcome
    on, note = resume(folder, stop=Stop(steps=2))
    assert lost in note
    assert lost in on.outcome
    assert not on.is_done
    done, _ = resume(folder)
    assert done.outcome == f"finished; {lost}"
    assert done.is_done
    assert lost in read_result(folder / "result.h5").outcome
    expected = solve(this)
    assert done.state is not None
    assert expected.state is not None
    np.testing.assert_array_equal(done.state.rho, expected.state.rho)
    assert (np.diff(done.history["s"]) > 0).all()
    assert set(done.history["s"]) < set(expected.history["s"])


def test_segments_of_another_run_are_not_taken_for_its_own(tmp_path: Path) -> None:
    folder, other = tmp_path / "r", tmp_path / "other"
    run(problem(), folder, stop=Stop(steps=8))
    run(problem(training__beta="0.31"), other, stop=Stop(steps=8))
    shutil.copy(other / "segments" / "000000.h5", folder / "segments" / "000000.h5")
    on, note = resume(folder)
    assert "000000.h5 belongs to another run" in note
    assert_same(on, solve(problem()))  # its own record was in its result
    # and no result of another run is
    shutil.copy(other / "result.h5", folder / "result.h5")
    shutil.copy(other / "segments" / "000000.h5", folder / "segments" / "000000.h5")
    assert "is lost" in resume(folder, ["training.s_end=1.5"])[1]


def test_a_segment_of_other_columns_leaves_gaps_not_zeros(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run(problem(), folder, stop=Stop(steps=8))
    part = read_segment(folder / "segments" / "000000.h5")
    del part.record.history["slope"]
    second = replace(part, record=replace(part.record, history={"s": np.array([9.0]), "slope": np.array([1.0])}))
    both = segments.joined([part, second]).history
    assert np.isnan(both["slope"][:-1]).all()
    assert both["slope"][-1] == 1.0
    assert np.isnan(both["loss"][-1])


# ---- what a run was begun from -----------------------------------------------------------------------------------


def sampled(folder: Path, values: np.ndarray) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", values)
    (folder / "p.toml").write_text(SAMPLED, encoding="utf-8")
    return folder / "p.toml"


@pytest.mark.filterwarnings("ignore")
def test_samples_that_changed_are_refused_and_moved_ones_are_found_by_what_they_hold(tmp_path: Path) -> None:
    values = np.linspace(-1.0, 1.0, 50)[:, None]
    path = sampled(tmp_path / "here", values)
    folder = tmp_path / "here" / "r"
    run(load_problem(path), folder, stop=Stop(steps=2))
    np.save(tmp_path / "here" / "x.npy", values + 0.01)
    with pytest.raises(MeanFieldError, match=r"sequences\.0\.initial\.file was 'a file of SHA-256 .* and is"):
        resume(folder)
    np.save(tmp_path / "here" / "x.npy", values)
    shutil.move(tmp_path / "here", tmp_path / "there")
    folder = tmp_path / "there" / "r"
    with pytest.raises(FileError, match=r"is said by --set sequences\.0\.initial\.file=PATH"):
        resume(folder)
    moved = f"sequences.0.initial.file='{tmp_path / 'there' / 'x.npy'}'"
    done, _ = resume(folder, [moved])
    assert_same(done, solve(load_problem(tmp_path / "there" / "p.toml")))


def test_settings_of_a_later_version_have_their_defaults_in_an_earlier_problem(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run(problem(), folder, stop=Stop(steps=5))
    text = (folder / "problem.toml").read_text(encoding="utf-8")
    older = "\n".join(line for line in text.splitlines() if not line.startswith(("tolerance", "checkpoint_keep")))
    (folder / "problem.toml").write_text(older, encoding="utf-8")
    assert resume(folder)[0].is_done


@pytest.mark.parametrize("name", ["result.h5", "checkpoints", "segments"])
def test_nothing_that_is_there_is_overwritten(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run(problem(), folder, stop=Stop(steps=5))
    (folder / "problem.toml").unlink()
    for other in {"result.h5", "checkpoints", "segments"} - {name}:
        shutil.rmtree(folder / other, ignore_errors=True)
        (folder / other).unlink(missing_ok=True)
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    with pytest.raises(FileError, match=f"already holds {name}"):
        run(problem(), folder)
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before


def test_a_result_without_checkpoints_is_not_begun_over(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run(problem(), folder, stop=Stop(steps=5))
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(FileError, match="holds a result and no checkpoint"):
        resume(folder)
    assert read_result(folder / "result.h5").state is not None


def test_a_step_beyond_the_end_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"training.ds = 3 goes beyond the end"):
        run(problem(training__ds="3.0"), tmp_path / "r")
    assert any("goes beyond the end" in text for text in read_run(tmp_path / "r").warnings)
