"""Rates of the continuity equation by finite volumes, and the forward Euler steps that Runge–Kutta stages are made of.

Rate = -D·F, F = V ⊙ R(mu) in one dimension; for d >= 2 the face mean of the product is
F = <V> R + sum_{k != axis} (δ_k V)(δ_k R) / 12 with undivided central differences δ_k, <V> = V + sum δ²_k V / 24
(McCorquodale & Colella 2011, eq. 14).
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.schemes import kernel_code, stencils
from meanfield_pde.grid import Grid
from meanfield_pde.kernels import axis_rates as kernel
from meanfield_pde.kernels import flux as positive
from meanfield_pde.kernels.increments import euler_increment, increased
from meanfield_pde.kernels.sweep import flat, rows, sweep

NOTHING = np.empty((0, 0))


def reconstruct(transport: Transport, u: FloatArray, velocity: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
    """R(mu) at the faces of each axis."""
    dim = transport.grid.dim
    out = []
    for axis, v in enumerate(velocity):
        faces = np.empty_like(v)
        transport.reconstruction.faces(sweep(u, axis, dim), sweep(v, axis, dim), sweep(faces, axis, dim))
        out.append(faces)
    return tuple(out)


def middle(grid: Grid, axis: int, u: FloatArray) -> FloatArray:
    """(u_f + u_{f+1}) / 2 at the faces of an axis."""
    faces = grid.face_count(axis)
    here = np.take(u, range(faces), axis=axis + 1)
    ahead = np.take(u, [(f + 1) % grid.cells[axis] for f in range(faces)], axis=axis + 1)
    return np.asarray(0.5 * (here + ahead))


def rate(
    transport: Transport,
    u: FloatArray,
    velocity: tuple[FloatArray, ...],
    dt: float,
    reconstructed: tuple[FloatArray, ...] | None = None,
) -> tuple[FloatArray, int]:
    """-∇·F per cell, and the number of faces limited for positivity of u + dt · rate.

    Shapes: u (B, *cells), velocity and what is reconstructed (else here) (B, *face_shape(axis)) per axis; rate like u.
    """
    if transport.positivity:
        fluxes = _fluxes(transport, u, velocity, reconstructed)
        return _positive(transport.grid, u, velocity, fluxes, dt)
    return _rates(transport, u, velocity, reconstructed), 0


def euler(
    transport: Transport,
    current: FloatArray,
    start: FloatArray,
    velocity: tuple[FloatArray, ...],
    dt: float,
    weight: float | None = None,
) -> tuple[FloatArray, int]:
    """e - start of the Euler step e = current + dt rate(current), or with a weight start + weight (e - start), and the
    number of faces limited: as a sum of changes mass is only rounded by small increments.
    """
    if not transport.positivity:
        return _rates(transport, current, velocity, None, dt, weight, start), 0
    change, limited = rate(transport, current, velocity, dt)
    euler_increment(flat(change), dt, flat(current), flat(start))
    if weight is not None:
        increased(flat(change), weight, flat(start))
    return change, limited


def _axes(
    transport: Transport,
    u: FloatArray,
    velocity: tuple[FloatArray, ...],
    reconstructed: tuple[FloatArray, ...] | None,
) -> list[tuple[Any, ...]]:
    """What the kernels take of each axis: laws, velocities, reconstructions if given, the grid, tables, the scheme."""
    grid = transport.grid
    width, kind = transport.reconstruction.width, kernel_code(transport.reconstruction)
    if reconstructed is None and kind is None:
        reconstructed = reconstruct(transport, u, velocity)
    if reconstructed is not None:
        width, kind = 1, kernel.GIVEN
    cells, rings = np.array(grid.cells), np.array(grid.periodic)
    out: list[tuple[Any, ...]] = []
    for axis, v in enumerate(velocity):
        given = NOTHING if reconstructed is None else rows(reconstructed[axis], axis, grid.dim)
        tables = stencils(width, grid.cells[axis], grid.periodic[axis])
        place = prod(grid.cells[axis + 1 :]), cells, rings, axis
        out.append((rows(u, axis, grid.dim), rows(v, axis, grid.dim), given, place, (*tables, kind)))
    return out


def _rates(
    transport: Transport,
    u: FloatArray,
    velocity: tuple[FloatArray, ...],
    reconstructed: tuple[FloatArray, ...] | None,
    dt: float = 0.0,
    weight: float | None = None,
    start: FloatArray | None = None,
) -> FloatArray:
    """Rates, changes with ``start``, or with a weight laws: see `kernels.axis_rates`; the last axis ends the sum."""
    grid = transport.grid
    end = kernel.RATES if start is None else kernel.CHANGES if weight is None else kernel.LAWS
    start = u if start is None else start
    out = np.empty_like(u)
    for axis, (u2, v2, given, place, scheme) in enumerate(_axes(transport, u, velocity, reconstructed)):
        whole = (u2, v2, given, *place, grid.spacing[axis], *scheme)
        last = end if axis == grid.dim - 1 else kernel.RATES
        into = (last, dt, weight or 0.0, rows(start, axis, grid.dim), rows(out, axis, grid.dim))
        transport.team.share(partial(_part, whole, into), kernel.pieces(*u2.shape, place[0]))
    return out


def _part(whole: tuple[Any, ...], into: tuple[Any, ...], first: int, last: int) -> None:
    kernel.axis_rates(*whole, first, last, *into)


def _fluxes(
    transport: Transport,
    u: FloatArray,
    velocity: tuple[FloatArray, ...],
    reconstructed: tuple[FloatArray, ...] | None,
) -> list[FloatArray]:
    """F at the faces of each axis, shaped like the velocities."""
    out = []
    for axis, (u2, v2, given, place, scheme) in enumerate(_axes(transport, u, velocity, reconstructed)):
        flux = np.empty_like(velocity[axis])
        kernel.fluxes(u2, v2, given, *place, *scheme, rows(flux, axis, transport.grid.dim))
        out.append(flux)
    return out


def _positive(
    grid: Grid, u: FloatArray, velocity: tuple[FloatArray, ...], fluxes: list[FloatArray], dt: float
) -> tuple[FloatArray, int]:
    """Rates by ``fluxes`` (overwritten), blended face by face with first-order upwind ones so that u + dt · rate >= 0,
    and the number of faces limited.

    Source: Zalesak (1979) with the lower bound 0 alone.
    """
    dim = grid.dim
    out, after, share = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)
    places = [(axis, grid.spacing[axis], prod(grid.cells[axis + 1 :])) for axis in range(dim)]
    for (axis, h, inner), v, flux in zip(places, velocity, fluxes, strict=True):
        views = (rows(a, axis, dim) for a in (flux, after, share))
        positive.split_flux(rows(u, axis, dim), rows(v, axis, dim), h, inner, *views)
    positive.affordable(flat(u), flat(after), flat(share), dt)
    count = 0
    for (axis, h, inner), v, extra in zip(places, velocity, fluxes, strict=True):
        views = (rows(a, axis, dim) for a in (u, v, share))
        count += int(positive.add_limited(*views, h, inner, rows(extra, axis, dim), rows(out, axis, dim)))
    return out, count
