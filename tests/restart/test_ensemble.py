"""Ensembles: members have the bits of single runs, none stops another, and what is missing is done on resume."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.cli.ensembles import read_sweeps
from meanfield_pde.cli.main import main
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output.ensemble import ensemble_members, members_of_folder, resume_ensemble, run_ensemble, sweep
from meanfield_pde.output.ensemble_file import Entry, read_ensemble, write_ensemble
from meanfield_pde.output.ensemble_job import Ended, Event, Reached
from meanfield_pde.output.ensemble_processes import Processes
from meanfield_pde.output.ensemble_progress import EnsembleProgress
from meanfield_pde.output.file_schema import read_result
from meanfield_pde.output.folder_lock import locked
from meanfield_pde.output.report import read_run
from meanfield_pde.output.run import run
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem_file import load_problem

COMMAND = [sys.executable, "-m", "meanfield_pde"]
Out = pytest.CaptureFixture[str]
Write = Callable[..., Path]
# the tiny problem is made to be quick
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*touches the wall", "ignore:.*accurate to", "ignore:.*free energy rose"
)
# a potential whose slope overflows in the first step
OVERFLOWS = ("[0.5, -1.0, 0.5]", "[0.0, 0.0, 1e300]")
def same(a: Solution, b: Solution) -> None:
    assert a.outcome == b.outcome
    assert set(a.history) == set(b.history)
    for name, series in a.history.items():
        np.testing.assert_array_equal(series, b.history[name], err_msg=name)
    for name in ("snapshot_s", "snapshots", "depth_t", "mu", "costate_t", "p"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.stat().st_ino) for p in folder.rglob("*.*")}


def test_members_of_a_sweep_have_the_bits_of_single_runs(write: Write, tmp_path: Path) -> None:
    problem = load_problem(write())
    members = sweep(problem, {"training.beta": [0.05, 0.1], "depth.layers": np.array([1, 2])})
    assert [member.name for member in members] == [
        "training.beta=0.05,depth.layers=1",
        "training.beta=0.05,depth.layers=2",
        "training.beta=0.1,depth.layers=1",
        "training.beta=0.1,depth.layers=2",
    ]
    found = run_ensemble(members, tmp_path / "out", workers=2)
    assert [member.outcome for member in found] == ["finished"] * 4
    for member, one in zip(found, members, strict=True):
        beta, layers = (float(part.split("=")[1]) for part in member.name.split(","))
        assert problem.training is not None
        assert problem.depth is not None
        training, depth = replace(problem.training, beta=beta), replace(problem.depth, layers=int(layers))
        single = run(replace(problem, training=training, depth=depth), tmp_path / "single" / member.name, threads=2)
        assert one.problem == single.problem
        same(read_result(tmp_path / "out" / member.name / "result.h5"), single)
        assert (member.s, member.steps, member.warnings) == (0.2, 4, len(single.warnings))
        assert member.loss == single.history["loss"][-1]
        assert member.free_energy == single.history["free_energy"][-1]


def test_values_of_a_sweep_are_read_as_toml_and_named_plainly(write: Write) -> None:
    given = read_sweeps(["heads.cells=[12, 12],[16,16]", "title='a, b', c"])
    assert given == {"heads.cells": ["[12, 12]", "[16,16]"], "title": ["'a, b'", "c"]}
    members = sweep(load_problem(write()), given)
    assert [member.name for member in members] == [
        "heads.cells=12x12,title=axb",
        "heads.cells=12x12,title=c",
        "heads.cells=16x16,title=axb",
        "heads.cells=16x16,title=c",
    ]
    assert members[0].problem.title == "a, b"
    assert members[2].problem.heads is not None
    assert members[2].problem.heads.cells == (16, 16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sweep", "training.betta=0.1,0.2"], ("training.betta=0.1: ", "'beta'")),
        (["--sweep", "training.beta=0.1,-0.2"], ("training.beta=-0.2: ", ">= 0")),
        # only seen when the laws meet their box
        (["--sweep", "tokens.upper=[7.0],[1.0]"], ("tokens.upper=1.0: ", "mass outside the box")),
        (["--sweep", "training.beta=0.1,0.10"], ("'training.beta=0.1' and 'training.beta=0.10' are the same",)),
        (["--sweep", "training.beta=0.1", "--sweep", "training.beta=0.2"], ("training.beta is given twice",)),
        (["--sweep", "training.beta=0.1", "--set", "training.beta=0.2"], ("training.beta is given twice",)),
        (["--sweep", "training.beta"], ("'training.beta' is no sweep", "key=value,value")),
        (["--sweep", "training.beta=0.1,,0.2"], ("is no sweep",)),
        (["--sweep", "training.beta=0.1", "--threads", "2"], ("--threads", "single run")),
        (["--sweep", "reference='nobody','gaussian_coupled'"], ("reference=nobody: ", "no problem of the library")),
        (["--sweep", "training.beta=0.1", "--memory", "1kB"], ("training.beta=0.1: ", "over the budget of 1 kB")),
        (["--workers", "2"], ("--workers", "ensemble")),
    ],
)
def test_bad_sweeps_are_refused_by_name_and_leave_nothing(
    arguments: list[str], words: tuple[str, ...], write: Write, tmp_path: Path, capsys: Out
) -> None:
    path = write()
    assert main(["run", str(path), "-o", str(tmp_path / "deep" / "out"), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    for word in words:
        assert word in lines[0]
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_refused_that_hold_no_problems_or_bad_ones_or_are_in_use(write: Write, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(MeanFieldError, match="none holds no problem"):
        members_of_folder(tmp_path / "none")
    write()
    write(("beta = 0.05", "beta = -1.0"), name="worse.toml")
    with pytest.raises(MeanFieldError, match=r"worse\.toml: training\.beta = -1"):
        members_of_folder(tmp_path)
    (tmp_path / "worse.toml").unlink()
    (member,) = members_of_folder(tmp_path, ["training.s_end=0.1"])
    with pytest.raises(MeanFieldError, match="two members have the name 'tiny'"):
        run_ensemble([member, member], tmp_path / "out")
    with pytest.raises(MeanFieldError, match="cannot be the name of a folder"):
        run_ensemble([replace(member, name="../tiny")], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run_ensemble([member], tmp_path / "out", workers=1)
    for again in ([member], [replace(member, name="other")]):
        with pytest.raises(FileError, match=r"in use .* go on with `resume"):
            run_ensemble(again, tmp_path / "out")
    with pytest.raises(MeanFieldError, match="an ensemble that was begun"):
        members_of_folder(tmp_path / "out")
    with pytest.raises(FileError, match="still being worked on"), locked(tmp_path / "out"):
        resume_ensemble(tmp_path / "out")


@pytest.mark.parametrize("folder", ["../outside", "/tmp", "..", ".", "", "a/b", ".hidden", "ensemble.toml", "a\nb"])
def test_a_member_outside_the_folder_is_refused(folder: str, tmp_path: Path) -> None:
    write_ensemble(tmp_path, (Entry(folder),))
    with pytest.raises(FileError, match="no plain name"):
        read_ensemble(tmp_path)


def test_a_link_or_a_member_named_twice_is_refused(tmp_path: Path) -> None:
    write_ensemble(tmp_path, (Entry("a"), Entry("a")))
    with pytest.raises(FileError, match="two members"):
        read_ensemble(tmp_path)
    (tmp_path / "a").symlink_to(tmp_path.parent)
    write_ensemble(tmp_path, (Entry("a"),))
    with pytest.raises(FileError, match="is a link"):
        read_ensemble(tmp_path)


def test_a_failing_member_stops_no_other_and_its_message_is_kept(write: Write, tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "problems"
    folder.mkdir()
    for name, change in (("first", ()), ("fails", (OVERFLOWS,)), ("last", (("beta = 0.05", "beta = 0.1"),))):
        write(*change, name=f"problems/{name}.toml")
    out = tmp_path / "out"
    assert main(["run", str(folder), "-o", str(out), "--workers", "1"]) == 3
    said = capsys.readouterr()
    # without the tenths, which a busy machine may have time to say
    lines = [line for line in said.err.splitlines() if " %: " not in line]
    assert lines[0].startswith("failed: fails (1 of 3): ")  # in the order of the names
    assert "p is not finite at depth" in lines[0]
    assert [line.split(": s ")[0] for line in lines[1:3]] == ["finished: first (2 of 3)", "finished: last (3 of 3)"]
    assert lines[3].startswith("failed: 2 of 3 members finished, 1 failed, ")
    assert lines[4].startswith("meanfield-pde: 1 of 3 members failed: ")
    assert len(lines) == 5
    assert [line.split()[:2] for line in said.out.splitlines()[:4]] == [
        ["member", "outcome"],
        ["fails", "failed"],
        ["first", "finished"],
        ["last", "finished"],
    ]
    assert main(["show", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["members"]
    assert [one["outcome"] for one in shown] == ["failed", "finished", "finished"]
    assert shown[0]["fault"] == "numbers"
    assert "p is not finite at depth" in shown[0]["message"]
    assert shown[1]["s"] == 0.2
    assert main(["show", str(out / "first")]) == 0
    assert main(["show", str(out), "-f"]) == 2
    # finished ones are left alone, to the file; the other is tried again
    before = {name: stamps(out / name) for name in ("first", "last")}
    assert main(["resume", str(out), "-q"]) == 3
    assert {name: stamps(out / name) for name in before} == before
    lines = capsys.readouterr().err.splitlines()
    assert "is for one member of an ensemble" in lines.pop(0)
    assert lines[0].startswith("failed: 0 of 1 members finished, 1 failed, ")


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_worker_fails_its_member_alone_and_resume_completes_it_bit_for_bit(
    count: int, write: Write, tmp_path: Path
) -> None:
    members = sweep(load_problem(write()), {"training.s_end": [0.2, 1.0, 0.25]})
    out, killed = tmp_path / "out", list[int]()
    with Processes(count) as workers:

        def hear(names: tuple[str, ...], event: Event) -> None:
            if isinstance(event, Reached) and event.member == 1 and not killed:
                (one,) = [worker.process.pid for worker in workers.alive if worker.member == 1]
                while not list((out / names[1]).glob("checkpoints/step-*.h5")):
                    time.sleep(0.001)
                os.kill(one, signal.SIGKILL)
                killed.append(one)

        found = run_ensemble(members, out, others=workers, hear=hear)
    assert [member.outcome for member in found] == ["finished", "failed", "finished"]
    assert found[1].fault == "process"
    assert found[1].message is not None
    assert "SIGKILL" in found[1].message
    assert found[1].steps is not None
    before = stamps(out / members[0].name)
    found = resume_ensemble(out)
    assert [member.outcome for member in found] == ["finished"] * 3
    assert found[1].message is None
    assert stamps(out / members[0].name) == before
    whole = run(members[1].problem, tmp_path / "whole", threads=1)
    same(read_result(out / members[1].name / "result.h5"), whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_members_with_their_states_saved_and_resume_completes_them(
    number: int, write: Write, tmp_path: Path
) -> None:
    # with two snapshots a run asks for no time that a longer one does not
    path, out = write(("s_end = 0.2", "s_end = 1e5"), ("[output]", "[output]\nsnapshots = 2")), tmp_path / "out"
    sweeps = ["--sweep", "training.beta=0.05,0.1,0.2", "--workers", "2"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*COMMAND, "run", str(path), "-o", str(out), *sweeps], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while len({found.parent for found in out.glob("*/checkpoints/step-*.h5")}) < 2:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(timeout=10) == 130
        finally:
            process.kill()
    text = (tmp_path / "log").read_bytes()
    assert b"\r" not in text
    assert b"\x1b" not in text
    lines = text.decode().splitlines()
    assert lines[-2].startswith("interrupted: 0 of 3 members finished, ")
    assert lines[-1] == f"meanfield-pde: states saved: go on with `meanfield-pde resume {out}`"
    # the lock is free, so no worker lives
    with locked(out):
        stood = ensemble_members(out)
    assert [member.outcome for member in stood] == ["interrupted", "interrupted", "waiting"]
    ends = [member.s for member in stood[:2]]
    end = max(s for s in ends if s is not None) + 0.2
    found = resume_ensemble(out, [f"training.s_end={end}"], workers=2)
    assert [member.outcome for member in found] == ["finished"] * 3
    assert [member.s for member in found] == [end] * 3
    single = load_problem(path, [f"training.s_end={end}", "training.beta=0.1"])
    same(read_run(out / "training.beta=0.1"), run(single, tmp_path / "single", threads=1))


def test_members_save_the_step_they_stand_at_when_all_is_ended(write: Write, tmp_path: Path) -> None:
    path = write(("s_end = 0.2", "s_end = 1e5"), ("checkpoint_every = 2", "checkpoint_every = 1000000"))
    out = tmp_path / "out"
    at: dict[int, int] = {}

    def hear(names: tuple[str, ...], event: Event) -> None:
        if isinstance(event, Reached):
            at[event.member] = event.step
            if len(at) == 2 and min(at.values()) >= 3:
                raise KeyboardInterrupt

    members = sweep(load_problem(path), {"training.beta": [0.05, 0.1]})
    with pytest.raises(KeyboardInterrupt):
        run_ensemble(members, out, workers=2, hear=hear)
    stood = ensemble_members(out)
    assert [member.outcome for member in stood] == ["interrupted"] * 2
    for i, member in enumerate(stood):
        assert member.steps is not None
        assert member.steps >= at[i]


def test_workers_whose_parent_is_killed_save_and_end(write: Write, tmp_path: Path) -> None:
    path = write(("s_end = 0.2", "s_end = 1e5"), ("checkpoint_every = 2", "checkpoint_every = 1000000"))
    out = tmp_path / "out"
    command = [*COMMAND, "run", str(path), "-o", str(out), "--sweep", "training.beta=0.05", "-q"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (out / "training.beta=0.05" / "checkpoints").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    while True:
        assert time.monotonic() < deadline
        try:
            with locked(out):
                break
        except FileError:
            time.sleep(0.02)
    (member,) = ensemble_members(out)
    assert member.outcome == "interrupted"


def test_an_end_or_output_may_change_for_all_and_nothing_else(write: Write, tmp_path: Path) -> None:
    out = tmp_path / "out"
    members = sweep(load_problem(write()), {"training.beta": [0.05, 0.1]})
    run_ensemble(members, out, workers=1)
    before = stamps(out)
    with pytest.raises(MeanFieldError, match=r"training\.beta=0\.05: .*training\.ds was 0\.05 and is 0\.1"):
        resume_ensemble(out, ["training.ds=0.1"])
    with pytest.raises(MeanFieldError, match=r"training\.s_end = 0\.1 is before s = 0\.2"):
        resume_ensemble(out, ["training.s_end=0.1"])
    assert stamps(out) == before
    found = resume_ensemble(out, ["training.s_end=0.3", "output.times=[0.25]"], workers=1)
    assert [member.s for member in found] == [0.3, 0.3]
    longer = load_problem(tmp_path / "tiny.toml", ["training.s_end=0.3", "training.beta=0.1", "output.times=[0.25]"])
    resumed = read_result(out / "training.beta=0.1" / "result.h5")
    whole = run(longer, tmp_path / "whole", threads=1)
    np.testing.assert_array_equal(resumed.rho, whole.rho)
    assert 0.25 in resumed.snapshot_s


def test_a_folder_of_another_member_is_not_taken_for_its_own(write: Write, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_ensemble(sweep(load_problem(write()), {"training.beta": [0.05, 0.1]}), out, workers=1)
    shutil.rmtree(out / "training.beta=0.05")
    shutil.copytree(out / "training.beta=0.1", out / "training.beta=0.05")
    with pytest.raises(MeanFieldError, match=r"member training\.beta=0\.05: .*training\.beta was 0\.05 and is 0\.1"):
        resume_ensemble(out)


def test_tokens_alone_are_made_anew_when_they_were_not_finished(tmp_path: Path) -> None:
    from meanfield_pde import library

    problem = library.get("aggregation")[0]
    members = sweep(problem, {"tokens.cells": [[32], [48]], "depth.T": [0.5]})
    out = tmp_path / "out"
    found = run_ensemble(members, out, workers=1)
    assert [member.outcome for member in found] == ["finished"] * 2
    kept = stamps(out / members[0].name)
    (out / members[1].name / "result.h5").unlink()
    assert [member.outcome for member in ensemble_members(out)] == ["finished", "waiting"]
    found = resume_ensemble(out, workers=1)
    assert [member.outcome for member in found] == ["finished"] * 2
    assert stamps(out / members[0].name) == kept
    same(read_result(out / members[1].name / "result.h5"), run(members[1].problem, tmp_path / "single", threads=1))


def test_the_display_says_each_end_and_each_tenth_once() -> None:
    stream = io.StringIO()
    names = ("a", "b")
    with EnsembleProgress(stream, clock=lambda: 0.0) as shown:
        for step in range(101):
            shown(names, Reached(0, step / 100, 1.0, step, 0.5, 1.5))
        shown(names, Ended(0, "finished"))
        shown(names, Ended(1, "failed", "process", "its process was ended by SIGKILL"))
    lines = stream.getvalue().splitlines()
    # at its end a member says so itself
    assert [line.split(" %")[0] for line in lines[:4]] == ["10", "20", "30", "40"]
    assert lines[4:] == [
        "finished: a (1 of 2): s 1 / 1, step 100, loss 0.5, free energy 1.5",
        "failed: b (2 of 2): its process was ended by SIGKILL",
        "failed: 1 of 2 members finished, 1 failed, 0.0 s",
    ]


def test_a_terminal_shows_the_whole_and_who_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with EnsembleProgress(stream, clock=lambda: 0.0) as shown:
        shown(("[a]", "b"), Reached(0, 0.5, 1.0, 10, 0.5, 1.5))
        shown(("[a]", "b"), Ended(1, "failed", "numbers", "psi = nan"))
        shown.bar.refresh()
    text = stream.getvalue()
    assert "[a]: s 0.5 / 1, step 10" in text
    assert "failed: b: psi = nan" in text
    assert text.splitlines()[-1].endswith("interrupted: 0 of 2 members finished, 1 failed, 0.0 s")
