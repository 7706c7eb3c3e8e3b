"""Ctrl-C and a request to terminate: heard within a tenth of a second, where nothing is half done."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def heard_once() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into one KeyboardInterrupt where `background.interruptible` waits or `heed` is called.

    Meaning: what is being written is written, and further signals change nothing.
    """
    from meanfield_pde.output.background import ASKED

    if threading.current_thread() is not threading.main_thread():
        # only the main thread hears signals
        yield
        return
    asked = threading.Event()
    token = ASKED.set(asked)
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ASKED.reset(token)


def leave(code: int) -> int:
    """End the process now if a compiled kernel that nobody waits for is still at work, else give the exit code back."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # it is ending
    from meanfield_pde.output.background import is_at_work

    if is_at_work():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
