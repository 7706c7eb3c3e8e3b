"""Distances on a ring against rotations, assignment, and brute force over the cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.special import i0

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Density, Uniform, VonMises, cell_averages
from meanfield_pde.validation.circle_distances import (
    circle_energy,
    circle_kuiper,
    circle_w1,
    circle_w2,
    ring_sample_energy,
    ring_sample_kuiper,
    ring_sample_w1,
    ring_sample_w2,
)
from meanfield_pde.validation.line_laws import LineLaw, grid_line, step_line

TURN = 2 * np.pi
DISTANCES = (circle_w1, circle_w2, circle_kuiper, circle_energy)


def von_mises(mean: float, cells: int = 256, k: float = 4.0) -> LineLaw:
    grid = Grid((-np.pi,), (np.pi,), (cells,), (True,))
    return grid_line(cell_averages(VonMises(mean, k), grid)[0], grid)


def geodesic(x: np.ndarray, y: np.ndarray, length: float = TURN) -> np.ndarray:
    gap = np.abs(x[:, None] - y) % length
    return np.minimum(gap, length - gap)


def bump(middle: float) -> LineLaw:
    """cos⁴ on an arc of 1.4 about the middle."""
    grid = Grid((-np.pi,), (np.pi,), (512,), (True,))

    def density(points: np.ndarray) -> np.ndarray:
        angle = np.mod(points[:, 0] - middle + np.pi, TURN) - np.pi
        return np.where(np.abs(angle) < 0.7, np.cos(np.clip(angle, -0.7, 0.7) * np.pi / 1.4) ** 4, 0.0)

    return grid_line(cell_averages(Density(density), grid)[0], grid)


def test_a_law_on_a_short_arc_is_as_far_as_it_is_turned() -> None:
    arc = bump(0.5).quantile((np.arange(20_000) + 0.5) / 20_000)
    for shift in (0.0, 0.4, -1.1, 1.5):
        assert circle_w1(arc, bump(0.5 + shift)) == pytest.approx(abs(shift), abs=4e-5)
        # the outermost of n atoms stand for a twentieth of the arc each, and W2 of the atoms to their law is 1.5e-4
        assert circle_w2(arc, bump(0.5 + shift)) == pytest.approx(abs(shift), abs=2e-4)


def test_a_law_all_around_is_nearer_when_some_mass_goes_the_other_way() -> None:
    middles = von_mises(0.5).quantile((np.arange(20_000) + 0.5) / 20_000)
    # n middles of quantiles are apart from the law f by W2² = ∫ 1/(12 n² f) dx
    own = TURN * i0(4.0) / np.sqrt(12) / 20_000
    assert circle_w2(middles, von_mises(0.5)) == pytest.approx(own, rel=1e-3)
    # for a small shift F - G = shift f, and W1 = shift ∫ |f - median of f|, the median that at a quarter turn
    small, x = 0.01, np.linspace(-np.pi, np.pi, 100_001)
    f = np.exp(4 * np.cos(x)) / (TURN * i0(4.0))
    flow = np.trapezoid(np.abs(f - 1 / (TURN * i0(4.0))), x)
    assert circle_w1(middles, von_mises(0.5 + small)) == pytest.approx(small * flow, rel=3e-3)
    assert flow < 0.99


def test_turning_both_or_cutting_elsewhere_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    x, w = rng.vonmises(0.7, 2.0, 400), rng.uniform(size=400)
    for distance in DISTANCES:
        value = distance(x, von_mises(0.5), w)
        assert distance(x + 2.9, von_mises(0.5 + 2.9), w) == pytest.approx(value, rel=1e-7)
        assert distance(x + 5 * TURN, von_mises(0.5), w) == pytest.approx(value, rel=1e-11)
        # the same law on a ring that starts elsewhere
        grid = Grid((1.0,), (1.0 + TURN,), (256,), (True,))
        cut = grid_line(cell_averages(VonMises(0.5, 4.0), grid)[0], grid)
        assert distance(x, cut, w) == pytest.approx(value, rel=1e-7)


def test_one_atom_and_two_antipodal_ones_against_the_uniform_law() -> None:
    law = step_line(np.array([0.0, TURN]), np.array([0.0, 1.0]), ring=True)
    for at in (0.0, 1.0, 6.2):
        one, two = np.array([at]), np.array([at, at + np.pi])
        assert circle_w1(one, law) == pytest.approx(np.pi / 2, rel=1e-13)
        assert circle_w2(one, law) == pytest.approx(np.pi / np.sqrt(3), rel=1e-13)
        assert circle_w1(two, law) == pytest.approx(np.pi / 4, rel=1e-13)
        assert circle_w2(two, law) == pytest.approx(np.pi / 2 / np.sqrt(3), rel=1e-13)
        assert circle_kuiper(one, law) == pytest.approx(1.0, rel=1e-13)
        assert circle_kuiper(two, law) == pytest.approx(0.5, rel=1e-13)
        # 2 E d(a, Y) - E d(Y, Y') = E d of the uniform law = length/6, for d = r(1 - r/length)
        assert circle_energy(one, law) == pytest.approx(TURN / 6, rel=1e-12)


def test_two_antipodal_atoms_are_half_a_turn_apart() -> None:
    for at in (0.0, 0.3, 5.0):
        first, second = np.array([at]), np.array([at + np.pi])
        assert ring_sample_w1(first, second, TURN) == pytest.approx(np.pi, rel=1e-13)
        assert ring_sample_w2(first, second, TURN) == pytest.approx(np.pi, rel=1e-13)
        assert ring_sample_kuiper(first, second, TURN) == 1.0
        assert ring_sample_energy(first, second, TURN) == pytest.approx(2 * np.pi / 2, rel=1e-13)
    pair, turned = np.array([0.0, np.pi]), np.array([np.pi / 2, -np.pi / 2])
    assert ring_sample_w1(pair, turned, TURN) == pytest.approx(np.pi / 2, rel=1e-13)
    assert ring_sample_w2(pair, turned, TURN) == pytest.approx(np.pi / 2, rel=1e-13)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 25])
def test_samples_agree_with_the_best_assignment(count: int) -> None:
    rng = np.random.default_rng(count)
    for length in (TURN, 1.0):
        for _ in range(15):
            x, y = rng.uniform(-length, 2 * length, (2, count))
            cost = geodesic(x, y, length)
            for distance, power in ((ring_sample_w1, 1), (ring_sample_w2, 2)):
                best = (cost**power)[linear_sum_assignment(cost**power)].mean() ** (1 / power)
                assert distance(x, y, length) == pytest.approx(best, rel=1e-8)
            direct = 2 * cost - 2 * cost**2 / length
            within = [geodesic(z, z, length) for z in (x, y)]
            energy = direct.mean() - sum((r - r**2 / length).mean() for r in within)
            assert ring_sample_energy(x, y, length) == pytest.approx(energy, rel=1e-9, abs=1e-13)


def test_weights_count_as_repeated_points() -> None:
    rng = np.random.default_rng(8)
    x, y, w = rng.uniform(0, TURN, 6), rng.uniform(0, TURN, 12), np.array([1, 2, 3, 1, 4, 1])
    for distance in (ring_sample_w1, ring_sample_w2, ring_sample_kuiper, ring_sample_energy):
        value = distance(np.repeat(x, w), y, TURN)
        assert distance(x, y, TURN, w.astype(float)) == pytest.approx(value, rel=1e-10)
    for of_law in DISTANCES:
        assert of_law(x, von_mises(1.0), w.astype(float)) == pytest.approx(
            of_law(np.repeat(x, w), von_mises(1.0)), rel=1e-10
        )


def test_both_costs_are_least_over_all_cuts() -> None:
    law, x = von_mises(0.5, k=1.5), np.sort(np.random.default_rng(4).uniform(-np.pi, np.pi, 9))
    u = (np.arange(36_000) + 0.5) / 36_000
    owner = x[(u * 9).astype(int)]

    def cost(theta: float, power: int) -> float:
        return float(np.mean(np.abs(owner - law.lifted(u + theta)) ** power))

    for distance, power in ((circle_w1, 1), (circle_w2, 2)):
        coarse = min(np.linspace(-1, 1, 21), key=lambda theta: cost(theta, power))
        best = minimize_scalar(cost, bounds=(coarse - 0.1, coarse + 0.1), args=(power,), method="bounded").fun
        assert distance(x, law) ** power == pytest.approx(best, abs=1e-6)


def test_a_law_with_gaps_is_cut_in_a_gap() -> None:
    grid = Grid((0.0,), (TURN,), (64,), (True,))
    law = grid_line(cell_averages(Uniform((0.0,), (TURN / 4,)), grid)[0], grid)
    flat = step_line(np.array([0.0, TURN / 4, TURN]), np.array([0.0, 1.0, 1.0]), ring=True)
    # all mass to the nearer side, a quarter turn at most: E|x| of uniform on [0, pi/2]
    assert circle_w1(np.array([0.0]), flat) == pytest.approx(np.pi / 4, rel=1e-13)
    assert circle_w2(np.array([0.0]), flat) == pytest.approx(np.pi / 2 / np.sqrt(3), rel=1e-13)
    assert circle_w1(np.array([-0.1]), flat) == pytest.approx(np.pi / 4 + 0.1, rel=1e-13)
    assert circle_w1(np.array([0.0]), law) == pytest.approx(np.pi / 4, abs=2e-3)


def test_the_law_of_a_ring_is_read_to_order_six() -> None:
    x = np.random.default_rng(6).vonmises(0.9, 3.0, 300)
    fine = von_mises(0.5, 1024)
    for distance in DISTANCES:
        errors = [abs(distance(x, von_mises(0.5, n)) - distance(x, fine)) for n in (32, 128)]
        assert np.log(errors[0] / errors[1]) / np.log(4) > 4.5
        assert errors[1] < 1e-7


def test_walls_and_empty_rings_are_refused() -> None:
    with pytest.raises(MeanFieldError, match="between walls"):
        circle_w1(np.zeros(3), step_line(np.array([0.0, 1.0]), np.array([0.0, 1.0])))
    with pytest.raises(MeanFieldError, match="length 0"):
        ring_sample_w1(np.zeros(3), np.zeros(3), 0.0)
