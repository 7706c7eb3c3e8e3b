"""Loss and gradient of 96 tokens × 128 heads × 20 layers × 4 sequences, by the table and by direct sums; a whole run.

The problem is `torch_train`: one gradient is a way there and back through all layers, for tokens and heads; the run has
81 of them. One thread.
Run: python benchmarks/particle_training.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from meanfield_pde import library, run_training
from meanfield_pde.measure import Measure
from meanfield_pde.particles.of_training import first_heads, token_side


def processor_seconds(call: Callable[[], object], repeats: int) -> float:
    """Median time of the processor, not of a clock that others' work moves too."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    problem = library.get("torch_train")[0]
    assert problem.training is not None
    assert problem.particles is not None
    particles = replace(problem.particles, sides=("tokens", "heads"))
    problem = replace(problem, training=replace(problem.training, order=1), particles=particles)
    laws = (Measure.particles(first_heads(problem)[0]),)
    table, direct = (replace(token_side(problem), way=way) for way in ("table", "direct"))
    one, other = table.first_variation(laws), direct.first_variation(laws)
    assert one.gradient is not None
    assert other.gradient is not None
    run_training(problem, seed=1)
    print(json.dumps({
        "gradient by the table, ms": 1e3 * processor_seconds(lambda: table.first_variation(laws), 21),
        "gradient by direct sums, ms": 1e3 * processor_seconds(lambda: direct.first_variation(laws), 3),
        "nodes of the table": one.report.table_size,
        "largest difference of the gradients, relative": float(
            np.abs(one.gradient - other.gradient).max() / np.abs(other.gradient).max()
        ),
        "run of 80 steps, s": processor_seconds(lambda: run_training(problem, seed=1), 3),
    }, indent=2))  # fmt: skip


if __name__ == "__main__":
    main()
