"""Our own particles in the place of the foreign code: as many tokens, layers and the same integrator, drawn anew."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.measure import Measure
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.particles.tokens import ParticleTokens, Trajectory
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.observables import Found, Observables

# keeps the seeds of our runs apart from those that people give
STREAM = 0x6D65616E
# tokens on which two motions are compared, the same for both
PAIRED_TOKENS = 512
# of tables of softmax means: far below any noise of tokens
TOLERANCE = 1e-7

Said = Callable[[int, int], None]
"""Called with how many runs are done, and of how many."""


@dataclass(frozen=True, slots=True)
class ParticleCode:
    """How a particle code draws its tokens, and its heads where the problem has a law of them, and carries them."""

    count: int
    layers: int
    integrator: str
    sampling: str = "iid"
    heads: int | None = None

    def motion(self, model: ParticleTokens) -> Motion:
        """How it moves the tokens of a model."""
        return Motion(model, self.integrator, self.layers)


def own_run(problem: Problem, code: ParticleCode, times: FloatArray, seed: int) -> Trajectory:
    """One run: tokens, and heads where they are a law, are drawn by the seed."""
    start = initial_tokens(problem, code.count, seed=seed, sampling=code.sampling)
    model = particle_tokens(problem, code.heads, seed=seed, tolerance=TOLERANCE)
    return code.motion(model).run(start, given(problem.depth, "depth").T, tuple(times.tolist()))


def own_runs(
    problem: Problem,
    code: ParticleCode,
    observed: Observables,
    runs: int,
    *,
    stream: int = STREAM,
    threads: int = 1,
    said: Said | None = None,
) -> Found:
    """Smooth statistics (runs, k) and distances (runs, l) of so many independent runs of our own."""

    def one(seed: int) -> Found:
        return observed.read(own_run(problem, code, observed.times, seed).x)

    return of_seeds(one, (problem.seed, stream), runs, threads, said)


def of_seeds(one: Callable[[int], Found], stream: tuple[int, int], runs: int, threads: int, said: Said | None) -> Found:
    """What ``runs`` runs show, as rows; their seeds are made of ``stream``, so the same runs come back each time."""
    seeds = np.random.SeedSequence(stream).generate_state(runs, np.uint64)
    with ThreadPoolExecutor(threads) as pool:
        tasks = [pool.submit(one, int(seed)) for seed in seeds]
        try:
            for done, task in enumerate(as_completed(tasks), start=1):
                task.result()
                if said is not None:
                    said(done, runs)
        finally:
            # a run that fails, or a user who stops, waits for no other
            pool.shutdown(wait=False, cancel_futures=True)
    rows = [task.result() for task in tasks]
    return Found(np.array([row.smooth for row in rows]), np.array([row.distances for row in rows]))


def paired_tokens(problem: Problem, code: ParticleCode) -> Measure:
    """Quasi-random tokens on which two motions are compared."""
    return initial_tokens(problem, min(PAIRED_TOKENS, code.count), seed=STREAM, sampling="sobol")


def layer_error(problem: Problem, code: ParticleCode, observed: Observables) -> FloatArray:
    """What finitely many layers change the statistics by, (k,): the code's integrator minus rk4, on the same tokens.

    Meaning: for rk4 itself, minus rk4 with twice the layers.
    """
    T, at = given(problem.depth, "depth").T, tuple(observed.times.tolist())
    model, start = particle_tokens(problem, code.heads, seed=STREAM), paired_tokens(problem, code)
    fine = 2 * code.layers if code.integrator == "rk4" else code.layers
    exact = Motion(model, "rk4", fine).run(start, T, at)
    coarse = code.motion(model).run(start, T, at)
    return observed.smooth(coarse.x) - observed.smooth(exact.x)
