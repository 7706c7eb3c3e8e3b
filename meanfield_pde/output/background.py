"""Work in a thread of its own, so that the main thread hears a signal at once, whatever compiled code is doing.

Compiled kernels hold no interpreter lock but hear no signal either; whoever waits for them here does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

NAME = "meanfield_pde at work"
# set while a command listens for signals: whether it was asked to stop. A signal's handler must not raise by itself,
# since an exception in a finalizer that happens to run is swallowed
ASKED: ContextVar[threading.Event | None] = ContextVar("asked to stop", default=None)
# seconds between two looks for a signal
POLL = 0.1
T = TypeVar("T")


def interruptible(work: Callable[[], T]) -> T:
    """Do ``work`` in the background and give what it returns or raises.

    Meaning: when the wait for it is broken off (KeyboardInterrupt), the work goes on unheard until it ends by itself;
    work that only computes, state in and state out, can be left to that.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # only the main thread hears signals
    done = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name=NAME, daemon=True).start()
    heed()
    while not done.wait(POLL):
        heed()
    if errors:
        raise errors[0]
    return results[0]


def heed() -> None:
    """Stop here if a stop was asked for. Raises: KeyboardInterrupt."""
    asked = ASKED.get()
    if asked is not None and asked.is_set():
        raise KeyboardInterrupt


def is_at_work() -> bool:
    """Whether work that nobody waits for any more is still going on."""
    return any(thread.name == NAME for thread in threading.enumerate())
