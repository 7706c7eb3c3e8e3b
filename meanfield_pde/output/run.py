"""A run in a folder: the problem beside its result, checkpoints on the way, and going on from the newest of them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from meanfield_pde.errors import FileError, MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.output.checkpoints import FOLDER as CHECKPOINTS
from meanfield_pde.output.checkpoints import Checkpoints, Found, checkpoint_files, newest
from meanfield_pde.output.file_schema import write_result
from meanfield_pde.output.files import provenance_changes, write_bytes
from meanfield_pde.output.folder_lock import locked
from meanfield_pde.output.record import Recorder
from meanfield_pde.output.segments import FOLDER as SEGMENTS
from meanfield_pde.output.segments import Segments, cut, going_on, joined
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import Split, solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import absolute_paths, dump_problem, load_problem
from meanfield_pde.training.assemble import Assembled
from meanfield_pde.training.memory_plan import MEMORY, in_words, spelled, total
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stopping import UNLIMITED, Stop

PROBLEM, RESULT = "problem.toml", "result.h5"
# what a resumed run may change: how long it goes on, and what it puts out
MAY_CHANGE = ("training.s_end", "training.rest", "output")

Progress = Callable[[Moment], None]


def run(
    problem: Problem,
    folder: Path,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    stop: Stop = UNLIMITED,
    memory: float = MEMORY,
    said: Callable[[str], None] | None = None,
    split: Split | None = None,
) -> Solution:
    """Solve a problem in a new ``folder``: problem.toml, checkpoints/, segments/, result.h5.

    Meaning: ``stop`` says how much of it to do now, ``memory`` how many bytes it may take; ``said`` hears the plan of
    the memory before the first step, ``progress`` every moment; ``split`` as in `solve`.
    Raises: FileError when the folder cannot be written, already holds a run, or another process is at work in it;
    KeyboardInterrupt with the state saved.
    """
    folder = Path(folder)
    if (folder / PROBLEM).exists():
        how = "" if problem.training is None else f"go on with `resume {folder}`, or "
        raise FileError(f"{folder} already holds a run: {how}give another folder")
    problem = absolute_paths(problem)
    text = dump_problem(problem)
    folders = (folder / CHECKPOINTS, folder / SEGMENTS, folder, *folder.parents)
    made = [path for path in folders if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            _write_text(folder / PROBLEM, text)
            return _go(problem, folder, Found(None, None, (), ()), threads, progress, stop, memory, said, split)
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
    write_bytes(path, text.encode())


def _unmake(folder: Path, made: list[Path]) -> None:
    """Take back a run that was refused before anything was saved: the files and folders it ``made``, nothing else."""
    if checkpoint_files(folder):
        return
    with suppress(OSError):
        (folder / PROBLEM).unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):
            path.rmdir()


def resume(
    folder: Path,
    overrides: Iterable[str] = (),
    *,
    step: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    stop: Stop = UNLIMITED,
    memory: float = MEMORY,
    said: Callable[[str], None] | None = None,
    split: Split | None = None,
) -> tuple[Solution, str]:
    """Go on with the run in ``folder`` from its newest whole checkpoint, bit for bit; also what was resumed, in words.

    ``overrides`` (key=value) may change the end and the outputs, nothing else; ``step`` names an earlier
    checkpoint (what came after it is given up once the first new one is written); ``said`` hears the words before the
    first step.
    Raises: FileError for a folder without a run, without a whole checkpoint, or with another process at work in it;
    MeanFieldError listing what else was changed.
    """
    folder = Path(folder)
    if not (folder / PROBLEM).exists():
        raise FileError(f"{folder} holds no run ({PROBLEM} is missing): start one with `run PROBLEM -o {folder}`")
    with locked(folder):
        return _resumed(folder, tuple(overrides), step, threads, progress, stop, memory, said, split)


def _resumed(
    folder: Path,
    overrides: tuple[str, ...],
    step: int | None,
    threads: int | None,
    progress: Progress | None,
    stop: Stop,
    memory: float,
    said: Callable[[str], None] | None,
    split: Split | None,
) -> tuple[Solution, str]:
    before = load_problem(folder / PROBLEM)
    if before.kind == "tokens":
        raise MeanFieldError(f"{folder} is a run of tokens alone, which has no training to go on with: start a new run")
    problem = load_problem(folder / PROBLEM, overrides)
    text = dump_problem(problem)
    refuse_changes(folder / PROBLEM, dump_problem(before), text)
    for left in folder.glob("*/.*.part"):
        left.unlink(missing_ok=True)  # of a writer that was killed
    found = newest(folder, step)
    notes = list(found.notes)
    if found.path is not None and found.checkpoint is not None:
        state = found.checkpoint.state
        refuse_changes(found.path, found.checkpoint.problem, text)
        if problem.training is not None and state.s > problem.training.s_end:
            raise MeanFieldError(
                f"training.s_end = {problem.training.s_end:g} is before the checkpoint at s = {state.s:g}: "
                "give a later one, or go back to an earlier checkpoint"
            )
        other = provenance_changes(found.checkpoint.versions)
        if other:
            notes.append(f"equal bits are not promised, only 1e-11: {', '.join(other)}")
        notes.append(f"from {found.path.name}, s = {state.s:g}, step {state.step}")
    else:
        notes.append("no checkpoint yet: from the start")
    if text != (folder / PROBLEM).read_text(encoding="utf-8"):
        _write_text(folder / PROBLEM, text)
    note = "; ".join(notes)
    if said is not None:
        said(f"resumed {note}")
    return _go(problem, folder, found, threads, progress, stop, memory, said, split), note


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
            f"{path.name} belongs to another problem: {'; '.join(changed)}. Only training.s_end, training.rest and "
            "output.* may change on resume; start a new run for other changes"
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
    found: Found,
    threads: int | None,
    progress: Progress | None,
    stop: Stop,
    memory: float,
    said: Callable[[str], None] | None,
    split: Split | None,
) -> Solution:
    if problem.training is not None:
        for name in (CHECKPOINTS, SEGMENTS):
            (folder / name).mkdir(exist_ok=True)
    checkpoint = found.checkpoint
    start, recorder, segments = None, Recorder(), Segments(folder / SEGMENTS)
    if checkpoint is not None:
        counts = (checkpoint.rows, checkpoint.snapshots)
        start, recorder = checkpoint.state, Recorder.resumed(cut(joined(found.segments), *counts))
        segments = going_on(folder / SEGMENTS, found.segments, *counts)
    checkpoints = Checkpoints(folder, dump_problem(problem), problem.output, segments, start)
    last: list[TrainingState] = []

    def on_moment(moment: Moment) -> None:
        if not moment.side:
            last[:] = [moment.state]
        if progress is not None:
            progress(moment)
        if not moment.side and checkpoints.due(moment.state):
            checkpoints.save(moment.state, recorder)

    def on_ready(ready: Assembled) -> None:
        if said is not None:
            said(f"memory: at most {spelled(total(ready.memory))} of {spelled(memory)}: {in_words(ready.memory)}")

    try:
        solution = solve(
            problem,
            threads=threads,
            start=start,
            recorder=recorder,
            on_moment=on_moment,
            stop=stop,
            memory=memory,
            on_ready=on_ready,
            split=split,
        )
    except KeyboardInterrupt:
        if last:
            checkpoints.save(last[-1], recorder)
        raise
    except (NotFiniteError, NotConvergedError):
        if last and last[-1].step:
            checkpoints.save(last[-1], recorder)  # the last good state
        raise
    if last:
        checkpoints.save(last[-1], recorder)
    write_result(folder / RESULT, solution)
    return solution
