"""Trajectories written by torch's own attention, and our residual network from their first tokens on: the same."""

from __future__ import annotations

from importlib.resources import files
from math import pi
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.of_problem import particle_tokens
from meanfield_pde.particles.tokens import ParticleTokens, carry
from meanfield_pde.problem import Problem
from meanfield_pde.training.assemble import assemble


def read(name: str) -> dict[str, np.ndarray]:
    with np.load(str(files("meanfield_pde.data") / "particles" / f"{name}.npz")) as arrays:
        return {key: arrays[key] for key in arrays.files}


def stated(name: str, **more: Any) -> tuple[Problem, ParticleTokens, dict[str, np.ndarray]]:
    problem, _ = library.get(f"torch_{name}")
    return problem, particle_tokens(problem, **more), read(name)


@pytest.mark.parametrize(("name", "tolerance", "bound"), [("gauss1", 1e-12, 6e-13), ("line", 1e-12, 2e-13)])
def test_tokens_on_a_line_end_where_torch_s_do(name: str, tolerance: float, bound: float) -> None:
    problem, tokens, data = stated(name, tolerance=tolerance)
    assert problem.depth is not None
    start = Measure.particles(data["tokens"][0])
    run = carry(tokens, start, problem.depth.T, problem.depth.layers, "euler", tuple(data["t"].tolist()))
    assert np.abs(run.x - data["tokens"]).max() <= bound
    assert run.table_error is not None
    assert run.table_error <= tolerance
    assert np.abs(run.x[0] - run.x[-1]).max() > 0.3


@pytest.mark.parametrize(("way", "bound"), [("table", 3e-13), ("direct", 2e-14)])
def test_tokens_in_the_plane_end_where_torch_s_do(way: str, bound: float) -> None:
    # by direct sums a quarter of the depth, from one snapshot to the next
    problem, tokens, data = stated("plane", way=way, tolerance=1e-12)
    assert problem.depth is not None
    first, layers = (0, 100) if way == "table" else (2, 25)
    start, times = Measure.particles(data["tokens"][first]), tuple((data["t"][first:] - data["t"][first]).tolist())
    times = times if way == "table" else times[:2]
    run = carry(tokens, start, times[-1], layers, "euler", times)
    assert problem.depth.layers == 100
    assert np.abs(run.x - data["tokens"][first : first + len(times)]).max() <= bound
    assert np.abs(run.x[-1] - run.x[0]).max() > 0.02
    assert (run.table_error is None) == (way == "direct")
    assert run.table_error is None or 0.0 < run.table_error <= 1e-12


@pytest.mark.parametrize("way", ["table", "direct"])
def test_tokens_on_the_circle_end_where_torch_s_do(way: str) -> None:
    problem, tokens, data = stated("circle", way=way, tolerance=1e-13)
    assert problem.depth is not None
    start = Measure.particles(data["angles"][0][:, None])
    run = carry(tokens, start, problem.depth.T, problem.depth.layers, "renormalised", tuple(data["t"].tolist()))
    apart = np.abs(run.x[:, :, 0] - data["angles"])
    assert np.minimum(apart, 2.0 * pi - apart).max() <= 5e-13
    assert (run.table_error is None) == (way == "direct")
    # a step without the projection is another one, and seen to be
    other = carry(tokens, start, 0.5, problem.depth.layers // 6, "renormalised-whole").x[-1, :, 0]
    assert np.abs(other - data["angles"][1]).max() > 1e-4


def test_the_other_transpose_of_the_scores_is_seen() -> None:
    # scores of the file are <x, A y>: its A is the transpose of ours
    problem, _, data = stated("plane")
    assert problem.heads is not None
    scores, values = data["A"].transpose(0, 2, 1), data["W"]
    made = particle_tokens(problem).made[0]
    assert isinstance(made, HeadMatrices)
    ours = made.scores
    np.testing.assert_allclose(np.sort(ours.ravel()), np.sort(scores.ravel()), rtol=1e-14)
    for a, exact in ((scores, True), (data["A"], False)):
        theta = np.concatenate([values.reshape(12, 4), a.reshape(12, 4)], axis=1)
        tokens = ParticleTokens("softmax", "matrix", (Measure.particles(theta),), dim=2, tolerance=1e-12)
        moved = carry(tokens, Measure.particles(data["tokens"][0]), 0.25, 25).x[-1]
        gap = np.abs(moved - data["tokens"][1]).max()
        assert gap <= 3e-13 if exact else gap > 1e-3


@pytest.mark.parametrize(("name", "moments"), [("gauss1", 1e-6), ("line", 1e-6), ("circle", 5e-6)])
def test_the_grids_of_the_set_ups_are_fine_enough(name: str, moments: float) -> None:
    problem, exact = library.get(f"torch_{name}")
    assert problem.tokens is not None
    found = []
    for factor in (1.0, 1.5):
        cells = (int(factor * problem.tokens.cells[0]),)
        one, _ = library.get(f"torch_{name}", cells=cells[0], layers=1)
        ready = assemble(one, threads=1)
        assert ready.tokens is not None
        assert ready.fixed_heads is not None
        assert ready.token_grid is not None
        grid = ready.token_grid
        masses = ready.tokens.forward(ready.fixed_heads).final[0] * grid.cell_volume
        if name == "circle":
            mode = np.exp(1j * grid.points()[:, 0]) @ masses / np.sinc(1.0 / grid.cells[0])
            found.append([mode.real, mode.imag])
        else:
            law = Measure(grid.points(), masses, np.array(grid.spacing))
            found.append([law.mean()[0], law.covariance()[0, 0]])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=moments)
    if exact is not None:
        wanted = exact.observables(1.0)
        np.testing.assert_allclose(found[0], [wanted["mean_b0"], wanted["variance_b0"]], rtol=0, atol=moments)


@pytest.mark.parametrize("name", ["gauss1", "line", "plane", "circle"])
def test_the_first_tokens_are_drawn_from_the_laws_that_the_problems_state(name: str) -> None:
    # characteristic functions at a few low frequencies, within 4 deviations of the mean of N draws
    problem, _, data = stated(name)
    assert problem.tokens is not None
    first = data["angles"][0][:, None] if name == "circle" else data["tokens"][0]
    ready = assemble(problem, threads=1) if name != "plane" else None
    grid = problem.tokens.grid()
    if ready is None:
        from meanfield_pde.sequences import sequence_batch

        mu = sequence_batch(problem, grid).mu[0]
    else:
        assert ready.batch is not None
        mu = ready.batch.mu[0]
    for k in [*np.eye(grid.dim).tolist(), [1.0] * grid.dim, [2.0] * grid.dim]:
        wanted = np.exp(1j * grid.points() @ np.array(k)) @ mu.ravel() * grid.cell_volume
        found = np.exp(1j * first @ np.array(k)).mean()
        assert abs(found - wanted) <= 4.0 / len(first) ** 0.5
