"""Softmax attention in the plane against direct sums in one run, and the memory of a gradient in space.

Plane: a two-bump law on [-2, 2]² in 64² cells under 32 x 32 scalar heads, |a| <= 2; one velocity at the faces of both
axes by the way that the cost model chooses, axis by axis. Then 48 rotation heads (6 scales, 8 angles) by one matrix,
built once per 30 stages. The direct kernel scores each distinct A once with a polynomial exponential.
Cost model: direct n · faces · n_A exponentials (1.06 G for the 32 scales); axis by axis 4 n n_A 128 multiply-adds
(67 M); matrix q² faces a stage.
Space: forward and backward of one law on 32³ cells under one full 3 x 3 head, peak resident memory of a fresh process.
Run: python benchmarks/attention_plane.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from attention import median_seconds
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Mixture, cell_averages
from meanfield_pde.model.attention import Attention, assemble_field, make_table, plan_means
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices, head_matrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.softmax_direct import DirectField
from meanfield_pde.model.softmax_table import table_reach
from meanfield_pde.training.assemble import assemble

SOFTMAX = Attention()


def compare(heads: HeadMatrices, rho: np.ndarray, stages_per_build: int = 30) -> dict[str, float | str]:
    """Times and error of the chosen way and of direct sums on the same law and heads, on one thread."""
    grid = Grid((-2.0, -2.0), (2.0, 2.0), (64, 64), (False, False))
    one, two = Gaussian((-0.5, 0.2), ((0.09, 0.0), (0.0, 0.12))), Gaussian((0.6, -0.3), ((0.06, 0.02), (0.02, 0.1)))
    weights = cell_averages(Mixture((0.5, 0.5), (one, two)), grid)[0].reshape(1, -1) * grid.cell_volume
    weights[weights < 1e-13 * weights.max()] = 0.0
    lattice = Lattice(tuple(grid.centers(k) for k in range(2)), np.array(grid.spacing))
    targets = tuple(Target(grid.face_points(k), k, grid.face_axes(k)) for k in range(2))

    direct = DirectField(heads, rho, targets, lattice.points, lattice.widths)
    exact = direct.velocity(weights)
    direct_seconds = median_seconds(lambda: direct.velocity(weights), 3)
    plan = plan_means(SOFTMAX, lattice, targets, heads, 1, 1, 1e-8)
    out: dict[str, float | str] = {"way": plan.way}
    build_seconds = 0.0
    field = None
    for size in plan.sizes or (0,):
        table = make_table(plan.way, lattice, table_reach(heads, targets), size) if size else None
        field = assemble_field(SOFTMAX, lattice, targets, heads, rho, table)
        found = field.velocity(field.moments(weights))
        error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, exact, strict=True))
        if error <= 1e-8:
            break
    assert field is not None
    if table is not None:
        out["table_nodes_an_axis"] = float(size)
        build_seconds = median_seconds(lambda: assemble_field(SOFTMAX, lattice, targets, heads, rho, table), 3)
    stage_seconds = median_seconds(lambda: field.velocity(field.moments(weights)), 20)
    exponentials = float(grid.size * sum(len(t.points) for t in targets) * len(heads.scores))
    return out | {
        "exponentials": exponentials,
        "direct_ms": 1e3 * direct_seconds,
        "direct_giga_exp_per_second": exponentials / direct_seconds / 1e9,
        "error": error,
        "build_ms": 1e3 * build_seconds,
        "stage_ms": 1e3 * stage_seconds,
        "ratio": direct_seconds / (stage_seconds + build_seconds / stages_per_build),
    }


def plane() -> dict[str, dict[str, float | str]]:
    """Scalar and rotation heads."""
    theta = Grid((-2.0, -2.0), (2.0, 2.0), (32, 32), (False, False)).points()
    rho = np.exp(-((theta - 0.3) ** 2).sum(axis=1))
    axes = (np.array([0.7]), np.linspace(0.25, 1.5, 6), np.arange(8) * np.pi / 4)
    turned = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=1)
    return {
        "scalar 32 x 32": compare(head_matrices("scalar", theta, 2), rho / rho.sum()),
        "rotation 6 x 8": compare(head_matrices("rotation", turned, 2), np.full(48, 1 / 48)),
    }


def peak_gib() -> float:
    """Peak resident memory of this process since it started (that of getrusage counts the parent's)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(status["VmHWM"].split()[0]) / 2**20


def space() -> dict[str, float]:
    """One gradient on 32³ cells, and the memory it takes in a process of its own."""
    ready = assemble(library.get("softmax_space")[0], threads=1)
    assert ready.tokens is not None
    assert ready.fixed_heads is not None
    before = peak_gib()

    def gradient() -> None:
        sweep = ready.tokens.forward(ready.fixed_heads)
        ready.tokens.backward(sweep, np.ones_like(sweep.final))

    return {"gradient_seconds": median_seconds(gradient, 1), "peak_gib": peak_gib(), "before_gib": before}


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        if sys.argv[1:] == ["space"]:
            print(json.dumps(space()))
        else:
            found = plane()
            fresh = [sys.executable, os.path.abspath(__file__), "space"]
            run = subprocess.run(fresh, check=True, capture_output=True, text=True)
            print(json.dumps({**found, "space 32 x 32 x 32": json.loads(run.stdout)}, indent=2))
