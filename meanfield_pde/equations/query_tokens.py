"""Query tokens: points without mass that V carries, with a loss on where they end, their costate λ and its sources.

ẋ = V(x; mu_t) at the stages of the very steps that carry mu; backwards −λ' = (∂V/∂x)ᵀ λ with λ_T the derivative of the
loss, and λ·δV/δmu is a source of p, λ·δV/δrho a part of the gradient, all by exact transposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import Path, stages_of
from meanfield_pde.equations.mu_continuity import Stage, Transport, seen_weights
from meanfield_pde.equations.runge_kutta import RowsTransposed
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.model.field import AssembledField
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.perceptron import Perceptrons
from meanfield_pde.model.query_field import QueryField


@dataclass(frozen=True, slots=True)
class Queries:
    """The query points of sequences and their loss, weight Σ_q share_q ½ |x_q(T)_axis − y_q|².

    Shapes: points (B, Q, d), targets and shares (B, Q); the shares of a sequence are 1 over its number of queries,
    and 0 for points that fill up a row. Meaning: ``weight`` is 0 where the points are carried without a loss;
    ``constant`` (d,) and ``leak`` are the prescribed drift, which moves them too.
    """

    points: FloatArray
    targets: FloatArray
    shares: FloatArray
    axis: int = 0
    weight: float = 0.0
    constant: tuple[float, ...] = ()
    leak: float = 0.0

    def velocities(
        self, lattice: Lattice, heads: Sequence[HeadMatrices | Perceptrons], weights: Sequence[FloatArray]
    ) -> tuple[QueryField, ...]:
        """The velocity of the points in each layer (one in all when heads are shared), weights (K,) of its heads.

        Raises: MeanFieldError for heads that are no attention.
        """
        constant = np.array(self.constant or (0.0,) * len(lattice.axes))
        place = (lattice.points, lattice.widths, constant, self.leak)
        matrices = [one for one in heads if isinstance(one, HeadMatrices)]
        if len(matrices) < len(heads):
            raise MeanFieldError("queries follow heads of attention alone: set attention = 'softmax'")
        return tuple(QueryField(own, law, *place) for own, law in zip(matrices, weights, strict=True))

    def loss(self, x: FloatArray) -> FloatArray:
        """Loss of each sequence for final positions x (B, Q, d): (B,)."""
        return np.asarray(0.5 * self.weight * (self.shares * (x[..., self.axis] - self.targets) ** 2).sum(axis=1))

    def variation(self, x: FloatArray) -> FloatArray:
        """λ_T of each sequence's own loss, like x."""
        out = np.zeros_like(x)
        out[..., self.axis] = self.weight * self.shares * (x[..., self.axis] - self.targets)
        return out

    def shown(self, x: FloatArray) -> FloatArray:
        """Positions (..., B, Q, d) with NaN where there is no query."""
        return np.where((self.shares > 0.0)[..., None], x, np.nan)


class QueryPath(NamedTuple):
    """Query points at the layer edges, (layers + 1, B, Q, d), and before each step, by layer; what moved them."""

    velocities: tuple[QueryField, ...]
    nodes: FloatArray
    starts: list[list[FloatArray]]


def follow(
    transport: Transport,
    fields: Sequence[AssembledField],
    velocities: tuple[QueryField, ...],
    path: Path,
    x: FloatArray,
    sequence: int = 0,
) -> QueryPath:
    """Carry query points x (B, Q, d) along the path of mu; ``velocities`` are one a layer, or one in all.

    Raises: NotFiniteError naming sequence and depth.
    """
    nodes = np.empty((len(path.edges), *x.shape))
    nodes[0] = x
    starts: list[list[FloatArray]] = []
    for layer, part in enumerate(path.layers):
        at = layer % len(fields)
        starts.append([])
        for k in range(len(part.starts)):
            starts[-1].append(x)
            stages = stages_of(transport, fields[at], path, layer, k)
            x = _stage_points(transport, velocities[at], stages, x, part.lengths[k])[-1]
        if not np.isfinite(x).all():
            raise NotFiniteError(
                f"a query of sequence {sequence + int(np.argwhere(~np.isfinite(x))[0][0])} is not finite at depth "
                f"{path.edges[layer + 1]:g}: check the queries and the heads"
            )
        nodes[layer + 1] = x
    return QueryPath(velocities, nodes, starts)


def _stage_points(
    transport: Transport, velocity: QueryField, stages: tuple[Stage, ...], x: FloatArray, dt: float
) -> list[FloatArray]:
    """The points at each stage of a step, and after it; depth passes in its pieces of transport alone."""
    out = [x]
    ahead = iter(stages)
    stepper = transport.runge_kutta
    for share in transport.splitting.shares("transport"):
        x, length = out[-1], stepper.share * share * dt
        euler: list[FloatArray] = []
        for row in stepper.rows:
            masses = seen_weights(transport.grid, next(ahead).u)
            slope = np.stack([velocity.velocity(one, m) for one, m in zip(out[-1], masses, strict=True)])
            euler.append(out[-1] + length * slope)
            out.append(row[0] * x + sum(weight * e for weight, e in zip(row[1:], euler, strict=True) if weight))
    return out


@dataclass(slots=True)
class QueryCostate:
    """λ on its way back: a step at a time, in the order of `carry_back`.

    Meaning: ``costate`` (B, Q, d) is λ behind the steps taken so far, ``gradient`` (fields, K) what they gave, summed
    over the batch.
    """

    transport: Transport
    path: Path
    queries: QueryPath
    costate: FloatArray
    gradient: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        velocities = self.queries.velocities
        self.gradient = np.zeros((len(velocities), len(velocities[0].weights)))

    def back(self, layer: int, k: int, stages: tuple[Stage, ...]) -> list[FloatArray]:
        """Take λ over step k of a layer; the derivative in the cell masses at each stage, (B, *cells)."""
        velocities, dt = self.queries.velocities, self.path.layers[layer].lengths[k]
        at = layer % len(velocities)
        velocity, stepper = velocities[at], self.transport.runge_kutta
        points = _stage_points(self.transport, velocity, stages, self.queries.starts[layer][k], dt)
        sources: list[FloatArray] = []
        at_stage = len(stages)
        for share in reversed(self.transport.splitting.shares("transport")):
            ahead, length = self.costate, stepper.share * share * dt
            into = RowsTransposed(stepper, np.zeros_like(ahead))
            for i in reversed(range(stepper.stages)):
                at_stage -= 1
                ahead = into.euler(i, ahead)
                u = stages[at_stage].u
                masses = seen_weights(self.transport.grid, u)
                found = [
                    velocity.transposed(x, m, length * g)
                    for x, m, g in zip(points[at_stage], masses, ahead, strict=True)
                ]
                ahead = ahead + np.stack([to_x for to_x, _, _ in found])
                sources.append(np.stack([to_mass for _, to_mass, _ in found]).reshape(u.shape))
                for _, _, to_rho in found:
                    self.gradient[at] += to_rho
            self.costate = ahead + into.start
        sources.reverse()
        return sources


def query_costates(
    transport: Transport, queries: Queries, paths: tuple[Path, ...], followed: tuple[QueryPath, ...]
) -> list[QueryCostate]:
    """λ at the last depth of every block of sequences; none without a loss or for laws that are not theirs."""
    if not queries.weight > 0.0 or not followed:
        return []
    out, start = [], 0
    for path, way in zip(paths, followed, strict=True):
        end = start + path.nodes.shape[1]
        own = replace(queries, **{name: getattr(queries, name)[start:end] for name in ("points", "targets", "shares")})
        out.append(QueryCostate(transport, path, way, own.variation(way.nodes[-1])))
        start = end
    return out
