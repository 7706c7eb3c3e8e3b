"""What a trajectory must be before it is used: each refusal names the file, the array, the value and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.trajectory import Trajectory

# fewer particles in a run say nothing about a law
LEAST_PARTICLES = 10
# a time may be over T, and a position over a wall, by this part of it: rounding
ROUNDING = 1e-9


def numbers(array: Any, what: str) -> FloatArray:
    """A float array of real numbers; ``what`` names file and array. Raises: FileError naming the type."""
    array = np.asarray(array)
    if array.dtype.kind not in "iuf":
        raise FileError(f"{what} has entries of type {array.dtype}: real numbers are needed")
    return np.ascontiguousarray(array, dtype=np.float64)


def check_finite(array: FloatArray, what: str, axes: tuple[str, ...]) -> None:
    """Refuse NaN and inf. Raises: FileError naming how many there are and where the first is, counted from 0."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = ", ".join(f"{axis} {k}" for axis, k in zip(axes, bad[0], strict=True))
        raise FileError(
            f"{what} has {len(bad)} entries that are not finite, the first ({array[tuple(bad[0])]}) at {where} "
            "(counted from 0): remove these particles or mend the code that wrote them"
        )


def check_times(times: FloatArray, snapshots: int, what: str, axis: str = "snapshots") -> None:
    """Refuse times that are not one for each snapshot, finite, from 0 on, and increasing. Raises: FileError."""
    if times.shape != (snapshots,):
        raise FileError(
            f"{what} has shape {times.shape}, but there are {snapshots} {axis}: give one time for each, if need be as "
            "numbers in a TOML file of array names (times = [0.0, 0.5, 1.0])"
        )
    check_finite(times, what, (axis,))
    if (times < 0).any():
        raise FileError(f"{what} begins at {times.min():g}: times count from 0, the initial law")
    fall = np.flatnonzero(np.diff(times) <= 0)
    if len(fall):
        k = int(fall[0])
        raise FileError(
            f"{what} must increase, but entry {k + 1} (counted from 0) is {times[k + 1]:g} after {times[k]:g}: "
            f"sort the {axis}"
        )


def check_weights(weights: FloatArray, what: str) -> FloatArray:
    """Weights (runs, N), scaled to sum 1 in each run. Raises: FileError for what is not finite, negative or all 0."""
    check_finite(weights, what, ("run", "particle"))
    if (weights < 0).any():
        run, particle = np.argwhere(weights < 0)[0]
        raise FileError(
            f"{what} has {(weights < 0).sum()} negative entries, the first ({weights[run, particle]:g}) at particle "
            f"{particle} (counted from 0): weights are shares of mass, ≥ 0"
        )
    if not (weights.sum(axis=1) > 0).all():
        raise FileError(f"{what} are all 0 in a run: leave them out for equal ones")
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def check_count(count: int, what: str) -> None:
    """Refuse too few particles. Raises: FileError naming their number."""
    if count < LEAST_PARTICLES:
        raise FileError(
            f"{what} has {count} particles in a run; at least {LEAST_PARTICLES} are needed to speak of a law: "
            "run with more, and see that the axes are (snapshots, particles, dimension)"
        )


def check_angles(angles: FloatArray, what: str) -> None:
    """Refuse angles beyond ±2π. Raises: FileError that says how many there are."""
    far = np.abs(angles) > 2 * np.pi * (1 + ROUNDING)
    if far.any():
        raise FileError(
            f"{what} has {far.sum()} of {angles.size} angles beyond 2π, up to {np.abs(angles).max():g}: if they are in "
            "degrees say degrees = true in a TOML file of array names; else wrap them into one turn"
        )


def check_against(trajectory: Trajectory, problem: Problem) -> None:
    """Refuse a trajectory that cannot be one of a problem: dimension, times, box, matrices. Raises: FileError."""
    heads = trajectory.kind == "heads"
    name, where = trajectory.kind, f"{trajectory.source} [{trajectory.kind}]"
    if heads and not given(problem.heads, "heads").cells:
        raise FileError(f"{where}: the heads of the problem are finitely many points and do not move: give tokens")
    grid = given(problem.heads, "heads").grid() if heads else given(problem.tokens, "tokens").grid()
    ring = grid.dim == 1 and grid.periodic[0]
    if name == "angles" and not ring:
        raise FileError(f"{where} are angles, but the tokens of the problem are not on one ring: give tokens (…, d)")
    if trajectory.dim != grid.dim:
        circle = " (on the circle give angles, arctan2(x2, x1))" if ring and trajectory.dim == 2 and not heads else ""
        raise FileError(
            f"{where} have dimension {trajectory.dim}, but the {'heads' if heads else 'tokens'} of the problem have "
            f"{grid.dim}{circle}: compare with another problem, or name the columns"
        )
    end, key = (
        (given(problem.training, "training").s_end, "training.s_end")
        if heads
        else (given(problem.depth, "depth").T, "depth.T")
    )
    if trajectory.times[-1] > end * (1 + ROUNDING):
        raise FileError(
            f"{trajectory.source} [times] go on to {trajectory.times[-1]:g}, but {key} = {end:g}: leave out what is "
            f"later, or set {key} = {trajectory.times[-1]:g}"
        )
    _check_box(trajectory.points, grid, where, "heads" if heads else "tokens")
    if not heads and trajectory.A is not None:
        wanted = 2 if ring else grid.dim
        if trajectory.A.shape[1] != wanted:
            raise FileError(f"{trajectory.source} [A] has matrices {trajectory.A.shape[1:]}, not ({wanted}, {wanted})")


def _check_box(points: FloatArray, grid: Grid, where: str, section: str) -> None:
    beyond = np.zeros(points.shape)
    for axis, periodic in enumerate(grid.periodic):
        if not periodic:
            low, high = grid.lower[axis], grid.upper[axis]
            beyond[..., axis] = np.maximum(low - points[..., axis], points[..., axis] - high)
    far = beyond.max(axis=-1) > ROUNDING * max(b - a for a, b in zip(grid.lower, grid.upper, strict=True))
    if far.any():
        box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(grid.lower, grid.upper, strict=True))
        run, snapshot, particle = np.argwhere(far)[0]
        raise FileError(
            f"{where} has {far.sum()} of {far.size} points outside the box {box}, by up to {beyond.max():g}; the first "
            f"is {points[run, snapshot, particle]} at run {run}, snapshot {snapshot}, particle {particle} (counted "
            f"from 0): widen {section}.lower and {section}.upper, or see that both use the same units"
        )
