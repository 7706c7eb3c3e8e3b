"""One problem in the four corners of the square: along each edge the errors shrink like the root of the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde import library, solve
from meanfield_pde.problem import Particles, Problem, given

STEPS, DS, FEW, MANY, SEEDS = 6, 0.05, 8, 512, 12


def corner(sides: tuple[str, ...], count: int = 1, seed: int = 0) -> Problem:
    whole = library.get("gaussian_coupled")[0]
    training = replace(given(whole.training, ""), order=1 if "heads" in sides else 2, s_end=STEPS * DS, ds=DS)
    return replace(
        whole,
        reference=None,
        tokens=replace(given(whole.tokens, ""), cells=(80,)),
        heads=replace(given(whole.heads, ""), cells=(48, 48)),
        depth=replace(given(whole.depth, ""), layers=4),
        training=training,
        particles=Particles(count, count, 4, "rk4", sides=sides) if sides else None,
        output=replace(whole.output, snapshots=2),
        seed=seed,
    )


def observed(problem: Problem) -> np.ndarray:
    """Loss and mean (w, a) of the heads at the end."""
    found = solve(problem, threads=1)
    grid = found.head_grid
    if grid is None:
        return np.array([found.history["loss"][-1], *found.rho[0].mean(axis=0)])
    return np.array([found.history["loss"][-1], *((found.rho.ravel() * grid.cell_volume) @ grid.points())])


def limit_of_the_steps() -> np.ndarray:
    """Infinitely many heads and tokens under the explicit steps themselves: N(eta, C) by a recursion (5.2)."""
    eta, C, J = np.array([0.2, 0.3]), 0.04 * np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])
    for step in range(STEPS + 1):
        s = 0.4 / (1.0 - 0.8 * (C[0, 1] + eta[0] * eta[1]))
        m = 0.5 * np.exp(eta[0]) * np.sqrt(s / 0.4)
        if step == STEPS:
            return np.array([0.5 * ((m - 1.0) ** 2 + s), *eta])
        c1, c2 = m * (m - 1.0), s * m * (m - 1.0) + s * s
        M = np.eye(2) - DS * (0.5 * np.eye(2) + c2 * J)
        eta = M @ eta - DS * np.array([c1, 0.0])
        C = M @ C @ M.T + 2.0 * 0.05 * DS * np.eye(2)
    raise AssertionError


@pytest.mark.filterwarnings("ignore:.*touches the wall", "ignore:.*free energy rose")
@pytest.mark.parametrize("sides", [("tokens",), ("heads",), ("tokens", "heads")])
def test_errors_shrink_like_the_root_along_every_edge(sides: tuple[str, ...]) -> None:
    grids, steps = observed(corner(())), limit_of_the_steps()
    # explicit steps err by ds/2 times the second derivative in s
    assert np.abs(grids - steps).max() < 2e-3
    known = steps if "heads" in sides else grids
    sizes = np.array([FEW, MANY])
    errors = np.array([[observed(corner(sides, size, seed)) - known for seed in range(SEEDS)] for size in sizes])
    squares = (errors[:, :, 0] ** 2, (errors[:, :, 1:] ** 2).sum(axis=2))
    for rms in (np.sqrt(square.mean(axis=1)) for square in squares):
        slope = float(np.diff(np.log(rms))[0] / np.diff(np.log(sizes))[0])
        # the root mean square of 12 seeds is known to a fifth: 0.07 in the slope over a factor 64
        assert abs(slope + 0.5) < 0.2
    # many of both are near the limit itself
    assert np.abs(errors[1].mean(axis=0)).max() < 0.02
