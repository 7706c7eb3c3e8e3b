from __future__ import annotations

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, cell_averages
from meanfield_pde.measure import Measure


def box(n: int, dim: int = 1, ring: bool = False, lower: float = -1.0, upper: float = 2.0) -> Grid:
    return Grid((lower,) * dim, (upper,) * dim, (n,) * dim, (ring,) * dim)


def gaussian_1d(n: int) -> tuple[Grid, np.ndarray]:
    grid = box(n, lower=-4.0, upper=5.0)
    return grid, cell_averages(Gaussian((0.5,), ((0.3,),)), grid)[0]


def test_faces_lie_between_cells_and_count_n_minus_1_or_n() -> None:
    wall, ring = box(6), box(6, ring=True)
    np.testing.assert_allclose(wall.faces(0), [-0.5, 0.0, 0.5, 1.0, 1.5], atol=1e-15)
    np.testing.assert_allclose(ring.faces(0), [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0], atol=1e-15)
    assert (wall.face_count(0), ring.face_count(0)) == (5, 6)
    grid = Grid((0.0, 0.0), (1.0, 2.0), (4, 5), (False, True))
    assert grid.face_shape(0) == (3, 5)
    assert grid.face_shape(1) == (4, 5)
    np.testing.assert_allclose(grid.face_points(1)[1], [0.125, 0.8])
    np.testing.assert_allclose(grid.points()[5], [0.375, 0.2])
    assert grid.cell_volume == pytest.approx(0.1, rel=1e-15)


def errors_of_second_moment(deconvolve: bool) -> list[float]:
    out = []
    for n in (12, 24):
        grid, density = gaussian_1d(n)
        x = grid.centers(0)
        values = np.exp(0.7 * x)
        if deconvolve:
            values = grid.deconvolve(values)
        exact = np.exp(0.7 * 0.5 + 0.5 * 0.49 * 0.3)
        out.append(abs(float(grid.integral(density * values)) - exact))
    return out


def test_deconvolved_integral_against_a_normal_law_is_of_sixth_order_and_of_second_without() -> None:
    coarse, fine = errors_of_second_moment(True)
    assert np.log2(coarse / fine) > 5.5
    assert fine < 1e-6
    coarse, fine = errors_of_second_moment(False)
    assert np.log2(coarse / fine) == pytest.approx(2.0, abs=0.1)


def test_deconvolution_of_polynomials_is_exact_up_to_both_walls() -> None:
    grid = box(12)
    x, h = grid.centers(0), grid.spacing[0]
    np.testing.assert_allclose(grid.deconvolve(x**2), x**2 - h**2 / 12, atol=1e-12)
    # the box filter of x⁴ - h² x²/2 + 7 h⁴/240 is x⁴
    np.testing.assert_allclose(grid.deconvolve(x**4), x**4 - h**2 * x**2 / 2 + 7 * h**4 / 240, atol=1e-11)


def test_deconvolution_on_a_ring_divides_each_mode_by_its_sinc() -> None:
    grid = box(15, ring=True, lower=0.0, upper=2 * np.pi)
    x, h = grid.centers(0), grid.spacing[0]
    for k in (1, 3, 6):
        factor = np.sin(k * h / 2) / (k * h / 2)
        np.testing.assert_allclose(grid.deconvolve(np.cos(k * x + 0.3)), np.cos(k * x + 0.3) / factor, atol=1e-13)


def test_deconvolution_acts_on_each_axis_and_keeps_leading_axes() -> None:
    grid = Grid((0.0, 0.0), (1.0, 2 * np.pi), (10, 9), (False, True))
    x, y = grid.centers(0)[:, None], grid.centers(1)
    exact = (x**2 - grid.spacing[0] ** 2 / 12) * np.cos(y) / np.sinc(grid.spacing[1] / 2 / np.pi)
    values = np.stack([x**2 * np.cos(y), 2 * x**2 * np.cos(y)])
    np.testing.assert_allclose(grid.deconvolve(values), np.stack([exact, 2 * exact]), atol=1e-12)


@pytest.mark.parametrize("ring", [False, True])
def test_refilter_is_the_box_filter_to_second_order(ring: bool) -> None:
    """cos averaged over a cell is cos times sinc; the rest h⁴/1920 falls with order 4."""
    worst = []
    for n in (16, 32):
        grid = box(n, ring=ring, lower=0.0, upper=2 * np.pi)
        h = grid.spacing[0]
        values = np.cos(grid.centers(0))
        worst.append(np.abs(grid.refilter(values) - values * np.sin(h / 2) / (h / 2)).max())
    assert np.log2(worst[0] / worst[1]) > 3.6


def test_refilter_is_exact_for_cubics_at_the_walls_in_two_dimensions() -> None:
    grid = Grid((0.0, -1.0), (1.0, 1.0), (7, 6), (False, False))
    x, y = grid.centers(0)[:, None], grid.centers(1)
    h, k = grid.spacing
    exact = (x**3 + x * h**2 / 4) * (y**2 + k**2 / 12)
    np.testing.assert_allclose(grid.refilter(x**3 * y**2), exact, atol=1e-14)


def test_wall_mass_counts_each_wall_cell_once_and_nothing_on_a_torus() -> None:
    ones = np.full((2, 4, 5), 1.0)
    assert box(4).wall_mass(np.ones(4)) == pytest.approx(1.5)
    walls = Grid((0.0, 0.0), (4.0, 5.0), (4, 5), (False, False))
    np.testing.assert_allclose(walls.wall_mass(ones), [14.0, 14.0])
    mixed = Grid((0.0, 0.0), (4.0, 5.0), (4, 5), (False, True))
    np.testing.assert_allclose(mixed.wall_mass(ones), [10.0, 10.0])
    assert np.all(Grid((0.0, 0.0), (4.0, 5.0), (4, 5), (True, True)).wall_mass(ones) == 0)


def test_moments_of_normal_cells_are_those_of_the_law() -> None:
    covariance = ((0.30, 0.08), (0.08, 0.20))
    grid = Grid((-4.0, -4.0), (5.0, 4.0), (48, 40), (False, False))
    density, _ = cell_averages(Gaussian((0.5, -0.2), covariance), grid)
    measure = grid.measure(density)
    assert measure.mass == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(measure.mean(), [0.5, -0.2], atol=1e-12)
    np.testing.assert_allclose(measure.covariance(), covariance, atol=1e-12)


def test_covariance_of_particles_is_the_plain_one() -> None:
    measure = Measure.particles(np.array([[0.0], [2.0]]), np.array([0.25, 0.75]))
    np.testing.assert_allclose(measure.covariance(), [[0.75]], atol=1e-15)


def test_samples_of_cells_have_the_moments_of_the_law() -> None:
    grid, density = gaussian_1d(24)
    draws = grid.measure(density).sample(20_000, np.random.default_rng(3))
    assert draws.mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.3 / 20_000))
    # draws are uniform inside a cell: the box filter adds h²/12 twice to what the covariance reports
    assert draws.var() == pytest.approx(0.3 + grid.spacing[0] ** 2 / 6, abs=0.02)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (((0.0,), (0.0,), (5,), (False,)), "below upper"),
        (((0.0,), (np.inf,), (5,), (False,)), "finite"),
        (((0.0,), (1.0,), (2,), (False,)), "at least 3"),
        (((0.0,), (1.0,), (5, 5), (False,)), "one entry per axis"),
        (((), (), (), ()), "one entry per axis"),
    ],
)
def test_unusable_grids_are_refused(entries: tuple, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        Grid(*entries)


def test_deconvolution_between_walls_needs_ten_cells() -> None:
    with pytest.raises(MeanFieldError, match="at least 10 cells"):
        box(9).deconvolve(np.ones(9))


@pytest.mark.parametrize(
    ("points", "weights", "widths", "message"),
    [
        (np.zeros((2, 1)), np.ones(3), np.zeros(1), "do not fit"),
        (np.zeros((2, 1)), np.ones(2), np.zeros(2), "one per axis"),
        (np.array([[np.nan]]), np.ones(1), np.zeros(1), "finite"),
    ],
)
def test_unusable_measures_are_refused(
    points: np.ndarray, weights: np.ndarray, widths: np.ndarray, message: str
) -> None:
    with pytest.raises(MeanFieldError, match=message):
        Measure(points, weights, widths)
