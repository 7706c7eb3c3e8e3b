"""When a checkpoint is due, how many stay, and which one a run goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.output.file_schema import (
    Checkpoint,
    Segment,
    read_checkpoint,
    read_result_record,
    write_checkpoint,
)
from meanfield_pde.output.origin import Origin
from meanfield_pde.output.record import Record, Recorder
from meanfield_pde.output.segments import FOLDER as SEGMENTS
from meanfield_pde.output.segments import Segments, cut, joined, read_segments
from meanfield_pde.problem import Output
from meanfield_pde.training.state import TrainingState

FOLDER, RESULT = "checkpoints", "result.h5"
NOTHING = Record({}, np.empty(0), np.empty(0))


@dataclass(slots=True)
class Checkpoints:
    """Writes the checkpoints of one run: the record up to a state goes to its segments first, then the state.

    Meaning: ``origin`` is what the run was begun from; ``saved`` is the state written last.
    """

    folder: Path
    origin: Origin
    output: Output
    segments: Segments
    saved: TrainingState | None = None
    clock: Callable[[], float] = time.monotonic
    at: float = 0.0

    def __post_init__(self) -> None:
        self.at = self.clock()

    def due(self, state: TrainingState) -> bool:
        """Whether enough steps, training time or minutes have passed since the last one."""
        before = 0.0 if self.saved is None else self.saved.s
        if state.step == (0 if self.saved is None else self.saved.step):
            return False
        spacing = self.output.checkpoint_s
        return (
            state.step % self.output.checkpoint_every == 0
            or (spacing is not None and floor(state.s / spacing) > floor(before / spacing))
            or self.clock() - self.at >= 60.0 * self.output.checkpoint_minutes
        )

    def save(self, state: TrainingState, recorder: Recorder) -> None:
        """Write the state, once, and the record up to it; then remove the oldest, and those of an abandoned future.

        Raises: FileError; what was saved before stays.
        """
        if self.saved is not None and self.saved.step == state.step:
            return
        # rows beyond the state are left out: the resumed run makes them anew, if they are still asked for
        counts = self.segments.flush(recorder, state.s)
        write_checkpoint(self.folder / FOLDER / f"step-{state.step:010d}.h5", self.origin, state, *counts)
        self.saved, self.at = state, self.clock()
        found = checkpoint_files(self.folder)
        past = [path for step, path in found if step <= state.step]
        for path in [*past[: -self.output.checkpoint_keep], *(path for step, path in found if step > state.step)]:
            path.unlink(missing_ok=True)


def checkpoint_files(folder: Path) -> list[tuple[int, Path]]:
    """Step and path of the checkpoints in a run folder, in order; whether they load is not looked at."""
    found = [(path.stem.removeprefix("step-"), path) for path in (folder / FOLDER).glob("step-*.h5")]
    return sorted((int(step), path) for step, path in found if step.isdigit())


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint with the record up to it and the segments that hold it, and notes on what was passed over.

    Meaning: ``lost`` says what of the record is gone, "" if nothing is.
    """

    path: Path | None = None
    checkpoint: Checkpoint | None = None
    record: Record = NOTHING
    segments: tuple[Segment, ...] = ()
    notes: tuple[str, ...] = ()
    lost: str = ""


def newest(folder: Path, step: int | None = None) -> Found:
    """The newest checkpoint that loads and whose record is whole, or that of ``step``; a note on each passed over.

    Meaning: the record is in the segments, or else in the result. Where no checkpoint has its whole record, the newest
    that loads, and what is lost is said.
    Raises: FileError when checkpoints are there but none loads, or when there is none of that step.
    """
    files = checkpoint_files(folder)
    if step is not None:
        chosen = [(at, path) for at, path in files if at == step]
        if not chosen:
            there = ", ".join(str(at) for at, _ in files) or "none yet"
            raise FileError(f"{folder} has no checkpoint of step {step}: there are {there}")
        files = chosen
    notes: list[str] = []
    short: list[Found] = []
    for _, path in reversed(files):
        try:
            checkpoint = read_checkpoint(path)
        except FileError as error:
            notes.append(str(error))
            continue
        segments, fault = read_segments(folder / SEGMENTS, checkpoint.origin.identity)
        record = joined(segments)
        lost = next((part.lost for part in reversed(segments) if part.lost), "")
        if _is_whole(record, checkpoint):
            return Found(path, checkpoint, _before(record, checkpoint), segments, tuple(notes), lost)
        why = f"the record of {path.name} is not whole ({fault or 'rows are missing'})"
        kept = _record_of_result(folder, checkpoint)
        if kept is not None:
            notes.append(f"{why}, that of {RESULT} is taken")
            return Found(path, checkpoint, _before(kept, checkpoint), segments, tuple(notes))
        times = record.history.get("s", np.empty(0))
        gone = f"the record of s {f'from {times[-1]:g} ' if len(times) else ''}up to {checkpoint.state.s:g} is lost"
        notes.append(why)
        short.append(Found(path, checkpoint, _before(record, checkpoint), segments, (), gone))
    if short:
        return replace(short[0], notes=(*notes, short[0].lost))
    if notes:
        raise FileError(
            "no checkpoint of this run can be used: " + "; ".join(notes) + ". Run the problem into another folder"
        )
    return Found()


def _is_whole(record: Record, checkpoint: Checkpoint) -> bool:
    times, rows, snapshots = record.history.get("s", np.empty(0)), checkpoint.rows, checkpoint.snapshots
    if len(times) < rows or len(record.snapshot_s) < snapshots:
        return False
    last = max([*times[:rows][-1:], *record.snapshot_s[:snapshots][-1:]], default=0.0)
    return bool(last <= checkpoint.state.s)


def _before(record: Record, checkpoint: Checkpoint) -> Record:
    return cut(record, checkpoint.rows, checkpoint.snapshots)


def _record_of_result(folder: Path, checkpoint: Checkpoint) -> Record | None:
    """The record in the result of the same run, if it is whole."""
    try:
        identity, record = read_result_record(folder / RESULT)
    except FileError:
        return None  # there may be none yet
    return record if identity == checkpoint.origin.identity and _is_whole(record, checkpoint) else None
