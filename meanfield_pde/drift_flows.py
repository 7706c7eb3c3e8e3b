"""Prescribed token velocities: constant − leak x, named flows, or a function of position and depth.

A flow with a stream function ψ, V = (∂ψ/∂y, −∂ψ/∂x), is given by its exact face means, the differences of ψ between the
corners of the cells, so that its discrete divergence is zero and a uniform law stays uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotFiniteError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.kernels import difference as kernel
from meanfield_pde.kernels.sweep import sweep

DriftFunction = Callable[[FloatArray, float], FloatArray]
"""A user's own velocity: positions (n, d) and depth t -> (n, d)."""
Faces = tuple[FloatArray, ...]
FLOWS = ("sine", "logistic", "rotation", "deformation")
WITH_PERIOD = ("rotation", "deformation")
# each pass takes the error of a face value by a factor of 1/6 or better per transverse axis
PASSES = 40


def prescribed(
    grid: Grid,
    leak: float = 0.0,
    constant: tuple[float, ...] = (),
    flow: str | DriftFunction | None = None,
    period: float | None = None,
) -> tuple[Faces, Callable[[float], Faces] | None]:
    """The normal velocity at the faces of each axis that stays, and the part that changes with depth, if any.

    Formula: constant − leak x, and ``flow``: on a ring of length L "sine" (L/2π) sin(2πx/L); on a line between walls
    at a and b "logistic" (x − a)(b − x)/(b − a), which vanishes at both; in a plane "rotation" once around the middle
    of the box in ``period``, and "deformation" ψ = (L_x L_y/π) sin²(πξ) sin²(πη) cos(πt/period)
    with ξ, η in [0, 1] along the box, which comes back to where it was at t = ``period``.
    Raises: MeanFieldError for an unknown flow, or one that does not exist on such a grid.
    Source: LeVeque (1996), eq. 9.5; Zalesak (1979), section V.
    """
    still = []
    for axis in range(grid.dim):
        along = (constant or (0.0,) * grid.dim)[axis] - leak * grid.face_points(axis)[:, axis]
        still.append(along.reshape(grid.face_shape(axis)))
    if flow is None:
        return tuple(still), None
    if callable(flow):
        function = flow
        return tuple(still), lambda t: of_function(grid, function, t)
    found = _named(grid, flow, 1.0 if period is None else period)
    if flow == "deformation":
        length = 1.0 if period is None else period
        return tuple(still), lambda t: tuple(cos(pi * t / length) * v for v in found)
    return tuple(a + b for a, b in zip(still, found, strict=True)), None


def check_flow(flow: object, periodic: tuple[bool, ...]) -> str | None:
    """What is wrong with a named flow on a box with such walls and rings, in words; None if nothing is."""
    if not isinstance(flow, str) or flow not in FLOWS:
        return f"is not known; {nearest(str(flow), FLOWS)}"
    if flow == "sine":
        return None if periodic == (True,) else "lives on a ring: take one axis with periodic = [true]"
    if flow == "logistic":
        return None if periodic == (False,) else "lives between two walls: take one axis and no ring"
    return None if periodic == (False, False) else "lives in a plane between walls: take two axes and no ring"


def _named(grid: Grid, flow: str, period: float) -> Faces:
    wrong = check_flow(flow, grid.periodic)
    if wrong is not None:
        raise MeanFieldError(f"tokens.drift.flow = {flow!r} {wrong}")
    if flow == "sine":
        wave = 2.0 * pi / (grid.upper[0] - grid.lower[0])
        return (np.sin(wave * grid.faces(0)) / wave,)
    if flow == "logistic":
        return (_logistic(grid.lower[0], grid.upper[0], grid.faces(0)),)
    x, y = (grid.edges(k) for k in range(2))
    if flow == "rotation":
        middle = [0.5 * (a + b) for a, b in zip(grid.lower, grid.upper, strict=True)]
        stream = -pi / period * ((x - middle[0])[:, None] ** 2 + (y - middle[1])[None] ** 2)
    else:
        length = [b - a for a, b in zip(grid.lower, grid.upper, strict=True)]
        waves = [np.sin(pi * np.linspace(0.0, 1.0, n + 1)) ** 2 for n in grid.cells]
        stream = length[0] * length[1] / pi * np.multiply.outer(*waves)
    return of_stream(grid, stream)


def _logistic(low: float, high: float, x: FloatArray) -> FloatArray:
    return np.asarray((x - low) * (high - x) / (high - low))


def of_stream(grid: Grid, stream: FloatArray) -> Faces:
    """Face velocities whose means are those of a stream function at the corners of the cells, (nx + 1, ny + 1)."""
    h = grid.spacing
    along_x = np.diff(stream, axis=1)[1:-1] / h[1]
    along_y = -np.diff(stream, axis=0)[:, 1:-1] / h[0]
    return tuple(of_means(grid, axis, means) for axis, means in enumerate((along_x, along_y)))


def of_means(grid: Grid, axis: int, means: FloatArray) -> FloatArray:
    """The face values v whose means v + Σ δ²_k v/24, as the transport takes them, are the given ones."""
    v = means.copy()
    for _ in range(PASSES):
        curved = np.zeros_like(v)
        for k in range(grid.dim):
            if k != axis:
                kernel.add_curvature(sweep(v, k, grid.dim), grid.periodic[k], 1.0 / 24.0, sweep(curved, k, grid.dim))
        v = means - curved
    return v


def of_function(grid: Grid, function: DriftFunction, t: float) -> Faces:
    """A user's velocity at the middles of the faces, (*face_shape) per axis. Raises: MeanFieldError for a misfit."""
    out = []
    for axis in range(grid.dim):
        points = grid.face_points(axis)
        values = np.asarray(function(points, t), dtype=float)
        if values.shape != points.shape:
            raise MeanFieldError(
                f"tokens.drift.flow gives velocities of shape {values.shape} at positions {points.shape}: "
                "it must give one velocity of that dimension a position"
            )
        if not np.isfinite(values).all():
            raise NotFiniteError(f"tokens.drift.flow gives a velocity that is not finite at depth {t:g}")
        out.append(np.ascontiguousarray(values[:, axis]).reshape(grid.face_shape(axis)))
    return tuple(out)


def at_points(
    lower: tuple[float, ...], upper: tuple[float, ...], flow: str, period: float | None, points: FloatArray, t: float
) -> FloatArray:
    """A named flow at any positions (n, d) of its box and depth t, (n, d), by the formulas of `prescribed`."""
    length = [b - a for a, b in zip(lower, upper, strict=True)]
    if flow == "sine":
        wave = 2.0 * pi / length[0]
        return np.asarray(np.sin(wave * points) / wave)
    if flow == "logistic":
        return _logistic(lower[0], upper[0], points)
    turn = 1.0 if period is None else period
    if flow == "rotation":
        x, y = (points[:, k] - 0.5 * (lower[k] + upper[k]) for k in range(2))
        return np.stack([-2.0 * pi / turn * y, 2.0 * pi / turn * x], axis=1)
    xi, eta = (pi * (points[:, k] - lower[k]) / length[k] for k in range(2))
    along = [length[0] * np.sin(xi) ** 2 * np.sin(2.0 * eta), -length[1] * np.sin(2.0 * xi) * np.sin(eta) ** 2]
    return np.asarray(cos(pi * t / turn) * np.stack(along, axis=1))
