"""The owner of the HDF5 layout: what stands where in results, checkpoints and segments of a record."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.hdf5_datasets import holds, stored, words
from meanfield_pde.output.diagnostics import COLUMNS
from meanfield_pde.output.file_checks import check_record, check_solution, check_state
from meanfield_pde.output.files import read_file, versions_of, write_file
from meanfield_pde.output.origin import Origin
from meanfield_pde.output.record import Record
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem_file import dump_problem, parse_problem
from meanfield_pde.training.state import TrainingState

# what a record holds of the heads: their law on a grid, or H heads
HEADS = {
    "rho": "law of the heads: (snapshot, layer, *cells), samples at cell centres",
    "points": "heads as particles: (snapshot, layer, head, axis)",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a run goes on from.

    Meaning: ``origin`` is what it was begun from, ``state`` its training state; ``rows`` and ``snapshots`` count what
    of the record came before and stands in the segments; ``versions`` are those of the packages and the processor.
    """

    origin: Origin
    state: TrainingState
    rows: int
    snapshots: int
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a record, how many rows and snapshots come before it, and the identity of the run it is of.

    Meaning: ``lost`` says in words what of the record before it is gone, "" if nothing is.
    """

    record: Record
    rows_before: int
    snapshots_before: int
    identity: str = ""
    lost: str = ""


def _dataset(file: Any, name: str, data: Any, meaning: str) -> None:
    file.create_dataset(name, data=data).attrs["meaning"] = meaning


def _kept(points: bool) -> str:
    return "points" if points else "rho"


def _write_record(file: Any, record: Record, points: bool = False) -> None:
    for name, series in record.history.items():
        _dataset(file, f"history/{name}", series, COLUMNS.get(name, name))
    _dataset(file, "heads/s", record.snapshot_s, "training times of the snapshots")
    _dataset(file, f"heads/{_kept(points)}", record.snapshots, HEADS[_kept(points)])


def _read(file: Any, name: str) -> Any:
    # nothing of ours is compressed, so nothing takes more bytes than its file
    return stored(file, name, file.id.get_filesize())


def _read_text(file: Any, name: str) -> tuple[str, ...]:
    return words(file, name, file.id.get_filesize())


def _read_record(file: Any) -> Record:
    history = {name: _read(file, f"history/{name}") for name in COLUMNS if holds(file, f"history/{name}")}
    return Record(history, _read(file, "heads/s"), _read(file, f"heads/{_kept(holds(file, 'heads/points'))}"))


def _write_state(file: Any, state: TrainingState) -> None:
    for item in fields(TrainingState):
        file[f"state/{item.name}"] = getattr(state, item.name)


def _read_state(file: Any) -> TrainingState:
    values = {item.name: _read(file, f"state/{item.name}") for item in fields(TrainingState)}
    return TrainingState(**{name: value if name == "rho" else value.item() for name, value in values.items()})


def write_checkpoint(path: Path, origin: Origin, state: TrainingState, rows: int, snapshots: int) -> None:
    """A checkpoint: the fields of the state, the problem, and how much of the record came before.

    Raises: FileError, also for a state that is not finite (a good checkpoint is never followed by a bad one).
    """
    if not np.isfinite(state.rho).all():
        raise FileError(f"refusing to write {path}: rho is not finite at s = {state.s:g}; earlier checkpoints stay")

    def fill(file: Any) -> None:
        file["problem"], file["files"] = origin.problem, json.dumps(origin.files)
        file.attrs["identity"] = origin.identity
        _write_state(file, state)
        file["record/rows"], file["record/snapshots"] = rows, snapshots

    write_file(path, fill)


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint. Raises: FileError for a file that is damaged, of another schema or of other numerics."""

    def take(file: Any) -> Checkpoint:
        counts = (int(_read(file, "record/rows")), int(_read(file, "record/snapshots")))
        files = json.loads(_read_text(file, "files")[0])
        if not isinstance(files, dict):
            raise ValueError("files is no table")
        origin = Origin(_read_text(file, "problem")[0], files, str(file.attrs["identity"]))
        return Checkpoint(origin, _read_state(file), *counts, versions_of(file))

    found = read_file(path, "checkpoint", take, same_numerics=True)
    check_state(path, found.state, parse_problem(found.origin.problem, str(path)))
    if not np.isfinite(found.state.rho).all():
        raise FileError(f"{path}: rho is not finite; use an earlier checkpoint")
    return found


def write_segment(path: Path, segment: Segment) -> None:
    """A part of the record. Raises: FileError."""

    def fill(file: Any) -> None:
        file.attrs["rows_before"], file.attrs["snapshots_before"] = segment.rows_before, segment.snapshots_before
        file.attrs["identity"], file.attrs["lost"] = segment.identity, segment.lost
        _write_record(file, segment.record)

    write_file(path, fill)


def read_segment(path: Path) -> Segment:
    """A part of the record. Raises: FileError."""

    def take(file: Any) -> Segment:
        before = int(file.attrs["rows_before"]), int(file.attrs["snapshots_before"])
        return Segment(_read_record(file), *before, str(file.attrs["identity"]), str(file.attrs["lost"]))

    found = read_file(path, "segment of a record", take)
    check_record(path, found.record)
    return found


def write_result(path: Path, solution: Solution, identity: str = "") -> None:
    """The result file: /problem, /tokens, /costate, /heads, /history, with meanings as attributes.

    Meaning: ``identity`` is that of the run, "" for a solution without one.
    """

    def fill(file: Any) -> None:
        import h5py  # imported late: not every command opens a file

        file["problem"] = dump_problem(solution.problem)
        file.attrs["outcome"], file.attrs["identity"] = solution.outcome, identity
        file["names"] = np.array(solution.names, dtype=h5py.string_dtype())
        record = Record(dict(solution.history), solution.snapshot_s, solution.snapshots)
        _write_record(file, record, solution.heads_are_points)
        _dataset(file, "tokens/t", solution.depth_t, "depth")
        _dataset(file, "tokens/mu", solution.mu, "law of the tokens: (depth, sequence, *cells), cell averages")
        _dataset(file, "costate/t", solution.costate_t, "depth")
        _dataset(file, "costate/p", solution.p, "costate of each sequence's own loss: (depth, sequence, *cells)")
        if solution.points.size:
            _dataset(file, "tokens/points", solution.points, "tokens as particles: (depth, sequence, token, axis)")
        if solution.queries.size:
            meaning = "query points at the layer edges: (layer edge, sequence, query, axis), NaN where there is none"
            _dataset(file, "queries/x", solution.queries, meaning)
        for label, folder, grid in (("x", "tokens", solution.token_grid), ("theta", "heads", solution.head_grid)):
            if grid is None:
                continue
            for axis in range(grid.dim):
                _dataset(file, f"{folder}/{label}{axis}", grid.centers(axis), f"cell centres of axis {axis}")
        if solution.state is not None:
            _write_state(file, solution.state)

    write_file(path, fill)


def read_result(path: Path) -> Solution:
    """Load a result into memory and close the file.

    Raises: FileError naming the path.
    """

    def take(file: Any) -> Solution:
        record = _read_record(file)
        return Solution(
            parse_problem(_read_text(file, "problem")[0], str(path)),
            str(file.attrs["outcome"]),
            _read_state(file) if holds(file, "state") else None,
            record.history,
            record.snapshot_s,
            record.snapshots,
            _read(file, "tokens/t"),
            _read(file, "tokens/mu"),
            _read(file, "costate/t"),
            _read(file, "costate/p"),
            _read_text(file, "names"),
            _read(file, "queries/x") if holds(file, "queries") else np.empty(0),
            _read(file, "tokens/points") if holds(file, "tokens/points") else np.empty(0),
        )

    found = read_file(path, "result file", take)
    check_solution(path, found)
    return found


def read_result_record(path: Path) -> tuple[str, Record]:
    """The identity of the run that a result is of, and its record. Raises: FileError."""
    identity, record = read_file(path, "result file", lambda file: (str(file.attrs["identity"]), _read_record(file)))
    check_record(path, record)
    return identity, record
