"""What became of the members of an ensemble: read from their own folders, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meanfield_pde.errors import FileError
from meanfield_pde.output.checkpoints import checkpoint_files
from meanfield_pde.output.ensemble_file import FAILED, FINISHED, INPUT, INTERRUPTED, WAITING, Entry
from meanfield_pde.output.report import clean, read_run

COLUMNS = ("member", "outcome", "s", "loss", "free energy", "warnings")


@dataclass(frozen=True, slots=True)
class Member:
    """A member as it stands; None is what its kind has not, or what is not known yet.

    Meaning: ``outcome`` is finished, at rest, failed, interrupted or waiting; ``s`` the training time reached and
    ``loss``, ``free_energy`` the values there; ``warnings`` how many the result carries; ``fault`` and ``message``
    say why it failed.
    """

    name: str
    outcome: str
    s: float | None = None
    steps: int | None = None
    loss: float | None = None
    free_energy: float | None = None
    warnings: int | None = None
    fault: str | None = None
    message: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do for it."""
        return self.outcome not in (FAILED, INTERRUPTED, WAITING)


def member_of(folder: Path, entry: Entry) -> Member:
    """How the member of an ensemble in ``folder`` stands, by its own folder first."""
    failed = entry.outcome == FAILED
    fault, message = (entry.fault, entry.message) if failed else (None, None)
    path = folder / entry.folder
    begun = bool(checkpoint_files(path))
    unfinished = FAILED if failed else INTERRUPTED if begun else WAITING
    try:
        run = read_run(path)
    except FileError as error:
        # nothing is there yet, or what is there cannot be read
        lost = begun or entry.outcome == FINISHED
        return Member(entry.folder, unfinished, fault=fault, message=str(error) if lost and not failed else message)
    last = {name: float(series[-1]) for name, series in run.history.items() if len(series)}
    values = (last.get("s"), int(last["step"]) if "step" in last else None, last.get("loss"), last.get("free_energy"))
    if run.is_done:
        return Member(entry.folder, run.outcome.split(":", 1)[0], *values, len(run.warnings))
    return Member(entry.folder, unfinished, *values, len(run.warnings), fault, message)


def rows(members: Sequence[Member]) -> list[tuple[str, ...]]:
    """A row of words a member, under `COLUMNS`."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return [
        (m.name, m.outcome, number(m.s, "g"), number(m.loss, ".10g"), number(m.free_energy, ".10g"),
         "" if m.warnings is None else str(m.warnings))
        for m in members
    ]  # fmt: skip


def as_json(members: Sequence[Member]) -> dict[str, Any]:
    """The same for programs."""
    return {"members": [clean(asdict(member)) for member in members]}


def faults(members: Sequence[Member]) -> tuple[int, int]:
    """How many members failed for what was given, and for other reasons."""
    failed = [member for member in members if member.outcome == FAILED]
    given = sum(member.fault == INPUT for member in failed)
    return given, len(failed) - given
