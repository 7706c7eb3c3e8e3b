"""Steps in depth that keep to a tolerance, by step doubling: the two halves are kept, the whole tells their error."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_control import ROUNDING, SMALLEST, ErrorSteps, landing, next_pace
from meanfield_pde.equations.depth_layers import (
    MOST_STEPS,
    OVERSHOOT,
    Crossed,
    Layer,
    LayerPath,
    Way,
    check_law,
    check_velocity,
)
from meanfield_pde.equations.depth_step import opening, step
from meanfield_pde.equations.mu_continuity import Stage, Transport, courant_rate, evaluate
from meanfield_pde.errors import NotConvergedError, NotFiniteError
from meanfield_pde.model.field import AssembledField


class _Trial(NamedTuple):
    """One step and the same in two halves: the laws between and behind, stages of the halves, Courant number, faces."""

    middle: FloatArray
    end: FloatArray
    stages: tuple[tuple[Stage, ...], tuple[Stage, ...]]
    error: float
    courant: float
    limited: int


def controlled(
    transport: Transport, field: AssembledField, u: FloatArray, layer: Layer, way: Way, control: ErrorSteps
) -> Crossed:
    """Carry laws u (B, *cells) through a layer in steps that keep to a tolerance and to the Courant number.

    Raises: NotFiniteError naming what is not finite, layer, depth, sequence and cell once the smallest step is reached;
    NotConvergedError where that does not do; MeanFieldError for a path beyond its budget.
    """
    most = transport.cfl if transport.positivity else OVERSHOOT * transport.cfl
    order = transport.step_order
    part = LayerPath([], [], [], [] if way.keep else None)
    used, limited, rejected, offset = 0.0, 0, 0, 0.0
    while offset < layer.length:
        remaining = layer.length - offset
        wish, dt = way.pace.dt, landing(way.pace.dt, remaining)
        t, fault = layer.begin + offset, None
        end = layer.length if dt == remaining else offset + dt
        middle = offset + 0.5 * dt
        try:
            first = evaluate(transport, field, opening(transport, u, dt), t)
            check_velocity(first, layer.number, t, layer.sequence)
            rate = transport.longest * courant_rate(transport, first.velocity)
            if dt * rate > transport.cfl * (1.0 + 1e-9):
                way.pace = way.pace._replace(dt=(1.0 - 1e-6) * transport.cfl / rate)
                trial = None
            else:
                trial = _doubled(transport, field, u, first, layer, (offset, middle, end), order)
        except NotFiniteError as found:
            # a trial that is not finite is one more rejected trial; the smallest step ends it with words
            trial, fault = None, found
        if trial is None and fault is None and way.pace.dt >= SMALLEST * way.total:
            continue
        allowed = max(control.tolerance * dt / way.total, ROUNDING)
        ratio = inf if trial is None else trial.error / allowed
        accepted = trial is not None and ratio <= 1.0 and trial.courant <= most
        if ratio <= 1.0 and not accepted:
            ratio = 2.0**order  # V grew beyond the Courant number: the half will do
        following = next_pace(dt, ratio, way.pace.ratio, order, accepted)
        if trial is None or not accepted:
            rejected += 1
            way.pace = following
            if following.dt < SMALLEST * way.total:
                _give_up(layer, t, dt, fault)
            continue
        # a step that was cut to land says nothing against the one that was wished for
        way.pace = following._replace(dt=max(following.dt, wish)) if dt < wish else following
        halves = ((offset, middle, u, trial.stages[0]), (middle, end, trial.middle, trial.stages[1]))
        for at, to, start, stages in halves:
            way.grow(start, stages, layer.begin + at)
            part.offsets.append(at)
            part.lengths.append(to - at)
            part.starts.append(start)
            if part.stages is not None:
                part.stages.append(stages)
        if not way.keep:
            part = part._replace(stages=None)
        if len(part.starts) > MOST_STEPS:
            raise NotConvergedError(
                f"layer {layer.number} takes more than {MOST_STEPS:.0e} steps at depth {t:g}: raise depth.tolerance"
            )
        u, offset = trial.end, end
        used, limited = max(used, trial.courant), limited + trial.limited
    return Crossed(part, u, used, limited, rejected)


def _doubled(
    transport: Transport,
    field: AssembledField,
    u: FloatArray,
    first: Stage,
    layer: Layer,
    offsets: tuple[float, float, float],
    order: int,
) -> _Trial:
    """A step from ``first`` on and its two halves. Raises: NotFiniteError for the first thing that is not finite."""
    start, middle = layer.begin + offsets[0], layer.begin + offsets[1]
    whole, stages, _ = step(transport, field, u, start, offsets[2] - offsets[0], first)
    _check_trial(stages, whole, layer, start)
    # the noise that comes before the transport is half as much in a half
    begun = None if transport.splitting.until("transport") else first
    half, one, faces = step(transport, field, u, start, offsets[1] - offsets[0], begun)
    _check_trial(one, half, layer, start)
    new, two, more = step(transport, field, half, middle, offsets[2] - offsets[1])
    _check_trial(two, new, layer, middle)
    error = float(transport.grid.integral(np.abs(new - whole)).max()) / (2.0**order - 1.0)
    lengths = (offsets[1] - offsets[0], offsets[2] - offsets[1])
    looked = (one, two) if transport.positivity or transport.moving is not None else (one[:1], two[:1])
    courant = max(
        transport.longest * dt * courant_rate(transport, s.velocity)
        for dt, stages in zip(lengths, looked, strict=True)
        for s in stages
    )
    return _Trial(half, new, (one, two), error, courant, faces + more)


def _give_up(layer: Layer, t: float, dt: float, fault: NotFiniteError | None) -> None:
    where = f"depth control fell to a step of {dt:.1e} at depth {t:g} (layer {layer.number})"
    if fault is not None:
        raise NotFiniteError(f"{where}: {fault}") from fault
    raise NotConvergedError(f"{where}: raise depth.tolerance, or look for a velocity that is not smooth")


def _check_trial(stages: tuple[Stage, ...], end: FloatArray, layer: Layer, t: float) -> None:
    for stage in stages:
        check_velocity(stage, layer.number, t, layer.sequence)
    check_law(end, layer, t)
