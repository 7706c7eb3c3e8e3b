"""Figures in the plane, in space and on the ring, of heads with three axes, and the observables by axis."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanfield_pde.arrays import FloatArray
from meanfield_pde.cli.compare import observables_of
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, cell_averages
from meanfield_pde.output.plots_heads import axis_names, head_figures
from meanfield_pde.output.plots_panels import angles, costate_values, marginal
from meanfield_pde.output.plots_tokens import token_figures
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import parse_problem

EMPTY = np.empty(0)
HEAD = """
kind = "tokens"
attention = "softmax"
title = "tokens that nobody moved"
heads = { family = "scalar", points = [[0.1, 0.1]] }
depth = {}
"""
MEAN, COVARIANCE = np.array([0.4, -0.3, 0.2]), np.array([[0.25, 0.05, -0.02], [0.05, 0.2, 0.04], [-0.02, 0.04, 0.15]])


def problem_in(dim: int) -> Problem:
    low, high, cells = [-2.8] * dim, [4.8, 2.8, 2.8][:dim], [20, 14, 15][:dim]
    law = f"mean = {MEAN[:dim].tolist()}, covariance = {COVARIANCE[:dim, :dim].tolist()}"
    sequence = f"{{ initial = {{ law = 'gaussian', {law} }} }}"
    return parse_problem(
        f"{HEAD}tokens = {{ lower = {low}, upper = {high}, cells = {cells} }}\nsequences = [{sequence}, {sequence}]"
    )


def law_of(grid: Grid, shift: float) -> FloatArray:
    """Cell averages of the Gaussian of the problem, moved along the first axis."""
    mean = MEAN[: grid.dim].copy()
    mean[0] += shift
    covariance = tuple(map(tuple, COVARIANCE[: grid.dim, : grid.dim].tolist()))
    return cell_averages(Gaussian(tuple(mean.tolist()), covariance), grid, Path())[0]


@cache
def moved(dim: int) -> Solution:
    """Two sequences at three depths, the second twice as far."""
    problem = problem_in(dim)
    assert problem.tokens is not None
    grid = problem.tokens.grid()
    mu = np.stack([np.stack([law_of(grid, k * t) for k in (1.0, 2.0)]) for t in (0.0, 0.4, 0.8)])
    names = ("sequences[0]", "sequences[1]")
    return Solution(problem, "finished", None, {}, EMPTY, EMPTY, np.array([0.0, 0.4, 0.8]), mu, EMPTY, EMPTY, names)


def grid_of(solution: Solution) -> Grid:
    assert solution.token_grid is not None
    return solution.token_grid


def shown_in(panel: Any) -> Any:
    """The values of the heat map of a panel, (axis x, axis y)."""
    values = np.ma.masked_array(panel.collections[0].get_array())
    mesh = panel.collections[0].get_coordinates()
    return values.reshape(mesh.shape[0] - 1, mesh.shape[1] - 1).T


def test_the_plane_has_a_row_a_sequence_and_a_column_a_depth_on_one_scale() -> None:
    solution = moved(2)
    ((name, figure),) = token_figures(solution)
    assert name == "mu"
    panels = figure.axes[:6]
    for k, panel in enumerate(panels):
        row, column = divmod(k, 3)
        np.testing.assert_allclose(shown_in(panel), solution.mu[column, row], rtol=1e-12, atol=1e-300)
        assert panel.get_aspect() == 1.0
    assert len({panel.collections[0].get_clim() for panel in panels}) == 1
    assert [panel.get_title() for panel in panels] == ["t = 0", "t = 0.4", "t = 0.8", "", "", ""]
    assert panels[3].get_ylabel() == "sequences[1]\ntoken x1"
    assert panels[3].get_xlabel() == "token x0"
    # what is cut off holds next to nothing
    (left, right), (low, high) = panels[0].get_xlim(), panels[0].get_ylim()
    x, y = grid_of(solution).points().T
    outside = (x < left) | (x > right) | (y < low) | (y > high)
    assert 0.0 < (solution.mu[:, :, outside.reshape(grid_of(solution).cells)]).max() < 1e-3 * solution.mu.max()


def test_the_costate_in_the_plane_has_mean_zero_and_is_hidden_where_no_token_is() -> None:
    solution = moved(2)
    grid = grid_of(solution)
    x, y = grid.points().T
    p = (x + 2.0 * y**2 + 7.0).reshape(grid.cells)
    with_costate = replace(solution, costate_t=np.array([0.0, 0.8]), p=np.tile(p, (2, 2, 1, 1)))
    figure = dict(token_figures(with_costate))["p"]
    panels = figure.axes[:4]
    for k, panel in enumerate(panels):
        row, column = divmod(k, 2)
        mu, values = solution.mu[-column, row], shown_in(panel)
        np.testing.assert_array_equal(np.ma.getmaskarray(values), mu <= 1e-3 * mu.max())
        # moments of the Gaussian: E x + 2 E y² with the spread of cells, which cell averages have
        mean = MEAN[0] + (row + 1) * 0.8 * column + 2.0 * (MEAN[1] ** 2 + 0.2 + grid.spacing[1] ** 2 / 12.0) + 7.0
        np.testing.assert_allclose(values.compressed(), (p - mean)[~np.ma.getmaskarray(values)], atol=1e-5)
    ((low, high),) = {panel.collections[0].get_clim() for panel in panels}
    assert low == -high


def test_a_costate_that_is_the_same_everywhere_has_a_scale() -> None:
    grid = Grid((-1.0, -1.0), (1.0, 1.0), (4, 4), (False, False))
    values, top = costate_values(np.full((4, 4), 3.0), np.full((4, 4), 0.25), grid)
    assert top == 1.0
    np.testing.assert_array_equal(values, 0.0)


def test_space_is_shown_by_marginals_on_pairs_of_axes() -> None:
    solution = moved(3)
    ((name, figure),) = token_figures(solution)
    assert name == "mu"
    panels, flat = figure.axes[:12], problem_in(3).tokens
    assert flat is not None
    for k, panel in enumerate(panels):
        row, column = divmod(k, 6)
        kept = [(0, 1), (0, 2), (1, 2)][column // 2]
        grid = grid_of(solution)
        chosen = list(kept)
        # a marginal of a Gaussian is the Gaussian of those axes
        pair = Grid(*(tuple(of[a] for a in kept) for of in (grid.lower, grid.upper, grid.cells, grid.periodic)))
        mean = MEAN + np.array([(row + 1) * 0.8 * (column % 2), 0.0, 0.0])
        law = Gaussian(tuple(mean[chosen].tolist()), tuple(map(tuple, COVARIANCE[np.ix_(kept, kept)].tolist())))
        # as far as the law reaches out of the box
        np.testing.assert_allclose(shown_in(panel), cell_averages(law, pair, Path())[0], atol=1e-6)
    assert [panel.get_title() for panel in panels[:2]] == ["t = 0", "t = 0.8"]
    assert [panel.get_xlabel() for panel in panels[6:]] == ["token x0"] * 4 + ["token x1"] * 2
    assert len({panel.collections[0].get_clim() for panel in panels}) == 1
    assert len({round(panel.get_xlim()[1] - panel.get_xlim()[0], 9) for panel in panels}) == 1


@pytest.mark.parametrize("dim", [2, 3])
def test_no_depth_in_several_axes_is_one_column_a_law(dim: int) -> None:
    solution = moved(dim)
    ((_, figure),) = token_figures(replace(solution, depth_t=np.zeros(2), mu=solution.mu[:2]))
    assert "nothing moves" in figure.get_suptitle()
    assert {panel.get_title() for panel in figure.axes} == {"t = 0", ""}


def test_a_ring_of_angles_is_shown_from_minus_pi_to_pi_wherever_its_box_begins() -> None:
    problem = parse_problem(
        "kind = 'tokens'\ntokens = { lower = [0.0], upper = [6.283185307179586], cells = [24], periodic = [true], "
        "drift = { constant = [1.0] } }\ndepth = {}\n"
        "sequences = [{ initial = { law = 'gaussian', mean = [2.0], covariance = [[0.2]] } }]"
    )
    assert problem.tokens is not None
    grid = problem.tokens.grid()
    x, order = angles(grid, 0)
    np.testing.assert_allclose(x, -np.pi + (np.arange(24) + 0.5) * np.pi / 12.0, atol=1e-14)
    np.testing.assert_allclose(np.cos(x), np.cos(grid.centers(0)[order]), atol=1e-14)
    mu = np.tile((1.0 + np.sin(grid.centers(0))) / (2.0 * np.pi), (2, 1, 1))
    solution = Solution(problem, "finished", None, {}, EMPTY, EMPTY, np.array([0.0, 1.0]), mu, EMPTY, EMPTY, ("one",))
    ((_, figure),) = token_figures(solution)
    panel = figure.axes[0]
    assert panel.get_ylim() == pytest.approx((-np.pi, np.pi))
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["−π", "−π/2", "0", "π/2", "π"]
    assert "angle" in panel.get_ylabel()
    np.testing.assert_allclose(shown_in(panel)[0], (1.0 + np.sin(x)) / (2.0 * np.pi), atol=1e-14)
    ((_, still),) = token_figures(replace(solution, depth_t=np.zeros(2)))
    np.testing.assert_allclose(still.axes[0].lines[0].get_ydata(), (1.0 + np.sin(x)) / (2.0 * np.pi), atol=1e-14)
    assert still.axes[0].get_xlim() == pytest.approx((-np.pi, np.pi))


def rotation_solution() -> Solution:
    """Rotation heads on a box with phi on a ring, at two training times in three layers; no token was moved."""
    problem = parse_problem(f"""
kind = "training"
attention = "softmax"
tokens = {{ lower = [-5.0, -5.0], upper = [5.0, 5.0], cells = [24, 24] }}
sequences = [{{ initial = {{ law = "gaussian", mean = [0.0, 0.0], covariance = [[0.4, 0.0], [0.0, 0.4]] }} }}]
objective = {{ kind = "potential", potential = {{ kind = "polynomial", coefficients = [0.0, 1.0] }} }}
heads = {{ family = "rotation", lower = [-2.0, -3.0, 0.0], upper = [2.0, 3.0, {2 * np.pi!r}], cells = [8, 10, 12], \
periodic = [false, false, true], initial = {{ law = "gaussian", mean = [0.0, 0.0, 3.0], \
covariance = [[0.05, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.3]] }} }}
depth = {{ layers = 3, shared = false }}
training = {{ beta = 0.1, ds = 0.1, s_end = 1.0 }}
""")
    assert problem.heads is not None
    grid = problem.heads.grid()
    w, a, phi = (grid.centers(k) for k in range(3))
    parts = np.exp(-(w**2)), np.exp(-((a - 0.5) ** 2)), 1.0 + 0.9 * np.sin(phi)
    rho = parts[0][:, None, None] * parts[1][None, :, None] * parts[2]
    tilted = rho * np.exp(0.4 * w[:, None, None] * a[None, :, None])
    snapshots = np.stack([np.stack([law] * 3) for law in (rho / grid.integral(rho), tilted / grid.integral(tilted))])
    return Solution(problem, "finished", None, {}, np.array([0.0, 1.0]), snapshots, EMPTY, EMPTY, EMPTY, EMPTY)


def test_three_axes_of_heads_are_a_square_of_marginals() -> None:
    solution = rotation_solution()
    grid = solution.head_grid
    assert grid is not None
    named = dict(head_figures(solution))
    assert list(named) == ["rho", "rho_layers"]
    assert axis_names(solution, grid) == ("value w", "score a", "angle phi")
    panels = np.array(named["rho"].axes[:9]).reshape(3, 3)
    first, last = solution.snapshots[0, 0], solution.snapshots[1, 0]
    h = grid.spacing
    # lines of both times on the diagonal, w and a as they stand, phi from −π to π
    np.testing.assert_allclose(panels[0, 0].lines[0].get_ydata(), first.sum(axis=(1, 2)) * h[1] * h[2], rtol=1e-13)
    np.testing.assert_allclose(panels[1, 1].lines[1].get_ydata(), last.sum(axis=(0, 2)) * h[0] * h[2], rtol=1e-13)
    x, values = panels[2, 2].lines[0].get_data()
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(values, (1.0 + 0.9 * np.sin(x)) / (2.0 * np.pi), rtol=1e-12)
    # pairs: the first law above the diagonal with its axes swapped, the last below it, over the larger of the two
    before, after = first.sum(axis=2) * h[2], last.sum(axis=2) * h[2]
    top = max(before.max(), after.max())
    np.testing.assert_allclose(shown_in(panels[0, 1]).T, before / top, rtol=1e-12)
    np.testing.assert_allclose(shown_in(panels[1, 0]), after / top, rtol=1e-12)
    assert [panel.get_xlabel() for panel in panels[2]] == ["value w", "score a", "angle phi"]
    assert [panel.get_ylabel() for panel in panels[:, 0]] == ["marginal", "score a", "angle phi"]
    assert [tick.get_text() for tick in panels[2, 2].get_xticklabels()] == ["−π", "−π/2", "0", "π/2", "π"]
    assert panels[2, 0].get_ylim() == pytest.approx((-np.pi, np.pi))
    assert "above the diagonal: s = 0, below: s = 1" in named["rho"].get_suptitle()
    assert "layer 1 of 3" in named["rho_layers"].get_suptitle()
    assert "the layers are the same" in named["rho_layers"].get_suptitle()
    # one layer of three shifted to 1.02 times its law and another to 0.98 times
    scaled = solution.snapshots * np.array([1.02, 1.0, 0.98])[:, None, None, None]
    told = dict(head_figures(replace(solution, snapshots=scaled)))["rho_layers"].get_suptitle()
    assert "part from their mean by 2 % of" in told


def test_marginals_keep_their_mass_and_their_axes() -> None:
    rng = np.random.default_rng(1)
    grid = Grid((0.0, 0.0, 0.0, 0.0), (1.0, 2.0, 3.0, 4.0), (4, 5, 6, 7), (False,) * 4)
    rho = rng.uniform(size=(2, *grid.cells))
    pair = marginal(rho, grid, (1, 3))
    assert pair.shape == (2, 5, 7)
    np.testing.assert_allclose(pair, np.einsum("bijkl->bjl", rho) * 0.25 * 0.5, rtol=1e-13)
    np.testing.assert_allclose(marginal(rho, grid, (0, 1, 2, 3)), rho, rtol=1e-15)


@pytest.mark.parametrize("dim", [2, 3])
def test_observables_by_axis_are_those_of_the_law(dim: int) -> None:
    found = observables_of(moved(dim), -1)
    expected = {f"mean_b1_{i}": MEAN[i] + 1.6 * (i == 0) for i in range(dim)}
    expected |= {f"covariance_b1_{i}{j}": COVARIANCE[i, j] for i in range(dim) for j in range(i, dim)}
    assert {name for name in found if "_b1_" in name} == set(expected)
    # the box is wide enough for the law to six digits
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-5)
    assert found["mean_b0_0"] == pytest.approx(MEAN[0] + 0.8, abs=2e-5)


def test_observables_of_training_in_the_plane_name_the_axes_of_tokens() -> None:
    solution = rotation_solution()
    grid = grid_of(solution)
    law = law_of(grid, 0.0)
    found = observables_of(replace(solution, depth_t=np.zeros(1), mu=law[None, None]))
    assert found["token_mean_1"] == pytest.approx(MEAN[1], abs=2e-5)
    assert found["token_covariance_01"] == pytest.approx(COVARIANCE[0, 1], abs=2e-5)
    assert "token_variance" not in found
    assert "covariance_02" in found


def test_a_table_is_called_inaccurate_by_what_tables_of_its_dimension_are_made_for() -> None:
    # made for 1e-8 in the plane and 1e-6 in space, and told of at ten times that
    for dim, error, told in ((2, 9e-9, False), (2, 2e-7, True), (3, 9e-7, False), (3, 2e-5, True)):
        warned = replace(moved(dim), history={"table_error": np.array([error])}).warnings
        assert any("softmax table is accurate to" in text for text in warned) == told
