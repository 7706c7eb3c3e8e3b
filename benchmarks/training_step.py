"""What one training step costs beside one forward solve, in one run.

`gaussian_coupled` at 128 token cells, 64 x 64 heads, Courant number .5. A gradient is a forward sweep, its transpose
(each stage about as dear as a stage forward) and one build of the table rows; a step of order 2 takes two of them.
Run: python benchmarks/training_step.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.training.assemble import assemble


def interleaved_medians(calls: dict[str, Callable[[], object]], repeats: int = 60) -> dict[str, float]:
    """Median wall time of each call, taken in turns so that a busy machine slows them alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(series) for name, series in times.items()}


def measure() -> dict[str, float]:
    """Milliseconds of a forward solve, and the ratios of a gradient and of steps of order 1 and 2 to it."""
    problem, _ = library.get("gaussian_coupled", cells=128, head_cells=64, cfl=0.5)
    ready = assemble(problem, threads=1)
    second = ready.training
    first = replace(second, order=1)
    rho = ready.heads.measure(ready.state.rho)
    moment = second.moment(ready.state)

    def step(training: object) -> object:
        return training.moment(replace(ready.state, rho=training.step(moment, 0.05)[0]))

    found = interleaved_medians(
        {
            "forward": lambda: ready.tokens.forward(rho),
            "gradient": lambda: ready.tokens.first_variation(rho),
            "order_1": lambda: step(first),
            "order_2": lambda: step(second),
        }
    )
    forward = found.pop("forward")
    return {"forward_ms": 1e3 * forward, **{f"{name}_over_forward": value / forward for name, value in found.items()}}


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        print(json.dumps(measure(), indent=2))
