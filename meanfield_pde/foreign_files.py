"""The bytes of a file that somebody else may have made: only of a regular file, and only after a look at its size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from meanfield_pde.errors import FileError

# of samples, results and checkpoints; and of a problem, which is written by hand
MOST_BYTES, MOST_TEXT = 2**30, 2**22


def check_regular(path: Path, what: str, most: int = MOST_BYTES) -> int:
    """The size in bytes of a regular file; ``what`` says what the path should lead to.

    Raises: FileError for what is missing, a folder, a pipe or a device (which may never end), or beyond ``most`` bytes.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        words = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {reason}"
        raise FileError(f"{path} {words}: give the path of a {what}") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device, no regular file"
        raise FileError(f"{path} is {kind}: give the path of a {what}")
    if found.st_size > most:
        raise FileError(f"{path} has {found.st_size} bytes: a {what} may have at most {most}; make it smaller")
    return found.st_size


def foreign_bytes(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """All bytes of a regular file, which is closed again. Raises: FileError as `check_regular`."""
    size = check_regular(path, what, most)
    try:
        with path.open("rb") as file:
            # one byte more would show that it is being written
            content = file.read(size + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; give the path of a {what}") from None
    if len(content) != size:
        raise FileError(f"{path} changes while it is read: wait until whoever writes it is done")
    return content


def foreign_text(path: Path, what: str, most: int = MOST_TEXT) -> str:
    """The UTF-8 text of a regular file, with or without a byte order mark. Raises: FileError as `check_regular`."""
    try:
        return foreign_bytes(path, what, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path} cannot be read: it is not UTF-8 text at byte {error.start}; give the path of a {what}"
        ) from None


def beside(base: Path, name: str) -> Path:
    """The absolute path of a file that a problem in the folder ``base`` names. Raises: FileError if there is none."""
    try:
        return (base / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise FileError(f"{name!r} cannot be the path of a file: {error}") from None
