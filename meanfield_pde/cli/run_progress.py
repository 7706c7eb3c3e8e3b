"""How many of our own runs are done: one moving line on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from meanfield_pde.output.progress import duration, is_terminal

PARTS = 10


@dataclass(slots=True)
class RunProgress:
    """Called with how many runs are done and of how many; a context that ends its line."""

    quiet: bool
    began: float = 0.0
    part: int = 0
    moving: bool = False

    def __enter__(self) -> RunProgress:
        self.began = time.monotonic()
        return self

    def __call__(self, done: int, count: int) -> None:
        """One more run is done."""
        if self.quiet:
            return
        stream: TextIO = sys.stderr
        left = (time.monotonic() - self.began) / done * (count - done)
        words = f"own runs: {done} of {count}, about {duration(left)} left"
        if is_terminal(stream):
            self.moving = True
            print(f"\r{words:<60}", end="", file=stream, flush=True)
        elif PARTS * done // count > self.part:
            self.part = PARTS * done // count
            print(words, file=stream, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.moving:
            print("\r" + 60 * " " + "\r", end="", file=sys.stderr, flush=True)
