"""Moments and characteristic functions of samples and cell averages against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ive

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, VonMises, cell_averages
from meanfield_pde.validation.smooth_statistics import (
    characteristic_of_grid,
    characteristic_of_sample,
    cosine,
    moment,
    of_grid,
    of_sample,
    sine,
    standard_statistics,
)

MEAN, COVARIANCE = np.array([0.3, -0.2]), np.array([[0.3, 0.1], [0.1, 0.2]])


def on_plane(cells: int) -> tuple[np.ndarray, Grid]:
    grid = Grid((-5.0, -5.0), (5.0, 5.0), (cells, cells), (False, False))
    return cell_averages(Gaussian((0.3, -0.2), ((0.3, 0.1), (0.1, 0.2))), grid)[0], grid


def test_moments_of_a_normal_law_have_no_spread_of_cells_in_them() -> None:
    density, grid = on_plane(40)
    assert of_grid(moment(0), density, grid) == pytest.approx(0.3, abs=1e-8)
    assert of_grid(moment(0, 1), density, grid) == pytest.approx(0.1 - 0.06, abs=1e-8)
    # without the inverse box filter h²/12 = 5e-3 would be too much
    assert of_grid(moment(1, 1), density, grid) == pytest.approx(0.2 + 0.04, abs=1e-8)


def test_characteristic_function_of_a_normal_law() -> None:
    for xi in ((1.0, 0.0), (0.7, -1.4), (3.0, 2.0)):
        exact = np.exp(1j * MEAN @ xi - 0.5 * np.array(xi) @ COVARIANCE @ xi)
        density, grid = on_plane(64)
        assert characteristic_of_grid(density, grid, xi) == pytest.approx((exact.real, exact.imag), abs=1e-8)
        errors = []
        for cells in (40, 80):
            density, grid = on_plane(cells)
            errors.append(abs(of_grid(cosine(xi), density, grid) - exact.real))
            assert of_grid(sine(xi), density, grid) == pytest.approx(exact.imag, abs=1e-3)
        assert errors[1] < max(errors[0] / 40, 1e-9)


def test_characteristic_function_of_a_ring() -> None:
    grid = Grid((-np.pi,), (np.pi,), (48,), (True,))
    density = cell_averages(VonMises(0.5, 4.0), grid)[0]
    for k in (1, 2, 5):
        exact = ive(k, 4.0) / ive(0, 4.0) * np.exp(0.5j * k)
        assert characteristic_of_grid(density, grid, (float(k),)) == pytest.approx((exact.real, exact.imag), abs=1e-12)
        assert of_grid(cosine((float(k),)), density, grid) == pytest.approx(exact.real, abs=1e-12)


def test_samples_are_summed_with_their_weights() -> None:
    x, w = np.array([0.0, 1.0, 3.0]), np.array([1.0, 1.0, 2.0])
    assert of_sample(moment(0), x, w) == 1.75
    assert of_sample(moment(0, 0), x[:, None], w) == 4.75
    assert characteristic_of_sample(x, (np.pi / 3,), w) == pytest.approx((-0.125, np.sqrt(3) / 8), abs=1e-14)


def test_standard_statistics_suit_walls_and_rings() -> None:
    density, grid = on_plane(40)
    names = [s.name for s in standard_statistics(density, grid)]
    assert names[:5] == ["x1", "x2", "x1 x1", "x1 x2", "x2 x2"]
    assert [n.split("(")[0] for n in names[5:]] == ["cos", "sin"] * 2
    ring = Grid((0.0,), (2.0,), (16,), (True,))
    names = [s.name for s in standard_statistics(np.full(16, 0.5), ring)]
    assert names[:2] == ["cos(3.142 x1)", "sin(3.142 x1)"]
    assert len(names) == 6


def test_frequencies_that_a_grid_does_not_hold_are_refused() -> None:
    density, grid = on_plane(40)
    with pytest.raises(MeanFieldError, match="at most"):
        characteristic_of_grid(density, grid, (13.0, 0.0))
    with pytest.raises(MeanFieldError, match="2 entries"):
        characteristic_of_grid(density, grid, (1.0,))
    with pytest.raises(MeanFieldError, match="whole multiple"):
        characteristic_of_grid(np.full(16, 0.5), Grid((0.0,), (2.0,), (16,), (True,)), (1.0,))
