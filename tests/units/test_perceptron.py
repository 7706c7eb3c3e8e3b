"""Perceptron heads: their velocity and transposes by plain loops, on a line, in the plane and on the circle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.equations.grid_tokens import grid_lattice
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian
from meanfield_pde.model import perceptron
from meanfield_pde.model.attention import Attention, assemble_field
from meanfield_pde.model.field import Target
from meanfield_pde.model.perceptron import PerceptronField, heads_at
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Depth, Heads, Problem, Sequence, Tokens

RNG = np.random.default_rng(2)
GRIDS = {
    "line": Grid((-2.0,), (3.0,), (17,), (False,)),
    "plane": Grid((-1.0, -2.0), (1.0, 2.0), (7, 6), (False, False)),
    "circle": Grid((-np.pi,), (np.pi,), (12,), (True,)),
}


def loops(place: str, grid: Grid, theta: np.ndarray) -> list[np.ndarray]:
    """v of each head at the faces of each axis, (K, faces)."""
    d = 1 if place == "line" else 2
    out = []
    for axis in range(grid.dim):
        rows = []
        for w, a, c in ((t[:d], t[d : 2 * d], t[2 * d]) for t in theta):
            row = []
            for point in grid.face_points(axis):
                x = np.array([np.cos(point[0]), np.sin(point[0])]) if place == "circle" else point
                speed = w * np.tanh(a @ x + c)
                row.append(speed[1] * x[0] - speed[0] * x[1] if place == "circle" else speed[axis])
            rows.append(row)
        out.append(np.array(rows))
    return out


def built(grid: Grid, theta: np.ndarray, weights: np.ndarray) -> PerceptronField:
    kind = Attention("none")
    lattice = grid_lattice(grid, kind)
    targets = tuple(Target(grid.face_points(axis), axis) for axis in range(grid.dim))
    found = assemble_field(kind, lattice, targets, heads_at("perceptron", theta, lattice.dim), weights, None)
    assert isinstance(found, PerceptronField)
    return found


@pytest.mark.parametrize("block", [1, 2**20])
@pytest.mark.parametrize("place", GRIDS)
def test_velocity_and_transposes_are_those_of_plain_loops(
    place: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perceptron, "BLOCK", block)
    grid = GRIDS[place]
    theta = RNG.normal(size=(6, 3 if place == "line" else 5))
    theta[4, -2:] = theta[1, -2:]  # heads that share part of what they look at, and all of it
    theta[5] = theta[2]
    theta[5, 0] = 0.3
    weights = RNG.uniform(0.1, 1.0, 6)
    found, wanted = built(grid, theta, weights), loops(place, grid, theta)
    laws = RNG.uniform(0.5, 1.0, (2, grid.size))
    moments = found.moments(laws)
    gs = tuple(RNG.normal(size=(2, rows.shape[1])) for rows in wanted)
    for v, rows in zip(found.velocity(moments), wanted, strict=True):
        np.testing.assert_allclose(v, np.tile(weights @ rows, (2, 1)), rtol=0, atol=1e-14)
    in_rho = sum(rows @ g.sum(axis=0) for rows, g in zip(wanted, gs, strict=True))
    np.testing.assert_allclose(found.to_rho(gs, moments), in_rho, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(found.to_mu(gs, moments), np.zeros_like(laws))
    bound = found.heads.speed(weights, 0.0)
    assert max(np.abs(weights @ rows).max() for rows in wanted) <= bound


def test_a_theta_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(MeanFieldError, match=r"axes \('w', 'a', 'c'\), so theta needs 3 columns, not 5"):
        heads_at("perceptron", np.zeros((2, 5)), 1)


def problem(family: str, attention: str | None, points: tuple[tuple[float, ...], ...]) -> Problem:
    return Problem(
        kind="tokens",
        attention=attention,
        tokens=Tokens((-4.0,), (4.0,), (48,)),
        heads=Heads(family=family, points=points),
        depth=Depth(T=0.3),
        sequences=(Sequence(Gaussian((0.2,), ((0.3,),))),),
    )


def test_perceptrons_and_attention_do_not_mix() -> None:
    with pytest.raises(MeanFieldError, match="set attention = 'none'"):
        problem("perceptron", "softmax", ((1.0, 1.0, 0.0),))
    with pytest.raises(MeanFieldError, match=r"attention = 'none' needs heads\.family = 'perceptron'"):
        problem("scalar", "none", ((1.0, 1.0),))
    with pytest.raises(MeanFieldError, match=r"heads\.points\[0\] .* must have 3 entries"):
        problem("perceptron", "none", ((1.0, 1.0),))
    # five axes in the plane: points only
    with pytest.raises(MeanFieldError, match="1 to 4 are covered"):
        Problem(
            kind="tokens",
            attention="none",
            tokens=Tokens((-1.0, -1.0), (1.0, 1.0), (12, 12)),
            heads=Heads("perceptron", (-1.0,) * 5, (1.0,) * 5, (4,) * 5, (), Gaussian((0.0,) * 5, ((1.0,),))),
            depth=Depth(),
            sequences=(Sequence(Gaussian((0.0, 0.0), ((0.01, 0.0), (0.0, 0.01)))),),
        )


def test_a_constant_perceptron_is_a_drift() -> None:
    # a = 0: v = w tanh(c)
    solution = solve(problem("perceptron", "none", ((0.9, 0.0, 0.4),)))
    grid = solution.token_grid
    assert grid is not None
    moved = grid.measure(solution.mu[-1, 0]).mean()[0]
    assert moved == pytest.approx(0.2 + 0.3 * 0.9 * np.tanh(0.4), abs=1e-5)
    split = replace(solution.problem, heads=Heads("perceptron", points=((0.4, 0.0, 0.4), (1.4, 0.0, 0.4))))
    np.testing.assert_allclose(solve(split).mu[-1], solution.mu[-1], rtol=0, atol=1e-14)
