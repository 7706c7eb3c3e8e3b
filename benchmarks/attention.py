"""Tabulated against direct attention on a line, in one run: error, time, ratio.

A two-bump law on [-4, 4] in 1024 cells, 64 x 64 scalar heads with |a| <= 2, so that keys reach |z| <= 8; velocity at
1023 faces. The direct kernel scores each distinct a once with a polynomial exponential. The matrix M of the table
depends on the heads only, and its build is counted once per 50 stages.
Cost model: direct n · faces · a exponentials (67 M); a stage of the table 2 q (2 n + faces) flops (0.8 M at q = 128).
Run: python benchmarks/attention.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Mixture, cell_averages
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.model.softmax_direct import DirectField
from meanfield_pde.model.softmax_table import SIZES, SoftmaxTable, TabulatedField, table_reach


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """Median wall time of a call after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare(stages_per_build: int = 50) -> dict[str, float]:
    """Times and errors of both fields on the same law and heads, on one thread."""
    grid = Grid((-4.0,), (4.0,), (1024,), (False,))
    bumps = Mixture((0.5, 0.5), (Gaussian((-1.0,), ((0.09,),)), Gaussian((1.2,), ((0.04,),))))
    weights = cell_averages(bumps, grid)[0][None] * grid.cell_volume
    heads_grid = Grid((-2.0, -2.0), (2.0, 2.0), (64, 64), (False, False))
    theta = heads_grid.points()
    rho = np.exp(-((theta - 0.3) ** 2).sum(axis=1))
    rho /= rho.sum()
    heads = head_matrices("scalar", theta, 1)
    targets = (Target(grid.face_points(0), 0),)

    direct = DirectField(heads, rho, targets, grid.points(), np.array(grid.spacing))
    exact = direct.velocity(weights)[0]
    direct_seconds = median_seconds(lambda: direct.velocity(weights), 5)

    reach = table_reach(heads, targets)
    for size in SIZES:
        table = SoftmaxTable.build(grid.centers(0), grid.spacing[0], reach, size)
        field = TabulatedField.assemble(table, heads, rho, targets)
        error = float(np.abs(field.velocity(field.moments(weights))[0] - exact).max() / np.abs(exact).max())
        if error <= 1e-10:
            break
    build_seconds = median_seconds(lambda: TabulatedField.assemble(table, heads, rho, targets), 20)
    stage_seconds = median_seconds(lambda: field.velocity(field.moments(weights)), 200)
    return {
        "exponentials": float(grid.size * len(targets[0].points) * len(heads.scores)),
        "direct_ms": 1e3 * direct_seconds,
        "direct_giga_exp_per_second": grid.size * len(targets[0].points) * len(heads.scores) / direct_seconds / 1e9,
        "table_nodes": float(size),
        "table_error": error,
        "build_ms": 1e3 * build_seconds,
        "stage_ms": 1e3 * stage_seconds,
        "ratio": direct_seconds / (stage_seconds + build_seconds / stages_per_build),
    }


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        print(json.dumps(compare(), indent=2))
