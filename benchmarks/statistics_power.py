"""What the diagnosis by smooth statistics calls a fault, where there are no first tokens to compare.

Fresh tokens in each run, by our own particles with each fault; prediction and noise from independent right runs of 500
tokens, effects from 2000 other tokens. Prints a markdown table, rows what was planted, columns what it was called.
Run: python benchmarks/statistics_power.py [heun_plane | torch_line] [TOKENS] [RUNS]
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from meanfield_pde import library
from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import Alternative, alternatives_of
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.problem import Problem
from meanfield_pde.validation.effects import INITIAL, effects_of
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.smooth_statistics import cosine, moment, sine
from meanfield_pde.validation.statistical_diagnosis import diagnose_by_statistics

Array = np.ndarray
STEPS = {"heun_plane": ("heun", 8), "torch_line": ("euler", 200)}
TIMES, SMALL, NULL, NONE = (0.0, 0.5, 1.0), 500, 300, "none of these"
AXES = {"heun_plane": 2, "torch_line": 1}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "heun_plane"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    problem, _ = library.get(name)
    motion = Motion(particle_tokens(problem), *STEPS[name])
    units = np.eye(AXES[name])
    statistics = (
        *(moment(k) for k in range(len(units))), *(moment(j, k) for j in range(len(units)) for k in range(j + 1)),
        *(wave(tuple(row)) for row in units.tolist() for wave in (cosine, sine)),
    )  # fmt: skip

    def observed(motion: Motion, count: int, seed: int, initial: str = "") -> Array:
        start = initial_tokens(problem, count, seed=seed)
        x = start.points.copy()
        if initial == "shift":
            x[:, 0] += 0.15
        elif initial:
            x = x.mean(axis=0) + 1.15 * (x - x.mean(axis=0))
        run = motion.run(Measure.particles(x), 1.0, TIMES)
        return np.array([one.function(y).mean() for y in run.x for one in statistics])

    null = np.stack([observed(motion, SMALL, 10**6 + k) for k in range(NULL)])
    mean, covariance = null.mean(axis=0), np.cov(null.T) * (SMALL / count + 1.0 / NULL)
    effects = effects_of(motion, initial_tokens(problem, 2000, seed=10**7), 1.0, TIMES, statistics)
    names = tuple(dict.fromkeys(one.name for one in effects))
    print(f"{name}, {count} tokens, {runs} runs\n\n| planted | " + " | ".join((*names, NONE)) + " |")
    print("|---" * (len(names) + 2) + "|")
    for row, (label, one, initial) in enumerate(faults(problem, motion)):
        called = Counter[str]()
        for run in range(runs):
            wrong = Motion(motion.model, motion.integrator, motion.layers, one)
            difference = observed(wrong, count, 1000 * row + run, initial) - mean
            best = diagnose_by_statistics(difference, covariance, effects).best
            called[NONE if best is None else best.name] += 1
        cells = [str(called[n] or "") for n in (*names, NONE)]
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def faults(problem: Problem, motion: Motion) -> list[tuple[str, Alternative | None, str]]:
    """Words, the alternative, and what is done to the first tokens."""
    out: list[tuple[str, Alternative | None, str]] = []
    for one in alternatives_of(motion.model, motion.integrator):
        values = (1.1, 1.3) if one.value is not None else (None,)
        out += [(one.name if c is None else f"{one.name} {c}", one if c is None else one.at(c), "") for c in values]
    return [*out, (f"{INITIAL}: shift .15", None, "shift"), (f"{INITIAL}: stretch 1.15", None, "stretch")]


if __name__ == "__main__":
    main()
