"""Trajectories with a planted fault, made by our own particles: the files right.npz and wrong_*.npz of data/particles.

500 tokens i.i.d. from the law of data/problems/heun_plane.toml, carried as the problem says and once for each fault.
Run: python benchmarks/planted_faults.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from meanfield_pde import library
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
from meanfield_pde.problem import Problem
from meanfield_pde.validation.motion import Motion

TIMES = (0.0, 0.5, 1.0)
FAULTS: dict[str, Alternative | None] = {
    "right": None,
    "wrong_score": SCORE.at(1.1),
    "wrong_value": VALUE.at(1.1),
    "wrong_transpose_a": TRANSPOSE_A,
    "wrong_transpose_w": TRANSPOSE_W,
    "wrong_axis": AXIS,
    "wrong_sum": SUM,
    "wrong_frozen": FROZEN,
    "wrong_order": ORDER_1,
}


def planted(problem: Problem, alternative: Alternative | None, seed: int, layers: int = 8) -> dict[str, np.ndarray]:
    """Arrays of one run with fresh tokens."""
    start = initial_tokens(problem, 500, seed=seed)
    run = Motion(particle_tokens(problem), "heun", layers, alternative).run(start, 1.0, TIMES)
    return {"tokens": run.x, "t": run.t}


def main() -> None:
    folder = Path(sys.argv[1])
    problem, _ = library.get("heun_plane")
    runs = {name: planted(problem, one, 17) for name, one in FAULTS.items()}
    runs["wrong_layers"] = planted(problem, None, 17, layers=16)
    for name, arrays in runs.items():
        np.savez_compressed(folder / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main()
