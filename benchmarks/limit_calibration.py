"""How often the limit verdict rejects runs that are right: at the level 5 %, by own runs and by the central limit.

Fresh runs of our own particles, with seeds from the operating system, are judged against one null of own runs that
shares no seed with them. On a line 1000 runs of N = 500, in the plane and on the circle 200 runs each; and on the line
800 times 4 runs together, whose mean is judged.
Run: python benchmarks/limit_calibration.py [--quick]
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.validation.limit_verdict import limit_verdict
from meanfield_pde.validation.observables import Found
from meanfield_pde.validation.own_runs import ParticleCode, own_run
from meanfield_pde.validation.sampling_noise import prepare

LEVEL = 0.05
TIMES = {"torch_line": (0.0, 0.25, 0.5, 0.75, 1.0), "torch_plane": (0.0, 0.5, 1.0), "torch_circle": (0.0, 1.5, 3.0)}
CODES = {
    "torch_line": ParticleCode(500, 40, "euler"),
    "torch_plane": ParticleCode(300, 20, "euler"),
    "torch_circle": ParticleCode(300, 60, "renormalised"),
}
# fresh runs and own runs
SIZES = {"torch_line": (1000, 1999), "torch_plane": (200, 999), "torch_circle": (200, 999)}
QUICK = {"torch_line": (100, 199), "torch_plane": (20, 99), "torch_circle": (20, 99)}


def calibrate(name: str, fresh: int, own: int, seed: int, together: int = 1) -> dict[str, float | int | str]:
    """Shares of right runs that are rejected."""
    problem, _ = library.get(name)
    code, times = CODES[name], np.array(TIMES[name])
    ready = prepare(problem, code, times, together, own, threads=2, stream=seed)
    seeds = np.random.SeedSequence(seed).generate_state(fresh * together, np.uint64).reshape(fresh, together)

    def one(row: np.ndarray) -> Found:
        return ready.observed.mean(np.stack([own_run(problem, code, times, int(s)).x for s in row]))

    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(one, seeds)
        verdicts = [limit_verdict(ready.noise, found, LEVEL) for found in runs]
    by_clt = [v.p_clt is not None and v.p_clt <= LEVEL for v in verdicts]
    ratio = verdicts[0].variance_ratio
    return {
        "problem": name,
        "tokens": code.count,
        "runs": fresh,
        "together": together,
        "own_runs": own,
        "rejected": float(np.mean([not v.passed for v in verdicts])),
        "rejected_clt": float(np.mean(by_clt)),
        "variance_low": float("nan") if ratio is None else ratio[0],
        "variance_high": float("nan") if ratio is None else ratio[1],
        "bias": verdicts[0].bias,
    }


if __name__ == "__main__":
    sizes = QUICK if "--quick" in sys.argv else SIZES
    seed = secrets.randbits(32)
    with threadpool_limits(limits=1, user_api="blas"):
        rows = [(name, fresh, own, 1) for name, (fresh, own) in sizes.items()]
        rows.append(("torch_line", 4 * sizes["torch_line"][0] // 5, sizes["torch_line"][1], 4))
        for name, fresh, own, together in rows:
            start = time.perf_counter()
            row = calibrate(name, fresh, own, seed, together)
            print(json.dumps(row | {"seed": seed, "seconds": round(time.perf_counter() - start, 1)}), flush=True)
