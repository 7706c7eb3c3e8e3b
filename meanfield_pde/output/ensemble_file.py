"""The file ensemble.toml: which runs belong together, how each differs and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meanfield_pde.config import from_toml, to_toml
from meanfield_pde.errors import FileError
from meanfield_pde.foreign_files import foreign_text
from meanfield_pde.output.files import write_bytes

ENSEMBLE = "ensemble.toml"
WAITING, FINISHED, FAILED, INTERRUPTED = "waiting", "finished", "failed", "interrupted"
# why a member failed: the numbers of the computation, what was given, or a process that ended
NUMBERS, INPUT, PROCESS = "numbers", "input", "process"


@dataclass(frozen=True, slots=True)
class Entry:
    """A member: its folder, the settings in which it differs, and how it ended as far as its own folder cannot say.

    Meaning: ``outcome`` is waiting, finished, failed or interrupted; ``fault`` says of what kind a failure was and
    ``message`` what was said.
    """

    folder: str
    overrides: tuple[str, ...] = ()
    outcome: str = WAITING
    fault: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class EnsembleFile:
    """The members of an ensemble, in their order."""

    members: tuple[Entry, ...]


def is_ensemble(folder: Path) -> bool:
    """Whether a folder holds an ensemble."""
    return (Path(folder) / ENSEMBLE).is_file()


def write_ensemble(folder: Path, entries: tuple[Entry, ...]) -> None:
    """Write ensemble.toml, whole or not at all. Raises: FileError."""
    write_bytes(folder / ENSEMBLE, to_toml(EnsembleFile(entries)).encode())


def read_ensemble(folder: Path) -> tuple[Entry, ...]:
    """The members of the ensemble in a folder.

    Raises: FileError for a folder without one; MeanFieldError for a file that says something else, such as a member
    outside the folder.
    """
    path = Path(folder) / ENSEMBLE
    text = foreign_text(path, "folder of an ensemble")
    entries = from_toml(text, EnsembleFile, str(path)).members
    seen: set[str] = set()
    for entry in entries:
        if not is_name(entry.folder):
            raise FileError(f"{path}: folder = {entry.folder!r} is no plain name: members are folders beside this file")
        if (folder / entry.folder).is_symlink():
            raise FileError(f"{folder / entry.folder} is a link: a member is a folder of its own in the ensemble")
        if entry.folder in seen:
            raise FileError(f"{path}: two members have the folder {entry.folder!r}")
        seen.add(entry.folder)
    return entries


def is_name(text: str) -> bool:
    """Whether a text is a plain name of a folder, which leads nowhere else."""
    plain = text == Path(text).name and text.isprintable() and not text.startswith(".")
    return plain and text != ENSEMBLE and 0 < len(text.encode()) <= 200
