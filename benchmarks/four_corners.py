"""The four corners of the square on one problem: what N tokens and H heads err by, along its edges.

The problem is `gaussian_coupled` with rk4 layers, so that only N and H count: heads stay Gaussian, N(eta, C), and in
the limit of the explicit steps of noisy gradient descent eta ← M eta − ds c1 e_w, C ← M C Mᵀ + 2 β ds I with
M = I − ds(λI + c2 J) and c1, c2 of docs/mathematics.md 5.2. Errors are root mean squares over seeds at s = 1, against
that limit where heads are points and against the run on grids where they are not. The slopes are −½.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from meanfield_pde import library, solve
from meanfield_pde.problem import Particles, Problem

EDGES = {"N tokens, rho": ("tokens",), "mu and p, H heads": ("heads",), "N tokens, H heads": ("tokens", "heads")}


def problem(sides: tuple[str, ...], count: int, seed: int) -> Problem:
    whole = library.get("gaussian_coupled")[0]
    training = replace(given(whole.training), order=1 if "heads" in sides else 2)
    particles = Particles(count, count, 8, "rk4", sides=sides) if sides else None
    return replace(whole, training=training, particles=particles, seed=seed, output=replace(whole.output, snapshots=2))


def given(section):
    assert section is not None
    return section


def values(one: Problem) -> np.ndarray:
    """Loss and the mean (w, a) of the heads at s = 1."""
    solution = solve(one, threads=1)
    if solution.heads_are_points:
        mean = solution.rho[0].mean(axis=0)
    else:
        grid = given(solution.head_grid)
        mean = (solution.rho.ravel() * grid.cell_volume) @ grid.points()
    return np.array([solution.history["loss"][-1], *mean])


def limit_of_steps(whole: Problem) -> np.ndarray:
    """Loss and mean of infinitely many heads after explicit steps, by the closed recursion."""
    m0, s0, b, keys = 0.5, 0.4, 1.0, given(whole.training)
    eta, C, J = np.array([0.2, 0.3]), 0.04 * np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])

    def tokens() -> tuple[float, float]:
        s = s0 / (1.0 - 2.0 * (C[0, 1] + eta[0] * eta[1]) * s0)
        return m0 * np.exp(eta[0]) * np.sqrt(s / s0), s

    for _ in range(round(keys.s_end / keys.ds)):
        m, s = tokens()
        c1, c2 = m * (m - b), s * m * (m - b) + s * s
        M = np.eye(2) - keys.ds * (keys.weight_decay * np.eye(2) + c2 * J)
        eta = M @ eta - keys.ds * c1 * np.array([1.0, 0.0])
        C = M @ C @ M.T + 2.0 * keys.beta * keys.ds * np.eye(2)
    m, s = tokens()
    return np.array([0.5 * ((m - b) ** 2 + s), *eta])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    grids, steps = values(problem((), 1, 0)), limit_of_steps(problem((), 1, 0))
    print(f"mu, p and rho on grids: loss {grids[0]:.6f}, mean of the heads ({grids[1]:.5f}, {grids[2]:.5f})")
    print(f"limit of the explicit steps less that: {steps[0] - grids[0]:.1e}, ({steps[1] - grids[1]:.1e}, "
          f"{steps[2] - grids[2]:.1e})\n")  # fmt: skip
    print(f"{'':20}" + "".join(f"{size:>10}" for size in options.sizes) + "     slope")
    for name, sides in EDGES.items():
        known = steps if "heads" in sides else grids
        errors = np.array([
            [values(problem(sides, size, seed)) - known for seed in range(options.seeds)] for size in options.sizes
        ])
        loss = np.sqrt((errors[:, :, 0] ** 2).mean(axis=1))
        mean = np.sqrt((errors[:, :, 1:] ** 2).sum(axis=2).mean(axis=1))
        for what, row in (("loss", loss), ("mean of the heads", mean)):
            slope = np.polyfit(np.log(options.sizes), np.log(row), 1)[0]
            print(f"{name:20}" + "".join(f"{value:10.1e}" for value in row) + f"{slope:10.2f}  {what}", flush=True)


if __name__ == "__main__":
    main()
