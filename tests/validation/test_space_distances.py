"""Distances in two and three dimensions against closed forms of normal laws, direct sums, and SciPy's assignment."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import ndtr

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Uniform, VonMises, cell_averages
from meanfield_pde.validation.distances import distances, readable
from meanfield_pde.validation.grid_sample import grid_sample
from meanfield_pde.validation.line_distances import sample_energy
from meanfield_pde.validation.line_laws import grid_line
from meanfield_pde.validation.pair_energy import pair_energy, pair_reference, sample_pair_energy
from meanfield_pde.validation.projections import Projections, covectors, half_sphere, project
from meanfield_pde.validation.sliced_distances import sliced_energy, sliced_w2
from meanfield_pde.validation.transport_distance import excess_w2, squared_w2, transport_reference

MEAN, COVARIANCE = (0.3, -0.2), ((0.3, 0.1), (0.1, 0.2))


def plane(cells: int) -> tuple[FloatArray, Grid]:
    grid = Grid((-4.0, -4.0), (4.2, 4.1), (cells, cells), (False, False))
    return cell_averages(Gaussian(MEAN, COVARIANCE), grid)[0], grid


def space(cells: int) -> tuple[FloatArray, Grid]:
    grid = Grid((-4.0,) * 3, (4.0,) * 3, (cells,) * 3, (False,) * 3)
    covariance = ((0.3, 0.0, 0.0), (0.0, 0.4, 0.0), (0.0, 0.0, 0.5))
    return cell_averages(Gaussian((0.1, 0.2, 0.3), covariance), grid)[0], grid


def normal_sample(count: int, seed: int = 1) -> FloatArray:
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, count)


def error_of_projections(seen: Projections, mean: tuple[float, ...], covariance: FloatArray) -> float:
    worst = 0.0
    for direction, law in zip(seen.directions, seen.laws, strict=True):
        middle, deviation = direction @ (np.array(mean) - seen.origin), np.sqrt(direction @ covariance @ direction)
        at = np.linspace(middle - 4 * deviation, middle + 4 * deviation, 501)
        worst = max(worst, float(np.abs(law.cdf(at) - ndtr((at - middle) / deviation)).max()))
    return worst


def test_directions_are_unit_vectors_that_average_squares_evenly() -> None:
    for dim, count in ((2, 32), (3, 64)):
        directions = half_sphere(dim, count)
        np.testing.assert_allclose((directions**2).sum(axis=1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(directions.T @ directions / count, np.eye(dim) / dim, atol=0.03 * (dim - 2) + 1e-14)
    turns = covectors(2, 3)
    assert len(turns) == 16
    assert len({tuple(t / np.hypot(*t)) for t in turns}) == 16


def test_projected_normal_laws_are_normal_to_high_order() -> None:
    errors = [error_of_projections(project(*plane(n)), MEAN, np.array(COVARIANCE)) for n in (32, 64, 128)]
    assert errors[1] < 3e-7
    assert np.log2(errors[1] / errors[2]) > 5
    assert error_of_projections(project(*space(40), count=12), (0.1, 0.2, 0.3), np.diag([0.3, 0.4, 0.5])) < 1e-5


def test_a_shift_shows_in_sliced_w2_by_its_mean_square() -> None:
    seen, sample, shift = project(*plane(64)), normal_sample(2000), np.array([0.5, 0.3])
    before, after = sliced_w2(sample, seen) ** 2, sliced_w2(sample + shift, seen) ** 2
    # W2² of every projection is its part without means and the squared difference of means
    means = sample.mean(axis=0) - MEAN
    expected = np.mean((seen.directions @ (means + shift)) ** 2 - (seen.directions @ means) ** 2)
    assert after - before == pytest.approx(expected, abs=2e-7)
    assert expected == pytest.approx((shift @ shift + 2 * shift @ means) / 2, rel=1e-12)


def test_sliced_w2_of_two_normal_laws() -> None:
    seen = project(*plane(64))
    wide = (normal_sample(20_000) - MEAN) * 1.5 + MEAN
    deviations = np.sqrt(np.einsum("ki,ij,kj->k", seen.directions, np.array(COVARIANCE), seen.directions))
    # 20 000 points: the deviation of a projection is known to 1/200, its W2 to 1.5/200 deviations
    assert sliced_w2(wide, seen) == pytest.approx(0.5 * np.sqrt(np.mean(deviations**2)), abs=0.01)
    assert sliced_w2(normal_sample(20_000), seen) < 0.01
    three = project(*space(32), count=32)
    drawn = np.random.default_rng(3).normal(size=(10_000, 3)) * np.sqrt([0.3, 0.4, 0.5]) + [0.1, 0.2, 1.3]
    assert sliced_w2(drawn, three) ** 2 == pytest.approx(np.mean(three.directions[:, 2] ** 2), abs=0.02)


def test_energy_by_projections_is_that_of_all_pairs() -> None:
    for dim, (density, grid) in ((2, plane(64)), (3, space(32))):
        seen = project(density, grid, 64)
        points = grid_sample(density, grid, 200, seed=9, quasi=False) + 0.3
        other = grid_sample(density, grid, 4096)
        within = cdist(other, other).sum() / (len(other) * (len(other) - 1))
        direct = 2 * cdist(points, other).mean() - cdist(points, points).mean() - within
        # 64 directions and 4096 quasi-random points
        assert sliced_energy(points, seen) == pytest.approx(direct, rel=0.04), dim


def test_on_rings_nothing_depends_on_turns_and_the_law_is_seen_along_every_covector() -> None:
    grid = Grid((-np.pi, 0.0), (np.pi, 1.0), (64, 48), (True, True))
    density = cell_averages(VonMises((0.5, 0.3), (4.0, 2.0)), grid)[0]
    seen = project(density, grid)
    rng = np.random.default_rng(4)
    sample = np.stack([rng.vonmises(0.5, 4.0, 1500), 0.3 + rng.vonmises(0.0, 2.0, 1500) / (2 * np.pi)], axis=1)
    near = sliced_w2(sample, seen)
    assert sliced_w2(sample + np.array([2 * np.pi, -3.0]), seen) == pytest.approx(near, rel=1e-9)
    energy = sliced_energy(sample, seen)
    assert sliced_energy(sample + np.array([-4 * np.pi, 1.0]), seen) == pytest.approx(energy, rel=1e-9)
    np.testing.assert_allclose((seen.directions**2).sum(axis=1), 1.0, rtol=1e-14)
    moved = sample + np.array([0.4, 0.0])
    along_first = [law for direction, law in zip(seen.directions, seen.laws, strict=True) if direction[1] == 0]
    assert len(along_first) == 1
    assert along_first[0].length == pytest.approx(2 * np.pi)
    assert near < 0.03 < sliced_w2(moved, seen) < 0.4
    line = Grid((-np.pi,), (np.pi,), (64,), (True,))
    alone = grid_line(cell_averages(VonMises(0.5, 4.0), line)[0], line)
    at = np.linspace(0.0, 6.28, 301)
    np.testing.assert_allclose(along_first[0].cdf(at), alone.cdf(at - np.pi), atol=1e-6)


def test_jumps_are_read_without_negative_masses() -> None:
    grid = Grid((-2.0, -2.0), (2.0, 2.0), (40, 40), (False, False))
    density = cell_averages(Uniform((-1.0, -0.5), (1.0, 0.5)), grid)[0]
    seen = project(density, grid)
    assert all((np.diff(law.cumulative) >= 0).all() for law in seen.laws)
    sample = np.random.default_rng(5).uniform([-1.0, -0.5], [1.0, 0.5], (4000, 2))
    assert sliced_w2(sample, seen) < 0.03


def test_mixed_walls_and_rings_are_refused() -> None:
    grid = Grid((0.0, 0.0), (1.0, 1.0), (12, 12), (True, False))
    with pytest.raises(MeanFieldError, match="all of them walls or all rings"):
        project(np.ones((12, 12)), grid)
    with pytest.raises(MeanFieldError, match="dimension 3"):
        sliced_w2(np.zeros((5, 3)), project(*plane(32)))


@pytest.mark.parametrize("quasi", [True, False])
def test_points_of_a_grid_have_its_moments(quasi: bool) -> None:
    density, grid = plane(48)
    drawn = grid_sample(density, grid, 2**16, seed=1, quasi=quasi)
    error = 1e-4 if quasi else 4 * np.sqrt(0.5 / 2**16)
    np.testing.assert_allclose(drawn.mean(axis=0), MEAN, atol=error)
    # uniform places in cells would add h²/12 = 2.4e-3
    np.testing.assert_allclose(np.cov(drawn.T), COVARIANCE, atol=error)


def test_energy_by_pairs_of_two_samples_on_lines_and_rings() -> None:
    rng = np.random.default_rng(12)
    x, y, w = rng.normal(size=(30, 1)), rng.normal(0.4, 1.0, (40, 1)), rng.uniform(size=30)
    assert sample_pair_energy(x, y, np.zeros(1), w) == pytest.approx(sample_energy(x, y, w), rel=1e-11)
    # on a circle of length 2 pi chords are 2 |sin|
    angle = np.abs(2 * np.sin((x - y.T) / 2)).mean()
    within = [np.abs(2 * np.sin((z - z.T) / 2)).mean() for z in (x, y)]
    ring = np.array([2 * np.pi])
    assert sample_pair_energy(x, y, ring) == pytest.approx(2 * angle - sum(within), rel=1e-11)
    assert sample_pair_energy(x + 6 * np.pi, y, ring) == pytest.approx(2 * angle - sum(within), rel=1e-9)
    with pytest.raises(MeanFieldError, match="must agree"):
        sample_pair_energy(x, y, np.zeros(2))


def test_energy_by_pairs_of_one_atom_and_where_walls_and_rings_are_mixed() -> None:
    density, grid = plane(64)
    law = pair_reference(density, grid)
    atom = np.array([[0.8, 0.1]])
    assert pair_energy(atom, law) == pytest.approx(sliced_energy(atom, project(density, grid, 128)), rel=2e-3)
    mixed = Grid((-np.pi, -4.0), (np.pi, 4.0), (48, 48), (True, False))
    angle = Grid((-np.pi,), (np.pi,), (48,), (True,))
    line = Grid((-4.0,), (4.0,), (48,), (False,))
    parts = cell_averages(VonMises(0.5, 4.0), angle)[0], cell_averages(Gaussian((0.2,), ((0.3,),)), line)[0]
    law = readable(np.multiply.outer(*parts), mixed)
    rng = np.random.default_rng(13)
    own = np.stack([rng.vonmises(0.5, 4.0, 3000), rng.normal(0.2, np.sqrt(0.3), 3000)], axis=1)
    near = distances(own, law)["energy"]
    assert set(distances(own, law)) == {"energy"}
    # E|X - Y| of the law over N is what a sample of it has
    assert 0 < near < 3 / 3000
    assert distances(own + np.array([2 * np.pi, 0.0]), law)["energy"] == pytest.approx(near, abs=1e-12)
    assert distances(own + np.array([0.4, 0.0]), law)["energy"] > 20 * near


def test_points_stay_in_occupied_cells_and_rings_wrap() -> None:
    grid = Grid((0.0, 0.0), (1.0, 1.0), (10, 10), (True, False))
    density = np.zeros((10, 10))
    density[0, 3], density[9, 9] = 60.0, 40.0
    drawn = grid_sample(density, grid, 1000)
    cells = np.floor(drawn * 10).astype(int)
    assert {tuple(c) for c in cells.tolist()} == {(0, 3), (9, 9)}
    assert np.mean(cells[:, 0] == 0) == pytest.approx(0.6, abs=0.002)
    with pytest.raises(MeanFieldError, match="cannot give 5 points"):
        grid_sample(np.zeros((10, 10)), grid, 5)


def test_transport_is_the_best_assignment_on_lines_and_rings() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.uniform(0, 1, (2, 40, 3))
    for lengths in (np.zeros(3), np.array([1.0, 0.0, 1.0])):
        gap = np.abs(x[:, None] - y)
        gap = np.where(lengths > 0, np.minimum(gap, 1 - gap), gap)
        cost = (gap**2).sum(axis=2)
        assert squared_w2(x, y, lengths) == pytest.approx(cost[linear_sum_assignment(cost)].mean(), rel=1e-12)


def test_the_bias_of_optimal_transport_is_subtracted() -> None:
    density, grid = plane(64)
    reference = transport_reference(density, grid, 500, size=1024, replicas=6)
    own, shift = normal_sample(500), np.array([0.4, 0.0])
    assert abs(excess_w2(own, reference)) < 4 * reference.deviation
    assert reference.bias > 5 * reference.deviation
    # |a|² + 2<a, mean X - mean Y>, the means known to sqrt(0.3/500)
    assert excess_w2(own + shift, reference) == pytest.approx(0.16, abs=4 * 0.8 * np.sqrt(0.3 / 500))
    wide = (own - MEAN) * 1.5 + np.array(MEAN)
    # (deviation 1.5 - 1)² times the trace of the covariance
    assert excess_w2(wide, reference) == pytest.approx(0.25 * 0.5, abs=0.03)
    with pytest.raises(MeanFieldError, match="at least 2"):
        transport_reference(density, grid, 10, replicas=1)
    with pytest.raises(MeanFieldError, match="must agree"):
        excess_w2(np.zeros((4, 3)), reference)


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MeanFieldError, match=r"meanfield-pde\[validate\]"):
        squared_w2(np.zeros((2, 2)), np.ones((2, 2)), np.zeros(2))


def test_each_law_has_the_distances_that_suit_it() -> None:
    line = Grid((-1.0,), (1.0,), (20,), (False,))
    ring = Grid((-1.0,), (1.0,), (20,), (True,))
    points = np.linspace(-0.9, 0.9, 30)
    names = [set(distances(points, readable(np.full(20, 0.5), grid))) for grid in (line, ring)]
    assert names == [{"W1", "W2", "KS", "energy"}, {"W1", "W2", "Kuiper", "energy"}]
    density, grid = plane(32)
    assert set(distances(normal_sample(50), readable(density, grid))) == {"sliced W2", "energy"}
