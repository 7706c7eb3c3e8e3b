"""The rate at which trajectories of a particle code approach the law of a grid, from files of several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import laws_at
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Problem, given
from meanfield_pde.training.assemble import assemble
from meanfield_pde.validation.circle_distances import circle_w2
from meanfield_pde.validation.distances import readable
from meanfield_pde.validation.line_distances import line_w2
from meanfield_pde.validation.line_laws import LineLaw
from meanfield_pde.validation.projections import Projections
from meanfield_pde.validation.rates import RESAMPLES, Rate, fit_rate
from meanfield_pde.validation.sliced_distances import sliced_w2
from meanfield_pde.validation.trajectory import Trajectory
from meanfield_pde.validation.trajectory_checks import check_against

# a time of the data is the one asked for up to rounding of the file
SAME_TIME = 1e-6
# cells of the second grid, along each axis, over those of the first
FINER = {1: 2.0, 2: 1.5, 3: 1.25}
NODES, WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(6))
Law = LineLaw | Projections


def trajectory_rate(
    problem: Problem,
    trajectories: Sequence[Trajectory],
    *,
    time: float | None = None,
    sizes: Sequence[float] | None = None,
    sequence: int = 0,
    floor: float | str = "grid",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    threads: int | None = None,
) -> Rate:
    """The rate of W2 (sliced in two and three dimensions) between tokens and the law of the grid, one file a size.

    Meaning: every trajectory holds independent runs at one size, by default its number N of tokens; ``sizes`` says
    others, such as numbers of layers or of heads. ``time`` is by default the last one. ``floor = "grid"`` is W2 between
    the laws of this grid and of a finer one; a residual network of L layers has an error of its own besides, which
    stays in unless "fit" finds it or a number states it.
    Raises: MeanFieldError for a problem of another kind, times that a file does not hold, and as `fit_rate`.
    """
    if problem.kind != "tokens":
        raise MeanFieldError(f"kind = '{problem.kind}': rates are those of tokens, for problems of kind = 'tokens'")
    if not trajectories:
        raise MeanFieldError("no trajectories: give one file for each size, at least two")
    for one in trajectories:
        if one.kind == "heads":
            raise MeanFieldError(f"{one.source} holds heads: rates are those of tokens; give errors to fit_rate")
        check_against(one, problem)
    at = float(trajectories[0].times[-1]) if time is None else float(time)
    taken = [one.count for one in trajectories] if sizes is None else list(sizes)
    if len(taken) != len(trajectories):
        raise MeanFieldError(f"{len(taken)} sizes for {len(trajectories)} files: give one for each")
    if sizes is None and len(set(taken)) < len(taken):
        raise MeanFieldError(
            f"the files have {taken} tokens: put runs of one number into one file (runs, snapshots, N, d), or say what "
            "differs (sizes = numbers of layers, say)"
        )
    points = [_snapshot(one, at) for one in trajectories]
    law = grid_law(problem, at, sequence, threads)
    errors = [
        np.array([_distance(x, law, w) for x, w in zip(own, one.weights, strict=True)])
        for own, one in zip(points, trajectories, strict=True)
    ]
    if floor == "grid":
        factor = FINER[given(problem.tokens, "tokens").grid().dim]
        floor = laws_apart(law, grid_law(finer(problem, factor), at, sequence, threads))
    return fit_rate(taken, errors, floor=floor, level=level, resamples=resamples, seed=seed)


def finer(problem: Problem, factor: float) -> Problem:
    """The problem on so many times as many cells an axis."""
    tokens = given(problem.tokens, "tokens")
    return replace(problem, tokens=replace(tokens, cells=tuple(round(factor * n) for n in tokens.cells)))


def grid_law(problem: Problem, time: float, sequence: int = 0, threads: int | None = None) -> Law:
    """The law of one sequence at a depth, as distances read it.

    Raises: MeanFieldError where the law has no W2 to read (walls and rings mixed).
    """
    with threadpool_limits(limits=1, user_api="blas"):
        ready = assemble(problem, threads)
        tokens = given(ready.tokens, "tokens")
        sweep = tokens.forward(given(ready.fixed_heads, "heads"))
        paths = [laws_at(tokens.transport, sweep.fields, path, np.array([time])) for path in sweep.paths]
    laws = np.concatenate(paths, axis=1)[0]
    if not 0 <= sequence < len(laws):
        raise MeanFieldError(f"sequence = {sequence}: the problem has {len(laws)}, counted from 0")
    found = readable(laws[sequence], tokens.transport.grid)
    if not isinstance(found, Law):
        raise MeanFieldError("walls and rings are mixed: W2 is not read there; give errors of your own to fit_rate")
    return found


def laws_apart(first: Law, second: Law) -> float:
    """W2 of two laws of one box on a line or a ring, or the root mean square over common directions.

    Formula: (∫_0^1 (Q_1(u) − Q_2(u))² du)^{1/2} by Gauss nodes between all levels of knots; on a ring the least over
    shifts Q_2(u + θ).
    """
    if isinstance(first, Projections) and isinstance(second, Projections):
        return float(np.sqrt(np.mean([_squared(a, b) for a, b in zip(first.laws, second.laws, strict=True)])))
    if not (isinstance(first, LineLaw) and isinstance(second, LineLaw)):
        raise MeanFieldError("two laws are compared in one number of dimensions")
    return float(np.sqrt(_squared(first, second)))


def _squared(first: LineLaw, second: LineLaw) -> float:
    breaks = np.unique(np.concatenate([[0.0, 1.0], first.cumulative, second.cumulative]))
    breaks = breaks[(breaks >= 0.0) & (breaks <= 1.0)]
    u = (0.5 * (breaks[1:] + breaks[:-1])[:, None] + np.diff(breaks)[:, None] * NODES).ravel()
    share = (np.diff(breaks)[:, None] * WEIGHTS).ravel()
    x = first.quantile(u)
    if not first.ring:
        return float(share @ (x - second.quantile(u)) ** 2)

    def cost(theta: float) -> float:
        return float(share @ (x - second.lifted(u + theta)) ** 2)

    # near laws of one box differ by a small shift of levels, and the cost is convex in it
    return float(minimize_scalar(cost, bounds=(-0.5, 0.5), method="bounded", options={"xatol": 1e-12}).fun)


def _snapshot(trajectory: Trajectory, time: float) -> FloatArray:
    nearest = float(trajectory.times[np.abs(trajectory.times - time).argmin()])
    if abs(nearest - time) > SAME_TIME * max(1.0, abs(time)):
        listed = ", ".join(f"{t:g}" for t in trajectory.times)
        raise MeanFieldError(f"{trajectory.source} has no snapshot at time {time:g}: it has those at {listed}")
    return trajectory.at(time)


def _distance(points: FloatArray, law: Law, weights: FloatArray) -> float:
    if isinstance(law, Projections):
        return sliced_w2(points, law, weights)
    return (circle_w2 if law.ring else line_w2)(points, law, weights)
