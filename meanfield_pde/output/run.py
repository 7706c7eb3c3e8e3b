"""A run in a folder: the problem beside its result, checkpoints on the way, and going on from the newest of them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output.file_schema import provenance_changes, read_checkpoint, write_checkpoint, write_result
from meanfield_pde.output.record import Record, Recorder
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import absolute_paths, dump_problem, load_problem
from meanfield_pde.training.state import Moment, TrainingState

PROBLEM, RESULT, CHECKPOINTS = "problem.toml", "result.h5", "checkpoints"
# so many checkpoints stay; the newest may be damaged by the machine, never by us
KEEP = 2
# what a resumed run may change: how long it goes on, and what it puts out
MAY_CHANGE = ("training.s_end", "output")

Progress = Callable[[Moment], None]


def run(problem: Problem, folder: Path, *, threads: int | None = None, progress: Progress | None = None) -> Solution:
    """Solve a problem in a new ``folder``: problem.toml, checkpoints/, result.h5.

    Raises: FileError when the folder cannot be written or already holds a run; KeyboardInterrupt with the state
    saved.
    """
    folder = Path(folder)
    if (folder / PROBLEM).exists():
        how = "" if problem.training is None else f"go on with `resume {folder}`, or "
        raise FileError(f"{folder} already holds a run: {how}give another folder")
    problem = absolute_paths(problem)
    text = dump_problem(problem)
    made = [path for path in (folder / CHECKPOINTS, folder, *folder.parents) if not path.exists()]
    try:
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        _write_text(folder / PROBLEM, text)
        return _go(problem, folder, None, None, threads, progress)
    except OSError as error:
        _unmake(folder, made)
        raise FileError(
            f"cannot write into {folder}: {error.strerror}; give a folder you may write to with -o"
        ) from None
    except MeanFieldError:
        _unmake(folder, made)
        raise


def _write_text(path: Path, text: str) -> None:
    # whole or not at all: a kill must not leave half a problem beside good checkpoints
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _unmake(folder: Path, made: list[Path]) -> None:
    """Take back a run that was refused before anything was saved: the files and folders it ``made``, nothing else."""
    with suppress(OSError):
        if any((folder / CHECKPOINTS).iterdir()):
            return
        (folder / PROBLEM).unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):
            path.rmdir()


def resume(
    folder: Path, overrides: Iterable[str] = (), *, threads: int | None = None, progress: Progress | None = None
) -> tuple[Solution, str]:
    """Go on with the run in ``folder`` from its newest whole checkpoint, bit for bit; also what was resumed, in words.

    ``overrides`` (key=value) may change the end time and the outputs, nothing else.
    Raises: FileError for a folder without a run or without a whole checkpoint; MeanFieldError listing what
    else was changed.
    """
    folder = Path(folder)
    if not (folder / PROBLEM).exists():
        raise FileError(f"{folder} holds no run ({PROBLEM} is missing): start one with `run PROBLEM -o {folder}`")
    before = load_problem(folder / PROBLEM)
    if before.kind == "tokens":
        raise MeanFieldError(f"{folder} is a run of tokens alone, which has no training to go on with: start a new run")
    problem = load_problem(folder / PROBLEM, overrides)
    text = dump_problem(problem)
    refuse_changes(folder / PROBLEM, dump_problem(before), text)
    for left in (folder / CHECKPOINTS).glob(".*.part"):
        left.unlink(missing_ok=True)  # of a writer that was killed
    found, notes = newest_checkpoint(folder)
    if found is None:
        return _go(problem, folder, None, None, threads, progress), "; ".join(
            [*notes, "no checkpoint yet: from the start"]
        )
    path, saved, state, record = found
    refuse_changes(path, saved, text)
    if problem.training is not None and state.s > problem.training.s_end:
        raise MeanFieldError(
            f"training.s_end = {problem.training.s_end:g} is before the checkpoint at s = {state.s:g}: give a later one"
        )
    if text != (folder / PROBLEM).read_text(encoding="utf-8"):
        _write_text(folder / PROBLEM, text)
    other = provenance_changes(path)
    if other:
        notes.append(f"equal bits are not promised, only 1e-11: {', '.join(other)}")
    note = "; ".join([*notes, f"from {path.name}, s = {state.s:g}, step {state.step}"])
    return _go(problem, folder, state, record, threads, progress), note


def newest_checkpoint(
    folder: Path,
) -> tuple[tuple[Path, str, TrainingState, Record] | None, list[str]]:
    """The newest checkpoint that loads, and a note on each newer one that does not."""
    notes: list[str] = []
    for path in sorted((folder / CHECKPOINTS).glob("step-*.h5"), reverse=True):
        try:
            return (path, *read_checkpoint(path)), notes
        except FileError as error:
            notes.append(str(error))
    if notes:
        raise FileError("no checkpoint of this run can be used: " + "; ".join(notes))
    return None, notes


def refuse_changes(path: Path, saved: str, now: str) -> None:
    """Refuse a problem that differs from that of a checkpoint in more than its end and its outputs.

    Raises: MeanFieldError naming each key with both values.
    """
    before, after = _flat(tomllib.loads(saved)), _flat(tomllib.loads(now))
    changed = [
        f"{key} was {before.get(key)!r} and is {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not key.startswith(MAY_CHANGE)
    ]
    if changed:
        raise MeanFieldError(
            f"{path.name} belongs to another problem: {'; '.join(changed)}. Only training.s_end and output.* may "
            "change on resume; start a new run for the rest"
        )


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


def _go(
    problem: Problem,
    folder: Path,
    start: TrainingState | None,
    record: Record | None,
    threads: int | None,
    progress: Progress | None,
) -> Solution:
    text = dump_problem(problem)
    recorder = Recorder() if record is None else Recorder.resumed(record)
    last: list[TrainingState] = []

    def save() -> None:
        state = last[-1]
        # side rows beyond the state are left out: the resumed run makes them anew, if they are still asked for
        record_here = recorder.freeze(state.s)
        write_checkpoint(folder / CHECKPOINTS / f"step-{state.step:010d}.h5", text, state, record_here)
        for old in sorted((folder / CHECKPOINTS).glob("step-*.h5"))[:-KEEP]:
            old.unlink()

    def on_moment(moment: Moment) -> None:
        if not moment.side:
            last[:] = [moment.state]
            if moment.state.step and moment.state.step % problem.output.checkpoint_every == 0:
                save()
        if progress is not None:
            progress(moment)

    try:
        solution = solve(problem, threads=threads, start=start, recorder=recorder, on_moment=on_moment)
    except KeyboardInterrupt:
        if last:
            save()
        raise
    if last:
        save()
    write_result(folder / RESULT, solution)
    return solution
