"""The classics of transport: their laws by quadrature, their exact solutions, what the schemes make of them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import dblquad, quad, solve_ivp

from meanfield_pde import library, solve
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_classics import JiangShu, SinePower, SlottedDisk, classic_masses, jiang_shu_integral
from meanfield_pde.laws import Uniform, cell_averages, check_law, head_samples

# ---- the initial laws --------------------------------------------------------------------------------------------


def composite(x: float) -> float:
    """The wave of Jiang and Shu (1996), as its formula says."""
    d, z, a, alpha = 0.005, -0.7, 0.5, 10.0
    root = np.log(2.0) / (36 * d * d)

    def bell(c: float) -> float:
        return float(np.exp(-root * (x - c) ** 2))

    def half(c: float) -> float:
        return float(np.sqrt(max(1.0 - alpha**2 * (x - c) ** 2, 0.0)))

    if -0.8 <= x <= -0.6:
        return (bell(z - d) + bell(z + d) + 4 * bell(z)) / 6
    if -0.4 <= x <= -0.2:
        return 1.0
    if 0.0 <= x <= 0.2:
        return 1.0 - abs(10.0 * (x - 0.1))
    return (half(a - d) + half(a + d) + 4 * half(a)) / 6 if 0.4 <= x <= 0.6 else 0.0


def test_the_composite_wave_is_integrated_exactly() -> None:
    corners = [-0.8, -0.6, -0.4, -0.2, 0.0, 0.1, 0.2, 0.4, 0.595, 0.6]
    for low, high in ((-1.0, -0.71), (-0.35, 0.03), (0.06, 0.17), (0.41, 0.58), (-1.0, 1.0)):
        inside = [c for c in corners if low < c < high] or None
        expected = quad(composite, low, high, points=inside, limit=800)[0]
        found = float(np.diff(jiang_shu_integral(np.array([low, high])))[0])
        assert found == pytest.approx(expected, abs=1e-9)
    grid = Grid((0.0,), (4.0,), (40,), (True,))
    masses = classic_masses(JiangShu(), grid)
    assert masses.sum() == pytest.approx(1.0, abs=1e-15)
    # moved by whole cells it is the same wave, wrapped
    np.testing.assert_allclose(classic_masses(JiangShu(), grid, 0.7), np.roll(masses, 7), rtol=0, atol=1e-14)
    np.testing.assert_allclose(classic_masses(JiangShu(), grid, -8.3), np.roll(masses, -83), rtol=0, atol=1e-14)


@pytest.mark.parametrize("power", [2, 4, 6])
def test_a_power_of_a_sine_is_integrated_exactly(power: int) -> None:
    grid = Grid((-1.0,), (1.0,), (9,), (True,))
    edges = grid.edges(0)
    whole = quad(lambda x: np.sin(np.pi * x) ** power, -1.0, 1.0)[0]
    for shift in (0.0, 0.13):
        moved = edges - shift
        expected = [quad(lambda x: np.sin(np.pi * x) ** power, a, b)[0] / whole for a, b in pairwise(moved)]
        np.testing.assert_allclose(classic_masses(SinePower(power), grid, shift), expected, rtol=0, atol=1e-13)


def test_the_slotted_disk_has_its_area_and_corners() -> None:
    disk = SlottedDisk((0.1, 0.2), 0.5, 0.2, 0.3)
    grid = Grid((-0.5, -0.4), (0.7, 0.8), (12, 10), (False, False))
    masses = classic_masses(disk, grid)
    slot = quad(lambda x: 0.3 + np.sqrt(0.25 - x * x), -0.1, 0.1)[0]
    area = np.pi * 0.25 - slot
    # a cell inside, one in the slot, and one cut by the circle
    full = grid.cell_volume / area

    def at(x: float, y: float) -> float:
        return float(masses[int((x + 0.5) / 0.1), int((y + 0.4) / 0.12)])

    assert at(0.35, 0.2) == pytest.approx(full, rel=2e-5)
    assert at(0.15, 0.02) == 0.0
    i, j = 9, 7
    (x0, x1), (y0, y1) = grid.edges(0)[[i, i + 1]], grid.edges(1)[[j, j + 1]]
    part = dblquad(lambda y, x: float((x - 0.1) ** 2 + (y - 0.2) ** 2 < 0.25), x0, x1, y0, y1, epsabs=1e-5)[0]
    assert 0.0 < part < grid.cell_volume
    assert masses[i, j] == pytest.approx(part / area, abs=1e-3 * full)
    assert masses.sum() == pytest.approx(1.0, abs=1e-14)
    with pytest.raises(MeanFieldError, match=r"reaches beyond \[-0.5, 0.5\] on axis 0"):
        cell_averages(disk, Grid((-0.5, -0.4), (0.5, 0.8), (12, 10), (False, False)))


def test_classical_laws_that_do_not_fit_are_refused() -> None:
    for law, dim, message in (
        (JiangShu(), 2, "law = 'jiang-shu' has dimension 1, but the box it lives in has 2"),
        (SlottedDisk(), 1, "'slotted-disk' has dimension 2"),
        (SinePower(3), 1, "power = 3 must be an even"),
        (SlottedDisk(width=0.4), 2, "make no slotted disk"),
        (SlottedDisk((0.5,)), 2, "center = .* must be 2 finite numbers"),
    ):
        with pytest.raises(MeanFieldError, match=message):
            check_law(law, dim, "sequences[0].initial")
    with pytest.raises(MeanFieldError, match="no density to sample for the heads"):
        head_samples(JiangShu(), Grid((0.0,), (1.0,), (20,), (True,)))


# ---- exact solutions ---------------------------------------------------------------------------------------------


def error_of(name: str, cells: int, **more: object) -> float:
    problem, exact = library.get(name, cells=cells, **more)
    with warnings.catch_warnings():
        # coarse grids are meant here
        warnings.filterwarnings("ignore", "mu is under-resolved|mu touches the wall")
        solution = solve(problem)
    grid = problem.tokens.grid()
    known = exact.mu(problem.depth.T, grid)
    return float(grid.integral(np.abs(solution.mu[-1] - known)).max())


def test_the_ring_of_variable_speed_solves_its_equation() -> None:
    _, exact = library.get("variable_speed_ring", mean=0.4, concentration=1.5)
    assert exact is not None
    assert exact.mu is not None
    grid = Grid((-np.pi,), (np.pi,), (60,), (True,))
    t = 0.8
    masses = exact.mu(t, grid)[0] * grid.spacing[0]
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    # the mass between two characteristics stays: carry cell edges back to t = 0 and integrate the first law there
    start = solve_ivp(lambda _, x: -np.sin(x), (0, t), grid.edges(0)[1:-1], rtol=1e-12, atol=1e-13).y[:, -1]
    whole = quad(lambda x: np.exp(1.5 * np.cos(x - 0.4)), -np.pi, np.pi)[0]
    for j in (0, 10, 29, 30, 47):
        expected = quad(lambda x: np.exp(1.5 * np.cos(x - 0.4)), start[j], start[j + 1], epsabs=1e-13)[0] / whole
        assert masses[j + 1] == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(exact.mu(0.0, grid)[0], cell_averages(library.get(
        "variable_speed_ring", mean=0.4, concentration=1.5)[0].sequences[0].initial, grid)[0], rtol=1e-9)  # fmt: skip


def test_tokens_between_walls_solve_their_equation() -> None:
    """Cell edges carried back along the characteristics: the mass between two of them stays."""
    problem, exact = library.get("logistic_walls")
    assert exact is not None
    assert exact.mu is not None
    grid = Grid((0.0,), (1.0,), (20,), (False,))
    start = solve_ivp(lambda _, x: -x * (1 - x), (0, 0.7), grid.edges(0), rtol=1e-12, atol=1e-13).y[:, -1]
    np.testing.assert_allclose(exact.mu(0.7, grid)[0] / 20, np.diff(start), rtol=1e-9)
    np.testing.assert_allclose(exact.mu(0.0, grid), 1.0, rtol=1e-13)
    middle = exact.mu(0.7, Grid((0.0,), (1.0,), (2001,), (False,)))[0, 1000]
    assert middle == pytest.approx(np.exp(0.7) / (0.5 + 0.5 * np.exp(0.7)) ** 2, rel=1e-6)
    with pytest.raises(MeanFieldError, match="uniform laws on the whole box"):
        library.exact_of(replace(problem, sequences=(replace(problem.sequences[0], initial=Uniform((0.1,), (1.0,))),)))


@pytest.mark.parametrize(("scheme", "order"), [("upwind1", 1), ("linear3", 3), ("muscl-vanleer", 2), ("weno5z", 5)])
def test_orders_on_the_ring_of_variable_speed(scheme: str, order: int) -> None:
    # a step of order 3: short enough for the scheme to be seen
    cells = (32, 64, 128) if order == 5 else (64, 128, 256)
    cfl = (lambda n: 0.4 * (32 / n) ** 0.67) if order == 5 else (lambda n: 0.4)
    errors = [error_of("variable_speed_ring", n, scheme=scheme, cfl=cfl(n)) for n in cells]
    assert -np.polyfit(np.log(cells), np.log(errors), 1)[0] >= order - 0.15


@pytest.mark.parametrize(
    ("scheme", "most"), [("upwind1", 1.04), ("muscl-mc", 0.22), ("linear5", 0.17), ("weno5z", 0.11)]
)
def test_the_composite_wave_once_around(scheme: str, most: float) -> None:
    # L1 errors of normalised waves, half of which are sharp: what each scheme keeps of them
    errors = [error_of("jiang_shu", n, scheme=scheme) for n in (200, 400)]
    assert errors[1] < errors[0] <= most


@pytest.mark.parametrize(("scheme", "order"), [("linear5", 5.0), ("weno5z", 4.0), ("muscl-vanleer", 1.8)])
def test_order_at_critical_points(scheme: str, order: float) -> None:
    # the weights of WENO-Z feel critical points, and limiters clip them
    cells = (40, 80, 160) if order >= 4.0 else (80, 160, 320)
    finer = 0.67 if scheme != "muscl-vanleer" else 0.0
    errors = [error_of("sine_power", n, scheme=scheme, cfl=0.4 * (40 / n) ** finer) for n in cells]
    assert np.log2(errors[1] / errors[2]) >= order - 0.2


def test_the_slotted_disk_comes_back_and_keeps_its_bounds() -> None:
    coarse, fine = (error_of("zalesak_disk", n) for n in (24, 48))
    assert fine < 0.75 * coarse < 0.75
    problem, _ = library.get("zalesak_disk", cells=48)
    assert solve(replace(problem, depth=replace(problem.depth, T=0.1))).certificates["min_mu"] >= 0.0


def test_order_of_the_deformation_of_leveque() -> None:
    errors = [error_of("leveque_deformation", n) for n in (32, 64)]
    assert np.log2(errors[0] / errors[1]) >= 3.8
    # half way the law is drawn out: it is not the swirl that does nothing
    problem, exact = library.get("leveque_deformation", cells=64)
    half = solve(replace(problem, reference=None, depth=replace(problem.depth, T=0.5)))
    start = half.mu[0]
    assert float(np.abs(half.mu[-1] - start).mean() / np.abs(start).mean()) > 1.0
    assert exact is not None
    with pytest.raises(MeanFieldError, match="ask at multiples of the period"):
        exact.mu(0.5, problem.tokens.grid())


def test_problems_that_lost_their_form_have_no_exact_solution() -> None:
    for name, changes, message in (
        ("variable_speed_ring", {"noise": 0.1}, "tokens.noise = 0.1"),
        ("logistic_walls", {"noise": 0.1}, "tokens.noise = 0.1"),
        ("jiang_shu", {"noise": 0.1}, "tokens.noise = 0.1"),
        ("zalesak_disk", {"T": 0.5}, "no multiple of the period"),
        ("leveque_deformation", {"period": 0.3}, "no multiple of the period"),
        ("aggregation", {"w": -1.0}, "draws tokens together"),
        ("aggregation", {"noise": 0.1}, "tokens.drift or tokens.noise is set"),
    ):
        with pytest.raises(MeanFieldError, match=message):
            library.get(name, **changes)
