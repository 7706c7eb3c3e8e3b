"""An object of the user's own, named on the command line as MODULE:OBJECT."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meanfield_pde.errors import MeanFieldError


def own_object(named: str, option: str) -> Any:
    """The object of a module that is installed or in the current folder.

    Raises: MeanFieldError for a module or object that is not there, or a module that fails as it is imported.
    """
    module, _, name = named.partition(":")
    if not module or not name:
        raise MeanFieldError(f"{option} {named}: give MODULE:OBJECT, such as my_schemes:scheme")
    with _here_first():
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = f"no module {error.name!r}"
            raise MeanFieldError(
                f"{option} {named}: there is {missing}, neither in {Path.cwd()} nor installed: give the name of a file "
                "there without .py"
            ) from None
        except Exception as error:  # whatever runs when the user's module is imported
            raise MeanFieldError(
                f"{option} {named}: importing {module} fails: {type(error).__name__}: {error}"
            ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise MeanFieldError(f"{option} {named}: {module} ({getattr(found, '__file__', module)}) has no {part!r}")
        found = getattr(found, part)
    return found


def own_schemes(named: Sequence[str], fluxes: Sequence[str] = ()) -> dict[str, Any]:
    """The keywords of a table: names of built-in schemes restrict it, MODULE:OBJECT adds to it, and so do fluxes."""
    names = [one for one in named if ":" not in one]
    out: dict[str, Any] = {"schemes": names} if names else {}
    if len(names) < len(named):
        out["own"] = {one: own_object(one, "--scheme") for one in named if ":" in one}
    if fluxes:
        out["fluxes"] = {one: own_object(one, "--flux") for one in fluxes}
    return out


@contextmanager
def _here_first() -> Iterator[None]:
    """The current folder in front of where modules are looked for; the command itself does not look there."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)
