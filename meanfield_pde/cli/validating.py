"""The command that judges a particle code: reads, compares, and leaves words, a tree and a figure."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanfield_pde.cli.running import find_problem
from meanfield_pde.cli.showing import print_json
from meanfield_pde.cli.verdict_words import WORDS, print_verdict
from meanfield_pde.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meanfield_pde.validation.verdict import Verdict

TREE, FIGURE = "verdict.json", "verdict.png"


def print_validation(
    problem: str,
    data: str,
    overrides: Sequence[str],
    *,
    names: Path | None,
    asked: str | None,
    level: float,
    runs: int,
    folder: Path | None,
    as_json: bool,
    threads: int | None,
    quiet: bool,
) -> int:
    """Judge a file against a problem, print the verdicts, draw them into a folder, and give the exit code."""
    from threadpoolctl import threadpool_limits

    from meanfield_pde.cli.run_progress import RunProgress
    from meanfield_pde.output.background import interruptible
    from meanfield_pde.validation.reading import read_trajectory
    from meanfield_pde.validation.verdict import VERDICTS, validate

    stated = find_problem(problem, overrides)
    if folder is not None:
        folder_for(folder, TREE)
    path = find_data(data)
    beside = path.with_suffix(".toml")
    if names is None and beside.is_file() and not (Path(problem).is_file() and beside.samefile(problem)):
        names = beside
    trajectory = read_trajectory(path, stated, names)
    wanted = VERDICTS if asked is None else (asked,)
    try:
        with threadpool_limits(limits=1, user_api="blas"), RunProgress(quiet or as_json) as progress:
            verdict = interruptible(
                lambda: validate(
                    stated, trajectory, asked=wanted, level=level, own=runs, said=progress,
                    threads=threads or len(os.sched_getaffinity(0)),
                )
            )  # fmt: skip
    except BaseException:
        if folder is not None:
            with suppress(OSError):  # it goes if it is empty
                folder.rmdir()
        raise
    facts = as_tree(verdict)
    if folder is not None:
        from meanfield_pde.cli.verdict_figure import draw

        (folder / TREE).write_text(json.dumps(facts, indent=2, allow_nan=False, ensure_ascii=False), encoding="utf-8")
        draw(verdict, stated.title or problem, folder / FIGURE)
    if as_json:
        print_json(facts)
    else:
        print_verdict(verdict, stated.title or problem, names)
        if folder is not None:
            print(f"\nfigure: {folder / FIGURE}; all numbers: {folder / TREE}")
    return verdict.exit_code


def folder_for(folder: Path, name: str) -> None:
    """A folder for a file of results. Raises: FileError if it cannot be made, or holds one already."""
    if (folder / name).exists():
        raise FileError(f"{folder} holds {name} already: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror or error}") from None


def find_data(name: str) -> Path:
    """The file of a trajectory, or one of the examples that come with the package, by its name.

    Raises: FileError where there is none.
    """
    from importlib.resources import files

    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return path
    examples = Path(str(files("meanfield_pde.data") / "particles"))
    known = sorted(one.stem for one in examples.glob("*.npz"))
    if name not in known:
        raise FileError(f"'{name}' is neither a file nor one of the examples: {', '.join(known)}")
    return examples / f"{name}.npz"


def as_tree(verdict: Verdict) -> dict[str, Any]:
    """The verdicts as a tree: what --json prints and verdict.json holds."""
    from meanfield_pde.output.report import clean

    data = verdict.data
    parts = {
        name: None if part is None else asdict(part)
        for name, part in (("identity", verdict.identity), ("limit", verdict.limit), ("diagnosis", verdict.diagnosis))
    }
    tree = {
        "verdict": WORDS[verdict.exit_code].lower(),
        "data": {"source": data.source, "kind": data.kind, "runs": data.runs, "count": data.count,
                 "times": data.times.tolist()},
        "code": asdict(verdict.code),
        **parts,
        "without": verdict.without,
        "detectable": [asdict(one) for one in verdict.detectable],
        "notes": list(verdict.notes),
    }  # fmt: skip
    return dict(clean(tree))
