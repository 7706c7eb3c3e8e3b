"""Distances on a line against closed forms, SciPy's sample distances, and the rates of random samples."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, ndtri
from scipy.stats import energy_distance, ks_1samp, ks_2samp, norm, wasserstein_distance

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Mixture, Uniform, VonMises, cell_averages
from meanfield_pde.validation.line_distances import (
    line_energy,
    line_ks,
    line_w1,
    line_w2,
    sample_energy,
    sample_ks,
    sample_w1,
    sample_w2,
)
from meanfield_pde.validation.line_laws import LineLaw, exact_line, grid_line, step_line

MEAN, VARIANCE = 0.3, 0.49
NORMAL = Gaussian((MEAN,), ((VARIANCE,),))


def on_grid(cells: int, law: Gaussian | Mixture | Uniform = NORMAL) -> LineLaw:
    grid = Grid((-5.0,), (5.6,), (cells,), (False,))
    return grid_line(cell_averages(law, grid)[0], grid)


def test_one_atom_has_the_moments_of_the_normal_law_about_it() -> None:
    for a in (-1.3, MEAN, 2.0):
        z = (a - MEAN) / np.sqrt(VARIANCE)
        first = np.sqrt(VARIANCE) * (2 * norm.pdf(z) + z * (2 * ndtr(z) - 1))
        second = VARIANCE + (a - MEAN) ** 2
        for law, error in ((exact_line(NORMAL), 1e-13), (on_grid(400), 1e-10)):
            assert line_w1(np.array([a]), law) == pytest.approx(first, abs=error)
            assert line_w2(np.array([a]), law) ** 2 == pytest.approx(second, abs=error)
            assert line_ks(np.array([a]), law) == pytest.approx(max(ndtr(z), ndtr(-z)), abs=error)
            # 2E|a - Y| - E|Y - Y'|, the latter 2 sigma/sqrt(pi)
            energy = 2 * first - 2 * np.sqrt(VARIANCE / np.pi)
            assert line_energy(np.array([a]), law) == pytest.approx(energy, abs=error)


def test_two_normal_laws_are_apart_by_mean_and_deviation() -> None:
    u = (np.arange(100_000) + 0.5) / 100_000
    sample = -0.2 + 0.9 * ndtri(u)
    # a shift by 0.5 and deviations 0.9 and 0.7: W2² = 0.5² + 0.2², W1 = E|0.5 + 0.2 Z|; middles are 3e-4 off
    assert line_w2(sample, on_grid(400)) == pytest.approx(np.sqrt(0.25 + 0.04), abs=3e-4)
    folded = 0.2 * (2 * norm.pdf(2.5) + 2.5 * (2 * ndtr(2.5) - 1))
    assert line_w1(sample, on_grid(400)) == pytest.approx(folded, abs=2e-5)


def test_a_shift_of_a_law_is_its_distance() -> None:
    sample = np.random.default_rng(0).normal(size=300)
    law = step_line(np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.25, 1.0]))
    far = sample - 40.0
    # with all of the sample on one side W1 is the difference of means
    assert line_w1(far, law) == pytest.approx(0.25 * 0.5 + 0.75 * 2.0 - far.mean(), rel=1e-14)
    assert sample_w1(sample, sample + 0.7) == pytest.approx(0.7, rel=1e-13)
    assert sample_w2(sample, sample + 0.7) == pytest.approx(0.7, rel=1e-13)
    before, after = line_w2(sample, on_grid(200)) ** 2, line_w2(sample + 2.0, on_grid(200)) ** 2
    # W2² = variance part + squared difference of means
    assert after - before == pytest.approx((sample.mean() + 2.0 - MEAN) ** 2 - (sample.mean() - MEAN) ** 2, abs=1e-7)


@pytest.mark.parametrize("atoms", [1, 2, 5, 64])
def test_uniform_law_and_its_best_atoms(atoms: int) -> None:
    law = exact_line(Uniform((-1.0,), (3.0,)))
    best = -1.0 + 4.0 * (np.arange(atoms) + 0.5) / atoms
    assert line_w1(best, law) == pytest.approx(4.0 / (4 * atoms), rel=1e-13)
    assert line_w2(best, law) == pytest.approx(4.0 / np.sqrt(12) / atoms, rel=1e-13)
    assert line_ks(best, law) == pytest.approx(0.5 / atoms, rel=1e-13)
    # 2 ∫ (F - G)² over 2 n triangles of height 1/(2n) and width 2/n
    assert line_energy(best, law) == pytest.approx(2 * 4.0 / (12 * atoms**2), rel=1e-13)


def test_weighted_samples_against_quadrature() -> None:
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=7), rng.uniform(0.1, 2.0, 7)
    law = exact_line(Mixture((0.3, 0.7), (Uniform((-1.0,), (0.5,)), NORMAL)))
    order = np.argsort(x)
    steps = np.cumsum(w[order]) / w.sum()

    def gap(t: float) -> float:
        at = np.searchsorted(x[order], t, side="right")
        exact = 0.3 * np.clip((t + 1.0) / 1.5, 0, 1) + 0.7 * ndtr((t - MEAN) / np.sqrt(VARIANCE))
        return float((steps[at - 1] if at else 0.0) - exact)

    cuts = sorted([-8.0, 8.0, -1.0, 0.5, *x])
    parts = [(a, b) for a, b in pairwise(cuts) if b > a]
    first = sum(quad(lambda t: abs(gap(t)), a, b, limit=200, epsabs=1e-12)[0] for a, b in parts)
    energy = sum(quad(lambda t: 2 * gap(t) ** 2, a, b, epsabs=1e-12)[0] for a, b in parts)
    assert line_w1(x, law, w) == pytest.approx(first, abs=1e-9)
    assert line_energy(x, law, w) == pytest.approx(energy, abs=1e-10)
    repeated = np.repeat(x, 3)
    assert line_w2(repeated, law, np.repeat(w, 3)) == pytest.approx(line_w2(x, law, w), rel=1e-13)


def test_two_samples_agree_with_scipy() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=40), rng.normal(0.3, 1.2, 57)
    w, v = rng.uniform(size=40), rng.uniform(size=57)
    assert sample_w1(x, y, w, v) == pytest.approx(wasserstein_distance(x, y, w, v), rel=1e-12)
    assert sample_energy(x, y, w, v) == pytest.approx(energy_distance(x, y, w, v) ** 2, rel=1e-12)
    assert sample_ks(x, y) == pytest.approx(ks_2samp(x, y).statistic, rel=1e-12)
    pairs = rng.normal(size=(2, 31))
    assert sample_w2(*pairs) == pytest.approx(np.sqrt(np.mean((np.sort(pairs[0]) - np.sort(pairs[1])) ** 2)), rel=1e-13)
    assert line_ks(x, exact_line(Gaussian((0.0,), ((1.0,),)))) == pytest.approx(ks_1samp(x, ndtr).statistic, abs=1e-12)


def test_the_law_of_a_grid_is_read_to_order_six() -> None:
    sample = np.random.default_rng(1).normal(-0.2, 0.8, 500)
    exact = exact_line(NORMAL)
    for distance in (line_w1, line_w2, line_ks, line_energy):
        coarse, fine = (abs(distance(sample, on_grid(n)) - distance(sample, exact)) for n in (40, 160))
        assert np.log(coarse / fine) / np.log(4) > 5
        assert fine < 3e-9
    at = np.linspace(-4, 4, 3001)
    errors = [np.abs(on_grid(n).cdf(at) - ndtr((at - MEAN) / np.sqrt(VARIANCE))).max() for n in (80, 160, 320)]
    assert np.log2(errors[0] / errors[1]) > 5.7
    assert np.log2(errors[1] / errors[2]) > 5.7
    flat = [step_line(law.knots, law.cumulative) for law in map(on_grid, (80, 160))]
    plain = [np.abs(law.cdf(at) - ndtr((at - MEAN) / np.sqrt(VARIANCE))).max() for law in flat]
    assert errors[1] < 1e-4 * plain[1]
    assert np.log2(plain[0] / plain[1]) == pytest.approx(2, abs=0.1)


def test_laws_rise_whatever_the_cells_hold_and_quantiles_invert_them() -> None:
    rng = np.random.default_rng(7)
    for ring in (False, True):
        masses = rng.exponential(size=60) ** 4
        masses[20:31] = 0.0
        grid = Grid((0.0,), (3.0,), (60,), (ring,))
        law = grid_line(masses / masses.sum() / grid.cell_volume, grid)
        at = np.linspace(0, 3, 20_001)
        assert (np.diff(law.cdf(at)) >= -1e-15).all()
        np.testing.assert_allclose(law.cdf(grid.edges(0)), np.append(0, np.cumsum(masses)) / masses.sum(), atol=1e-14)
        u = rng.uniform(size=2000)
        np.testing.assert_allclose(law.cdf(law.quantile(u)), u, atol=1e-14)
    grid = Grid((0.0,), (3.0,), (60,), (False,))
    assert (np.diff(grid_line(masses / masses.sum() / grid.cell_volume, grid).quantile(np.sort(u))) >= 0).all()


def test_few_cells_are_read_as_constant_densities() -> None:
    grid = Grid((0.0,), (4.0,), (4,), (False,))
    law = grid_line(np.array([0.1, 0.2, 0.3, 0.4]), grid)
    np.testing.assert_allclose(law.cdf(np.array([0.5, 1.5, 3.5])), [0.05, 0.2, 0.8], rtol=1e-14)


def test_small_negative_masses_move_nothing_far() -> None:
    grid = Grid((-5.0,), (5.6,), (100,), (False,))
    density = cell_averages(NORMAL, grid)[0]
    rough = density.copy()
    rough[[3, 90]] -= 1e-4 / grid.cell_volume
    rough[[4, 91]] += 1e-4 / grid.cell_volume
    at = grid.edges(0)
    assert np.abs(grid_line(rough, grid).cdf(at) - grid_line(density, grid).cdf(at)).max() < 1e-4
    with pytest.raises(MeanFieldError, match="negative mass"):
        grid_line(density - 0.01, grid)


def test_random_samples_of_a_uniform_law_come_nearer_at_the_rate_one_half() -> None:
    rng, law = np.random.default_rng(11), exact_line(Uniform((0.0,), (1.0,)))
    counts = 2 ** np.arange(7, 13)
    means = [np.mean([line_w1(rng.uniform(size=n), law) for _ in range(60)]) for n in counts]
    assert np.polyfit(np.log(counts), np.log(means), 1)[0] == pytest.approx(-0.5, abs=0.04)
    # E W1 -> E∫|Brownian bridge|/sqrt(n) = sqrt(2 pi)/8/sqrt(n)
    assert means[-1] * np.sqrt(counts[-1]) == pytest.approx(np.sqrt(2 * np.pi) / 8, rel=0.12)


def test_two_clumps_with_a_gap_saturate_the_rate_one_quarter() -> None:
    law = exact_line(Mixture((0.5, 0.5), (Uniform((-1.2,), (-0.8,)), Uniform((0.8,), (1.2,)))))
    assert law.knots.tolist() == [-1.2, -0.8, 0.8, 1.2]
    rng = np.random.default_rng(13)
    counts = 2 ** np.arange(7, 14)
    means = []
    for n in counts:
        side = rng.integers(0, 2, size=(200, n)) * 2 - 1
        samples = side + rng.uniform(-0.2, 0.2, size=(200, n))
        means.append(np.mean([line_w2(x, law) for x in samples]))
    assert np.polyfit(np.log(counts), np.log(means), 1)[0] == pytest.approx(-0.25, abs=0.03)


def test_what_is_no_sample_is_refused() -> None:
    law = on_grid(40)
    for points, weights, words in (
        (np.array([]), None, "not empty"),
        (np.array([0.0, np.nan]), None, "finite"),
        (np.zeros((4, 2)), None, "dimension 2"),
        (np.zeros(3), np.array([1.0, -1.0, 1.0]), "≥ 0"),
        (np.zeros(3), np.ones(2), "one each"),
    ):
        with pytest.raises(MeanFieldError, match=words):
            line_w1(points, law, weights)
    with pytest.raises(MeanFieldError, match="uniform and mixtures"):
        exact_line(VonMises(0.0, 1.0))
    with pytest.raises(MeanFieldError, match="one axis"):
        grid_line(np.ones((3, 3)), Grid((0.0, 0.0), (1.0, 1.0), (3, 3), (False, False)))
