"""How often identity accepts right tokens and rejects wrong ones, and what the diagnosis calls the fault.

Fresh tokens of data/problems/heun_plane.toml (N = 200) in each run, moved by whole matrices in numpy that share no line
with the package: right ones in double and in single precision, and each fault; scales 1 ± 10^u, u uniform in [−6, −.5].
Prints a markdown table, rows what was planted, columns what it was called.
Run: python benchmarks/identity_power.py [RUNS]
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np

from meanfield_pde import library
from meanfield_pde.particles.of_problem import initial_tokens
from meanfield_pde.validation.diagnosis import diagnose
from meanfield_pde.validation.identity import identity_verdict
from meanfield_pde.validation.reading import from_arrays

Array = np.ndarray
NONE = "none of these"
FAULTS = (
    "score scale", "value scale", "transpose of A", "transpose of W", "wrong axis", "missing 1/H", "frozen softmax",
    "order-1 integrator", "other steps",
)  # fmt: skip
RIGHT = ("right", "right, float32", "right, 7 digits")


def moved(x: Array, A: Array, W: Array, fault: str, layers: int = 8, kind: Any = np.float64) -> Array:
    """Tokens at t = 0, .5, 1 by Heun's method, with a fault."""
    x, A, W = x.astype(kind), A.astype(kind), W.astype(kind)
    count = 1 if fault == "missing 1/H" else len(A)
    axis = 1 if fault == "wrong axis" else 2

    def velocity(x: Array, first: Array) -> Array:
        seen = first if fault == "frozen softmax" else x
        e = np.exp(np.einsum("hij,nj,mi->hnm", A, seen, seen))
        mean = np.einsum("hnm,mi->hni", e / e.sum(axis=axis, keepdims=True), x)
        return np.asarray(np.einsum("hij,hnj->ni", W, mean) / kind(count))

    dt, kept = kind(1.0 / layers), [x]
    for k in range(layers):
        slope = velocity(x, x)
        if fault == "order-1 integrator":
            x = x + dt * slope
        else:
            x = x + dt / kind(2) * (slope + velocity(x + dt * slope, x))
        if 2 * (k + 1) % layers == 0:
            kept.append(x)
    return np.stack(kept).astype(float)


def planted(x: Array, A: Array, W: Array, fault: str, rng: np.random.Generator) -> Array:
    """The tokens of one run."""
    if fault in ("score scale", "value scale"):
        c = 1.0 + rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-6.0, -0.5)
        return moved(x, c * A if fault == "score scale" else A, c * W if fault == "value scale" else W, fault)
    if fault == "transpose of A":
        return moved(x, A.transpose(0, 2, 1), W, fault)
    if fault == "transpose of W":
        return moved(x, A, W.transpose(0, 2, 1), fault)
    layers = int(rng.choice([4, 10, 12, 16, 20, 32, 50, 64])) if fault == "other steps" else 8
    found = moved(x, A, W, fault, layers, np.float32 if "float32" in fault else np.float64)
    return np.vectorize(lambda v: float(f"{v:.7g}"))(found) if "digits" in fault else found


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    problem, _ = library.get("heun_plane")
    if problem.heads is None:
        raise SystemExit("the problem has no heads")
    theta = np.array(problem.heads.points).reshape(-1, 2, 2, 2)
    W, A = theta[:, 0], theta[:, 1]
    columns = (*FAULTS, NONE)
    print("| planted | accepted | rejected | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 3) + "|")
    worst: list[float] = []
    for row, fault in enumerate((*RIGHT, *FAULTS)):
        accepted, called = 0, Counter[str]()
        for run in range(runs):
            rng = np.random.default_rng((row, run))
            x = initial_tokens(problem, 200, seed=10_000 * row + run).points
            tokens = planted(x, A, W, fault, rng)
            data = from_arrays({"tokens": tokens, "t": np.array([0.0, 0.5, 1.0])}, problem=problem)
            verdict = identity_verdict(problem, data)
            if verdict.passed:
                accepted += 1
                worst.append(float((verdict.largest[1:] / verdict.bounds[1:]).max()))
            else:
                best = diagnose(problem, data, verdict).best
                called[NONE if best is None else best.name] += 1
        cells = [str(called[name] or "") for name in columns]
        print(f"| {fault} | {accepted} | {runs - accepted} | " + " | ".join(cells) + " |", flush=True)
    if worst:
        print(f"\nright tokens use up to {max(worst):.1e} of their bound")


if __name__ == "__main__":
    main()
