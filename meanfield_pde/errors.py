"""The one family of errors a user of the package can meet."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class MeanFieldError(ValueError):
    """Something given by the user cannot be used: names the value, what is allowed, the remedy."""


class NotFiniteError(MeanFieldError):
    """A computed field stopped being finite: names the field, where and when."""


class NotConvergedError(MeanFieldError):
    """A result could not be brought to the accuracy asked for: names what was reached and the remedy."""


class FileError(MeanFieldError):
    """A file cannot be read, written, or belongs to another problem: names the path."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The phrase ``did you mean 'x'?`` for the nearest of ``choices``, or the list of them."""
    names = list(choices)
    close = get_close_matches(word, names, n=1) or [name for name in names if name.lower() == word.lower()]
    return f"did you mean '{close[0]}'?" if close else "allowed: " + ", ".join(names)
