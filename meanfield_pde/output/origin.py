"""What a run was begun from, so that nothing else is gone on with: the problem, and what the files it names hold."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.foreign_files import foreign_bytes
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import dump_problem, parse_problem

# what a resumed run may change: how long it goes on, and what it puts out
MAY_CHANGE = ("training.s_end", "training.rest", "output.")
FILE = "file"


@dataclass(frozen=True, slots=True)
class Origin:
    """The text of a problem, the SHA-256 of each file it reads by its key, and one of all that may not change.

    Meaning: ``identity`` stands in every file of a run; it stays when the end and the outputs are changed, or a file of
    samples is moved.
    """

    problem: str
    files: dict[str, str] = field(default_factory=dict)
    identity: str = ""


def origin_of(problem: Problem) -> Origin:
    """What a run of a problem is begun from. Raises: FileError for a file of samples that cannot be read."""
    text = dump_problem(problem)
    files = {}
    for key, value in _settings(text).items():
        if key.rpartition(".")[2] == FILE:
            try:
                files[key] = sha256(foreign_bytes(Path(problem.base) / value, "file of samples")).hexdigest()
            except FileError as error:
                raise FileError(f"{key}: {error}; where it was moved to is said by --set {key}=PATH") from None
    origin = Origin(text, files)
    settings = json.dumps(_fixed(origin), sort_keys=True)
    return Origin(text, files, sha256(settings.encode()).hexdigest())


def refuse_changes(path: Path, before: Origin, now: Origin) -> None:
    """Refuse a problem that differs from that of ``path`` in more than its end and its outputs.

    Meaning: settings that ``before`` did not know yet have their default; files are compared by contents where
    both are known, else by name.
    Raises: MeanFieldError naming each key with both values.
    """
    old, new = _fixed(before), _fixed(now)
    changed = [
        f"{key} was {old.get(key)!r} and is {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if changed:
        raise MeanFieldError(
            f"{path.name} belongs to another problem: {'; '.join(changed)}. Only training.s_end, training.rest and "
            "output.* may change on resume; start a new run for other changes"
        )


def _fixed(origin: Origin) -> dict[str, Any]:
    """All settings that may not change, files by what they hold."""
    # through the parser, so that settings of a later package version have their defaults
    settings = _settings(dump_problem(parse_problem(origin.problem, "the problem of a run")))
    settings.update({key: f"a file of SHA-256 {digest}" for key, digest in origin.files.items()})
    return {key: value for key, value in settings.items() if not key.startswith(MAY_CHANGE)}


def _settings(text: str) -> dict[str, Any]:
    return _flat(tomllib.loads(text))


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(table, dict):
        items = table.items()
    elif isinstance(table, list) and table and isinstance(table[0], dict):
        items = {str(i): part for i, part in enumerate(table)}.items()
    else:
        return {prefix: table}
    out: dict[str, Any] = {}
    for key, value in items:
        out.update(_flat(value, f"{prefix}.{key}" if prefix else key))
    return out
