from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.cli.main import main
from meanfield_pde.output.checkpoints import newest
from meanfield_pde.output.file_schema import read_checkpoint, read_result
from meanfield_pde.problem_file import parse_problem
from meanfield_pde.training.scheduler import Training

COMMAND = [sys.executable, "-m", "meanfield_pde"]
Out = pytest.CaptureFixture[str]
Write = Callable[..., Path]
HEAVY = {"numba", "scipy", "matplotlib", "h5py", "numpy", "findiff", "pydantic", "rich"}


def refused(arguments: list[str], capsys: Out, *words: str) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("meanfield-pde: ")
    for word in words:
        assert word in lines[0]


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "meanfield_pde", "--help"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in loaded
    assert not loaded & HEAVY
    for name in ("run", "resume", "show", "list", "new", "info", "orders", "demo"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("beta = 0.05", "beta = 0.05\nbetta = 0.1", ("training.betta", "'beta'")),
        ("beta = 0.05", "beta = -0.1", ("training.beta = -0.1", ">= 0")),
        ("beta = 0.05", "beta = nan", ("training.beta = nan", "finite")),
        ('"linear3"', '"weno"', ("depth.scheme = 'weno'", "'weno5z'")),
        ("cells = [20]", "cells = [16.5]", ("tokens.cells", "16.5", "integers")),
        ("cells = [20]", 'cells = [20]\nperiodic = ["perodic"]', ("tokens.periodic", "perodic", "true or false")),
        ("upper = [7.0]", "upper = [1.0]", ("mass outside the box [-6, 1]", "widen")),
        ('"softmax"', '"causal"', ("causal", "not covered")),
        ("[training]", "[trainning]", ("trainning", "'training'")),
        ('law = "gaussian", mean = [0.5], covariance = [[0.4]]', 'law = "samples", file = "nan.csv"',
         ("nan.csv", "nan", "row 2")),
    ],
)  # fmt: skip
def test_bad_problems_are_refused_by_name_and_leave_nothing(
    old: str, new: str, words: tuple[str, ...], write: Write, tmp_path: Path, capsys: Out
) -> None:
    (tmp_path / "nan.csv").write_text("0.1\nnan\n0.3\n", encoding="utf-8")
    path = write((old, new))
    before = sorted(tmp_path.iterdir())
    refused(["run", str(path), "-o", str(tmp_path / "deep" / "out")], capsys, *words)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.betta=0.1", ("training.betta", "'beta'")),
        ("depth.scheme=weno", ("'weno5z'",)),
        ("training.ds", ("'training.ds'", "key=value")),
        ("sequences.3.role=train", ("sequences has 1 entries", "'3'")),
    ],
)
def test_bad_settings_are_refused(
    setting: str, words: tuple[str, ...], write: Write, tmp_path: Path, capsys: Out
) -> None:
    refused(["run", str(write()), "-o", str(tmp_path / "out"), "--set", setting], capsys, *words)
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_written_are_refused(write: Write, tmp_path: Path, capsys: Out) -> None:
    problem = str(write())
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    for folder in ("/proc/nothing", str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        refused(["run", problem, "-o", folder], capsys, folder, "cannot write into", "-o")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


def test_a_refused_run_leaves_a_folder_that_was_there(write: Write, tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("kept", encoding="utf-8")
    path = write(("upper = [7.0]", "upper = [1.0]"))
    refused(["run", str(path), "-o", str(tmp_path / "mine")], capsys, "widen")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "gaussian_copled", "-o", "x"], ("'gaussian_copled'", "'gaussian_coupled'")),
        (["run", "nowhere.toml", "-o", "x"], ("nowhere.toml", "is missing")),
        (["new", "gaussian_copled"], ("'gaussian_coupled'",)),
        (["orders", "softmax_gausian"], ("'softmax_gaussian'",)),
        (["show", "nowhere"], ("nowhere", "holds no run")),
        (["resume", "nowhere"], ("nowhere", "holds no run")),
        (["run", "gaussian_coupled"], ("--output",)),
        (["run", "gaussian_coupled", "-o", "x", "--thread", "2"], ("--thread", "--threads")),
        (["run", "gaussian_coupled", "-o", "x", "--threads", "0"], ("--threads", "greater than or equal to 1")),
        (["shwo"], ("'shwo'", "'show'")),
    ],
)
def test_bad_commands_are_refused(
    arguments: list[str], words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(arguments, capsys, *words)
    assert not list(tmp_path.iterdir())


def test_a_damaged_result_is_refused_with_its_path(tmp_path: Path, capsys: Out) -> None:
    for content in (b"", b"no hdf5 at all"):
        (tmp_path / "result.h5").write_bytes(content)
        refused(["show", str(tmp_path)], capsys, str(tmp_path / "result.h5"))


def test_run_show_resume(write: Write, tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "out"
    assert main(["run", str(write()), "-o", str(folder), "--threads", "1"]) == 0
    said = capsys.readouterr()
    assert str(folder / "result.h5") in said.out
    assert said.err.splitlines()[-1].startswith("finished: s = 0.2 of 0.2, step 4, ")
    assert "warning: " not in said.err

    refused(["run", str(tmp_path / "tiny.toml"), "-o", str(folder)], capsys, "already holds a run", "resume")

    assert main(["show", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert facts["outcome"] == "finished"
    assert facts["s"] == 0.2
    assert facts["steps"] == 4
    assert facts["mass_error_mu"] < 1e-13
    assert facts["mass_error_rho"] < 1e-13
    assert facts["min_rho"] > 0
    assert facts["dual"] is True
    assert facts["loss"] < facts["loss_first"]
    for name in ("free_energy", "min_mu", "table_error", "courant", "costate_drift", "energy_rise", "wall_mass_mu",
                 "wall_mass_rho"):  # fmt: skip
        assert isinstance(facts[name], float), name
    # without the option nothing was limited, and nothing was counted
    assert facts["limited"] is None
    assert facts["accuracy"] is None
    rows = {row["quantity"]: row for row in facts["exact"]}
    for name in ("loss", "free_energy", "mean_0", "mean_1", "covariance_00", "covariance_01", "token_mean"):
        assert rows[name]["error"] == pytest.approx(rows[name]["computed"] - rows[name]["exact"], abs=1e-15)
        assert abs(rows[name]["error"]) < 0.03, name

    before = read_result(folder / "result.h5")
    assert main(["resume", str(folder)]) == 0
    assert "resumed from step-0000000004.h5" in capsys.readouterr().err
    np.testing.assert_array_equal(read_result(folder / "result.h5").snapshots, before.snapshots)

    refused(["resume", str(folder), "--set", "training.beta=0.1"], capsys, "training.beta was 0.05 and is 0.1")
    assert main(["resume", str(folder), "--set", "training.s_end=0.3", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert main(["run", str(tmp_path / "tiny.toml"), "-o", str(tmp_path / "new"), "--set", "training.s_end=0.3"]) == 0
    np.testing.assert_array_equal(
        read_result(folder / "result.h5").rho, read_result(tmp_path / "new" / "result.h5").rho
    )


def test_show_in_words_with_figures(write: Write, tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "out"
    assert main(["run", str(write()), "-o", str(folder), "-q"]) == 0
    capsys.readouterr()
    assert main(["show", str(folder), "-f"]) == 0
    said = capsys.readouterr().out
    for words in ("outcome", "finished", "\nloss ", "nodes of the softmax table", "largest |∫mu − 1|", "not measured",
                  "computed beside exact at s = 0.2"):  # fmt: skip
        assert words in said
    drawn = [line.removeprefix("figure: ") for line in said.splitlines() if line.startswith("figure: ")]
    assert drawn == [str(folder / "figures" / f"{name}.png") for name in ("mu", "p", "rho", "training", "certificates")]
    assert all(Path(path).stat().st_size > 1000 for path in drawn)


def test_a_form_without_exact_solution_is_told(write: Write, tmp_path: Path, capsys: Out) -> None:
    path = write(("coefficients = [0.5, -1.0, 0.5]", "coefficients = [0.0, 0.0, 0.0, 1.0]"))
    assert main(["run", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    capsys.readouterr()
    assert main(["show", str(tmp_path / "out"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["exact"] is None
    assert "polynomial of degree 2" in facts["exact_missing"]
    assert main(["show", str(tmp_path / "out")]) == 0
    assert "no exact solution: " in capsys.readouterr().out


def test_mass_at_a_wall_is_a_warning_line_and_in_the_result(write: Write, tmp_path: Path, capsys: Out) -> None:
    # 5 deviations hold all but 6e-7 of the mass, and the cell at the wall holds far more
    path = write(("lower = [-6.0]", "lower = [-2.6]"), ("upper = [7.0]", "upper = [3.6]"))
    assert main(["run", str(path), "-o", str(tmp_path / "out")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert any("mu touches the wall" in line and "tokens.lower" in line for line in lines)
    assert not any("UserWarning" in line for line in lines)
    assert main(["show", str(tmp_path / "out"), "--json"]) == 0
    assert any("mu touches the wall" in text for text in json.loads(capsys.readouterr().out)["warnings"])


def test_not_finite_is_exit_3_and_the_last_good_checkpoint_stays(
    write: Write, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Training.step

    def poisoned(self: Training, moment: object, ds: float) -> object:
        trial = step(self, moment, ds)
        if moment.state.step == 2:
            trial.rho[0, 5, 5] = np.nan
        return trial

    monkeypatch.setattr(Training, "step", poisoned)
    assert main(["run", str(write()), "-o", str(tmp_path / "out")]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith("not finite: s = 0.1 of 0.2, step 2, ")
    assert lines[-1].startswith("meanfield-pde: ")
    found = newest(tmp_path / "out")
    assert found.checkpoint is not None
    assert not found.notes
    assert found.checkpoint.state.step == 2
    assert not (tmp_path / "out" / "result.h5").exists()


def test_a_log_file_has_plain_lines_and_the_end(write: Write, tmp_path: Path) -> None:
    for name, flags in (("loud", []), ("quiet", ["--quiet"])):
        with open(tmp_path / f"{name}.log", "wb") as log:
            command = [*COMMAND, "run", str(write()), "-o", str(tmp_path / name), *flags]
            assert subprocess.run(command, stdout=log, stderr=log, check=False).returncode == 0
        text = (tmp_path / f"{name}.log").read_bytes()
        assert b"\r" not in text
        assert b"\x1b" not in text
        lines = text.decode().splitlines()
        ends = [line for line in lines if line.startswith("finished: ")]
        assert len(ends) == 1
        if name == "quiet":
            assert lines == ends
        else:
            assert lines[0].startswith("meanfield-pde: memory: at most ")
            assert 5 <= len(lines) <= 9 + 3
            assert all(line.startswith(("s = ", "finished: ", "result: ")) for line in lines[1:])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_its_state_saved(number: int, write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    path = write(("s_end = 0.2", "s_end = 1e5"))
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*COMMAND, "run", str(path), "-o", str(folder)], stderr=log)
        try:
            deadline = time.monotonic() + 60
            while not list(folder.glob("checkpoints/step-*.h5")):
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(timeout=10) == 130
        finally:
            process.kill()
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert lines[-2].startswith("interrupted: s = ")
    assert lines[-1] == f"meanfield-pde: state saved: go on with `meanfield-pde resume {folder}`"
    state = read_checkpoint(max(folder.glob("checkpoints/step-*.h5"))).state
    # the very step it stopped at, not the last regular checkpoint
    assert lines[-2].split("step ")[1].split(",")[0] == str(state.step)
    assert not list(folder.glob("checkpoints/.*"))
    assert main(["show", str(folder), "--json"]) == 0
    assert main(["resume", str(folder), "-q", "--set", f"training.s_end={state.s + 0.1}"]) == 0
    assert read_result(folder / "result.h5").snapshot_s[-1] == state.s + 0.1


def test_library_problems_are_listed_and_printed(capsys: Out) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(library.NAMES)
    for name in library.NAMES:
        problem = library.get(name)[0]
        assert main(["new", name]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"# {name}: {problem.title}\n")
        assert tomllib.loads(text)["kind"] == problem.kind
        assert parse_problem(text).training == problem.training


def test_a_library_problem_runs_with_settings(tmp_path: Path, capsys: Out) -> None:
    few = ["--set", "training.s_end=0.01", "--set", "heads.cells=[16]"]
    assert main(["run", "slab", "-o", str(tmp_path / "slab"), "-q", *few]) == 0
    solution = read_result(tmp_path / "slab" / "result.h5")
    assert solution.snapshots.shape[-1] == 16
    assert solution.snapshot_s[-1] == 0.01
    capsys.readouterr()
    assert main(["show", str(tmp_path / "slab")]) == 0
    said = capsys.readouterr().out
    assert "rho_l1" in said
    # a given potential has no loss over sequences
    assert "\nenergy " in said
    assert "\nloss " not in said
    assert "∫mu" not in said


def test_info_and_version(capsys: Out) -> None:
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    for word in ("numpy", "numba", "processor", "compiled code", str(os.cpu_count())):
        assert word in said
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "meanfield-pde 0.1.0\n"
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out
