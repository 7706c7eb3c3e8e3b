"""The one-step scheme: flux-limited Lax–Wendroff along each axis in turn, the axes put together by Strang splitting.

Source: LeVeque (2002), sections 6.4 and 19.5; Strang (1968).
"""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import prod

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.runge_kutta import Stepper, stepper
from meanfield_pde.equations.schemes import Linear, Muscl, Reconstruction
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.kernels import lax_wendroff as kernel
from meanfield_pde.kernels.reconstruction import UPWIND
from meanfield_pde.kernels.sweep import rows

ONE_STEP = "lax-wendroff"
# cells of all laws from which on threads pay
THREADS_PAY = 2**16


@dataclass(frozen=True, slots=True)
class LaxWendroff:
    """A stepper that is no Runge–Kutta one: sweeps along the axes in turn, each for Courant numbers up to 1.

    Meaning: of order 2 with a limiter, 1 as the donor-cell scheme; it has no transpose. ``threads`` share the lines of
    a sweep, which changes no bit.
    """

    order: int = 2
    stages: int = 2
    threads: int = field(default=1, compare=False)


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
    grid: Grid, limiter: int, velocity: tuple[FloatArray, ...], u: FloatArray, dt: float, threads: int = 1
) -> FloatArray:
    """Laws u (B, *cells) moved by given face velocities for dt: along every axis for dt/2, and in reverse order again.

    Meaning: symmetric, so of order 2; all sweeps are equally long, so none runs at half the Courant number of another.
    On a line it is one sweep.
    Shapes: velocity one (B, *face_shape(axis)) per axis.
    """
    axes = tuple(range(grid.dim))
    order = axes if grid.dim == 1 else axes + axes[::-1]
    spare: list[FloatArray] = []
    with ThreadPoolExecutor(threads) if threads > 1 and u.size >= THREADS_PAY else nullcontext() as pool:
        for axis in order:
            # the laws before the last sweep make room for those behind this one
            out = np.empty_like(u) if len(spare) < 2 else spare.pop(0)
            u = sweep_axis(grid, axis, limiter, velocity[axis], u, dt * grid.dim / len(order), out, pool, threads)
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
    pool: Executor | None = None,
    parts: int = 1,
) -> FloatArray:
    """One sweep along an axis, conservative: nothing passes a wall; into ``out`` if given, by a pool in ``parts``."""
    out = np.empty_like(u) if out is None else out
    inner = prod(grid.cells[axis + 1 :])
    u2, v2, out2 = (rows(a, axis, grid.dim) for a in (u, v, out))
    count = kernel.pieces(len(u2), inner)
    shared = 1 if pool is None else min(parts, count)

    def part(k: int) -> None:
        first, last = count * k // shared, count * (k + 1) // shared
        kernel.lax_wendroff(u2, v2, dt / grid.spacing[axis], inner, limiter, first, last, out2)

    # list() waits for all, and raises what went wrong in one
    list(map(part, range(shared)) if pool is None else pool.map(part, range(shared)))
    return out
