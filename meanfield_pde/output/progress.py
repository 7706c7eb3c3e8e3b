"""How far a run is: one moving line on a terminal, a plain line now and then in a log file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import isnan
from types import TracebackType
from typing import Any, TextIO

from meanfield_pde.errors import NotFiniteError
from meanfield_pde.training.state import Moment, TrainingState

# plain lines: one each so many parts of the run
PARTS = 10


def is_terminal(stream: TextIO) -> bool:
    """Whether a line may move: a terminal that can, and no CI."""
    ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return stream.isatty() and not ci and os.environ.get("TERM") != "dumb"


def duration(seconds: float) -> str:
    """Seconds in words: 3.2 s, 4 min 05 s, 2 h 07 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def values_of(loss: float, free_energy: float) -> str:
    """Loss and free energy in words; heads that are points have no free energy."""
    return f"loss {loss:.6g}" + ("" if isnan(free_energy) else f", free energy {free_energy:.6g}")


@dataclass(slots=True)
class Progress:
    """Called at every moment of a run to ``s_end`` (None when nothing is trained); a context that says how it ended.

    Meaning: on a terminal one line that moves; otherwise a plain line at most each tenth of the run, nothing when
    ``quiet``. No carriage return ever reaches a file. One line at the end always, which says how it ended: ``outcome``
    up to its colon, or interrupted, or not finite.
    """

    s_end: float | None
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    began: float = 0.0
    first: tuple[float, float] | None = None
    state: TrainingState | None = None
    part: int = 0
    bar: Any = None
    outcome: str = "finished"

    def __enter__(self) -> Progress:
        self.began = self.clock()
        if self.s_end is not None and not self.quiet and is_terminal(self.stream):
            self.bar = _bar(self.stream)
            self.bar.start()
            self.bar.add_task("", total=max(self.s_end, 1e-300), words="getting ready")
        return self

    def __call__(self, moment: Moment) -> None:
        """Show a moment."""
        state, now = moment.state, self.clock()
        self.state = state
        if self.first is None:
            self.first = (state.s, now)
        if self.s_end is None or self.quiet:
            return
        values = values_of(moment.variation.loss, moment.free_energy)
        if self.bar is not None:
            words = f"s {state.s:.4g} / {self.s_end:g}, step {state.step}, {values}{self._left(now)}"
            self.bar.update(self.bar.task_ids[0], completed=state.s, words=words)
            return
        part = int(PARTS * state.s / self.s_end + 1e-9) if self.s_end > 0 else PARTS
        # the last part is the line at the end
        if self.part < part < PARTS:
            self.part = part
            self._print(f"s = {state.s:.4g} of {self.s_end:g}: step {state.step}, {values}{self._left(now)}")

    def _left(self, now: float) -> str:
        """The time left at the pace so far, in words."""
        if self.first is None or self.state is None or self.s_end is None or self.state.s <= self.first[0]:
            return ""
        pace = (now - self.first[1]) / (self.state.s - self.first[0])
        return f", {duration(pace * max(self.s_end - self.state.s, 0.0))} left"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
        if kind is None:
            how = self.outcome.split(":", 1)[0]
        elif issubclass(kind, KeyboardInterrupt):
            how = "interrupted"
        elif issubclass(kind, NotFiniteError):
            how = "not finite"
        elif self.state is None:
            # refused before any work: the message of the refusal says it all
            return
        else:
            how = "failed"
        where = ""
        if self.s_end is not None:
            reached = self.state
            where = "before the first step" if reached is None else f"s = {reached.s:.6g} of {self.s_end:g}"
            where += "" if reached is None else f", step {reached.step}"
        parts = [part for part in (where, duration(self.clock() - self.began)) if part]
        self._print(f"{how}: {', '.join(parts)}")

    def _print(self, line: str) -> None:
        with suppress(OSError):  # a log that cannot be written must not end the run
            print(line, file=self.stream, flush=True)


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    words = TextColumn("{task.fields[words]}", markup=False)
    return Progress(BarColumn(bar_width=24), words, console=Console(file=stream), transient=True)
