from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanfield_pde.cli.compare import comparison, observables_of
from meanfield_pde.laws import Gaussian, cell_averages, head_samples
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import parse_problem

EMPTY = np.empty(0)
MEAN, COVARIANCE = (0.2, -0.3), ((0.09, 0.02), (0.02, 0.06))


@dataclass
class Known:
    """An exact solution of one's own."""

    numbers: dict[str, float]
    mu: Any = None
    rho: Any = None

    def observables(self, time: float) -> dict[str, float]:
        return {name: value + time for name, value in self.numbers.items()}


@pytest.fixture
def problem(write: Any) -> Problem:
    text = write(("cells = [20]", "cells = [80]"), ("cells = [12, 12]", "cells = [48, 48]")).read_text("utf-8")
    return parse_problem(text)


@pytest.fixture
def trained(problem: Problem) -> Solution:
    assert problem.heads is not None
    assert problem.tokens is not None
    rho = head_samples(Gaussian(MEAN, COVARIANCE), problem.heads.grid())
    mu = cell_averages(Gaussian((0.7,), ((0.5,),)), problem.tokens.grid(), Path())[0]
    history = {"s": np.array([0.0, 0.1, 0.2]), "loss": np.array([3.0, 2.0, 1.0]), "free_energy": np.arange(3.0)}
    # two layers of opposite means: their average has the mean 0 and the square of the mean in its covariance
    layers = np.stack([rho, rho[::-1, ::-1]])
    snapshots = np.stack([np.stack([rho, rho]), layers])
    return Solution(problem, "finished", None, history, np.array([0.1, 0.2]), snapshots, np.array([0.0, 1.0]),
                    np.stack([mu, mu])[:, None], EMPTY, EMPTY)  # fmt: skip


def test_observables_of_training_are_moments_of_the_laws(trained: Solution) -> None:
    first = observables_of(trained, 0)
    assert first["loss"] == 2.0
    assert first["free_energy"] == 1.0
    for i in range(2):
        assert first[f"mean_{i}"] == pytest.approx(MEAN[i], abs=1e-9)
        for j in range(i, 2):
            assert first[f"covariance_{i}{j}"] == pytest.approx(COVARIANCE[i][j], abs=1e-9)
    # mu is that of the last heads, so it says nothing of earlier times
    assert "token_mean" not in first
    last = observables_of(trained)
    assert last["loss"] == 1.0
    assert last["mean_0"] == pytest.approx(0.0, abs=1e-9)
    assert last["covariance_01"] == pytest.approx(0.02 + MEAN[0] * MEAN[1], abs=1e-9)
    assert last["token_mean"] == pytest.approx(0.7, abs=1e-9)
    # the variance of the law itself, not of its cell averages (which is larger by h²/12 = 2e-3)
    assert last["token_variance"] == pytest.approx(0.5, abs=1e-7)


def test_a_time_that_was_not_recorded_has_no_loss(trained: Solution) -> None:
    trained.snapshot_s[0] = 0.15
    assert "loss" not in observables_of(trained, 0)


def test_comparison_pairs_what_both_know(trained: Solution) -> None:
    shifted = np.array(trained.snapshots[-1])
    shifted[1, 0, 0] += 1.0
    exact = Known({"loss": 0.5, "unheard": 1.0, "mean_0": -0.2}, rho=lambda s, grid: shifted)
    rows = {row["quantity"]: row for row in comparison(trained, exact)}
    assert list(rows) == ["loss", "mean_0", "rho_l1"]
    assert rows["loss"] == {"quantity": "loss", "computed": 1.0, "exact": 0.7, "error": pytest.approx(0.3)}
    assert rows["mean_0"]["error"] == pytest.approx(0.0, abs=1e-9)
    # the worst layer: one cell of (4.4/48)² with a density off by 1
    assert rows["rho_l1"]["error"] == pytest.approx((4.4 / 48) ** 2, rel=1e-9)


def test_tokens_are_compared_sequence_by_sequence_at_depth(problem: Problem) -> None:
    text = """
kind = "tokens"
attention = "softmax"
tokens = { lower = [-5.0], upper = [5.0], cells = [64] }
heads = { family = "scalar", points = [[0.5, 0.5]] }
depth = {}
sequences = [{ initial = { law = "gaussian", mean = [0.5], covariance = [[0.4]] } }]
"""
    tokens = parse_problem(text)
    assert tokens.tokens is not None
    grid = tokens.tokens.grid()
    laws = np.stack([cell_averages(Gaussian((m,), ((0.3,),)), grid, Path())[0] for m in (0.4, -0.6)])
    solution = Solution(tokens, "finished", None, {}, EMPTY, EMPTY, np.array([0.0, 1.0]), np.stack([laws, laws]),
                        EMPTY, EMPTY)  # fmt: skip
    moved = laws.copy()
    moved[1, 10] += 2.0
    exact = Known({"mean_b0": -0.6, "mean_b1": -1.6, "variance_b1": -0.7}, mu=lambda t, grid: moved)
    rows = {row["quantity"]: row for row in comparison(solution, exact)}
    assert list(rows) == ["mean_b0", "mean_b1", "variance_b1", "mu_l1"]
    for name in ("mean_b0", "mean_b1", "variance_b1"):
        assert rows[name]["error"] == pytest.approx(0.0, abs=1e-7)
    assert rows["mu_l1"]["computed"] == pytest.approx(2.0 * grid.cell_volume, rel=1e-9)
