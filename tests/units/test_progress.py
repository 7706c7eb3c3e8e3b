from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.output.progress import Progress, duration, is_terminal
from meanfield_pde.training.state import Moment, TrainingState


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def moment(s: float, step: int) -> Moment:
    variation = FirstVariation(0.5 - s, np.zeros((1, 1)), TokenReport())
    return Moment(TrainingState(s, step, 0.1, np.ones((1, 1))), variation, 1.5 - s, 0.5, False)


def ticking() -> Any:
    """A clock that moves by a second each time it is read."""
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    return clock


def watch(stream: io.StringIO, steps: int, s_end: float | None = 1.0, error: Any = None, **more: Any) -> str:
    with Progress(s_end, stream, clock=ticking(), **more) as shown:
        for step in range(steps + 1):
            shown(moment(step * (s_end or 1.0) / max(steps, 1), step))
        if error is not None:
            raise error
    return stream.getvalue()


def test_a_file_gets_a_line_each_tenth_and_the_end() -> None:
    lines = watch(io.StringIO(), 1000).splitlines()
    assert len(lines) == 9 + 1
    # a second a step: at a tenth 900 steps are left
    assert lines[0] == "s = 0.1 of 1: step 100, loss 0.4, free energy 1.4, 15 min 00 s left"
    assert lines[-1].startswith("finished: s = 1 of 1, step 1000, 16 min 4")


def test_few_steps_get_few_lines() -> None:
    assert len(watch(io.StringIO(), 2).splitlines()) == 1 + 1


def test_quiet_says_the_end_alone() -> None:
    assert watch(io.StringIO(), 50, quiet=True) == "finished: s = 1 of 1, step 50, 52.0 s\n"
    assert "\x1b" not in watch(Terminal(), 50, quiet=True)


@pytest.mark.parametrize(
    ("error", "word"),
    [(KeyboardInterrupt(), "interrupted"), (NotFiniteError("x"), "not finite"), (MeanFieldError("x"), "failed")],
)
def test_the_end_says_how(error: BaseException, word: str) -> None:
    stream = io.StringIO()
    with pytest.raises(type(error)):
        watch(stream, 4, error=error)
    assert stream.getvalue().splitlines()[-1].startswith(f"{word}: s = 1 of 1, step 4, ")


def test_a_refusal_before_any_work_says_nothing_of_progress() -> None:
    stream = io.StringIO()
    with pytest.raises(MeanFieldError), Progress(1.0, stream):
        raise MeanFieldError("bad input")
    assert stream.getvalue() == ""
    with pytest.raises(KeyboardInterrupt), Progress(1.0, stream, clock=ticking()):
        raise KeyboardInterrupt
    assert stream.getvalue() == "interrupted: before the first step, 1.0 s\n"


def test_no_time_to_go_is_no_division_by_zero() -> None:
    assert watch(io.StringIO(), 0, s_end=0.0) == "finished: s = 0 of 0, step 0, 2.0 s\n"
    assert watch(io.StringIO(), 0, s_end=None) == "finished: 2.0 s\n"


def test_a_terminal_gets_one_moving_line_unless_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    said = watch(Terminal(), 50)
    assert "\r" in said
    assert "loss" in said
    assert said.splitlines()[-1].endswith("finished: s = 1 of 1, step 50, 52.0 s")
    monkeypatch.setenv("CI", "1")
    assert not is_terminal(Terminal())
    assert "\r" not in watch(Terminal(), 50)
    monkeypatch.setenv("CI", "false")
    assert is_terminal(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(Terminal())


def test_durations_in_words() -> None:
    assert [duration(s) for s in (0.04, 59.9, 59.97, 60.0, 3599.6, 7620.0)] == [
        "0.0 s", "59.9 s", "1 min 00 s", "1 min 00 s", "1 h 00 min", "2 h 07 min"]  # fmt: skip
