"""Samples from .npy, .npz, .csv and .h5 files, read without ever running what is in them."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError, nearest

SUFFIXES = (".npy", ".npz", ".csv", ".h5", ".hdf5")


def read_samples(path: Path) -> FloatArray:
    """The samples of a file, shape (n, d): a plain list of numbers counts as d = 1.

    Meaning: .npy is the array; .npz and .h5 hold it under ``samples`` or as their only array; .csv
    has one sample a line and may begin with a line of names.
    Raises: FileError naming the path, and the row and column of what is not a finite number.
    """
    if path.suffix.lower() == ".csv":
        return _read_csv(path)
    arrays = read_arrays(path)
    name = "samples" if "samples" in arrays else next(iter(arrays), "")
    if len(arrays) != 1 and name != "samples":
        raise FileError(f"{path} holds {', '.join(sorted(arrays)) or 'no array'}: name the wanted one 'samples'")
    return finite_table(arrays[name], path, name)


def read_arrays(path: Path) -> dict[str, Any]:
    """All arrays of a .npy, .npz or .h5 file, copied to memory; the file is closed again.

    Raises: FileError naming the path if it is missing, damaged, of another kind or needs pickle.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise FileError(f"{path}: '{suffix}' files are not read; {nearest(suffix, SUFFIXES)}")
    if not path.is_file():
        raise FileError(f"{path} is {'a folder' if path.is_dir() else 'missing'}: give the path of a samples file")
    try:
        if suffix in (".h5", ".hdf5"):
            return _read_hdf5(path)
        with path.open("rb") as file:  # numpy leaves a damaged archive open
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"samples": loaded}
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise FileError(f"{path} cannot be read as {suffix[1:]}: {error}") from None


def finite_table(array: Any, path: Path, name: str = "") -> FloatArray:
    """A finite float array (n, d) from a numeric array of one or two axes.

    Raises: FileError naming the path and the first row and column, counted from 1, that is not finite.
    """
    what = f"{path}{f' [{name}]' if name and path.suffix.lower() != '.npy' else ''}"
    array = np.asarray(array)
    if array.dtype.kind not in "iuf":
        raise FileError(f"{what} has entries of type {array.dtype}: numbers are needed")
    if array.ndim not in (1, 2) or array.size == 0:
        raise FileError(f"{what} has shape {array.shape}: a table (samples, dimension) with entries is needed")
    table = np.array(array, dtype=float, order="C").reshape(len(array), -1)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise FileError(
            f"{what} has {table[row, column]} in row {row + 1}, column {column + 1} (counted from 1): "
            "remove what is not finite"
        )
    return table


def _read_hdf5(path: Path) -> dict[str, Any]:
    import h5py

    with h5py.File(path, "r") as file:
        return {name: np.asarray(item[()]) for name, item in file.items() if isinstance(item, h5py.Dataset)}


def _read_csv(path: Path) -> FloatArray:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = [line for line in csv.reader(file) if any(cell.strip() for cell in line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read as csv: {error}") from None
    if lines and not any(_is_number(cell) for cell in lines[0]):
        lines = lines[1:]
    if not lines:
        raise FileError(f"{path} has no samples: give one a line, numbers separated by commas")
    for row, line in enumerate(lines, start=1):
        if len(line) != len(lines[0]):
            raise FileError(f"{path} has {len(line)} entries in row {row}, but {len(lines[0])} in row 1")
        for column, cell in enumerate(line, start=1):
            if not _is_number(cell):
                raise FileError(f"{path} has {cell.strip()!r} in row {row}, column {column}: a number is needed")
    return finite_table(np.array([[float(cell) for cell in line] for line in lines]), path)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
