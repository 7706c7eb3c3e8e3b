"""The one-step scheme: flux-limited Lax–Wendroff along each axis in turn, the axes put together by Strang splitting.

Source: LeVeque (2002), sections 6.4 and 19.5; Strang (1968).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.runge_kutta import Stepper, stepper
from meanfield_pde.equations.schemes import Linear, Muscl, Reconstruction
from meanfield_pde.equations.team import ALONE, Team
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.kernels import lax_wendroff as kernel
from meanfield_pde.kernels.reconstruction import UPWIND
from meanfield_pde.kernels.sweep import rows

ONE_STEP = "lax-wendroff"


@dataclass(frozen=True, slots=True)
class LaxWendroff:
    """A stepper that is no Runge–Kutta one: sweeps along the axes in turn, each for Courant numbers up to 1.

    Meaning: of order 2 with a limiter, 1 as the donor-cell scheme; it has no transpose.
    """

    order: int = 2
    stages: int = 2


def stepper_of(name: str) -> Stepper | LaxWendroff:
    """The stepper of that name, Runge–Kutta or `lax-wendroff`. Raises: MeanFieldError with the nearest name."""
    return LaxWendroff() if name == ONE_STEP else stepper(name)


def limiter_of(reconstruction: Reconstruction) -> int:
    """The limiter of a scheme by its code. Raises: MeanFieldError for a scheme that has none."""
    if isinstance(reconstruction, Muscl):
        return reconstruction.limiter
    if isinstance(reconstruction, Linear) and reconstruction.order == 1:
        return UPWIND
    raise MeanFieldError(
        f"depth.stepper = {ONE_STEP!r} limits slopes: take a scheme with a limiter, such as 'muscl-mc', or 'upwind1'"
    )


def strang(
    grid: Grid, limiter: int, velocity: tuple[FloatArray, ...], u: FloatArray, dt: float, team: Team = ALONE
) -> FloatArray:
    """Laws u (B, *cells) moved by given face velocities for dt: along every axis for dt/2, and in reverse order again.

    Meaning: symmetric, so of order 2; all sweeps are equally long, so none runs at half the Courant number of another.
    On a line it is one sweep.
    Shapes: velocity one (B, *face_shape(axis)) per axis.
    """
    axes = tuple(range(grid.dim))
    order = axes if grid.dim == 1 else axes + axes[::-1]
    spare: list[FloatArray] = []
    for axis in order:
        # the laws before the last sweep make room for those behind this one
        out = np.empty_like(u) if len(spare) < 2 else spare.pop(0)
        u = sweep_axis(grid, axis, limiter, velocity[axis], u, dt * grid.dim / len(order), out, team)
        spare.append(u)
    return u


def largest_courant(grid: Grid) -> float:
    """The largest Courant number of a step, that of its fastest axis: a sweep may go as far as 1."""
    return 1.0 if grid.dim == 1 else 2.0


def sweep_axis(
    grid: Grid,
    axis: int,
    limiter: int,
    v: FloatArray,
    u: FloatArray,
    dt: float,
    out: FloatArray | None = None,
    team: Team = ALONE,
) -> FloatArray:
    """One sweep along an axis, conservative: nothing passes a wall; into ``out`` if given, lines shared by a team."""
    out = np.empty_like(u) if out is None else out
    inner = prod(grid.cells[axis + 1 :])
    u2, v2, out2 = (rows(a, axis, grid.dim) for a in (u, v, out))

    def part(first: int, last: int) -> None:
        kernel.lax_wendroff(u2, v2, dt / grid.spacing[axis], inner, limiter, first, last, out2)

    team.share(part, kernel.pieces(len(u2), inner))
    return out
