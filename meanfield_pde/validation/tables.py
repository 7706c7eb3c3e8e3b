"""Trajectories as tables, one particle at one time a line: .csv with a line of names, and .parquet."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from array import array
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError, nearest
from meanfield_pde.foreign_files import MOST_BYTES, check_regular, foreign_text
from meanfield_pde.numpy_arrays import npz_arrays
from meanfield_pde.validation import parquet_columns
from meanfield_pde.validation.parquet_columns import MOST_COLUMNS
from meanfield_pde.validation.trajectory import TIMES, WEIGHTS, ArrayNames

WHAT, MOST_CSV = "table of particles", 2**28
TABLES = (".csv", ".parquet")
REMEDY = 'install the extra: pip install "meanfield-pde[validate]"'
RUN, PARTICLE = ("run", "runs"), ("particle", "token", "head", "id")
# columns of one coordinate each, by kind of points
_PATTERNS = {"tokens": r"x_?\d*", "angles": "angle|angles|phi", "heads": r"theta_?\d*"}
COORDINATES = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}


def read_table(path: Path, names: ArrayNames) -> dict[str, FloatArray]:
    """The arrays of a table: points (runs, snapshots, N, d) as tokens, angles or heads, times, and weights (runs, N).

    Meaning: columns are a time (t), coordinates (x, or x1, x2, …; phi; theta1, …), and if there are any run, particle
    and weights. Lines of one run and time are its particles, in the order of their numbers, else in that of the lines.
    Raises: FileError naming the path, the column and the line.
    """
    if isinstance(names.times, tuple) or names.axes or any((names.A, names.W, names.loss, names.loss_times)):
        raise FileError(f"{path} is a table: times are a column, and it has no axes, A, W or loss; use .npz for these")
    columns = _csv_columns(path) if path.suffix.lower() == ".csv" else _parquet_columns(path)

    def column(given: str | None, usual: Iterable[str], what: str) -> str | None:
        if given is not None and given not in columns:
            raise FileError(f"{path} has no column '{given}' for {what}; {nearest(given, columns)}")
        return given or next((name for name in usual if name in columns), None)

    time = column(names.times if isinstance(names.times, str) else None, TIMES, "times")
    kind, coordinates = _coordinates(path, columns, names)
    if time is None:
        raise FileError(f"{path} has columns {', '.join(columns)} and no time: name that column t")
    run, particle = column(names.run, RUN, "runs"), column(names.particle, PARTICLE, "particles")
    weight = column(names.weights, WEIGHTS, "weights")
    lines = len(columns[time])
    for name in (time, run):
        if name and not np.isfinite(columns[name]).all():
            line = int(np.flatnonzero(~np.isfinite(columns[name]))[0])
            value = columns[name][line]
            raise FileError(f"{path} has {value} in column {name}, line {line + 1} of the data: remove it")
    number = columns[particle] if particle else np.arange(lines)
    runs_of = columns[run] if run else np.zeros(lines)
    order = np.lexsort((number, columns[time], runs_of))
    run_values, times = np.unique(runs_of), np.unique(columns[time])
    groups = len(run_values) * len(times)
    count = lines // groups
    shape = (len(run_values), len(times), count)
    first = [np.unique(runs_of, return_inverse=True)[1], np.unique(columns[time], return_inverse=True)[1]]
    found = np.bincount(first[0] * len(times) + first[1], minlength=groups)
    if (found != count).any() or count * groups != lines:
        least, most = int(found.argmin()), int(found.argmax())
        spell = [f"{found[k]} at {time} = {times[k % len(times)]:g}, run {k // len(times) + 1}" for k in (most, least)]
        raise FileError(f"{path} has {spell[0]}, but {spell[1]} particles: every run and time needs all of them")
    numbers = number[order].reshape(shape)
    if particle is not None and (numbers != numbers[:, :1]).any():
        raise FileError(f"{path} has other particles in column {particle} at some time than at the first: give all")
    points = np.stack([columns[name][order].reshape(shape) for name in coordinates], axis=-1)
    out = {kind: points, "times": times}
    if weight is not None:
        table = columns[weight][order].reshape(shape)
        if (table != table[:, :1]).any():
            raise FileError(f"{path} has weights in column {weight} that change in time: a particle keeps its weight")
        out["weights"] = np.ascontiguousarray(table[:, 0])
    return out


def _coordinates(path: Path, columns: dict[str, FloatArray], names: ArrayNames) -> tuple[str, tuple[str, ...]]:
    if names.points is not None:
        wanted = (names.points,) if isinstance(names.points, str) else names.points
        for name in wanted:
            if name not in columns:
                raise FileError(f"{path} has no column '{name}' for points; {nearest(name, columns)}")
        return names.kind or "tokens", wanted
    for kind, pattern in COORDINATES.items():
        found = sorted((name for name in columns if pattern.fullmatch(name)), key=lambda name: (len(name), name))
        if found and names.kind in (None, kind):
            return kind, tuple(found)
    raise FileError(
        f"{path} has columns {', '.join(columns)}: name those of the points x1, x2, … (phi for angles, theta1, … for "
        "heads), or list them under points of a TOML file of array names"
    )


def _csv_columns(path: Path) -> dict[str, FloatArray]:
    lines = csv.reader(io.StringIO(foreign_text(path, WHAT, MOST_CSV), newline=""))
    values = array("d")
    names: list[str] = []
    row = 0
    try:
        for line in lines:
            if not any(cell.strip() for cell in line):
                continue
            if not names:
                names = [cell.strip() for cell in line]
                _check_names(path, names)
                continue
            row += 1
            if len(line) != len(names):
                raise FileError(f"{path} has {len(line)} entries in line {row} of the data, but {len(names)} names")
            for name, cell in zip(names, line, strict=True):
                try:
                    values.append(float(cell))
                except ValueError:
                    raise FileError(
                        f"{path} has {cell.strip()[:60]!r} in column {name}, line {row} of the data: a number is needed"
                    ) from None
    except csv.Error as error:
        raise FileError(f"{path} cannot be read as csv: {error}") from None
    if not row:
        raise FileError(f"{path} has no data: a line of names and one line a particle and time are needed")
    table = np.array(values).reshape(row, len(names))
    return {name: table[:, k] for k, name in enumerate(names)}


def _check_names(path: Path, names: list[str]) -> None:
    def is_number(text: str) -> bool:
        try:
            float(text)
        except ValueError:
            return False
        return True

    if len(set(names)) != len(names) or not all(names) or any(map(is_number, names)) or len(names) > MOST_COLUMNS:
        raise FileError(
            f"{path} begins with {', '.join(names)[:80]}: a line of different names is needed first, such as "
            "t,particle,x1,x2"
        )


def _parquet_columns(path: Path) -> dict[str, FloatArray]:
    """The columns of a .parquet file, by a program of its own: damage can crash the library or unfold to any size."""
    check_regular(path, WHAT)
    if find_spec("pyarrow") is None:
        raise FileError(f"{path} needs pyarrow, which is not there: {REMEDY}, or save it as .npz")
    command = [sys.executable, "-P", parquet_columns.__file__, str(path.absolute()), str(MOST_BYTES)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode == parquet_columns.REFUSED:
        reason = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FileError(f"{path} cannot be read as parquet: {reason}")
    if ended.returncode != 0:
        raise FileError(f"{path} cannot be read as parquet: the library breaks down on it, it is damaged")
    columns = npz_arrays(ended.stdout, MOST_BYTES)
    _check_names(path, list(columns))
    if not len(next(iter(columns.values()))):
        raise FileError(f"{path} has no lines: one line a particle and time is needed")
    return columns
