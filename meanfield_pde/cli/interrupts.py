"""Ctrl-C and a request to terminate, kept until the state is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# seconds that a step may still take after a signal before it is given up
PATIENCE = 0.5


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Turn SIGINT and SIGTERM into one KeyboardInterrupt at the next call of the yielded ``check``.

    Meaning: ``check`` is called where the state is whole. A step that lasts longer than PATIENCE, or a second
    signal, is broken off instead. Once raised, further signals wait until what is being saved is saved.
    """
    if threading.current_thread() is not threading.main_thread():
        # only the main thread hears signals
        yield lambda: None
        return
    asked: list[int] = []
    raised: list[bool] = []

    def stop() -> None:
        _alarm(0.0)
        if not raised:
            raised.append(True)
            raise KeyboardInterrupt

    def on_signal(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            stop()
        else:
            _alarm(PATIENCE)

    def check() -> None:
        if asked:
            stop()

    heard = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, on_signal) for number in heard}
    if hasattr(signal, "SIGALRM"):
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: stop())
    try:
        yield check
    finally:
        _alarm(0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
