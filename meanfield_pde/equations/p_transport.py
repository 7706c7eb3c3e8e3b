"""The costate, -∂_t p = V·∇p + ∫ mu(dy) ∇p(y)·(δV/δmu)(y; x) + D Δ p: the transpose of the very steps.

p is kept raw (the derivative of the discrete loss per cell mass); `Grid.refilter` makes the reported one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.mu_continuity import Stage, Transport, seen
from meanfield_pde.equations.mu_fluxes import middle, reconstruct
from meanfield_pde.equations.runge_kutta import RowsTransposed
from meanfield_pde.equations.schemes import DualReconstruction, Linear
from meanfield_pde.kernels import difference as kernel
from meanfield_pde.kernels.sweep import sweep
from meanfield_pde.model.field import AssembledField
from meanfield_pde.splitting import compose


def dual_of(transport: Transport) -> DualReconstruction:
    """The reconstruction whose transpose carries p: the scheme's own, or linear3 for a TVD limiter.

    The latter is consistent with (B) but not the dual of the steps taken, and results say so.
    """
    own = transport.reconstruction
    return own if isinstance(own, DualReconstruction) else Linear(3)


def rate_transpose(
    transport: Transport, dual: DualReconstruction, stage: Stage, q: FloatArray
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Transposes of `mu_fluxes.rate` applied to q: in mu at fixed velocity, and in the velocities.

    Shapes: q (B, *cells); returns (B, *cells) and one (B, *face_shape(axis)) per axis.
    """
    grid = transport.grid
    dim = grid.dim
    in_mu = np.zeros_like(q)
    in_velocity = []
    reconstructed = reconstruct(transport, stage.u, stage.velocity)
    for axis, (v, r) in enumerate(zip(stage.velocity, reconstructed, strict=True)):
        g = np.empty_like(v)
        kernel.difference(sweep(q, axis, dim), grid.spacing[axis], sweep(g, axis, dim))
        to_r, to_v = g * v, g * r
        if dim > 1:
            to_middle = np.zeros_like(v)
            _add_transverse_transpose(transport, axis, v, middle(grid, axis, stage.u), g, to_v, to_middle)
            n, faces = grid.cells[axis], grid.face_count(axis)
            half = np.moveaxis(0.5 * to_middle, axis + 1, 0)
            moved = np.moveaxis(in_mu, axis + 1, 0)
            moved[:faces] += half
            moved[1:] += half[: n - 1]
            if faces == n:
                moved[0] += half[-1]
        dual.cells(sweep(stage.u, axis, dim), sweep(to_r, axis, dim), sweep(v, axis, dim), sweep(in_mu, axis, dim))
        in_velocity.append(to_v)
    return in_mu, tuple(in_velocity)


def _add_transverse_transpose(
    transport: Transport,
    axis: int,
    v: FloatArray,
    r: FloatArray,
    g: FloatArray,
    to_v: FloatArray,
    to_r: FloatArray,
) -> None:
    """Transposes of `kernels.transverse.add_transverse` in v and in r, added."""
    grid = transport.grid
    dim = grid.dim
    curved = np.zeros_like(v)
    slope_v, slope_r = np.empty_like(v), np.empty_like(r)
    weighted = g * r
    for k in range(dim):
        if k != axis:
            ring = grid.periodic[k]
            kernel.add_curvature(sweep(v, k, dim), ring, 1.0 / 24.0, sweep(curved, k, dim))
            kernel.add_curvature_transpose(sweep(weighted, k, dim), ring, 1.0 / 24.0, sweep(to_v, k, dim))
            kernel.central(sweep(v, k, dim), ring, sweep(slope_v, k, dim))
            kernel.central(sweep(r, k, dim), ring, sweep(slope_r, k, dim))
            kernel.add_central_transpose(sweep(g * slope_r / 12.0, k, dim), ring, sweep(to_v, k, dim))
            kernel.add_central_transpose(sweep(g * slope_v / 12.0, k, dim), ring, sweep(to_r, k, dim))
    to_r += g * curved


def step_transpose(
    transport: Transport,
    field: AssembledField,
    dual: DualReconstruction,
    stages: tuple[Stage, ...],
    p: FloatArray,
    dt: float,
    sources: Sequence[FloatArray] | None = None,
) -> tuple[FloatArray, list[tuple[FloatArray, ...]]]:
    """One step of `depth_step.step` transposed: p before the step, and per stage the cotangents of the velocities.

    ``sources`` (stages of (B, *cells)) are derivatives in the cell masses of what else looks at mu at the stages.
    Shapes: p (B, *cells); cotangents (B, n_faces) per axis, weighted by the cell volume, in the order of the stages.
    """
    volume = transport.grid.cell_volume
    cotangents: list[tuple[FloatArray, ...]] = []
    noise = transport.noise
    left = len(stages)
    stepper = transport.runge_kutta

    def heat(q: FloatArray, length: float) -> FloatArray:
        return q if noise is None else noise.heat(q, length)  # its own transpose

    def back(q: FloatArray, length: float) -> FloatArray:
        nonlocal left
        ahead = q
        into = RowsTransposed(stepper, np.zeros_like(q))
        for i in reversed(range(stepper.stages)):
            left -= 1
            stage = stages[left]
            ahead = into.euler(i, ahead)
            in_mu, in_velocity = rate_transpose(transport, dual, stage, stepper.share * length * ahead)
            flat = tuple((volume * g).reshape(len(q), -1) for g in in_velocity)
            cotangents.append(flat)
            nonlocal_part = field.to_mu(flat, stage.moments).reshape(q.shape)
            if sources is not None:
                nonlocal_part = nonlocal_part + sources[left]
            ahead = ahead + in_mu + seen(transport.grid, stage.u) * nonlocal_part
        return ahead + into.start

    start = compose(transport.splitting.stages[::-1], {"transport": back, "noise": heat}, p, dt)
    cotangents.reverse()
    return start, cotangents
