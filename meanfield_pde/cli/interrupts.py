"""Ctrl-C and a request to terminate: heard once, at once, and not again until the state is saved."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heard_once() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a KeyboardInterrupt; further ones wait until all is saved."""
    if threading.current_thread() is not threading.main_thread():
        # only the main thread hears signals
        yield
        return
    raised: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        raised.append(number)
        if len(raised) == 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> int:
    """End the process now if a compiled kernel that nobody waits for is still at work, else give the exit code back."""
    from meanfield_pde.output.background import is_at_work

    if is_at_work():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
