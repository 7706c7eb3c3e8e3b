"""Going on with a run: the same bits as without the break, damaged checkpoints, other settings, empty folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from small_runs import COUPLED

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output.checkpoints import FOLDER as CHECKPOINTS
from meanfield_pde.output.file_schema import read_checkpoint, read_result
from meanfield_pde.output.report import read_run
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import load_problem, parse_problem
from meanfield_pde.training.state import Moment


def problem(splitting: str = "gibbs", control: str = "fixed", shared: bool = True, s_end: float = 1.0) -> Problem:
    changes = ["heads.cells=[10, 9]", "depth.layers=3", f"depth.shared={str(shared).lower()}", "training.ds=0.05",
               f"training.s_end={s_end}", f"training.splitting='{splitting}'", f"training.control='{control}'",
               f"training.order={1 if splitting == 'lie' else 2}", "training.tolerance=1e-2",
               f"output.times={[0.5] if s_end >= 0.5 else []}", "output.snapshots=2"]  # fmt: skip
    return parse_problem(COUPLED, "restart.toml", changes)


def assert_same(a: Solution, b: Solution) -> None:
    """Equal bits in everything a run hands out."""
    assert set(a.history) == set(b.history)
    for name, series in a.history.items():
        np.testing.assert_array_equal(series, b.history[name], err_msg=name)
    for name in ("snapshot_s", "snapshots", "depth_t", "mu", "costate_t", "p", "rho"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert a.state is not None
    assert b.state is not None
    np.testing.assert_array_equal(a.state.rho, b.state.rho)
    for name in ("s", "step", "ds", "rejected", "energy_rise"):
        assert getattr(a.state, name) == getattr(b.state, name), name


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*touches the wall", "ignore:.*free energy rose", "ignore:.*accurate to"
)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("control", ["fixed", "energy"])
@pytest.mark.parametrize("splitting", ["gibbs", "lie", "strang"])
def test_ten_and_ten_are_twenty(splitting: str, control: str, shared: bool, tmp_path: Path) -> None:
    whole = run(problem(splitting, control, shared), tmp_path / "whole", threads=1)
    run(problem(splitting, control, shared, s_end=0.5), tmp_path / "half", threads=1)
    resumed, note = resume(tmp_path / "half", ["training.s_end=1.0"], threads=2)
    assert "step" in note
    assert whole.state is not None
    assert whole.state.step == 20 if control == "fixed" else whole.state.step > 3
    assert_same(resumed, whole)
    assert_same(read_result(tmp_path / "half" / "result.h5"), whole)


@pytest.mark.parametrize("end", [0.52, 0.63])
def test_an_end_between_two_steps_leaves_no_trace_in_the_state(end: float, tmp_path: Path) -> None:
    whole = run(problem(), tmp_path / "whole", threads=1)
    run(problem(s_end=end), tmp_path / "part", threads=1)
    resumed, _ = resume(tmp_path / "part", ["training.s_end=1.0"], threads=1)
    assert whole.state is not None
    assert resumed.state is not None
    np.testing.assert_array_equal(resumed.state.rho, whole.state.rho)
    assert resumed.state.step == whole.state.step
    # nor in the record: the old end is no row of the longer run
    np.testing.assert_array_equal(resumed.history["s"], whole.history["s"])


def test_times_asked_for_on_resume_are_kept_and_a_broken_off_extension_shows_no_old_result(tmp_path: Path) -> None:
    run(problem(s_end=0.52), tmp_path / "r", threads=1)
    resumed, _ = resume(tmp_path / "r", ["training.s_end=0.81", "output.times=[0.51, 0.63]"], threads=1)
    assert {0.51, 0.63, 0.81} <= set(resumed.snapshot_s.tolist())
    assert resumed.snapshot_s[-1] == 0.81

    def stop(moment: Moment) -> None:
        if moment.state.s > 0.9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "r", ["training.s_end=1.4"], threads=1, progress=stop)
    assert "not finished" in read_run(tmp_path / "r").outcome


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    run(problem(s_end=0.4), tmp_path / "r", threads=1)
    newest = sorted((tmp_path / "r" / "checkpoints").glob("step-*.h5"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    _, note = resume(tmp_path / "r", ["training.s_end=0.6"], threads=1)
    assert "digest" in note


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first = run(problem(s_end=0.3, control="energy"), tmp_path / "r", threads=1)
    again, _ = resume(tmp_path / "r", threads=1)
    assert_same(again, first)


def test_an_end_before_the_checkpoint_is_refused(tmp_path: Path) -> None:
    run(problem(s_end=0.6), tmp_path / "r", threads=1)
    with pytest.raises(MeanFieldError, match=r"s_end"):
        resume(tmp_path / "r", ["training.s_end=0.5"], threads=1)


# ---- killed ------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, warnings
from pathlib import Path
from meanfield_pde.output.run import run
from meanfield_pde.problem_file import load_problem
warnings.simplefilter("ignore")
run(load_problem(Path(sys.argv[1])), Path(sys.argv[2]), threads=1, progress=lambda m: print(m.state.step, flush=True))
"""


def killed_run(folder: Path, source: Path, after: str, wait: float) -> None:
    """Start a run in a process of its own and kill it without warning ``wait`` seconds after a step is reported."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if line.strip() == after:
                time.sleep(wait)
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.parametrize("control", ["fixed", "energy"])
def test_a_killed_run_goes_on_to_the_same_bits(control: str, tmp_path: Path) -> None:
    # many steps, so that it is alive when it is killed
    long = problem(control=control, s_end=30.0) if control == "fixed" else problem(control=control, s_end=400.0)
    from meanfield_pde.problem_file import dump_problem

    source = tmp_path / "problem.toml"
    source.write_text(dump_problem(long), encoding="utf-8")
    folder = tmp_path / "killed"
    killed_run(folder, source, "14", 0.01)
    assert not (folder / "result.h5").exists()
    found = sorted((folder / CHECKPOINTS).glob("step-*.h5"))
    assert found
    state = read_checkpoint(found[-1]).state
    # no older than one interval before the kill
    assert state.step >= 12
    # a shorter end for both, so that the test stays short; the killed run must not be past it
    end = 3.0 if control == "fixed" else 40.0
    assert state.s < end
    ending = f"training.s_end={end}"
    resumed, note = resume(folder, [ending], threads=1)
    assert found[-1].name in note
    source_problem = load_problem(source, [ending])
    whole = run(source_problem, tmp_path / "whole", threads=1)
    assert_same(resumed, whole)
    assert not list(folder.rglob("*.part")), "what a killed writer left behind is swept up"


# ---- damaged -----------------------------------------------------------------------------------------------------


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / CHECKPOINTS).glob("step-*.h5"))


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "other", "header", "incomplete"])
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_note(damage: str, tmp_path: Path) -> None:

    whole = run(problem(), tmp_path / "whole", threads=1)
    folder = tmp_path / "r"
    run(problem(s_end=0.5), folder, threads=1)
    newest = checkpoints(folder)[-1]
    content = newest.read_bytes()
    if damage == "truncated":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        newest.write_bytes(b"")
    elif damage == "text":
        newest.write_text("not a checkpoint", encoding="utf-8")
    elif damage == "header":
        newest.write_bytes(content[:512] + bytes(256) + content[768:])
    elif damage == "incomplete":
        with h5py.File(newest, "r+") as file:
            del file["state/rho"]
    else:
        newest.unlink()
        with h5py.File(newest, "w") as file:
            file["something"] = 1.0
    begun = time.perf_counter()
    resumed, note = resume(folder, ["training.s_end=1.0"], threads=1)
    assert time.perf_counter() - begun < 10.0
    assert newest.name in note
    assert checkpoints(folder)[0].name != newest.name
    assert_same(resumed, whole)


@pytest.mark.parametrize("seed", range(12))
def test_scrambled_bytes_are_a_file_error_or_no_matter(seed: int, tmp_path: Path) -> None:
    source = tmp_path.parent / "scrambled"
    if not source.exists():
        run(problem(s_end=0.15), source, threads=1)
    content = bytearray(checkpoints(source)[-1].read_bytes())
    rng = np.random.default_rng(seed)
    for at in rng.integers(0, 4096, size=40):
        content[at] = rng.integers(0, 256)
    path = tmp_path / "step-0000000003.h5"
    path.write_bytes(content)
    try:
        found = read_checkpoint(path)
    except FileError as error:
        words = str(error)
    else:
        words = f"{path}: {found.problem}"
        assert np.isfinite(found.state.rho).all()
    assert str(path) in words


def test_nothing_left_to_go_on_from_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run(problem(s_end=0.3), folder, threads=1)
    for path in checkpoints(folder):
        path.write_bytes(b"")
    with pytest.raises(FileError, match="no checkpoint of this run can be used") as caught:
        resume(folder, threads=1)
    for path in checkpoints(folder):
        assert path.name in str(caught.value)


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileError, match="holds no run") as caught:
            resume(folder)
        assert str(folder) in str(caught.value)


def test_a_run_killed_before_it_had_begun_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    left, other = tmp_path / ".problem.toml.4711.part", tmp_path / ".mine.part"
    for path in (left, other):
        path.write_text("half", encoding="utf-8")
    run(parse_problem(COUPLED, "t", ["training.s_end=0.1", "output.times=[]"]), tmp_path)
    assert not left.exists()
    assert other.read_text(encoding="utf-8") == "half"


def test_a_run_killed_before_its_first_checkpoint_starts_anew(tmp_path: Path) -> None:
    whole = run(problem(s_end=0.3), tmp_path / "whole", threads=1)
    folder = tmp_path / "r"
    (folder / CHECKPOINTS).mkdir(parents=True)
    (folder / "problem.toml").write_bytes((tmp_path / "whole" / "problem.toml").read_bytes())
    with pytest.raises(MeanFieldError, match=r"training\.beta was 0\.1 and is 0\.2"):
        resume(folder, ["training.beta=0.2"], threads=1)
    resumed, note = resume(folder, threads=1)
    assert "no checkpoint yet" in note
    assert_same(resumed, whole)


# ---- other settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "key", "before", "after"),
    [
        ("training.beta=0.2", "training.beta", "0.1", "0.2"),
        ("depth.scheme=weno5z", "depth.scheme", "linear5", "weno5z"),
        ("tokens.cells=[40]", "tokens.cells", "32", "40"),
        ("training.ds=0.1", "training.ds", "0.05", "0.1"),
        ("seed=3", "seed", "0", "3"),
        ("training.splitting=strang", "training.splitting", "gibbs", "strang"),
    ],
)
def test_other_settings_are_refused_with_both_values(
    override: str, key: str, before: str, after: str, tmp_path: Path
) -> None:
    source = tmp_path.parent / "settings"
    if not source.exists():
        run(problem(s_end=0.15), source, threads=1)
    kept = (source / "problem.toml").read_bytes()
    with pytest.raises(MeanFieldError, match="belongs to another problem") as caught:
        resume(source, [override], threads=1)
    words = str(caught.value)
    assert key in words
    assert before in words
    assert after in words
    # and the folder is as it was
    assert (source / "problem.toml").read_bytes() == kept


def test_end_and_outputs_may_change(tmp_path: Path) -> None:
    whole = run(problem(), tmp_path / "whole", threads=1)
    folder = tmp_path / "r"
    run(problem(s_end=0.5), folder, threads=1)
    resumed, _ = resume(folder, ["training.s_end=1.0", "output.times=[0.5, 0.62]", "output.every=4"], threads=1)
    assert resumed.state is not None
    assert whole.state is not None
    np.testing.assert_array_equal(resumed.state.rho, whole.state.rho)
    assert 0.62 in resumed.snapshot_s
