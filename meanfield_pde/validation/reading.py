"""Trajectories of particle codes from .npz, .npy, .h5, .csv and .parquet files, arrays and xarray Datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError, nearest
from meanfield_pde.problem import Problem
from meanfield_pde.sample_files import SUFFIXES, read_arrays
from meanfield_pde.validation.tables import TABLES, read_table
from meanfield_pde.validation.trajectory import (
    AXES,
    KINDS,
    LOSS,
    LOSS_TIMES,
    TIMES,
    WEIGHTS,
    ArrayNames,
    Trajectory,
    read_names,
)
from meanfield_pde.validation.trajectory_checks import (
    check_against,
    check_angles,
    check_count,
    check_finite,
    check_times,
    check_weights,
    numbers,
)

# names of dimensions in a Dataset, by what they are
DIMENSIONS = {
    "runs": ("run", "runs", "realisation", "realization", "member"),
    "snapshots": ("t", "s", "time", "times", "snapshot", "snapshots", "layer", "depth"),
    "particles": ("particle", "particles", "token", "tokens", "head", "heads", "n", "sample"),
    "dimension": ("d", "dim", "dimension", "axis", "component", "coordinate"),
}


def read_trajectory(
    path: str | Path, problem: Problem | None = None, names: ArrayNames | str | Path | None = None
) -> Trajectory:
    """The trajectory in a file, checked by itself and against a problem.

    Meaning: .npz, .h5 and .npy hold arrays tokens (snapshots, N, d), angles (snapshots, N) or heads (snapshots, H, q),
    with an axis of independent runs in front if there are some, times t, and if present weights (N,) or (runs, N), A
    and W (heads, d, d), loss. .csv and .parquet are tables (`read_table`). ``names`` says what is called otherwise, as
    `ArrayNames` or as the path of a TOML file. Nothing in a file is ever run, and sizes are checked before memory is
    taken.
    Raises: FileError naming the file, the array, the value and the remedy.
    """
    path = Path(path)
    arrays: Mapping[str, Any]
    names = read_names(names) if isinstance(names, str | Path) else names or ArrayNames()
    suffix = path.suffix.lower()
    known = tuple(dict.fromkeys((*SUFFIXES, *TABLES)))
    if suffix not in known:
        raise FileError(f"{path}: '{suffix}' files are not read; {nearest(suffix, known)}")
    if suffix in TABLES:
        arrays = read_table(path, names)
        kind = next(iter(arrays))
        names = ArrayNames(kind=kind, points=kind, axes=AXES, columns=names.columns, degrees=names.degrees)
        return from_arrays(arrays, str(path), problem, names)
    arrays = read_arrays(path)
    if suffix == ".npy":
        arrays = {names.points if isinstance(names.points, str) else names.kind or "tokens": arrays["samples"]}
    return from_arrays(arrays, str(path), problem, names)


def from_dataset(dataset: Any, problem: Problem | None = None, names: ArrayNames | None = None) -> Trajectory:
    """The trajectory in an xarray Dataset; dimensions with names such as run, time, particle, dim may be in any order.

    Raises: FileError as `read_trajectory`.
    """
    names = names or ArrayNames()
    arrays = {str(name): np.asarray(variable.values) for name, variable in dataset.variables.items()}
    kind, key = _points(arrays, names, "dataset")
    known = {word: axis for axis, words in DIMENSIONS.items() for word in words}
    axes = tuple(known.get(str(dim).lower(), "") for dim in dataset[key].dims)
    if not names.axes and all(axes):
        names = replace(names, axes=axes, kind=kind, points=key)
    return from_arrays(arrays, "dataset", problem, names)


def from_arrays(
    arrays: Mapping[str, Any], source: str = "data", problem: Problem | None = None, names: ArrayNames | None = None
) -> Trajectory:
    """The trajectory that arrays hold, checked; ``source`` names them in messages. As `read_trajectory`."""
    names = names or ArrayNames()
    kind, key = _points(arrays, names, source)
    what = f"{source} [{key}]"
    points = _four_axes(numbers(arrays[key], what), kind, names.axes, what)
    if names.columns:
        if sorted(names.columns) != list(range(points.shape[3])):
            raise FileError(f"{what}: columns = {list(names.columns)} must be an order of 0 … {points.shape[3] - 1}")
        points = np.ascontiguousarray(points[..., list(names.columns)])
    check_finite(points, what, ("run", "snapshot", "particle", "column"))
    check_count(points.shape[2], what)
    if kind == "angles":
        if points.shape[3] != 1:
            raise FileError(f"{what} has {points.shape[3]} coordinates a particle: an angle is one, (snapshots, N)")
        points = np.deg2rad(points) if names.degrees else points
        check_angles(points, what)
    times, times_name = _times(arrays, names.times, TIMES, source, "times")
    if times is None:
        raise FileError(f"{source} has arrays {', '.join(arrays)} and no times: name them t, or give times = [0.0, …]")
    check_times(times, points.shape[1], f"{source} [{times_name}]")
    weights = _weights(arrays, names, points, source)
    A, W = _matrices(arrays, names, source)
    loss, _ = _times(arrays, names.loss, LOSS, source, "loss")
    loss_times = None
    if loss is not None:
        check_finite(loss.reshape(-1), f"{source} [loss]", ("entry",))
        loss_times, loss_name = _times(arrays, names.loss_times, LOSS_TIMES, source, "loss_times")
        if loss_times is not None:
            check_times(loss_times, len(loss), f"{source} [{loss_name}]", "values of the loss")
    trajectory = Trajectory(kind, times, points, weights, A, W, loss, loss_times, source)
    if problem is not None:
        check_against(trajectory, problem)
    return trajectory


def _points(arrays: Mapping[str, Any], names: ArrayNames, source: str) -> tuple[str, str]:
    """The kind of the points and the name of their array."""
    if names.kind is not None and names.kind not in KINDS:
        raise FileError(f"{source}: kind = '{names.kind}' is not known; {nearest(names.kind, KINDS)}")
    if isinstance(names.points, str):
        if names.points not in arrays:
            raise FileError(f"{source} has no array '{names.points}' for points; {nearest(names.points, arrays)}")
        usual = (kind for kind, words in KINDS.items() if names.points in words)
        return names.kind or next(usual, "tokens"), names.points
    kinds = [names.kind] if names.kind else list(KINDS)
    found = [(kind, word) for kind in kinds for word in KINDS[kind] if word in arrays]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(arrays) or "none"
    if not found:
        raise FileError(
            f"{source} has the arrays {listed}: call the points tokens, angles or heads, or name them in a TOML file "
            'of array names (kind = "tokens", points = "name")'
        )
    raise FileError(
        f'{source} has the arrays {listed}: say which are the points (kind = "{found[0][0]}", points = "{found[0][1]}")'
    )


def _four_axes(points: FloatArray, kind: str, axes: tuple[str, ...], what: str) -> FloatArray:
    """Points as (runs, snapshots, particles, dimension)."""
    if not points.size:
        raise FileError(f"{what} has shape {points.shape}: nothing is in it")
    if axes:
        if len(set(axes)) != len(axes) or not set(axes) <= set(AXES) or "particles" not in axes:
            raise FileError(f"{what}: axes = {list(axes)} must be different ones of {', '.join(AXES)}, with particles")
        if len(axes) != points.ndim:
            raise FileError(f"{what} has shape {points.shape}, but axes = {list(axes)}: name every axis")
        inner = points.transpose([axes.index(axis) for axis in AXES if axis in axes])
        shape = iter(inner.shape)
        return np.ascontiguousarray(inner.reshape([next(shape) if axis in axes else 1 for axis in AXES]))
    full = 3 if kind != "angles" else 2
    if kind == "tokens" and points.ndim == 2:
        points = points[..., None]
    if points.ndim not in (full, full + 1):
        form = "(snapshots, N)" if kind == "angles" else "(snapshots, N, d)"
        raise FileError(f"{what} has shape {points.shape}: {kind} are {form}, with runs in front of them if any")
    points = points[..., None] if kind == "angles" and points.ndim <= 3 else points
    return points[None] if points.ndim == 3 else points


def _times(
    arrays: Mapping[str, Any], given: str | tuple[float, ...] | None, usual: tuple[str, ...], source: str, what: str
) -> tuple[FloatArray | None, str]:
    if isinstance(given, tuple):
        return np.array(given, dtype=float), what
    if given is not None and given not in arrays:
        raise FileError(f"{source} has no array '{given}' for {what}; {nearest(given, arrays)}")
    name = given or next((word for word in usual if word in arrays), None)
    if name is None:
        return None, what
    values = numbers(arrays[name], f"{source} [{name}]")
    if values.ndim != 1:
        raise FileError(f"{source} [{name}] has shape {values.shape}: {what} are a list of numbers")
    return values, name


def _weights(arrays: Mapping[str, Any], names: ArrayNames, points: FloatArray, source: str) -> FloatArray:
    runs, _, count, _ = points.shape
    if names.weights is not None and names.weights not in arrays:
        raise FileError(f"{source} has no array '{names.weights}' for weights; {nearest(names.weights, arrays)}")
    name = names.weights or next((word for word in WEIGHTS if word in arrays), None)
    if name is None:
        return np.full((runs, count), 1.0 / count)
    what = f"{source} [{name}]"
    weights = numbers(arrays[name], what)
    if weights.shape not in ((count,), (runs, count)):
        raise FileError(f"{what} has shape {weights.shape}: give ({count},), one a particle, or ({runs}, {count})")
    return check_weights(np.array(np.broadcast_to(weights, (runs, count))), what)


def _matrices(
    arrays: Mapping[str, Any], names: ArrayNames, source: str
) -> tuple[FloatArray | None, FloatArray | None]:
    found: list[FloatArray | None] = []
    for given, usual in ((names.A, "A"), (names.W, "W")):
        if given is not None and given not in arrays:
            raise FileError(f"{source} has no array '{given}' for {usual}; {nearest(given, arrays)}")
        name = given or usual
        if name not in arrays:
            found.append(None)
            continue
        what = f"{source} [{name}]"
        matrices = numbers(arrays[name], what)
        if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2] or not matrices.size:
            raise FileError(f"{what} has shape {matrices.shape}: one matrix a head, (heads, d, d), is needed")
        check_finite(matrices, what, ("head", "row", "column"))
        found.append(matrices)
    A, W = found
    if (A is None) != (W is None) or (A is not None and W is not None and A.shape != W.shape):
        shapes = [None if m is None else m.shape for m in found]
        raise FileError(f"{source} has A {shapes[0]} and W {shapes[1]}: give both, one matrix a head, or none")
    return A, W
