"""One block of sequences through the layers and back: mu forward, p backward by the dual of the steps taken."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_control import ErrorSteps
from meanfield_pde.equations.depth_doubling import controlled
from meanfield_pde.equations.depth_layers import Layer, LayerPath, Way, equal
from meanfield_pde.equations.depth_step import step
from meanfield_pde.equations.mu_continuity import Stage, Transport
from meanfield_pde.equations.p_transport import dual_of, step_transpose
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.model.field import AssembledField

# stages whose share in the gradient is taken at once: a fixed number, so that no budget changes a bit
GATHER = 64
# or as many as hold so many bytes of moments
GATHER_BYTES = 2**27
Pair = tuple[tuple[FloatArray, ...], FloatArray]
"""The cotangents of a stage's velocities and the stage's moments."""
Sources = Callable[[int, int, tuple[Stage, ...]], list[FloatArray]]
"""Layer, step and its stages -> (B, *cells) a stage."""


class Path(NamedTuple):
    """mu in depth for a block of sequences.

    Shapes: ``edges`` (layers + 1,) depths, ``nodes`` (layers + 1, B, *cells).
    """

    edges: FloatArray
    nodes: FloatArray
    layers: list[LayerPath]
    courant: float
    limited: int
    rejected: int = 0


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
    budget: float = inf,
) -> Path:
    """Carry laws u (B, *cells) through the layers between ``edges``, field l in layer l (or one field in all).

    Meaning: ``keep`` stores the stages, ``sequence`` is the number of the first law, for messages; ``budget`` bounds
    the bytes of a path whose steps are not known before.
    Raises: NotFiniteError naming layer, depth, sequence and cell; NotConvergedError where V runs away or step control
    ends; MeanFieldError for given steps beyond the Courant number, or a path beyond its budget.
    """
    check_laws(u, float(edges[0]), sequence)
    nodes = np.empty((len(edges), *u.shape))
    nodes[0] = u
    way = Way(float(edges[-1] - edges[0]), keep, budget)
    control = transport.control
    courant, limited, rejected = 0.0, 0, 0
    for number, length in enumerate(np.diff(edges)):
        field = fields[number % len(fields)]
        layer = Layer(number, float(edges[number]), float(length), sequence)
        if isinstance(control, ErrorSteps) and length > 0.0:
            crossed = controlled(transport, field, nodes[number], layer, way, control)
        else:
            crossed = equal(transport, field, nodes[number], layer, way)
        way.layers.append(crossed.part)
        nodes[number + 1] = crossed.end
        courant = max(courant, crossed.courant)
        limited += crossed.limited
        rejected += crossed.rejected
    return Path(edges, nodes, way.layers, courant, limited, rejected)


def check_laws(u: FloatArray, depth: float, sequence: int = 0) -> None:
    """Refuse laws u (B, *cells) that are not finite. Raises: NotFiniteError naming sequence and cell."""
    if not np.isfinite(u).all():
        law, *cell = (int(i) for i in np.argwhere(~np.isfinite(u))[0])
        raise NotFiniteError(
            f"mu is not finite at depth {depth:g}, sequence {sequence + law}, cell {tuple(cell)}: "
            "give finite initial laws"
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
    return step(transport, field, part.starts[k], float(path.edges[layer]) + part.offsets[k], part.lengths[k])[1]


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
    _check_costate(p, float(path.edges[-1]))
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
            p, cotangents = step_transpose(transport, field, dual, stages, p, part.lengths[k], more)
            _check_costate(p, float(path.edges[layer]) + part.offsets[k])
            left[at].extend((g, s.moments) for g, s in zip(cotangents, stages, strict=True))
            if len(left[at]) >= GATHER or len(left[at]) * left[at][0][1].nbytes >= GATHER_BYTES:
                gradient[at] = contracted(field, left[at], gradient[at])
                left[at] = []
        nodes[layer] = p
    return WayBack(nodes, gradient, left)


def _check_costate(p: FloatArray, depth: float) -> None:
    if not np.isfinite(p).all():
        law, *cell = (int(i) for i in np.argwhere(~np.isfinite(p))[0])
        raise NotFiniteError(
            f"p is not finite at depth {depth:g}, sequence {law} of its block, cell {tuple(cell)}: "
            "check the loss and its derivative for what overflows on this box"
        )


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
        k = bisect_right(part.offsets, float(t - start)) - 1
        rest = float(t - start) - part.offsets[k]
        field = fields[layer % len(fields)]
        u = part.starts[k]
        out[i] = step(transport, field, u, start + part.offsets[k], rest)[0] if rest > 0.0 else u
    return out
