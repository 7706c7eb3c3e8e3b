"""How far an ensemble is: one display for all members on a terminal, plain lines in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TextIO

from meanfield_pde.output.ensemble_file import FAILED, FINISHED
from meanfield_pde.output.ensemble_job import Ended, Event, Reached
from meanfield_pde.output.progress import duration, is_terminal, values_of

# plain lines between the ends of members: one each so many parts of all the work
PARTS = 10


@dataclass(slots=True)
class EnsembleProgress:
    """Told of events, it shows them; a context that says how all ended in one last line.

    Meaning: on a terminal a line for the whole and one for each member at work; otherwise a plain line when a member
    ends and at most each tenth of all the work; the last line alone when ``quiet``. No carriage return reaches a file.
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    began: float = 0.0
    count: int = 0
    part: int = 0
    at: dict[int, Reached] = field(default_factory=dict)
    ended: dict[int, Ended] = field(default_factory=dict)
    bar: Any = None
    tasks: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> EnsembleProgress:
        self.began = self.clock()
        return self

    def __call__(self, names: tuple[str, ...], event: Event) -> None:
        """Show an event."""
        self.count = len(names)
        if isinstance(event, Reached):
            self.at[event.member] = event
        else:
            self.ended[event.member] = event
        if self.quiet:
            return
        if is_terminal(self.stream):
            self._move(names, event)
        else:
            self._line(names, event)

    def _line(self, names: tuple[str, ...], event: Event) -> None:
        part = int(PARTS * self._done() + 1e-9)
        if isinstance(event, Ended):
            reached = self.at.get(event.member)
            words = event.message or (_values(reached) if reached else "")
            what = f"{event.outcome}: {names[event.member]} ({len(self.ended)} of {self.count})"
            print(f"{what}: {words}" if words else what, file=self.stream, flush=True)
        elif self.part < part < PARTS and event.s < event.s_end:
            print(f"{10 * part} %: {len(self.ended)} of {self.count} members, {names[event.member]} at "
                  f"s = {event.s:.4g} of {event.s_end:g}", file=self.stream, flush=True)  # fmt: skip
        self.part = max(self.part, part)

    def _done(self) -> float:
        """The share of all the work that is done, if all members take the same time."""
        parts = [min(r.s / r.s_end, 1.0) for i, r in self.at.items() if i not in self.ended and r.s_end > 0.0]
        return (len(self.ended) + sum(parts)) / max(self.count, 1)

    def _move(self, names: tuple[str, ...], event: Event) -> None:
        if self.bar is None:
            self.bar = _bar(self.stream)
            self.bar.start()
            self.tasks[-1] = self.bar.add_task("", total=1.0, words="")
        member = event.member
        if isinstance(event, Reached):
            if member not in self.tasks:
                self.tasks[member] = self.bar.add_task("", total=max(event.s_end, 1e-300), words="")
            self.bar.update(self.tasks[member], completed=event.s, words=f"{names[member]}: {_values(event)}")
        else:
            if member in self.tasks:
                self.bar.remove_task(self.tasks.pop(member))
            if event.outcome == FAILED:
                self.bar.console.print(f"failed: {names[member]}: {event.message}", markup=False, highlight=False)
        failed = sum(one.outcome == FAILED for one in self.ended.values())
        words = f"{len(self.ended)} of {self.count} members" + (f", {failed} failed" if failed else "")
        self.bar.update(self.tasks[-1], completed=self._done(), words=f"{words}, {duration(self.clock() - self.began)}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
        if kind is not None and not issubclass(kind, KeyboardInterrupt):
            return  # the message of the refusal says it all
        finished = sum(one.outcome == FINISHED for one in self.ended.values())
        failed = sum(one.outcome == FAILED for one in self.ended.values())
        how = "failed" if failed else "finished"
        if kind is not None or finished + failed < self.count:
            how = "interrupted"
        words = f"{finished} of {self.count} members finished" if self.count else "no member was missing"
        if kind is not None and not self.count:
            words = "before the first member"
        words += f", {failed} failed" if failed else ""
        print(f"{how}: {words}, {duration(self.clock() - self.began)}", file=self.stream, flush=True)


def _values(reached: Reached) -> str:
    values = values_of(reached.loss, reached.free_energy)
    return f"s {reached.s:.4g} / {reached.s_end:g}, step {reached.step}, {values}"


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    words = TextColumn("{task.fields[words]}", markup=False)
    return Progress(BarColumn(bar_width=24), words, console=Console(file=stream), transient=True)
