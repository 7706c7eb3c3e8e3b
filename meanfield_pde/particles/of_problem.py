"""A problem of tokens alone with finitely many tokens, and heads, in place of their laws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.drift_flows import DriftFunction, at_points
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.laws import Law
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadFunction
from meanfield_pde.particles.sampling import sample, support
from meanfield_pde.particles.tokens import TOLERANCE, ParticleTokens, Trajectory, carry
from meanfield_pde.problem import Heads, Problem, Sequence, Tokens, given

# tokens and heads of one seed are drawn by generators of their own
TOKENS, HEADS = 0, 1


def run_tokens(
    problem: Problem,
    count: int | None,
    layers: int,
    integrator: str = "euler",
    *,
    seed: int | None = None,
    sampling: str = "iid",
    sequence: int = 0,
    heads: int | None = None,
    times: tuple[float, ...] | None = None,
    way: str = "auto",
    tolerance: float = TOLERANCE,
) -> Trajectory:
    """N tokens of one sequence of a problem of kind 'tokens', carried from depth 0 to T in ``layers`` steps.

    Meaning: ``count`` tokens are drawn by ``sampling`` (see `sampling.sample`), or are the atoms of the law themselves
    where it is None; ``heads`` are the problem's points, or so many drawn from its head law; ``seed`` is the problem's
    own unless given; the rest is that of `tokens.carry` and `ParticleTokens`.
    Raises: MeanFieldError for what particles do not have.
    """
    depth = given(problem.depth, "depth")
    model = particle_tokens(problem, heads, seed=seed, way=way, tolerance=tolerance)
    start = initial_tokens(problem, count, seed=seed, sampling=sampling, sequence=sequence)
    return carry(model, start, depth.T, layers, integrator, times)


def particle_tokens(
    problem: Problem,
    heads: int | None = None,
    *,
    seed: int | None = None,
    sampling: str = "iid",
    way: str = "auto",
    tolerance: float = TOLERANCE,
) -> ParticleTokens:
    """The model of a problem for particles: its heads as points, or ``heads`` of them drawn from their law.

    Raises: MeanFieldError for token noise, a problem of another kind, or heads that are a law when no number is given.
    """
    if problem.kind != "tokens":
        raise MeanFieldError(f"kind = '{problem.kind}': particles are carried for problems of kind = 'tokens'")
    tokens = given(problem.tokens, "tokens")
    if tokens.noise > 0.0:
        raise MeanFieldError(f"tokens.noise = {tokens.noise:g} is not covered for particles: set it to 0")
    grid = tokens.grid()
    box = grid if any(grid.periodic) else None
    laws: tuple[Measure, ...] = ()
    family: str | HeadFunction = "scalar"
    if problem.heads is not None:
        family = problem.heads.family if problem.heads.family is not None else family
        laws = (_heads(problem.heads, heads, problem.seed if seed is None else seed, sampling, Path(problem.base)),)
    elif heads is not None:
        raise MeanFieldError(f"heads = {heads}, but the problem has no heads: leave it out")
    attention = problem.attention or "none"
    return ParticleTokens(attention, family, laws, grid.dim, box, drift_of(tokens), way, tolerance)


def initial_tokens(
    problem: Problem, count: int | None, *, seed: int | None = None, sampling: str = "iid", sequence: int = 0
) -> Measure:
    """``count`` tokens of the first law of one sequence, or its atoms with their weights where it is None."""
    if not 0 <= sequence < len(problem.sequences):
        raise MeanFieldError(f"sequence = {sequence}: the problem has {len(problem.sequences)}, counted from 0")
    entry = problem.sequences[sequence]
    if not isinstance(entry, Sequence):
        raise MeanFieldError(f"sequences[{sequence}] is a file of many laws: give its tokens as a Measure to carry")
    return _drawn(problem, entry.initial, count, (problem.seed if seed is None else seed, TOKENS), sampling)


def _drawn(problem: Problem, law: Law, count: int | None, seed: tuple[int, int], sampling: str) -> Measure:
    grid, base = given(problem.tokens, "tokens").grid(), Path(problem.base)
    return support(law, grid, base) if count is None else sample(law, count, grid, sampling, seed, base)


def _heads(heads: Heads, count: int | None, seed: int, sampling: str, base: Path) -> Measure:
    if heads.points:
        if count not in (None, len(heads.points)):
            raise MeanFieldError(f"heads = {count}, but the problem has {len(heads.points)} heads: leave it out")
        weights = np.array(heads.weights) if heads.weights else np.ones(len(heads.points))
        return Measure.particles(np.array(heads.points, dtype=float), weights / weights.sum())
    if count is None:
        raise MeanFieldError("the heads of the problem are a law: say how many are drawn from it (heads = ...)")
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law of the heads")
    return sample(heads.initial, count, heads.grid(), sampling, (seed, HEADS), base)


def drift_of(tokens: Tokens) -> DriftFunction | None:
    """The prescribed velocity of a problem at any points: constant − leak x + flow; None if there is none."""
    drift = tokens.drift
    constant = np.array(drift.constant or (0.0,) * len(tokens.cells), dtype=float)
    if not constant.any() and drift.leak == 0.0 and drift.flow is None:
        return None

    def velocity(x: FloatArray, t: float) -> FloatArray:
        steady = constant - drift.leak * x
        if drift.flow is None:
            return np.asarray(steady)
        if callable(drift.flow):
            return np.asarray(steady + drift.flow(x, t))
        return np.asarray(steady + at_points(tokens.lower, tokens.upper, drift.flow, drift.period, x, t))

    return velocity
