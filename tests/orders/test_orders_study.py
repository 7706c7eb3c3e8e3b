"""The study of orders: on A1, on a scheme that lies about its order, and without an exact solution."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm as norm_law

from meanfield_pde import library
from meanfield_pde.equations.schemes import SCHEMES, Linear
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Mixture
from meanfield_pde.problem import Problem
from meanfield_pde.studies import order_runs
from meanfield_pde.studies.orders import orders

KEYS = {"problem", "flow", "scheme", "norm", "n", "errors", "orders", "fitted", "declared", "short", "seconds",
        "reference"}  # fmt: skip
# fitted over 128..512, the depth step refined with h
STRICT = {"upwind1": 0.95, "muscl-minmod": 1.75, "muscl-mc": 1.9, "muscl-vanleer": 1.9, "muscl-vanalbada": 1.9}


@cache
def a1(norm: str = "L1") -> dict[str, dict[str, Any]]:
    """A1 with w = -1, a = .8, m0 = .3, s0 = .49, T = 1 on [-6, 6]: rows of errors over 64..512 by scheme."""
    problem, exact = library.get("softmax_gaussian")
    assert problem.tokens is not None
    assert (problem.tokens.lower, problem.tokens.upper) == ((-6.0,), (6.0,))
    assert exact is not None
    assert exact.observables(0.0) == {"mean_b0": 0.3, "variance_b0": pytest.approx(0.49, rel=1e-14)}
    rows = orders(problem, exact, name="a1")["rows"]
    return {row["scheme"]: row for row in rows if row["norm"] == norm}


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_has_its_order(name: str) -> None:
    row = a1()[name]
    assert set(row) >= KEYS
    assert (row["problem"], row["flow"], row["reference"]) == ("a1", "mu", "exact")
    assert row["declared"] == SCHEMES[name].order
    assert row["n"] == [64, 128, 256, 512]
    finest = -np.polyfit(np.log(row["n"][1:]), np.log(row["errors"][1:]), 1)[0]
    if name == "muscl-minmod":
        # it clips the extremum, which 64 cells do not resolve
        assert finest >= row["declared"] - 0.25
    else:
        assert row["fitted"] >= row["declared"] - 0.15
    assert not row["short"]
    if name in STRICT:
        assert finest >= STRICT[name]
    if row["declared"] == 5:
        assert min(row["orders"][1:]) >= 4.8
        assert row["errors"][-1] <= 2e-8


@pytest.mark.parametrize("name", SCHEMES)
def test_in_the_wasserstein_distance_the_order_is_there_from_64_cells_on(name: str) -> None:
    row = a1("W1")[name]
    assert row["fitted"] >= STRICT.get(name, row["declared"] - 0.2)


def test_the_wasserstein_row_is_that_of_the_final_law() -> None:
    """By hand from the quantile functions: W1 = ∫ |F⁻¹(q) - G⁻¹(q)| dq on 64 cells for upwind1."""
    problem, _ = library.get("softmax_gaussian")
    law = order_runs.token_law(problem, "upwind1", 64, 64).values[0]
    variance = 0.49 / (1 + 2 * 0.8 * 0.49)
    mean = 0.3 * np.exp(-1.0) * np.sqrt(variance / 0.49)
    edges = np.linspace(-6, 6, 65)
    exact = norm_law.cdf(edges, mean, np.sqrt(variance))
    q = (np.arange(200_000) + 0.5) / 200_000
    below = np.concatenate([[0.0], np.cumsum(law) * 12 / 64])
    by_hand = np.abs(np.interp(q, below / below[-1], edges) - np.interp(q, exact, edges)).mean()
    assert a1("W1")["upwind1"]["errors"][0] == pytest.approx(by_hand, rel=5e-3)


def test_errors_are_those_of_the_final_law() -> None:
    """The first row of upwind1 by hand: L1 on 64 cells from the Gaussian of A1 at t = 1, by the midpoint rule."""
    problem, exact = library.get("softmax_gaussian")
    row = orders(problem, exact, cells=(64, 128), schemes=["upwind1"])["rows"][0]
    law = order_runs.token_law(problem, "upwind1", 64, 64).values[0]
    variance = 0.49 / (1 + 2 * 0.8 * 0.49)
    mean = 0.3 * np.exp(-1.0) * np.sqrt(variance / 0.49)
    fine = np.linspace(-6, 6, 64 * 50 + 1)
    density = np.exp(-((0.5 * (fine[1:] + fine[:-1]) - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    by_hand = np.abs(law - density.reshape(64, 50).mean(axis=1)).sum() * 12 / 64
    assert row["errors"][0] == pytest.approx(by_hand, rel=1e-3)
    assert row["orders"][0] == pytest.approx(np.log2(row["errors"][0] / row["errors"][1]), rel=1e-12)


def test_a_scheme_of_lower_order_than_declared_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pretender:
        order, width = 3, 1
        faces, cells = Linear(1).faces, Linear(1).cells

    monkeypatch.setitem(SCHEMES, "linear3", Pretender())
    problem, exact = library.get("softmax_gaussian")
    row = orders(problem, exact, cells=(32, 64, 128), schemes=["linear3"])["rows"][0]
    assert row["short"]
    assert 0.5 < row["fitted"] < 1.2


def _two_bumps() -> Problem:
    """Not Gaussian, so nothing is known of it."""
    problem, _ = library.get("softmax_gaussian")
    law = Mixture((0.6, 0.4), (Gaussian((-0.8,), ((0.3,),)), Gaussian((1.0,), ((0.2,),))))
    return replace(problem, reference=None, sequences=(replace(problem.sequences[0], initial=law),))


def test_without_an_exact_solution_grids_are_compared_with_finer_ones() -> None:
    problem = _two_bumps()
    said: list[str] = []
    two = ["linear3", "linear5"]
    rows = orders(problem, cells=(64, 128, 256), schemes=two, progress=said.append, threads=1)["rows"]
    # the longest first
    assert said[:2] == ["mu linear3: 256 cells", "mu linear5: 256 cells"]
    assert len(said) == 6
    fine = order_runs.token_law(problem, "linear5", 1024, 64).values
    for row in rows:
        assert row["reference"] == "self"
        assert row["n"] == [64, 128]
        assert row["finest"] == 256
        if row["norm"] == "L1":
            assert row["fitted"] >= row["declared"] - 0.5
            # the estimate against a far better solution
            law = order_runs.token_law(problem, row["scheme"], 256, 64)
            truth = np.abs(law.values - fine.reshape(1, 256, 4).mean(axis=2)).sum() * law.grid.cell_volume
            assert row["error_estimate"] == pytest.approx(truth, rel=0.35)


def test_gradient_of_a_training_problem() -> None:
    problem, exact = library.get("gaussian_coupled", head_cells=48)
    for known in (exact, None):
        rows = orders(problem, known, name="gaussian_coupled", cells=(48, 96, 192))["rows"]
        assert [row["scheme"] for row in rows] == ["upwind1", "linear3", "linear5", "weno5z"]
        assert {row["flow"] for row in rows} == {"gradient"}
        assert {row["norm"] for row in rows} == {"relative L1(rho)"}
        assert not any(row["short"] for row in rows)
        for row in rows:
            assert row["fitted"] >= row["declared"] - 0.15
        assert rows[2]["errors"][1] <= 2e-7
        if known is not None:
            assert rows[2]["errors"][2] <= 1e-8


def test_fokker_planck_problems() -> None:
    apart = ("L1", "Linf", "W1", "L1 interior", "L1 walls")
    for name, norms in (("ornstein_uhlenbeck", apart[:3]), ("slab", apart)):
        problem, exact = library.get(name)
        rows = orders(problem, exact, name=name, cells=(32, 64, 128))["rows"]
        assert [(row["scheme"], row["norm"]) for row in rows] == [
            (f"scharfetter-gummel-{order}", norm) for order in (1, 2) for norm in norms
        ]
        for row in rows:
            assert (row["flow"], row["declared"], row["reference"]) == ("rho", 2, "exact")
            assert row["fitted"] >= 1.9
    # known at rest alone, where the scheme is exact: it is measured on the way there
    problem, exact = library.get("double_well")
    rows = orders(problem, exact, cells=(64, 128, 256), schemes=["scharfetter-gummel-1"])["rows"]
    assert {row["reference"] for row in rows} == {"self"}
    assert all(row["fitted"] >= 1.85 for row in rows)


def test_samples_are_interpolated_exactly_for_cubics_and_around_a_ring() -> None:
    coarse, fine = (Grid((0.0, 0.0), (1.0, 2.0), cells, (False, False)) for cells in ((6, 4), (12, 8)))

    def cubic(grid: Grid) -> np.ndarray:
        x, y = grid.points().T
        return (1 + x**3 - 2 * x * y**2 + y**3).reshape(1, *grid.cells)

    np.testing.assert_allclose(order_runs.sampled(cubic(fine), fine), cubic(coarse), rtol=1e-13)
    ring = Grid((0.0,), (1.0,), (64,), (True,))
    wave = np.cos(2 * np.pi * (ring.centers(0) - 0.1))[None]
    half = np.cos(2 * np.pi * (Grid((0.0,), (1.0,), (32,), (True,)).centers(0) - 0.1))[None]
    np.testing.assert_allclose(order_runs.sampled(wave, ring), half, atol=3e-6)
    pairs = order_runs.averaged(np.arange(16.0).reshape(2, 8), 1)
    assert pairs.tolist() == [[0.5, 2.5, 4.5, 6.5], [8.5, 10.5, 12.5, 14.5]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schemes": ["weno5"]}, "did you mean 'weno5z'"),
        ({"cells": (64,)}, "at least 3 growing numbers"),
        ({"cells": (64, 96, 128)}, "each must be twice the one before"),
    ],
)
def test_what_cannot_be_compared_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(MeanFieldError, match=says):
        orders(_two_bumps(), **given)
