"""One writer a folder: of a run, or of an ensemble."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meanfield_pde.errors import FileError


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the folder for one writer; gives the descriptor, which workers keep open as long as they live.

    Meaning: the lock is gone when the last process that holds the descriptor has ended, however it ended.
    Raises: FileError while another writer is at work.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(
                f"{folder} is still being worked on by another process: wait for its end, or end it first"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield handle
    finally:
        os.close(handle)
