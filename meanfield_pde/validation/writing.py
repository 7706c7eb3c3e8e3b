"""Trajectories written for `reading`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.validation.trajectory import Trajectory


def write_trajectory(path: str | Path, trajectory: Trajectory) -> Path:
    """Save a trajectory as .npz under the names that `reading.read_trajectory` looks for, and give the path.

    Meaning: equal weights are left out, and so is the axis of runs where there is one run.
    Raises: FileError for another suffix, or where it cannot be written.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise FileError(f"{path}: trajectories are written as .npz, not '{path.suffix}'")
    points, weights = trajectory.points, trajectory.weights
    if trajectory.kind == "angles":
        points = points[..., 0]
    one = trajectory.runs == 1
    heads = trajectory.kind == "heads"
    arrays = {trajectory.kind: points[0] if one else points, "s" if heads else "t": trajectory.times}
    if not (weights == weights[0, 0]).all():
        arrays["weights"] = weights[0] if one else weights
    for name in ("A", "W", "loss", "loss_times"):
        value = getattr(trajectory, name)
        if value is not None:
            arrays[name] = value
    try:
        np.savez(path, allow_pickle=False, **arrays)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None
    return path
