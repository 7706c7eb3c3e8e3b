"""Samples from .npy, .npz, .csv and .h5 files, read without ever running what is in them."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import hdf5_datasets
from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError, nearest
from meanfield_pde.foreign_files import MOST_BYTES, check_regular, foreign_bytes, foreign_text
from meanfield_pde.numpy_arrays import npy_array, npz_arrays

SUFFIXES = (".npy", ".npz", ".csv", ".h5", ".hdf5")
WHAT, MOST_CSV = "file of samples", 2**28


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

    Raises: FileError naming the path if it is missing, no regular file, damaged, of another kind, too large, or holds
    Python objects.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise FileError(f"{path}: '{suffix}' files are not read; {nearest(suffix, SUFFIXES)}")
    if suffix in (".h5", ".hdf5"):
        return _read_hdf5(path)
    content = foreign_bytes(path, WHAT)
    try:
        if suffix == ".npy":
            return {"samples": npy_array(content, MOST_BYTES)}
        return npz_arrays(content, MOST_BYTES)
    except Exception as error:
        # an archive may be damaged in more ways than zipfile and zlib have exceptions for
        raise FileError(f"{path} cannot be read as {suffix[1:]}: {error or type(error).__name__}") from None


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
    """The datasets of a foreign HDF5 file, by a program of its own: damage can crash HDF5 or keep it busy for ever."""
    check_regular(path, WHAT)
    command = [sys.executable, "-P", hdf5_datasets.__file__, str(path.absolute()), str(MOST_BYTES)]
    # no plug-ins: they are code, and the file would name them
    environment = {**os.environ, "HDF5_PLUGIN_PRELOAD": "::"}
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False)
    if ended.returncode == hdf5_datasets.REFUSED:
        reason = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FileError(f"{path} cannot be read as {path.suffix[1:]}: {reason}")
    if ended.returncode != 0:
        raise FileError(f"{path} cannot be read as {path.suffix[1:]}: HDF5 breaks down on it, it is damaged")
    return npz_arrays(ended.stdout, MOST_BYTES)


def _read_csv(path: Path) -> FloatArray:
    lines = csv.reader(io.StringIO(foreign_text(path, WHAT, MOST_CSV), newline=""))
    values, width, row, first = array("d"), 0, 0, True
    try:
        for line in lines:
            if not any(cell.strip() for cell in line):
                continue
            names, first = first and not any(_is_number(cell) for cell in line), False
            if names:
                continue
            row, width = row + 1, width or len(line)
            if len(line) != width:
                raise FileError(f"{path} has {len(line)} entries in row {row}, but {width} in row 1")
            for column, cell in enumerate(line, start=1):
                if not _is_number(cell):
                    raise FileError(f"{path} has {_short(cell)} in row {row}, column {column}: a number is needed")
                values.append(float(cell))
    except csv.Error as error:
        raise FileError(f"{path} cannot be read as csv: {error}") from None
    if not row:
        raise FileError(f"{path} has no samples: give one a line, numbers separated by commas")
    return finite_table(np.array(values).reshape(row, width), path)


def _short(cell: str) -> str:
    text = repr(cell.strip())
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
