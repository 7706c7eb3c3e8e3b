"""From a problem to its token side on a grid: transport, queries, loss and targets; and its heads where given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.drift_flows import prescribed
from meanfield_pde.equations.depth_control import ErrorSteps, FixedSteps
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.lax_wendroff import stepper_of
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.query_tokens import Queries
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.equations.token_noise import TokenNoise
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import cell_averages, head_samples
from meanfield_pde.measure import Measure
from meanfield_pde.model import objective as losses
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.heads import HeadFunction
from meanfield_pde.problem import Depth, Feature, Heads, Objective, Problem, Tokens, given
from meanfield_pde.problem_objective import UNTARGETED
from meanfield_pde.sequences import SequenceBatch
from meanfield_pde.splitting import token_splitting

# the heads of tokens that move by a prescribed drift alone: one that does nothing
STILL = Heads(family="scalar", points=((0.0, 0.0),))


def density_of(heads: Heads) -> FloatArray:
    """The initial law of the heads as samples on their grid."""
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law of the heads")
    return head_samples(heads.initial, heads.grid())


def fixed_heads(problem: Problem) -> tuple[Measure, ...]:
    """The law of heads that do not move, one a layer: points with weights normalised to 1, or samples on their grid."""
    heads = problem.heads or STILL
    depth = given(problem.depth, "depth")
    if heads.points:
        weights = np.array(heads.weights) if heads.weights else np.ones(len(heads.points))
        law = Measure.particles(np.array(heads.points, dtype=float), weights / weights.sum())
    else:
        grid = heads.grid()
        law = Measure.particles(grid.points(), density_of(heads).ravel() * grid.cell_volume)
    return (law,) * (1 if depth.shared else depth.layers)


def transport(tokens: Tokens, depth: Depth) -> Transport:
    """Scheme, stepper, Courant number, prescribed drift and noise on the grid of the tokens."""
    grid, given_drift = tokens.grid(), tokens.drift
    drift, moving = prescribed(grid, given_drift.leak, given_drift.constant, given_drift.flow, given_drift.period)
    table = token_splitting(depth.splitting)
    noise = TokenNoise(grid, tokens.noise, table, depth.positivity) if tokens.noise > 0.0 else None
    rules = scheme(depth.scheme), stepper_of(depth.stepper), depth.cfl, depth.positivity
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
        depth.edges(),
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
