"""The steps of one layer, and equal ones: from the Courant number, or of a given length."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor, inf, isfinite, log10
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_control import FixedSteps, Pace
from meanfield_pde.equations.depth_step import opening, step
from meanfield_pde.equations.mu_continuity import Stage, Transport, courant_rate, evaluate, largest
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.model.field import AssembledField

# a layer is redone with smaller steps when V grew so much in it that the Courant number went beyond this
OVERSHOOT = 1.1
# steps of a layer; one takes a tenth of a millisecond at least
MOST_STEPS = 10**6


class LayerPath(NamedTuple):
    """The steps of one layer: where each begins and how long it is, mu before it, and their stages when kept.

    Meaning: ``offsets`` count from the start of the layer.
    """

    offsets: list[float]
    lengths: list[float]
    starts: list[FloatArray]
    stages: list[tuple[Stage, ...]] | None

    @property
    def dt(self) -> float:
        """The longest step."""
        return max(self.lengths)


class Crossed(NamedTuple):
    """A layer that was crossed: its steps, the laws behind it, largest Courant number, faces limited, rejections."""

    part: LayerPath
    end: FloatArray
    courant: float
    limited: int
    rejected: int = 0


class Layer(NamedTuple):
    """Which layer is crossed, for whom: its number, where it begins, its length, and the number of the first law."""

    number: int
    begin: float
    length: float
    sequence: int


@dataclass(slots=True)
class Way:
    """What crossing a layer leaves to the next: the pace of the control, and the bytes of the path so far.

    Meaning: ``budget`` bounds the bytes of a path whose steps are not known before; stages are dropped beyond it, to be
    made again, and steps refused. ``total`` is the whole depth.
    """

    total: float
    keep: bool
    budget: float = inf
    pace: Pace = field(init=False)
    layers: list[LayerPath] = field(default_factory=list)
    starts: float = 0.0
    stages: float = 0.0

    def __post_init__(self) -> None:
        self.pace = Pace(self.total)

    def grow(self, u: FloatArray, stages: tuple[Stage, ...], depth: float) -> None:
        """Count a step in, before it is kept. Raises: MeanFieldError beyond the budget."""
        self.starts += u.nbytes
        if self.starts > self.budget:
            raise MeanFieldError(
                f"the path of mu has grown to {self.starts:.3g} bytes ({self.starts / u.nbytes:.0f} steps of "
                f"{u.nbytes:.3g}) at depth {depth:g} of {self.total:g}, over the budget of {self.budget:.3g}: raise "
                "depth.tolerance, take fewer cells or sequences, or give more with --memory"
            )
        if self.keep:
            self.stages += sum(a.nbytes for s in stages for a in (s.u, s.moments, *s.velocity))
            if self.starts + self.stages > self.budget:
                self.keep = False
                self.layers[:] = [part._replace(stages=None) for part in self.layers]


def equal(transport: Transport, field: AssembledField, u: FloatArray, layer: Layer, way: Way) -> Crossed:
    """Carry laws u (B, *cells) through a layer in equal steps, from the Courant number at its start or as given.

    Raises: NotFiniteError naming layer, depth, sequence and cell; NotConvergedError where V runs away; MeanFieldError
    for given steps beyond the Courant number.
    """
    # positivity holds up to the Courant number asked for and not a hair beyond
    slack, most = (-1e-12, transport.cfl) if transport.positivity else (1e-9, OVERSHOOT * transport.cfl)
    first = evaluate(transport, field, u, layer.begin)
    check_velocity(first, layer.number, layer.begin, layer.sequence)  # before the count of steps is taken from it
    if isinstance(transport.control, FixedSteps):
        count, most = max(1, ceil(layer.length / transport.control.dt - 1e-9)), inf
    else:
        fastest = courant_rate(transport, first.velocity)
        if transport.moving is not None:
            fastest = max(fastest, transport.drift_rate(layer.begin, layer.begin + layer.length))
        count = max(1, ceil(layer.length * transport.longest * fastest / transport.cfl - slack))
    while True:
        if count > MOST_STEPS:
            raise NotConvergedError(
                f"layer {layer.number} (depth {layer.begin:g} to {layer.begin + layer.length:g}) needs {count:.1e} "
                f"steps, more than {MOST_STEPS:.0e}: V grows without bound in it; take a shorter depth.T or smaller "
                "boxes"
            )
        crossed = _equal(transport, field, u, first, layer, count, way.keep)
        if crossed.courant <= most:
            return crossed
        count = max(count + 1, ceil(count * crossed.courant / transport.cfl - slack))


def _equal(
    transport: Transport, field: AssembledField, u: FloatArray, first: Stage, layer: Layer, count: int, keep: bool
) -> Crossed:
    dt = layer.length / count
    piece = transport.longest * dt
    offsets = [k * dt for k in range(count)]
    starts: list[FloatArray] = []
    kept: list[tuple[Stage, ...]] = []
    used, limited = 0.0, 0
    for offset in offsets:
        start = opening(transport, u, dt)
        t = layer.begin + offset
        stage = first if start is first.u else evaluate(transport, field, start, t)
        check_velocity(stage, layer.number, t, layer.sequence)
        used = max(used, piece * courant_rate(transport, stage.velocity))
        _check_given(transport, stage.velocity, dt, t)
        if used > 4.0 * transport.cfl:
            # runaway: no use in going on with this step
            return Crossed(LayerPath(offsets, [dt] * count, starts, None), u, used, limited)
        starts.append(u)
        u, stages, faces = step(transport, field, u, t, dt, stage)
        check_law(u, layer, t + dt)
        limited += faces
        if transport.positivity or transport.moving is not None:
            # with positivity every stage is a step of its own, and has to be short enough for its own velocity
            used = max(used, *(piece * courant_rate(transport, s.velocity) for s in stages))
            for s in stages:
                _check_given(transport, s.velocity, dt, t)
        if keep:
            kept.append(stages)
    return Crossed(LayerPath(offsets, [dt] * count, starts, kept if keep else None), u, used, limited)


def _check_given(transport: Transport, velocity: tuple[FloatArray, ...], dt: float, t: float) -> None:
    """Refuse given steps beyond the Courant number."""
    if not isinstance(transport.control, FixedSteps):
        return
    rate = transport.longest * courant_rate(transport, velocity)
    if dt * rate > transport.cfl * (1.0 + 1e-9):
        speeds = [float(np.abs(v).max(initial=0.0)) for v in velocity]
        axis = int(np.argmax([v / h for v, h in zip(speeds, transport.grid.spacing, strict=True)]))
        limit = transport.cfl / rate
        digits = 10.0 ** (floor(log10(limit)) - 2)
        raise MeanFieldError(
            f"depth.dt = {transport.control.dt:g} breaks CFL {transport.cfl:g} on axis {axis} (max|V| = "
            f"{speeds[axis]:.3g}, h = {transport.grid.spacing[axis]:.3g}) at depth {t:g}: take dt <= "
            f"{floor(limit / digits) * digits:.3g}"
        )


def check_law(u: FloatArray, layer: Layer, depth: float) -> None:
    """Refuse laws behind a step that are not finite. Raises: NotFiniteError naming layer, depth, sequence and cell."""
    if not isfinite(largest(u)):
        law, *cell = (int(i) for i in np.argwhere(~np.isfinite(u))[0])
        raise NotFiniteError(
            f"mu is not finite at depth {depth:g} (layer {layer.number}), sequence {layer.sequence + law}, "
            f"cell {tuple(cell)}: the law may blow up before that depth, or the grid is too coarse"
        )


def check_velocity(stage: Stage, layer: int, depth: float, sequence: int) -> None:
    """Refuse a velocity that is not finite. Raises: NotFiniteError naming layer, depth, sequence and face."""
    for axis, v in enumerate(stage.velocity):
        if not isfinite(largest(v)):
            where = np.argwhere(~np.isfinite(v))[0]
            raise NotFiniteError(
                f"V is not finite at depth {depth:g} (layer {layer}), sequence {sequence + where[0]}, "
                f"face {tuple(int(i) for i in where[1:])} of axis {axis}: check rho and mu for NaN"
            )
