"""The law of the heads and the loss in training, at the times of a recorded run, and their noise from own runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.model.heads import axes_of
from meanfield_pde.problem import Problem, given
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.particle_runs import run_training
from meanfield_pde.validation.limit_law import HALVING, LEAST_CELLS
from meanfield_pde.validation.observables import Found, Label, Observables, observables, predicted
from meanfield_pde.validation.own_runs import STREAM, ParticleCode, Said, of_seeds
from meanfield_pde.validation.sampling_noise import FOR_EACH, RUNS, Noise, check_own, in_groups, noise_of
from meanfield_pde.validation.trajectory import Trajectory

# so many values of the loss curve are looked at: their neighbours say the same
LOSSES = 11
LOSS = "loss"


class Trained(NamedTuple):
    """rho (m, *cells) and the loss (l,) at the times they were asked for."""

    grid: Grid
    densities: FloatArray
    losses: FloatArray


@dataclass(frozen=True, slots=True)
class PreparedHeads:
    """The training in the limit, what is read off heads at the times of a trajectory, and the noise of it."""

    trained: Trained
    observed: Observables
    loss_times: FloatArray
    noise: Noise

    @property
    def grid(self) -> Grid:
        """The grid of the heads."""
        return self.trained.grid

    @property
    def densities(self) -> FloatArray:
        """The law of the heads (m, *cells) at the times."""
        return self.trained.densities

    def found(self, data: Trajectory) -> Found:
        """What the data show, the mean over their runs."""
        found = self.observed.mean(data.points)
        if data.loss is None:
            return found
        places = [int(np.abs(loss_times_of(data) - s).argmin()) for s in self.loss_times]
        return Found(np.concatenate([found.smooth, data.loss[places]]), found.distances)


def loss_times_of(data: Trajectory) -> FloatArray:
    """When the values of the loss were recorded. Raises: FileError if the data do not say."""
    if data.loss is None:
        return np.empty(0)
    if data.loss_times is None:
        raise FileError(
            f"{data.source} [loss] has {len(data.loss)} values without times: name them loss_times, or give "
            "loss_times = [0.0, …] in a file of array names"
        )
    return data.loss_times


def prepare_heads(
    problem: Problem,
    data: Trajectory,
    code: ParticleCode,
    own: int = RUNS,
    *,
    threads: int = 1,
    stream: int = STREAM,
    said: Said | None = None,
) -> PreparedHeads:
    """Train in the limit, and ``own`` times with as many particles as the code has.

    Meaning: the loss is looked at at up to 11 of its times, at steps of training.ds.
    Raises: MeanFieldError for layerwise heads, or particles that cannot be trained.
    """
    check_own(own)
    if not given(problem.depth, "depth").shared:
        raise MeanFieldError("depth.shared = false: recorded heads are compared where all layers share them")
    every = loss_times_of(data)
    keep = np.unique(np.linspace(0, len(every) - 1, LOSSES).round().astype(int)) if len(every) else np.empty(0, int)
    loss_times = every[keep]
    trained = train(problem, data.times, loss_times)
    observed = observables(data.times, trained.densities, trained.grid)
    expected = np.concatenate([predicted(observed, trained.densities, trained.grid), trained.losses])
    many = max(own, FOR_EACH * data.runs)
    found = _own_runs(problem, code, observed, loss_times, many, threads, stream, said)
    of_heads = (Label(_spelled(label.name, problem), label.time) for label in observed.smooth_labels)
    labels = (*of_heads, *(Label(LOSS, s) for s in loss_times.tolist())), observed.distance_labels
    error = _grid_error(problem, data.times, loss_times, observed, expected)
    none = np.zeros(len(expected))
    noise = noise_of(labels, expected, none, error, None, None, in_groups(found, data.runs, stream))
    return PreparedHeads(trained, observed, loss_times, noise)


def _spelled(name: str, problem: Problem) -> str:
    """The name of a statistic with the axes of the heads, such as w and a, in place of x1, x2."""
    family, tokens = given(problem.heads, "heads").family, given(problem.tokens, "tokens").grid()
    if not isinstance(family, str):
        return name
    axes = axes_of(family, 2 if tokens.dim == 1 and tokens.periodic[0] else tokens.dim)
    return re.sub(r"x(\d+)", lambda found: axes[int(found[1]) - 1], name)


def train(problem: Problem, times: FloatArray, loss_times: FloatArray) -> Trained:
    """rho and the loss in the limit at times of training."""
    with threadpool_limits(limits=1, user_api="blas"):
        ready = assemble(replace(problem, particles=None))
        asked = sorted({*times.tolist(), *loss_times.tolist()})
        rho, losses = {}, {}
        loop, state = given(ready.training, "training"), given(ready.state, "training")
        for moment in loop.run(state, max(asked), asked):
            rho[moment.state.s], losses[moment.state.s] = moment.state.rho[0], moment.variation.loss
    grid = given(ready.head_grid, "heads")
    return Trained(grid, np.array([rho[s] for s in times.tolist()]), np.array([losses[s] for s in loss_times.tolist()]))


def _own_runs(
    problem: Problem,
    code: ParticleCode,
    observed: Observables,
    loss_times: FloatArray,
    own: int,
    threads: int,
    stream: int,
    said: Said | None,
) -> Found:
    times = observed.times.tolist()

    def one(seed: int) -> Found:
        run = run_training(
            problem, code.heads, code.count, code.layers, integrator=code.integrator, sampling=code.sampling,
            seed=seed, times=times,
        )  # fmt: skip
        found = observed.read(run.theta[[int(np.abs(run.s - s).argmin()) for s in times]])
        losses = [run.loss[int(np.abs(run.loss_s - s).argmin())] for s in loss_times]
        return Found(np.concatenate([found.smooth, losses]), found.distances)

    return of_seeds(one, (problem.seed, stream), own, threads, said)


def _grid_error(
    problem: Problem, times: FloatArray, loss_times: FloatArray, observed: Observables, expected: FloatArray
) -> FloatArray | None:
    """What half the cells of both grids change, over 3; None where these are too few."""
    tokens, heads = given(problem.tokens, "tokens"), given(problem.heads, "heads")
    if min(*tokens.cells, *heads.cells) // 2 < LEAST_CELLS:
        return None
    half = replace(
        problem,
        tokens=replace(tokens, cells=tuple(n // 2 for n in tokens.cells)),
        heads=replace(heads, cells=tuple(n // 2 for n in heads.cells)),
    )
    coarse = train(half, times, loss_times)
    found = np.concatenate([predicted(observed, coarse.densities, coarse.grid), coarse.losses])
    return np.asarray(np.abs(found - expected) / HALVING)
