"""One block of sequences through the layers and back: mu forward, p backward by the dual of the steps taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_step import opening, step
from meanfield_pde.equations.mu_continuity import Stage, Transport, courant_rate, evaluate
from meanfield_pde.equations.p_transport import dual_of, step_transpose
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.model.field import AssembledField

# a layer is redone with smaller steps when V grew so much in it that the Courant number went beyond this
OVERSHOOT = 1.1
# steps of a layer; one takes a tenth of a millisecond at least
MOST_STEPS = 10**6
# stages whose share in the gradient is taken at once: a fixed number, so that no budget changes a bit
GATHER = 64
# or as many as hold so many bytes of moments
GATHER_BYTES = 2**27
Pair = tuple[tuple[FloatArray, ...], FloatArray]
"""The cotangents of a stage's velocities and the stage's moments."""
Sources = Callable[[int, int, tuple[Stage, ...]], list[FloatArray]]
"""Layer, step and its stages -> (B, *cells) a stage."""


class LayerPath(NamedTuple):
    """The steps of one layer: their length, mu before each, and their stages when these are kept."""

    dt: float
    starts: list[FloatArray]
    stages: list[tuple[Stage, ...]] | None


class Path(NamedTuple):
    """mu in depth for a block of sequences.

    Shapes: ``edges`` (layers + 1,) depths, ``nodes`` (layers + 1, B, *cells).
    """

    edges: FloatArray
    nodes: FloatArray
    layers: list[LayerPath]
    courant: float
    limited: int


class Costate(NamedTuple):
    """p at the layer edges, raw, (layers + 1, B, *cells), and the derivative in the head weights, (fields, K)."""

    nodes: FloatArray
    gradient: FloatArray


def forward(
    transport: Transport,
    fields: Sequence[AssembledField],
    u: FloatArray,
    edges: FloatArray,
    keep: bool,
    sequence: int = 0,
) -> Path:
    """Carry laws u (B, *cells) through the layers between ``edges``, field l in layer l (or one field in all).

    Each layer takes an integer number of equal steps, from the Courant number at its start; ``keep`` stores the stages.
    ``sequence`` is the number of the first law, for messages.
    Raises: NotFiniteError naming layer, depth, sequence and cell; NotConvergedError where V runs away.
    """
    check_laws(u, float(edges[0]), sequence)
    nodes = np.empty((len(edges), *u.shape))
    nodes[0] = u
    # positivity holds up to the Courant number asked for and not a hair beyond
    slack, most = (-1e-12, transport.cfl) if transport.positivity else (1e-9, OVERSHOOT * transport.cfl)
    layers: list[LayerPath] = []
    courant, limited = 0.0, 0
    for layer, length in enumerate(np.diff(edges)):
        field = fields[layer % len(fields)]
        start = nodes[layer]
        begin, end_depth = float(edges[layer]), float(edges[layer + 1])
        first = evaluate(transport, field, start, begin)
        _check_finite(first, layer, begin, sequence)  # before the count of steps is taken from it
        fastest = courant_rate(transport, first.velocity)
        if transport.moving is not None:
            fastest = max(fastest, transport.drift_rate(begin, end_depth))
        count = max(1, ceil(float(length) * transport.longest * fastest / transport.cfl - slack))
        while True:
            if count > MOST_STEPS:
                raise NotConvergedError(
                    f"layer {layer} (depth {begin:g} to {end_depth:g}) needs {count:.1e} steps, more than "
                    f"{MOST_STEPS:.0e}: V grows without bound in it; take a shorter depth.T or smaller boxes"
                )
            path, end, used, faces = _layer(
                transport,
                field,
                start,
                first,
                layer,
                (begin, float(length)),
                count,
                keep,
                sequence,
            )
            if not np.isfinite(end).all():
                law, *cell = (int(i) for i in np.argwhere(~np.isfinite(end))[0])
                raise NotFiniteError(
                    f"mu is not finite after layer {layer} (depth {edges[layer + 1]:g}), sequence "
                    f"{sequence + law}, cell {tuple(cell)}: the law may blow up before that depth, "
                    "or the grid is too coarse"
                )
            if used <= most:
                break
            count = max(count + 1, ceil(count * used / transport.cfl - slack))
        layers.append(path)
        nodes[layer + 1] = end
        courant = max(courant, used)
        limited += faces
    return Path(edges, nodes, layers, courant, limited)


def _layer(
    transport: Transport,
    field: AssembledField,
    u: FloatArray,
    first: Stage,
    layer: int,
    depths: tuple[float, float],
    count: int,
    keep: bool,
    sequence: int,
) -> tuple[LayerPath, FloatArray, float, int]:
    depth, length = depths
    dt = length / count
    starts: list[FloatArray] = []
    kept: list[tuple[Stage, ...]] = []
    used, limited = 0.0, 0
    for k in range(count):
        start = opening(transport, u, dt)
        t = depth + k * dt
        stage = first if start is first.u else evaluate(transport, field, start, t)
        _check_finite(stage, layer, t, sequence)
        piece = transport.longest * dt
        used = max(used, piece * courant_rate(transport, stage.velocity))
        if used > 4.0 * transport.cfl:
            # runaway: no use in going on with this step
            return LayerPath(dt, starts, None), u, used, limited
        starts.append(u)
        u, stages, faces = step(transport, field, u, t, dt, stage)
        limited += faces
        if transport.positivity or transport.moving is not None:
            # with positivity every stage is a step of its own, and has to be short enough for its own velocity
            used = max(used, *(piece * courant_rate(transport, s.velocity) for s in stages))
        if keep:
            kept.append(stages)
    return LayerPath(dt, starts, kept if keep else None), u, used, limited


def check_laws(u: FloatArray, depth: float, sequence: int = 0) -> None:
    """Refuse laws u (B, *cells) that are not finite. Raises: NotFiniteError naming sequence and cell."""
    if not np.isfinite(u).all():
        law, *cell = (int(i) for i in np.argwhere(~np.isfinite(u))[0])
        raise NotFiniteError(
            f"mu is not finite at depth {depth:g}, sequence {sequence + law}, cell {tuple(cell)}: "
            "give finite initial laws"
        )


def _check_finite(stage: Stage, layer: int, depth: float, sequence: int) -> None:
    for axis, v in enumerate(stage.velocity):
        if not np.isfinite(v).all():
            where = np.argwhere(~np.isfinite(v))[0]
            raise NotFiniteError(
                f"V is not finite at depth {depth:g} (layer {layer}), sequence {sequence + where[0]}, "
                f"face {tuple(int(i) for i in where[1:])} of axis {axis}: check rho and mu for NaN"
            )


def backward(transport: Transport, fields: Sequence[AssembledField], path: Path, p_end: FloatArray) -> Costate:
    """Carry p (B, *cells) from the end of the path to its start and collect the derivative in the head weights."""
    way = carry_back(transport, fields, path, p_end)
    found = [contracted(f, pairs, g) for f, pairs, g in zip(fields, way.left, way.gradient, strict=True)]
    return Costate(way.nodes, np.stack(found))


class WayBack(NamedTuple):
    """p at the layer edges, and per field the derivative taken so far (or None) and the pairs that are left to take."""

    nodes: FloatArray
    gradient: list[FloatArray | None]
    left: list[list[Pair]]


def stages_of(
    transport: Transport, field: AssembledField, path: Path, layer: int, k: int
) -> tuple[Stage, ...]:
    """The stages of step k of a layer: those that were kept, or made again with the same bits."""
    part = path.layers[layer]
    if part.stages is not None:
        return part.stages[k]
    return step(transport, field, part.starts[k], float(path.edges[layer]) + k * part.dt, part.dt)[1]


def carry_back(
    transport: Transport,
    fields: Sequence[AssembledField],
    path: Path,
    p_end: FloatArray,
    sources: Sources | None = None,
) -> WayBack:
    """Carry p (B, *cells) from the end of the path to its start; the last pairs of each field are left to `contracted`.

    So that those of many blocks can be taken at once, which is dear for a field that has to build something first.
    ``sources`` gives the derivatives in the masses, by stage, of what else looks at mu in a step, the last step first.
    """
    dual = dual_of(transport)
    nodes = np.empty_like(path.nodes)
    nodes[-1] = p_end
    p = p_end
    shared = len(fields) == 1
    left: list[list[Pair]] = [[] for _ in fields]
    gradient: list[FloatArray | None] = [None for _ in fields]
    for layer in range(len(path.layers) - 1, -1, -1):
        part = path.layers[layer]
        at = 0 if shared else layer
        field = fields[at]
        for k in range(len(part.starts) - 1, -1, -1):
            stages = stages_of(transport, field, path, layer, k)
            more = None if sources is None else sources(layer, k, stages)
            p, cotangents = step_transpose(transport, field, dual, stages, p, part.dt, more)
            left[at].extend((g, s.moments) for g, s in zip(cotangents, stages, strict=True))
            if len(left[at]) >= GATHER or len(left[at]) * left[at][0][1].nbytes >= GATHER_BYTES:
                gradient[at] = contracted(field, left[at], gradient[at])
                left[at] = []
        nodes[layer] = p
    return WayBack(nodes, gradient, left)


def contracted(field: AssembledField, pairs: list[Pair], start: FloatArray | None) -> FloatArray:
    """The derivative in the head weights (K,) that pairs of cotangents and moments give, added to ``start``."""
    if not pairs and start is not None:
        return start
    moments = np.concatenate([m for _, m in pairs])
    axes = range(len(pairs[0][0]))
    found = field.to_rho(tuple(np.concatenate([g[axis] for g, _ in pairs]) for axis in axes), moments)
    return found if start is None else start + found


def laws_at(transport: Transport, fields: Sequence[AssembledField], path: Path, times: FloatArray) -> FloatArray:
    """mu at any depths, (times, B, *cells): a step of the fitting length from the step before, then discarded.

    Asking for more depths therefore never changes the path.
    Raises: MeanFieldError for depths outside the path.
    """
    for t in times:
        if not path.edges[0] <= t <= path.edges[-1]:
            raise MeanFieldError(
                f"depth t = {t:g} is outside [{path.edges[0]:g}, {path.edges[-1]:g}]: ask for one inside"
            )
    out = np.empty((len(times), *path.nodes.shape[1:]))
    for i, t in enumerate(times):
        layer = min(max(int(np.searchsorted(path.edges, t, side="right")) - 1, 0), len(path.layers) - 1)
        if t == path.edges[layer + 1]:
            out[i] = path.nodes[layer + 1]
            continue
        part = path.layers[layer]
        start = float(path.edges[layer])
        k = min(int((t - start) / part.dt), len(part.starts) - 1)
        rest = float(t - start) - k * part.dt
        field = fields[layer % len(fields)]
        u = part.starts[k]
        out[i] = step(transport, field, u, start + k * part.dt, rest)[0] if rest > 0.0 else u
    return out
