"""The record of a run on disk: rows and snapshots in segment files that are each whole at any moment.

HDF5 files that are appended to are lost when their writer is killed. So the record grows by files: the last one is
written anew at every flush until it is full, those before it are never touched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.output.file_schema import Segment, read_segment, write_segment
from meanfield_pde.output.record import Record, Recorder

FOLDER = "segments"
# a segment with so many rows, or so many bytes of snapshots, is full
FULL_ROWS, FULL_BYTES = 4096, 2**26


@dataclass(slots=True)
class Segments:
    """Writes a record into ``folder``; segment ``index`` holds what comes after the rows and snapshots before it.

    Meaning: ``identity`` and ``lost`` as in `Segment`.
    """

    folder: Path
    identity: str
    lost: str = ""
    index: int = 0
    rows_before: int = 0
    snapshots_before: int = 0
    written: tuple[int, int] = (0, 0)

    def flush(self, recorder: Recorder, until: float) -> tuple[int, int]:
        """Put on disk what came by time ``until``; returns the counts of rows and snapshots that are there now.

        Raises: FileError.
        """
        rows, snapshots = recorder.counts(until)
        if (rows, snapshots) == self.written:
            return self.written
        part = recorder.part(slice(self.rows_before, rows), slice(self.snapshots_before, snapshots))
        before = self.rows_before, self.snapshots_before
        write_segment(_path(self.folder, self.index), Segment(part, *before, self.identity, self.lost))
        # those of a later time, from which the run did not go on
        for number, path in _files(self.folder):
            if number > self.index:
                path.unlink()
        self.written = (rows, snapshots)
        if rows - self.rows_before >= FULL_ROWS or part.snapshots.nbytes >= FULL_BYTES:
            self.index, self.rows_before, self.snapshots_before = self.index + 1, rows, snapshots
        return self.written


def _path(folder: Path, index: int) -> Path:
    return folder / f"{index:06d}.h5"


def _files(folder: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in folder.glob("[0-9]*.h5") if path.stem.isdigit())


def read_segments(folder: Path, identity: str | None = None) -> tuple[tuple[Segment, ...], str | None]:
    """The segments of a record in order, and why those after them cannot be used (None when all can).

    ``identity`` is that of the run they have to be of, None for any.
    """
    found: list[Segment] = []
    rows = snapshots = 0
    for number, path in _files(folder):
        if number != len(found):
            return tuple(found), f"{_path(folder, len(found))} is missing"
        try:
            segment = read_segment(path)
        except FileError as error:
            return tuple(found), str(error)
        if identity is not None and segment.identity != identity:
            return tuple(found), f"{path} belongs to another run"
        if (segment.rows_before, segment.snapshots_before) != (rows, snapshots):
            return tuple(found), f"{path} does not follow the segment before it"
        found.append(segment)
        rows += _length(segment.record)
        snapshots += len(segment.record.snapshot_s)
    return tuple(found), None


def _length(record: Record) -> int:
    return len(record.history.get("s", ()))


def joined(segments: Sequence[Segment]) -> Record:
    """One record of segments in order; a series that a segment has not is NaN there."""
    if not segments:
        return Record({}, np.empty(0), np.empty(0))
    parts = [segment.record for segment in segments]
    names = {name: None for part in parts for name in part.history}
    history = {
        name: np.concatenate([part.history.get(name, np.full(_length(part), np.nan)) for part in parts])
        for name in names
    }
    times = np.concatenate([part.snapshot_s for part in parts])
    kept = [part.snapshots for part in parts if len(part.snapshot_s)]
    return Record(history, times, np.concatenate(kept) if kept else np.empty(0))


def cut(record: Record, rows: int, snapshots: int) -> Record:
    """The first rows and snapshots of a record."""
    history = {name: series[:rows] for name, series in record.history.items()}
    return Record(history, record.snapshot_s[:snapshots], record.snapshots[:snapshots])


def going_on(
    folder: Path, identity: str, lost: str, segments: Sequence[Segment], rows: int, snapshots: int
) -> Segments:
    """A writer that goes on after so many rows and snapshots: whole full segments stay, the rest is written anew.

    A segment beyond what could be read is kept under the name *.damaged.
    """
    index = rows_before = snapshots_before = 0
    for number, segment in enumerate(segments):
        after = segment.rows_before + _length(segment.record), segment.snapshots_before + len(segment.record.snapshot_s)
        full = after[0] - segment.rows_before >= FULL_ROWS or segment.record.snapshots.nbytes >= FULL_BYTES
        if not full or after[0] > rows or after[1] > snapshots:
            break
        index, (rows_before, snapshots_before) = number + 1, after
    damaged = _path(folder, len(segments))
    if damaged.exists():
        damaged.replace(damaged.with_suffix(".damaged"))
    return Segments(folder, identity, lost, index, rows_before, snapshots_before)
