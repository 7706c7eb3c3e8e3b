"""How often the limit verdict rejects runs with a planted fault, beside the power it predicts, and what it names.

40 fresh runs a fault, with seeds from the operating system: N = 8000 on `torch_line`, and on `heun_plane`, whose A
are not normal and whose W are not symmetric. The diagnosis is that by statistics alone: the first tokens
are not used.
Run: python benchmarks/limit_power.py [--quick]
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import (
    AXIS,
    FROZEN,
    ORDER_1,
    SCORE,
    SUM,
    TRANSPOSE_A,
    TRANSPOSE_W,
    VALUE,
    Alternative,
)
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.validation.effects import Effect, effects_of
from meanfield_pde.validation.limit_verdict import limit_verdict
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.own_runs import ParticleCode, paired_tokens
from meanfield_pde.validation.sampling_noise import Prepared, prepare
from meanfield_pde.validation.statistical_diagnosis import diagnose_by_statistics

LEVEL = 0.05


class Planted(NamedTuple):
    """A fault: another motion, or first tokens that are shifted by deviations and stretched."""

    name: str
    motion: Alternative | None = None
    shift: float = 0.0
    stretch: float = 1.0


class Case(NamedTuple):
    """A problem with its code, times and faults."""

    problem: str
    code: ParticleCode
    times: tuple[float, ...]
    faults: tuple[Planted, ...]


RIGHT = Planted("nothing")
INITIAL = (Planted("initial law", shift=0.1), Planted("initial law", stretch=1.05))
CASES = (
    Case(
        "torch_line",
        ParticleCode(8000, 200, "euler"),
        (0.0, 0.25, 0.5, 0.75, 1.0),
        (RIGHT, Planted("score scale", SCORE.at(1.1)), Planted("value scale", VALUE.at(1.1)),
         Planted("missing 1/H", SUM), Planted("wrong axis", AXIS), *INITIAL),
    ),
    Case(
        "heun_plane",
        ParticleCode(8000, 8, "heun"),
        (0.0, 0.5, 1.0),
        (RIGHT, Planted("score scale", SCORE.at(1.5)), Planted("value scale", VALUE.at(1.3)),
         Planted("transpose of A", TRANSPOSE_A), Planted("transpose of W", TRANSPOSE_W), Planted("missing 1/H", SUM),
         Planted("wrong axis", AXIS), Planted("frozen softmax", FROZEN), Planted("order-1 integrator", ORDER_1),
         *INITIAL),
    ),
)  # fmt: skip


def start_of(tokens: Measure, fault: Planted) -> Measure:
    """First tokens, moved along the first axis and stretched from their law's mean."""
    x = tokens.points
    mean, first = x.mean(axis=0), np.eye(x.shape[1])[0]
    return Measure.particles(mean + fault.stretch * (x - mean) + fault.shift * x.std(axis=0) * first)


def predicted_power(ready: Prepared, case: Case, fault: Planted) -> float:
    """Of the smooth statistics, from the change by the fault on paired tokens."""
    problem, _ = library.get(case.problem)
    model, tokens = particle_tokens(problem), paired_tokens(problem, case.code)
    right = Motion(model, case.code.integrator, case.code.layers)
    wrong = Motion(model, case.code.integrator, case.code.layers, fault.motion)
    one = wrong.run(start_of(tokens, fault), 1.0, case.times).x
    change = ready.observed.smooth(one) - ready.observed.smooth(right.run(tokens, 1.0, case.times).x)
    noise = ready.noise
    return noise.maximum.power(change[noise.judged] / noise.deviations[noise.judged], LEVEL)


def measure(case: Case, fault: Planted, ready: Prepared, effects: tuple[Effect, ...], fresh: int) -> dict[str, object]:
    """The share rejected by own runs, by the central limit, and the names found."""
    problem, _ = library.get(case.problem)
    model, noise = particle_tokens(problem), ready.noise
    motion = Motion(model, case.code.integrator, case.code.layers, fault.motion)

    def one(seed: int) -> tuple[bool, bool, str]:
        start = start_of(initial_tokens(problem, case.code.count, seed=seed), fault)
        found = ready.observed.read(motion.run(start, 1.0, case.times).x)
        verdict = limit_verdict(noise, found, LEVEL)
        difference = (found.smooth - noise.center)[noise.judged]
        named = "" if verdict.passed else diagnose_by_statistics(difference, noise.covariance, effects).fits[0].name
        return not verdict.passed, verdict.p_clt is not None and verdict.p_clt <= LEVEL, named

    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(one, [secrets.randbits(48) for _ in range(fresh)]))
    return {
        "problem": case.problem,
        "fault": fault.name,
        "runs": fresh,
        "rejected": sum(row[0] for row in rows),
        "rejected_clt": sum(row[1] for row in rows),
        "predicted_power": round(predicted_power(ready, case, fault), 3),
        "named": dict(Counter(row[2] for row in rows if row[0])),
    }


if __name__ == "__main__":
    fresh, own = (4, 39) if "--quick" in sys.argv else (40, 399)
    with threadpool_limits(limits=1, user_api="blas"):
        for case in CASES:
            begun = time.perf_counter()
            problem, _ = library.get(case.problem)
            times = np.array(case.times)
            ready = prepare(problem, case.code, times, 1, own, threads=2, stream=secrets.randbits(32))
            motion = Motion(particle_tokens(problem), case.code.integrator, case.code.layers)
            tokens = paired_tokens(problem, case.code)
            effects = effects_of(motion, tokens, 1.0, case.times, ready.observed.statistics)
            effects = tuple(one.among(ready.noise.judged) for one in effects)
            for fault in case.faults:
                print(json.dumps(measure(case, fault, ready, effects, fresh)), flush=True)
            print(json.dumps({"problem": case.problem, "seconds": round(time.perf_counter() - begun)}), flush=True)
