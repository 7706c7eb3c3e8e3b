"""The owner of the HDF5 layout: results and checkpoints, written whole to a temporary file and then renamed."""

from __future__ import annotations

import os
import platform
from dataclasses import fields
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.output.diagnostics import COLUMNS
from meanfield_pde.output.record import Record
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem_file import dump_problem, parse_problem
from meanfield_pde.training.state import TrainingState

SCHEMA = 1
# raised when a change alters results; a new package version alone does not
NUMERICS = 2
# what h5py and our own readers may meet in a file with scrambled bytes
DAMAGE = (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)


def _h5py() -> Any:
    import h5py  # imported late: not every command opens a file

    return h5py


def provenance() -> dict[str, str]:
    """Versions and processor that the bits depend on."""
    packages = ("meanfield-pde", "numpy", "scipy", "numba", "h5py")
    return {
        **{name: version(name) for name in packages},
        "processor": _processor(),
        "python": platform.python_version(),
    }


def provenance_changes(path: Path) -> list[str]:
    """What of versions and processor differs between a file and here, in words. Raises: FileError."""
    here = provenance()
    with _open(path) as file:
        there = {name: str(file.attrs.get(f"version {name}")) for name in here}
    return [f"{name} was {there[name]} and is {here[name]}" for name in here if there[name] != here[name]]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write_atomically(path: Path, fill: Any) -> None:
    """Let ``fill(h5file)`` write a temporary file, flush it to disk and rename it to ``path``: whole or not at all.

    Raises: FileError naming the path.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _h5py().File(temporary, "w") as file:
            file.attrs["schema"], file.attrs["numerics"] = SCHEMA, NUMERICS
            for name, value in provenance().items():
                file.attrs[f"version {name}"] = value
            fill(file)
            file.attrs["digest"] = _digest(file)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileError(f"cannot write {path}: {error}") from error


def _open(path: Path) -> Any:
    try:
        return _h5py().File(path, "r")
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}") from error


def _digest(file: Any) -> str:
    """SHA-256 over the names and values of all datasets: a flipped bit must not pass for a number."""
    total = sha256()

    def add(name: str, item: Any) -> None:
        if isinstance(item, _h5py().Dataset):
            value = np.asarray(item[()])
            total.update(name.encode())
            total.update(b"".join(value.ravel()) if value.dtype == object else np.ascontiguousarray(value).tobytes())

    file.visititems(add)
    return total.hexdigest()


def _dataset(file: Any, name: str, data: Any, meaning: str) -> None:
    file.create_dataset(name, data=data).attrs["meaning"] = meaning


def _write_record(file: Any, record: Record) -> None:
    for name, series in record.history.items():
        _dataset(file, f"history/{name}", series, COLUMNS.get(name, name))
    _dataset(file, "heads/s", record.snapshot_s, "training times of the snapshots")
    _dataset(
        file, "heads/rho", record.snapshots, "law of the heads: (snapshot, layer, *cells), samples at cell centres"
    )


def _read_record(file: Any) -> Record:
    history = {name: data[()] for name, data in file["history"].items()}
    ordered = {name: history[name] for name in COLUMNS if name in history}
    return Record(ordered, file["heads/s"][()], file["heads/rho"][()])


def _write_state(file: Any, state: TrainingState) -> None:
    for item in fields(TrainingState):
        file[f"state/{item.name}"] = getattr(state, item.name)


def _read_state(file: Any) -> TrainingState:
    values = {item.name: file[f"state/{item.name}"][()] for item in fields(TrainingState)}
    return TrainingState(**{name: value if name == "rho" else value.item() for name, value in values.items()})


def write_checkpoint(path: Path, problem_text: str, state: TrainingState, record: Record) -> None:
    """A checkpoint: the fields of the state, the record so far, the problem and the versions.

    Raises: FileError, also for a state that is not finite (a good checkpoint is never followed by a bad one).
    """
    if not np.isfinite(state.rho).all():
        raise FileError(f"refusing to write {path}: rho is not finite at s = {state.s:g}; earlier checkpoints stay")

    def fill(file: Any) -> None:
        file["problem"] = problem_text
        _write_state(file, state)
        _write_record(file, record)

    write_atomically(path, fill)


def read_checkpoint(path: Path) -> tuple[str, TrainingState, Record]:
    """The problem text, the state and the record of a checkpoint.

    Raises: FileError for a file that is damaged, of another schema or of other numerics.
    """
    try:
        with _open(path) as file:
            _check_whole(path, file)
            text = file["problem"].asstr()[()]
            state = _read_state(file)
            record = _read_record(file)
    except FileError:
        raise
    except DAMAGE as error:
        raise FileError(f"{path} is not a whole checkpoint: {error}") from error
    if not np.isfinite(state.rho).all():
        raise FileError(f"{path}: rho is not finite; use an earlier checkpoint")
    return text, state, record


def _check_whole(path: Path, file: Any) -> None:
    for name, here in (("schema", SCHEMA), ("numerics", NUMERICS)):
        there = file.attrs.get(name)
        if there is None or int(there) != here:
            raise FileError(f"{path} has {name} version {there}, this package has {here}: run the problem anew")
    if file.attrs.get("digest") != _digest(file):
        raise FileError(f"{path} is damaged: its numbers do not have the digest that was written with them")


def write_result(path: Path, solution: Solution) -> None:
    """The result file: /problem, /tokens, /costate, /heads, /history, with meanings as attributes."""

    def fill(file: Any) -> None:
        file["problem"] = dump_problem(solution.problem)
        file.attrs["outcome"] = solution.outcome
        file["names"] = np.array(solution.names, dtype=_h5py().string_dtype())
        _write_record(file, Record(dict(solution.history), solution.snapshot_s, solution.snapshots))
        _dataset(file, "tokens/t", solution.depth_t, "depth")
        _dataset(file, "tokens/mu", solution.mu, "law of the tokens: (depth, sequence, *cells), cell averages")
        _dataset(file, "costate/t", solution.costate_t, "depth")
        _dataset(file, "costate/p", solution.p, "costate of each sequence's own loss: (depth, sequence, *cells)")
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

    write_atomically(path, fill)


def read_result(path: Path) -> Solution:
    """Load a result into memory and close the file.

    Raises: FileError naming the path.
    """
    with _open(path) as file:
        try:
            _check_whole(path, file)
            problem = parse_problem(file["problem"].asstr()[()], str(path))
            record = _read_record(file)
            state = _read_state(file) if "state" in file else None
            return Solution(
                problem,
                str(file.attrs["outcome"]),
                state,
                record.history,
                record.snapshot_s,
                record.snapshots,
                file["tokens/t"][()],
                file["tokens/mu"][()],
                file["costate/t"][()],
                file["costate/p"][()],
                tuple(file["names"].asstr()[()].tolist()),
                file["queries/x"][()] if "queries" in file else np.empty(0),
            )
        except FileError:
            raise
        except DAMAGE as error:
            raise FileError(f"{path} is not a whole result file: {error}") from error
