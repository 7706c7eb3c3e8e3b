"""A run in a folder: the problem beside its result, checkpoints on the way, and going on from the newest of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output.checkpoints import FOLDER as CHECKPOINTS
from meanfield_pde.output.checkpoints import RESULT, Checkpoints, Found, checkpoint_files, newest
from meanfield_pde.output.file_schema import write_result
from meanfield_pde.output.files import provenance_changes, write_bytes
from meanfield_pde.output.folder_lock import locked
from meanfield_pde.output.origin import Origin, origin_of, refuse_changes
from meanfield_pde.output.record import Recorder
from meanfield_pde.output.segments import FOLDER as SEGMENTS
from meanfield_pde.output.segments import Segments, going_on
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import Split, solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import absolute_paths, dump_problem, load_problem
from meanfield_pde.training.assembled import Assembled
from meanfield_pde.training.memory_plan import MEMORY, in_words, spelled, total
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stopping import UNLIMITED, Stop

__all__ = ["CHECKPOINTS", "PROBLEM", "RESULT", "SEGMENTS", "Progress", "resume", "run"]

PROBLEM = "problem.toml"
Progress = Callable[[Moment], None]


class _Means(NamedTuple):
    """What a run may use and whom it tells; none of it changes a bit of the result."""

    threads: int | None
    progress: Progress | None
    stop: Stop
    memory: float
    said: Callable[[str], None] | None
    split: Split | None

    def say(self, words: str) -> None:
        if self.said is not None:
            self.said(words)


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
    Raises: FileError when the folder cannot be written, already holds a run or parts of one, or another process is at
    work in it; KeyboardInterrupt with the state saved.
    """
    folder = Path(folder)
    problem = absolute_paths(problem)
    means = _Means(threads, progress, stop, memory, said, split)
    _refuse_used(folder, problem)
    origin = origin_of(problem)
    made = [path for path in (folder / CHECKPOINTS, folder / SEGMENTS, folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _unmake(made)
        raise _unwritable(folder, error) from None
    with locked(folder):
        _refuse_used(folder, problem)
        for left in folder.glob(f".{PROBLEM}.*.part"):
            left.unlink(missing_ok=True)  # of a run that was killed before it had begun
        try:
            _write_text(folder / PROBLEM, origin.problem)
            return _go(problem, origin, folder, Found(), means)
        except (OSError, MeanFieldError) as error:
            if not checkpoint_files(folder):
                # refused before there was anything to go on from; none of this was here before
                with suppress(OSError):
                    (folder / PROBLEM).unlink(missing_ok=True)
                rmtree(folder / SEGMENTS, ignore_errors=True)
                _unmake(made)
            if isinstance(error, OSError):
                raise _unwritable(folder, error) from None
            raise


def _refuse_used(folder: Path, problem: Problem) -> None:
    """Refuse a folder in which something of a run would be overwritten."""
    if (folder / PROBLEM).exists():
        how = "" if problem.training is None else f"go on with `resume {folder}`, or "
        raise FileError(f"{folder} already holds a run: {how}give another folder")
    for name in (RESULT, CHECKPOINTS, SEGMENTS):
        if (folder / name).exists():
            raise FileError(f"{folder} already holds {name}, of another run or of none: give another folder")


def _unwritable(folder: Path, error: OSError) -> FileError:
    return FileError(f"cannot write into {folder}: {error.strerror}; give a folder you may write to with -o")


def _write_text(path: Path, text: str) -> None:
    # whole or not at all: a kill must not leave half a problem beside good checkpoints
    write_bytes(path, text.encode())


def _unmake(made: list[Path]) -> None:
    """Take back the folders that were ``made``, where they are empty, and nothing else."""
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

    ``overrides`` (key=value) may change the end and the outputs, and say where files of samples are now; ``step``
    names an earlier checkpoint (what came after it is given up once the first new one is written); ``said`` hears the
    words before the first step.
    Raises: FileError for a folder without a run, without a whole checkpoint, or with another process at work in it;
    MeanFieldError listing what else was changed.
    """
    folder = Path(folder)
    if not (folder / PROBLEM).exists():
        raise FileError(f"{folder} holds no run ({PROBLEM} is missing): start one with `run PROBLEM -o {folder}`")
    with locked(folder):
        return _resumed(folder, tuple(overrides), step, _Means(threads, progress, stop, memory, said, split))


def _resumed(folder: Path, overrides: tuple[str, ...], step: int | None, means: _Means) -> tuple[Solution, str]:
    before = load_problem(folder / PROBLEM)
    if before.kind == "tokens":
        raise MeanFieldError(f"{folder} is a run of tokens alone, which has no training to go on with: start a new run")
    problem = absolute_paths(load_problem(folder / PROBLEM, overrides))
    for left in (*folder.glob(".*.part"), *folder.glob("*/.*.part")):
        left.unlink(missing_ok=True)  # of a writer that was killed
    found = newest(folder, step)
    if found.path is not None and found.checkpoint is not None:
        state, first = found.checkpoint.state, found.checkpoint.origin
        origin = replace(origin_of(problem), identity=first.identity)
        refuse_changes(found.path, first, origin)
        if problem.training is not None and state.s > problem.training.s_end:
            raise MeanFieldError(
                f"training.s_end = {problem.training.s_end:g} is before the checkpoint at s = {state.s:g}: "
                "give a later one, or go back to an earlier checkpoint"
            )
        notes = [f"from {found.path.name}, s = {state.s:g}, step {state.step}", *found.notes]
        other = provenance_changes(found.checkpoint.versions)
        if other:
            notes.append(f"equal bits are not promised, only 1e-11: {', '.join(other)}")
    else:
        if (folder / RESULT).exists():
            raise FileError(f"{folder} holds a result and no checkpoint to go on from: run it anew in another folder")
        refuse_changes(folder / PROBLEM, Origin(dump_problem(before)), Origin(dump_problem(problem)))
        origin, notes = origin_of(problem), ["from the start, since there is no checkpoint yet"]
    _write_text(folder / PROBLEM, origin.problem)  # also tells at once that the folder cannot be written
    note = "; ".join(notes)
    means.say(f"resumed {note}")
    return _go(problem, origin, folder, found, means), note


def _go(problem: Problem, origin: Origin, folder: Path, found: Found, means: _Means) -> Solution:
    if problem.training is not None:
        for name in (CHECKPOINTS, SEGMENTS):
            try:
                (folder / name).mkdir(exist_ok=True)
            except OSError as error:
                raise FileError(f"cannot make the folder {folder / name}: {error.strerror}; clear the way") from None
    checkpoint = found.checkpoint
    start, recorder, segments = None, Recorder(), Segments(folder / SEGMENTS, origin.identity)
    if checkpoint is not None:
        start, recorder = checkpoint.state, Recorder.resumed(found.record)
        counts = (len(found.record.history.get("s", ())), len(found.record.snapshot_s))
        segments = going_on(folder / SEGMENTS, origin.identity, found.lost, found.segments, *counts)
    checkpoints = Checkpoints(folder, origin, problem.output, segments, start)
    last: list[TrainingState] = []

    def on_moment(moment: Moment) -> None:
        if not moment.side:
            last[:] = [moment.state]
        if means.progress is not None:
            means.progress(moment)
        if not moment.side and checkpoints.due(moment.state):
            checkpoints.save(moment.state, recorder)

    def on_ready(ready: Assembled) -> None:
        plan = ready.memory
        means.say(f"memory: at most {spelled(total(plan))} of {spelled(means.memory)}: {in_words(plan)}")

    try:
        solution = solve(
            problem,
            threads=means.threads,
            start=start,
            recorder=recorder,
            on_moment=on_moment,
            stop=means.stop,
            memory=means.memory,
            on_ready=on_ready,
            split=means.split,
        )
    except BaseException as error:
        asked = isinstance(error, KeyboardInterrupt)
        # the last good state, unless it is writing that failed, or nothing has been done yet
        if last and (last[-1].step or asked) and not isinstance(error, FileError):
            checkpoints.save(last[-1], recorder)
        raise
    if last:
        checkpoints.save(last[-1], recorder)
    if found.lost:
        solution = replace(solution, outcome=f"{solution.outcome}; {found.lost}")
    write_result(folder / RESULT, solution, origin.identity)
    return solution
