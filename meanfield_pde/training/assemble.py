"""From a problem to the two sides, the initial state and the loop that joins them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.drift_flows import prescribed
from meanfield_pde.equations.depth_control import ErrorSteps, FixedSteps
from meanfield_pde.equations.given_potential import given_potential
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.query_tokens import Queries
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.equations.token_noise import TokenNoise
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import cell_averages, head_samples
from meanfield_pde.measure import Measure
from meanfield_pde.model import objective as losses
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.heads import HeadFunction
from meanfield_pde.model.sides import TokenSide
from meanfield_pde.problem import Depth, Feature, Heads, Objective, Problem, Sequence, Tokens, TwoGaussians, given
from meanfield_pde.problem_objective import UNTARGETED
from meanfield_pde.sequences import SequenceBatch, sequence_batch
from meanfield_pde.splitting import head_splitting, token_splitting
from meanfield_pde.training.memory_plan import (
    MEMORY,
    Part,
    attention_parts,
    check_memory,
    head_parts,
    path_part,
    token_parts,
    total,
)
from meanfield_pde.training.scheduler import Training
from meanfield_pde.training.shallow import shallow_model
from meanfield_pde.training.state import TrainingState
from meanfield_pde.training.stepsize import Control, ErrorControl, Fixed

# the heads of tokens that move by a prescribed drift alone: one that does nothing
STILL = Heads(family="scalar", points=((0.0, 0.0),))


@dataclass(frozen=True, slots=True)
class Assembled:
    """A problem made ready to run; what its kind does not have is None.

    Meaning: ``tokens`` with the ``batch`` of training sequences on ``token_grid``; ``heads`` on ``head_grid``,
    or the fixed measures ``fixed_heads`` of a problem of tokens alone; ``training`` and its first ``state``.
    """

    problem: Problem
    token_grid: Grid | None = None
    head_grid: Grid | None = None
    batch: SequenceBatch | None = None
    tokens: GridTokens | None = None
    heads: FokkerPlanckHeads | None = None
    fixed_heads: tuple[Measure, ...] | None = None
    training: Training | None = None
    state: TrainingState | None = None
    memory: tuple[Part, ...] = ()


def assemble(problem: Problem, threads: int | None = None, memory: float = MEMORY) -> Assembled:
    """Make a problem ready to run in at most ``memory`` bytes; `Assembled.memory` is the plan.

    Raises: MeanFieldError for laws that do not fit their box, unstable schemes, or a plan over the memory.
    """
    if problem.kind in ("fokker-planck", "shallow"):
        return _heads_alone(problem, memory)
    grid = given(problem.tokens, "tokens").grid()
    depth = given(problem.depth, "depth")
    kept = problem.output.snapshots + len(problem.output.times)
    singles = sum(isinstance(entry, Sequence) for entry in problem.sequences)
    times = kept if problem.kind == "tokens" else 0
    check_memory(token_parts(grid, singles, depth.layers, times), memory)
    if problem.kind == "tokens":
        batch = sequence_batch(problem, grid, "train")
        parts = token_parts(grid, len(batch.mu), depth.layers, times)
        fixed = fixed_heads(problem)
        tokens, parts = _fitted(grid_tokens(problem, batch, fixed[0].points, threads), fixed, parts, memory)
        return Assembled(problem, token_grid=grid, batch=batch, tokens=tokens, fixed_heads=fixed, memory=parts)
    head_grid = given(problem.heads, "heads").grid()
    training = given(problem.training, "training")
    lengths = (1.0,) if depth.shared else tuple(np.diff(layer_edges(depth)).tolist())
    parts = head_parts(head_grid, len(lengths), kept)
    check_memory(parts, memory)
    batch = sequence_batch(problem, grid, "train")
    parts += token_parts(grid, len(batch.mu), depth.layers, 0)
    heads = FokkerPlanckHeads(head_grid, training.beta, training.weight_decay, lengths, user=training.flow)
    rho = np.repeat(_density_of(given(problem.heads, "heads"))[None], len(lengths), axis=0)
    # one array of points for both sides, so that the distinct scores are found once
    tokens, parts = _fitted(
        grid_tokens(problem, batch, heads.points, threads), heads.measure(rho), parts, memory
    )
    return Assembled(
        problem,
        token_grid=grid,
        head_grid=head_grid,
        batch=batch,
        tokens=tokens,
        heads=heads,
        training=_training(problem, tokens, heads),
        state=TrainingState(0.0, 0, training.ds, rho),
        memory=parts,
    )


def _fitted(
    tokens: GridTokens, rho: tuple[Measure, ...], parts: tuple[Part, ...], memory: float
) -> tuple[GridTokens, tuple[Part, ...]]:
    """The token side with what is left of the memory for its path, and the whole plan."""
    parts += attention_parts(tokens)
    check_memory(parts, memory)
    tokens = replace(tokens, budget=memory - total(parts))
    return tokens, (*parts, path_part(tokens, rho))


def _density_of(heads: Heads) -> FloatArray:
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law of the heads")
    return head_samples(heads.initial, heads.grid())


def layer_edges(depth: Depth) -> FloatArray:
    """Depths between the layers, (layers + 1,): the owner of the time grid in depth."""
    return np.linspace(0.0, depth.T, depth.layers + 1)


def _training(problem: Problem, tokens: TokenSide, heads: FokkerPlanckHeads) -> Training:
    keys = given(problem.training, "training")
    fixed, falling = keys.control == "fixed", keys.control == "energy"
    control: Control = Fixed(keys.ds) if fixed else ErrorControl(keys.ds, keys.tolerance, falling)
    return Training(tokens, heads, head_splitting(keys.splitting, keys.flow is not None), keys.order, control)


def _heads_alone(problem: Problem, memory: float) -> Assembled:
    """Heads in a given potential, or in one layer without transport."""
    grid = given(problem.heads, "heads").grid()
    keys = given(problem.training, "training")
    parts = head_parts(grid, 1, problem.output.snapshots + len(problem.output.times))
    check_memory(parts, memory)
    radial = problem.data.dimension if isinstance(problem.data, TwoGaussians) else 1
    heads = FokkerPlanckHeads(grid, keys.beta, keys.weight_decay, radial=radial, user=keys.flow)
    rho = _density_of(given(problem.heads, "heads"))[None]
    batch, tokens = None, None
    side: TokenSide
    if problem.kind == "shallow":
        tokens = None if problem.tokens is None else problem.tokens.grid()
        batch = None if tokens is None else sequence_batch(problem, tokens, "train")
        side = shallow_model(problem, heads.points, batch, memory - total(parts))
        parts += (Part("kernel of rows and heads", side.kernel.nbytes),)
    else:
        side = given_potential(given(problem.potential, "potential"), grid, heads.points)
    return Assembled(
        problem,
        token_grid=tokens,
        head_grid=grid,
        batch=batch,
        heads=heads,
        training=_training(problem, side, heads),
        state=TrainingState(0.0, 0, keys.ds, rho),
        memory=parts,
    )


def fixed_heads(problem: Problem) -> tuple[Measure, ...]:
    """The law of heads that do not move, one a layer: points with weights normalised to 1, or samples on their grid."""
    heads = problem.heads or STILL
    depth = given(problem.depth, "depth")
    if heads.points:
        weights = np.array(heads.weights) if heads.weights else np.ones(len(heads.points))
        law = Measure.particles(np.array(heads.points, dtype=float), weights / weights.sum())
    else:
        grid = heads.grid()
        law = Measure.particles(grid.points(), _density_of(heads).ravel() * grid.cell_volume)
    return (law,) * (1 if depth.shared else depth.layers)


def transport(tokens: Tokens, depth: Depth) -> Transport:
    """Scheme, stepper, Courant number, prescribed drift and noise on the grid of the tokens."""
    grid, given_drift = tokens.grid(), tokens.drift
    drift, moving = prescribed(grid, given_drift.leak, given_drift.constant, given_drift.flow, given_drift.period)
    table = token_splitting(depth.splitting)
    noise = TokenNoise(grid, tokens.noise, table, depth.positivity) if tokens.noise > 0.0 else None
    rules = scheme(depth.scheme), stepper(depth.stepper), depth.cfl, depth.positivity
    return Transport(grid, *rules, drift, noise, moving, depth_control(depth))


def depth_control(depth: Depth) -> FixedSteps | ErrorSteps | None:
    """How long the steps in depth are; None from the Courant number alone."""
    if depth.control == "error":
        return ErrorSteps(depth.tolerance)
    return None if depth.dt is None else FixedSteps(depth.dt)


def grid_tokens(
    problem: Problem, batch: SequenceBatch, head_points: FloatArray, threads: int | None = None
) -> GridTokens:
    """The token side of a problem for any batch of its sequences."""
    depth = given(problem.depth, "depth")
    tokens = given(problem.tokens, "tokens")
    grid = tokens.grid()
    family: str | HeadFunction | None = (problem.heads or STILL).family
    if family is None:
        raise MeanFieldError("heads.family is missing: say how a head acts")
    loss, targets = None, None
    if problem.objective is not None and problem.objective.kind != "query-regression":
        loss = objective_on(problem.objective, grid)
        targets = _targets(problem, grid, batch)
    more: dict[str, Any] = {} if threads is None else {"threads": threads}
    return GridTokens(
        transport(tokens, depth),
        Attention(problem.attention or "none", problem.window),
        family,
        head_points,
        layer_edges(depth),
        depth.shared,
        batch.mu,
        loss,
        targets,
        batch.outside_mass,
        queries=_queries(problem, tokens, batch),
        **more,
    )


def _queries(problem: Problem, tokens: Tokens, batch: SequenceBatch) -> Queries | None:
    """The queries of a batch in rows of one length, filled up with points of share 0."""
    most = max((len(one) for one in batch.queries), default=0)
    if not most:
        return None
    middle = [0.5 * (low + high) for low, high in zip(tokens.lower, tokens.upper, strict=True)]
    points = np.tile(np.array(middle), (len(batch.mu), most, 1))
    targets, shares = np.zeros(points.shape[:2]), np.zeros(points.shape[:2])
    term = None if problem.objective is None else problem.objective.query
    for row, (given_here, wanted) in enumerate(zip(batch.queries, batch.query_targets, strict=True)):
        if given_here:
            points[row, : len(given_here)] = given_here
            shares[row, : len(given_here)] = 1.0 / len(given_here)
        targets[row, : len(wanted)] = wanted
    axis, weight = (0, 0.0) if term is None else (term.axis, term.weight)
    return Queries(points, targets, shares, axis, weight, tokens.drift.constant, tokens.drift.leak)


def feature_values(feature: Feature, grid: Grid) -> FloatArray:
    """A feature at the cell centres with the box filter inverted, (size,): exact for polynomials and harmonics."""
    points = grid.points()
    if feature.kind == "harmonic":
        n, mode = grid.cells[feature.axis], given(feature.mode, "objective.features.mode")
        angle = 2.0 * np.pi * mode * points[:, feature.axis] / (n * grid.spacing[feature.axis])
        along, across = (*feature.coefficients, 0.0)[:2]
        # the mean of mode k over a cell is the mode times sinc(k h/2)
        return np.asarray((along * np.cos(angle) + across * np.sin(angle)) / np.sinc(mode / n))
    if feature.kind == "polynomial":
        axis = feature.axis
        # what overflows on the box is refused by the loss
        with np.errstate(over="ignore", invalid="ignore"):
            coefficients = losses.deconvolved_polynomial(feature.coefficients, grid.spacing[axis])
            return np.asarray(np.polynomial.polynomial.polyval(points[:, axis], coefficients))
    width = given(feature.width, "objective.features.width")
    bump = np.exp(-0.5 * (((points - np.array(feature.center)) / width) ** 2).sum(axis=1))
    return grid.deconvolve(bump.reshape(grid.cells)).ravel()


def objective_on(objective: Objective, grid: Grid) -> losses.Objective:
    """The loss on a grid: features sampled and deconvolved, readout and bias folded in where it is linear."""
    if objective.kind == "potential":
        return losses.Potential(feature_values(given(objective.potential, "objective.potential"), grid))
    if objective.kind == "energy-distance":
        return losses.EnergyDistance(grid.cells, grid.spacing)
    values = np.stack([feature_values(f, grid) for f in objective.features])
    readout = np.array(objective.readout) if objective.readout else np.eye(len(values))
    bias = np.array(objective.bias) if objective.bias else np.zeros(len(readout))
    if objective.kind == "regression":
        # the mass of mu is 1, so a constant added to a feature is the bias
        return losses.PooledRegression(losses.FeatureMap(readout @ values + bias[:, None]))
    return losses.CrossEntropy(losses.FeatureMap(values), readout, bias)


def _targets(problem: Problem, grid: Grid, batch: SequenceBatch) -> Any:
    kind = given(problem.objective, "objective").kind
    if kind in UNTARGETED or any(t is None for t in batch.targets):
        return None
    if kind == "energy-distance":
        laws: list[Any] = list(batch.targets)
        return np.stack([cell_averages(t, grid, Path(problem.base))[0].ravel() for t in laws]) * grid.cell_volume
    return np.array(batch.targets, dtype=float)
