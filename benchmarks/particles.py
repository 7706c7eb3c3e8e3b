"""Tokens direct and tabulated, on one thread: rate of the direct kernel, memory, ratio and difference.

On a line 20 000 tokens i.i.d. from N(0, 1) and 16 softmax heads a ~ N(1, .25), w ~ N(-.6, .16): one evaluation of the
velocity, that is one layer of a residual network. Direct N² 16 = 6.4e9 exponentials; the table q N exponentials and
about q (2 N + 16 q) multiply-adds. On the circle and in the plane whole runs of the set-ups `torch_circle`
(1500 tokens, one head, 600 layers) and `torch_plane` (2000 tokens, 12 heads, 100 layers).
Run: python benchmarks/particles.py
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.particles.of_problem import run_tokens
from meanfield_pde.particles.table import line_velocity
from meanfield_pde.particles.tokens import Trajectory
from meanfield_pde.particles.velocity import attention_velocity

TOKENS, HEADS, TOLERANCE = 20_000, 16, 1e-10


def processor_seconds(call: Callable[[], object], repeats: int) -> float:
    """The least time of the processor: others' work on it makes some of the repeats longer."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def compare() -> dict[str, float]:
    """Times and difference of both ways on the same tokens and heads."""
    rng = np.random.default_rng(0)
    x, masses = rng.normal(size=(TOKENS, 1)), np.full(TOKENS, 1.0 / TOKENS)
    heads = head_matrices("scalar", np.stack([rng.normal(-0.6, 0.4, HEADS), rng.normal(1.0, 0.5, HEADS)], axis=1), 1)
    rho = np.full(HEADS, 1.0 / HEADS)

    def direct() -> np.ndarray:
        return attention_velocity("softmax", heads, rho, x, masses, x)

    def tabulated() -> tuple[np.ndarray, float]:
        return line_velocity(heads, rho, x, masses, x, TOLERANCE)

    attention_velocity("softmax", heads, rho, x, masses, x[:10])  # compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    exact = direct()
    found, error = tabulated()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    direct_seconds, table_seconds = processor_seconds(direct, 5), processor_seconds(tabulated, 21)
    return {
        "direct_seconds": direct_seconds,
        "direct_giga_exp_per_second": TOKENS**2 * HEADS / direct_seconds / 1e9,
        "table_ms": 1e3 * table_seconds,
        "ratio": direct_seconds / table_seconds,
        "table_error": error,
        "difference": float(np.abs(found - exact).max() / np.abs(exact).max()),
        "memory_mb": memory / 1024.0,
        "memory_of_the_sums_mb": (memory - before) / 1024.0,
    }


def runs(name: str, count: int) -> dict[str, float]:
    """Times of a run of a library problem both ways, drawing included, and how far apart its tokens end."""
    problem, _ = library.get(name)
    assert problem.depth is not None
    assert problem.particles.integrator is not None
    layers, integrator = problem.depth.layers, problem.particles.integrator
    assert layers is not None

    def run(way: str) -> Trajectory:
        return run_tokens(problem, count, layers, integrator, seed=1, way=way)

    exact, found = run("direct"), run("auto")
    assert found.table_error is not None
    direct_seconds = processor_seconds(lambda: run("direct"), 3)
    table_seconds = processor_seconds(lambda: run("auto"), 9)
    return {
        "direct_seconds": direct_seconds,
        "table_seconds": table_seconds,
        "ratio": direct_seconds / table_seconds,
        "table_error": found.table_error,
        "difference": float(np.abs(found.x[-1] - exact.x[-1]).max()),
    }


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        rows = {"line": compare(), "circle": runs("torch_circle", 1500), "plane": runs("torch_plane", 2000)}
        print(json.dumps(rows, indent=2))
