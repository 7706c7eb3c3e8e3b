"""The variance of smooth statistics over own runs against Var_{mu_0}(p_0)/N from the costate.

2000 runs of N = 500 tokens, softmax, so nonlinear in mu, on a line and in the plane, with seeds from the operating
system; mean, second moment and waves at the last time. A sample variance of 2000 runs is off by 3 % (one deviation).
Run: python benchmarks/clt_variance.py [RUNS]
"""

from __future__ import annotations

import json
import secrets
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.validation.central_limit import central_limit
from meanfield_pde.validation.limit_law import limit_law
from meanfield_pde.validation.observables import observables, predicted
from meanfield_pde.validation.own_runs import ParticleCode, own_runs

CASES = (
    ("torch_line", ParticleCode(500, 40, "rk4"), ("x1", "x1 x1", "cos", "sin")),
    ("torch_plane", ParticleCode(500, 10, "rk4"), ("x2", "x1 x1", "x1 x2", "cos")),
)


def ratios(name: str, code: ParticleCode, wanted: tuple[str, ...], runs: int, stream: int) -> dict[str, object]:
    """Sample variance over Var(p_0)/N, and the mean of the runs minus the limit in deviations, by statistic."""
    problem, _ = library.get(name)
    times = np.array([1.0])
    law = limit_law(problem, times)
    observed = observables(times, law.densities, law.grid)
    limit = central_limit(law, observed.statistics)
    found = own_runs(problem, code, observed, runs, stream=stream, threads=2).smooth
    deviations = limit.deviations(code.count)
    names = [next(s for s in (one.name for one in observed.statistics) if s.startswith(w)) for w in wanted]
    places = [[one.name for one in observed.statistics].index(name) for name in names]
    ratio = found.var(axis=0, ddof=1) / deviations**2
    off = (found.mean(axis=0) - predicted(observed, law.densities, law.grid)) / deviations
    return {
        "problem": name,
        "runs": runs,
        "tokens": code.count,
        "ratio": {n: round(float(ratio[k]), 4) for n, k in zip(names, places, strict=True)},
        "bias": {n: round(float(off[k]), 4) for n, k in zip(names, places, strict=True)},
    }


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with threadpool_limits(limits=1, user_api="blas"):
        for name, code, wanted in CASES:
            start = time.perf_counter()
            row = ratios(name, code, wanted, runs, secrets.randbits(32))
            print(json.dumps(row | {"seconds": round(time.perf_counter() - start)}), flush=True)
