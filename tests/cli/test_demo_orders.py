from __future__ import annotations

import json
import math
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from meanfield_pde import library
from meanfield_pde.cli import demo
from meanfield_pde.cli.interrupts import heard_once
from meanfield_pde.cli.main import main
from meanfield_pde.cli.running import find_problem
from meanfield_pde.output.background import interruptible, is_at_work

Out = pytest.CaptureFixture[str]
FEW = {
    "digits_profile": ["training.s_end=1.0", "training.ds=0.5", "heads.cells=[16,16]", "depth.layers=2",
                       "output.snapshots=3"],
    "gaussian_coupled": ["training.s_end=0.1", "heads.cells=[24,24]", "tokens.cells=[32]", "depth.layers=4"],
}  # fmt: skip


def test_demo_reports_accuracy_and_errors_and_overwrites_only_its_own(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "find_problem", lambda name: find_problem(name, FEW[name]))
    folder = tmp_path / "demo"
    # what an earlier demonstration left
    (folder / "digits_profile").mkdir(parents=True)
    for stale in (demo.MARK, "problem.toml", "stale"):
        (folder / "digits_profile" / stale).touch()
    assert main(["demo", "-o", str(folder)]) == 0
    assert not (folder / "digits_profile" / "stale").exists()
    said = capsys.readouterr()
    lines = said.out.splitlines()
    held_out = next(line for line in lines if "held-out accuracy" in line)
    assert "95 % interval" in held_out
    # heads of the first law hardly move tokens, so this is the readout alone: 93.8 % on the grids of the demonstration
    before = float(held_out.split("held-out accuracy")[1].split("% before training")[0])
    assert 93.0 < before < 94.5
    # and even a short training adds to it
    assert float(held_out.split("training, ")[1].split("%")[0]) > before + 1.0
    assert "of 320) after" in held_out
    assert any("training accuracy" in line and "of 40)" in line for line in lines)
    assert any("training loss" in line and "at s = 1" in line for line in lines)
    assert any(line.split()[:1] == ["covariance_01"] and len(line.split()) == 4 for line in lines)
    assert (folder / "digits_profile" / "figures" / "rho_layers.png").exists()
    assert said.err.count("finished: ") == 2

    mine = tmp_path / "other" / "digits_profile"
    mine.mkdir(parents=True)
    (mine / "problem.toml").write_text("mine", encoding="utf-8")
    assert main(["demo", "-o", str(tmp_path / "other")]) == 2
    assert str(mine) in capsys.readouterr().err
    assert (mine / "problem.toml").read_text(encoding="utf-8") == "mine"


def row(**more: Any) -> dict[str, Any]:
    return {"problem": "p", "flow": "mu", "scheme": "linear3", "norm": "L1", "n": [8, 16], "errors": [8e-3, 1e-3],
            "orders": [3.0], "fitted": 3.0, "declared": 3, "short": False, "seconds": 0.5, **more}  # fmt: skip


def test_orders_prints_json_as_measured_and_a_table(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(problem: Any, exact: Any, **more: Any) -> dict[str, Any]:
        asked.append((problem.kind, exact is not None, more["name"]))
        return {"rows": [row(), row(norm="Linf", orders=[None], fitted=float("nan"), error_estimate=1e-5, finest=16)]}

    monkeypatch.setattr("meanfield_pde.studies.orders.orders", measured)
    assert main(["orders", "softmax_gaussian", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0] == row()
    assert rows[1]["fitted"] is None
    assert asked == [("tokens", True, "softmax_gaussian")]
    assert main(["orders", "softmax_gaussian"]) == 0
    said = capsys.readouterr().out
    assert "8.000e-03" in said
    assert "3.00" in said
    assert "error at 16 cells about 1.0e-05" in said


def test_orders_that_fall_short_are_exit_3(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meanfield_pde.studies.orders.orders", lambda *_, **__: {"rows": [row(), row(short=True)]})
    assert main(["orders", "softmax_gaussian"]) == 3
    assert "falls short of 3" in capsys.readouterr().out


def test_orders_of_all_exact_problems_with_their_values(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("slab", "softmax_gaussian", "digits_profile")
    monkeypatch.setattr(library, "NAMES", names)
    monkeypatch.setattr("meanfield_pde.studies.orders.orders", lambda *_, name, **__: {"rows": [row(problem=name)]})
    assert main(["orders", "all", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["problem"] for one in said["rows"]] == ["slab", "softmax_gaussian"]
    mean = next(one for one in said["values"] if one["quantity"] == "mean_b0")
    assert mean["problem"] == "softmax_gaussian"
    variance = 0.49 / (1 + 2 * 0.8 * 0.49)
    assert mean["exact"] == pytest.approx(0.3 * math.exp(-1.0) * math.sqrt(variance / 0.49), abs=1e-12)
    assert mean["error"] == pytest.approx(mean["computed"] - mean["exact"], abs=1e-15)
    assert 0 < abs(mean["error"]) < 1e-6
    monkeypatch.setattr("meanfield_pde.studies.orders.orders", lambda *_, **__: {"rows": [row(short=True)]})
    assert main(["orders", "all"]) == 3
    assert "quantity, as shipped" in capsys.readouterr().out


def test_a_problem_that_lost_its_form_is_measured_by_itself(
    write: Any, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(problem: Any, exact: Any, **more: Any) -> dict[str, Any]:
        asked.append((exact, more["name"]))
        return {"rows": []}

    monkeypatch.setattr("meanfield_pde.studies.orders.orders", measured)
    path = write(("coefficients = [0.5, -1.0, 0.5]", "coefficients = [0.0, 0.0, 0.0, 1.0]"))
    assert main(["orders", str(path)]) == 0
    assert asked == [(None, "tiny")]
    assert "self-convergence" in capsys.readouterr().err


def test_a_signal_is_heard_at_once_while_work_goes_on() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    began = time.monotonic()
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGTERM])
    timer.start()
    with heard_once(), pytest.raises(KeyboardInterrupt):
        interruptible(lambda: (time.sleep(1.0), done.append(1)))
    assert 0.1 < time.monotonic() - began < 0.7
    assert signal.getsignal(signal.SIGINT) is before
    assert is_at_work()
    assert not done
    time.sleep(1.2)
    assert not is_at_work()
    assert done == [1]


def test_work_in_the_background_gives_and_raises_like_any_other() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)


def test_signals_never_break_off_what_is_being_saved() -> None:
    with heard_once():
        for _ in range(3):
            # the state is being saved now
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)
        # and are heard where nothing is half done, before any more work is begun
        with pytest.raises(KeyboardInterrupt):
            interruptible(lambda: pytest.fail("work was begun after a request to stop"))
    # a command that listens no more is not stopped by what the one before was asked
    assert interruptible(lambda: 5) == 5
