"""Words on the terminal: messages, warnings and tables."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

# wide enough that no line of ours is broken in a file
FILE_WIDTH = 200


# what a file puts into a message must not fill the screen
LONGEST = 2000


def open_streams() -> None:
    """Make output and errors such that they can be written to: closed ones lead nowhere, strange signs are escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(message: str) -> None:
    """One message on one line of standard error, under the name of the command."""
    with suppress(OSError):  # a full disk under a log must not end what is told of
        print(f"meanfield-pde: {plain(message)}", file=sys.stderr, flush=True)


def plain(message: str) -> str:
    """A message that moves no cursor and ends: what cannot be printed is escaped, and too much is left out."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST // 2]} … {shown[-LONGEST // 2 :]}"


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as a line of its own, without the place in the code it comes from."""
    with suppress(OSError):
        print(f"warning: {plain(str(message))}", file=sys.stderr, flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print rows under column names; the first ``left`` columns are words, the others numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for position, name in enumerate(columns):
        words = position < left
        grid.add_column(Text(name), justify="left" if words else "right", no_wrap=not words)
    for row in rows:
        # Text, so that brackets in names are not taken for markup
        grid.add_row(*(Text(cell) for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    with console.capture() as capture:
        console.print(grid)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))
