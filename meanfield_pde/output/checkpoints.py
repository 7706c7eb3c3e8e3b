"""When a checkpoint is due, how many stay, and which one a run goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from pathlib import Path

from meanfield_pde.errors import FileError
from meanfield_pde.output.file_schema import Checkpoint, Segment, read_checkpoint, write_checkpoint
from meanfield_pde.output.record import Recorder
from meanfield_pde.output.segments import FOLDER as SEGMENTS
from meanfield_pde.output.segments import Segments, read_segments
from meanfield_pde.problem import Output
from meanfield_pde.training.state import TrainingState

FOLDER = "checkpoints"


@dataclass(slots=True)
class Checkpoints:
    """Writes the checkpoints of one run: the record up to a state goes to its segments first, then the state.

    Meaning: ``problem`` is the text of the problem; ``saved`` is the state written last.
    """

    folder: Path
    problem: str
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
        write_checkpoint(self.folder / FOLDER / f"step-{state.step:010d}.h5", self.problem, state, *counts)
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
    """A checkpoint with the segments of its record, and notes on what was passed over."""

    path: Path | None
    checkpoint: Checkpoint | None
    segments: tuple[Segment, ...]
    notes: tuple[str, ...]


def newest(folder: Path, step: int | None = None) -> Found:
    """The newest checkpoint that loads and whose record is whole, or that of ``step``; a note on each passed over.

    Meaning: where no checkpoint has its whole record, the newest that loads, with a note on what is lost.
    Raises: FileError when checkpoints are there but none loads, or when there is none of that step.
    """
    files = checkpoint_files(folder)
    if step is not None:
        chosen = [(at, path) for at, path in files if at == step]
        if not chosen:
            there = ", ".join(str(at) for at, _ in files) or "none yet"
            raise FileError(f"{folder} has no checkpoint of step {step}: there are {there}")
        files = chosen
    segments, fault = read_segments(folder / SEGMENTS)
    rows = sum(len(part.record.history.get("s", ())) for part in segments)
    snapshots = sum(len(part.record.snapshot_s) for part in segments)
    notes: list[str] = []
    short: tuple[Path, Checkpoint] | None = None
    for _, path in reversed(files):
        try:
            checkpoint = read_checkpoint(path)
        except FileError as error:
            notes.append(str(error))
            continue
        if checkpoint.rows <= rows and checkpoint.snapshots <= snapshots:
            return Found(path, checkpoint, segments, tuple(notes))
        notes.append(f"{path.name} has no whole record: {fault or 'rows are missing'}")
        short = short or (path, checkpoint)
    if short is not None:
        last = max((part.record.history["s"][-1] for part in segments if "s" in part.record.history), default=None)
        lost = "the record before it is lost" if last is None else f"the record from s = {last:g} to it is lost"
        return Found(*short, segments, (*notes, lost))
    if notes:
        raise FileError("no checkpoint of this run can be used: " + "; ".join(notes))
    return Found(None, None, segments, ())
