"""Other motions of tokens, each wrong in one way: what a particle code may do instead of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.frozen_softmax import frozen_line, frozen_velocity
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.particles.sampling import wrapped
from meanfield_pde.particles.tokens import CIRCLE, FEW, Field, ParticleTokens, Trajectory, carry
from meanfield_pde.particles.wrong_axis import over_queries, over_queries_line
from meanfield_pde.problem_particles import RENORMALISED

# attentions that divide by a sum over keys
NORMALISED = ("softmax", "l2")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A motion that is wrong in one way; with a ``value`` where it has one parameter, 1 where nothing is wrong."""

    name: str
    words: str
    value: float | None = None

    def at(self, value: float) -> Alternative:
        """The same at another value of its parameter."""
        return replace(self, value=value)


SCORE = Alternative("score scale", "scores are scaled, A → c A", 1.0)
VALUE = Alternative("value scale", "values are scaled, W → c W, as is the time of the heads", 1.0)
TRANSPOSE_A = Alternative("transpose of A", "scores are ⟨x, A y⟩, so A is transposed")
TRANSPOSE_W = Alternative("transpose of W", "W is transposed")
AXIS = Alternative("wrong axis", "attention is normalised over queries, not over keys")
SUM = Alternative("missing 1/H", "heads are summed, not averaged")
FROZEN = Alternative("frozen softmax", "attention weights of the first stage are kept in all stages of a layer")
ORDER_1 = Alternative("order-1 integrator", "layers are Euler steps")
FREE = Alternative("off the circle", "tokens move freely in the plane, and angles are those of their places")
ALL = (SCORE, VALUE, TRANSPOSE_A, TRANSPOSE_W, AXIS, SUM, FROZEN, ORDER_1, FREE)
# those that are the same motion by other heads
OF_HEADS = tuple(one.name for one in (SCORE, VALUE, TRANSPOSE_A, TRANSPOSE_W, SUM))


def alternatives_of(model: ParticleTokens, integrator: str) -> tuple[Alternative, ...]:
    """The alternatives that change something for this model and integrator; scales stand at 1.

    Meaning: none for drift alone; of perceptrons value scale, missing 1/H and the order; transposes where a matrix is
    not symmetric; wrong axis and frozen softmax for softmax and l2; frozen softmax and the order where a layer has
    more than one stage.
    """
    if not model.heads:
        return ()
    matrices = [made for made in model.made if isinstance(made, HeadMatrices)]
    stages = integrator not in RENORMALISED and len(METHODS[integrator].b) > 1
    changes = {
        SCORE: any(made.scores.any() for made in matrices),
        VALUE: True,
        TRANSPOSE_A: any(_skew(made.scores) for made in matrices),
        TRANSPOSE_W: any(_skew(made.values) for made in matrices),
        AXIS: model.attention in NORMALISED,
        SUM: any(len(law.weights) > 1 for law in model.heads),
        FROZEN: model.attention in NORMALISED and stages,
        ORDER_1: stages,
        FREE: model.circle and bool(matrices) and model.drift is None,
    }
    return tuple(one for one, does in changes.items() if does)


def carry_altered(
    model: ParticleTokens,
    start: Measure,
    T: float,
    layers: int,
    integrator: str,
    times: tuple[float, ...] | None,
    alternative: Alternative,
) -> Trajectory:
    """Tokens carried as by `tokens.carry`, but with one thing wrong.

    Formula: `alternatives.ALL`; the motions that are not those of other heads are in `wrong_axis`, `frozen_softmax`.
    Raises: MeanFieldError for an alternative that this model does not have.
    """
    name = alternative.name
    if name not in [one.name for one in ALL]:
        raise MeanFieldError(f"alternative '{name}' is not known; {nearest(name, [one.name for one in ALL])}")
    if name not in [one.name for one in alternatives_of(model, integrator)]:
        raise MeanFieldError(f"alternative '{name}' changes nothing for this model and integrator: leave it out")
    if name == ORDER_1.name:
        return carry(model, start, T, layers, "euler", times)
    if name == FREE.name:
        return _free(model, start, T, layers, times)
    if name in (AXIS.name, FROZEN.name):
        field = _over_queries(model) if name == AXIS.name else _frozen(model)
        return carry(model, start, T, layers, integrator, times, field)
    return carry(altered(model, alternative), start, T, layers, integrator, times)


def altered(model: ParticleTokens, alternative: Alternative) -> ParticleTokens:
    """The model with the heads of an alternative that is one of other heads: scales, transposes, missing 1/H."""
    c = 1.0 if alternative.value is None else alternative.value
    if alternative.name in (VALUE.name, SUM.name):
        by = [c if alternative.name == VALUE.name else len(law.weights) for law in model.heads]
        laws = tuple(Measure.particles(law.points, k * law.weights) for k, law in zip(by, model.heads, strict=True))
        return replace(model, heads=laws)
    changes: dict[str, Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]] = {
        SCORE.name: lambda A, W: (c * A, W),
        TRANSPOSE_A.name: lambda A, W: (A.transpose(0, 2, 1), W),
        TRANSPOSE_W.name: lambda A, W: (A, W.transpose(0, 2, 1)),
    }
    change, laws = changes[alternative.name], ()
    for law, made in zip(model.heads, model.made, strict=True):
        assert isinstance(made, HeadMatrices)  # perceptrons have none of these
        laws = (*laws, _matrices(*change(made.scores[made.index], made.values), law.weights))
    return replace(model, family="matrix", heads=laws)


def head_points(A: FloatArray, W: FloatArray) -> FloatArray:
    """The points of family `matrix`: W and then A, row by row. Shapes: A, W (K, d, d); result (K, 2 d²)."""
    return np.concatenate([W.reshape(len(W), -1), A.reshape(len(A), -1)], axis=1)


def _matrices(A: FloatArray, W: FloatArray, weights: FloatArray) -> Measure:
    return Measure.particles(head_points(A, W), weights)


def _skew(matrices: FloatArray) -> bool:
    return not np.array_equal(matrices, matrices.transpose(0, 2, 1))


def _over_queries(model: ParticleTokens) -> Field:
    def field(points: FloatArray, masses: FloatArray, part: int, first: FloatArray) -> tuple[FloatArray, float]:
        made, rho = model.made[part], model.heads[part].weights
        assert isinstance(made, HeadMatrices)
        if _tabulated(model, points):
            found, error = over_queries_line(made, rho, points, masses, model.tolerance)
            if error <= model.tolerance:
                return found, error
        return over_queries(model.attention, made, rho, points, masses), 0.0

    return field


def _frozen(model: ParticleTokens) -> Field:
    def field(points: FloatArray, masses: FloatArray, part: int, first: FloatArray) -> tuple[FloatArray, float]:
        made, rho = model.made[part], model.heads[part].weights
        assert isinstance(made, HeadMatrices)
        if points is first:
            return model.field(points, masses, part, points)
        if _tabulated(model, points):
            found, error = frozen_line(made, rho, first, points, masses, model.tolerance)
            if error <= model.tolerance:
                return found, error
        return frozen_velocity(model.attention, made, rho, first, points, masses), 0.0

    return field


def _tabulated(model: ParticleTokens, points: FloatArray) -> bool:
    """Whether the alternative has a table, too: on a line."""
    on_line = model.has_table and model.dim == 1 and not model.circle
    return on_line and (model.way == "table" or (model.way == "auto" and len(points) >= FEW))


def _free(
    model: ParticleTokens, start: Measure, T: float, layers: int, times: tuple[float, ...] | None
) -> Trajectory:
    box = CIRCLE if model.box is None else model.box
    # in the plane unnormalised attention has no table
    plane = replace(model, dim=2, box=None, way=model.way if model.attention == "softmax" else "direct")
    angles = start.points[:, 0]
    places = Measure.particles(np.stack([np.cos(angles), np.sin(angles)], axis=1), start.weights)
    run = carry(plane, places, T, layers, "euler", times)
    turned = wrapped(np.arctan2(run.x[:, :, 1:], run.x[:, :, :1]), box)
    return Trajectory(run.t, turned, run.weights, run.table_error)
