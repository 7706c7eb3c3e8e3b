"""Tokens drawn from laws: levels and quantiles against independent integrals, each way of drawing against its law."""

from __future__ import annotations

from math import pi
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import i0e

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_classics import JiangShu, SinePower, SlottedDisk
from meanfield_pde.laws import (
    Atoms,
    Density,
    Gaussian,
    Harmonic,
    Law,
    Mixture,
    Samples,
    Uniform,
    VonMises,
    WrappedCauchy,
    cell_averages,
)
from meanfield_pde.particles.sampling import sample, support
from meanfield_pde.problem_particles import SAMPLINGS

LINE = Grid((-6.0,), (6.0,), (960,), (False,))
RING = Grid((-pi,), (pi,), (720,), (True,))
UNIT = Grid((0.0,), (1.0,), (800,), (True,))
PLANE = Grid((-4.0, -4.0), (4.0, 4.0), (160, 160), (False, False))
TORUS = Grid((-pi, -pi), (pi, pi), (90, 90), (True, True))
CLUMPS = Mixture((0.6, 0.4), (Gaussian((-1.0,), ((0.09,),)), Gaussian((0.9,), ((0.0625,),))))
LINES: dict[str, tuple[Law, Grid]] = {
    "gaussian": (Gaussian((0.3,), ((0.49,),)), LINE),
    "mixture": (CLUMPS, LINE),
    "uniforms": (Mixture((0.5, 0.5), (Uniform((-1.2,), (-0.8,)), Uniform((0.8,), (1.2,)))), LINE),
    "wrapped gaussian": (Gaussian((2.5,), ((1.2,),)), RING),
    "flat gaussian": (Gaussian((2.5,), ((400.0,),)), RING),
    "wrapped uniform": (Uniform((2.0,), (4.0,)), RING),
    "more than once around": (Uniform((1.0,), (1.0 + 3.0 * pi,)), RING),
    "von mises": (VonMises(2.2, 6.0), RING),
    "narrow von mises": (VonMises(-3.1, 900.0), RING),
    "two von mises": (Mixture((0.5, 0.5), (VonMises(0.0, 4.0), VonMises(2.2, 6.0))), RING),
    "wrapped cauchy": (WrappedCauchy(3.0, 0.7), RING),
    "harmonic": (Harmonic(0.4, 0.9, 3), RING),
    "sine power": (SinePower(4), UNIT),
    "jiang shu": (JiangShu(), UNIT),
    "density": (Density(lambda x: np.exp(-np.abs(x[:, 0] - 0.25) ** 4)), LINE),
}


def cell_masses(law: Law, grid: Grid) -> np.ndarray:
    return cell_averages(law, grid)[0] * grid.cell_volume


@pytest.mark.parametrize("name", LINES)
def test_quantiles_put_the_level_below_them(name: str) -> None:
    # the mass below an edge, as the grid integrates the law, against the tokens at quantiles: both without a histogram
    law, grid = LINES[name]
    n = 2001 if name == "jiang shu" else 20001
    x = sample(law, n, grid, "quantile").points[:, 0]
    assert np.all(np.diff(x) >= 0.0)
    below = np.concatenate([np.zeros(1), np.cumsum(cell_masses(law, grid))])
    counted = np.searchsorted(x, grid.edges(0)) / n
    np.testing.assert_allclose(counted, below, rtol=0, atol=0.5 / n + 1e-9)


@pytest.mark.parametrize(
    ("name", "density"),
    [
        ("gaussian", lambda x: stats.norm.pdf(x, 0.3, 0.7)),
        ("mixture", lambda x: 0.6 * stats.norm.pdf(x, -1.0, 0.3) + 0.4 * stats.norm.pdf(x, 0.9, 0.25)),
        ("wrapped gaussian", lambda x: sum(stats.norm.pdf(x + 2 * pi * k, 2.5, 1.2**0.5) for k in range(-4, 5))),
        ("von mises", lambda x: np.exp(6.0 * (np.cos(x - 2.2) - 1.0)) / (2 * pi * i0e(6.0))),
        ("wrapped cauchy", lambda x: (1 - 0.49) / (2 * pi * (1.49 - 1.4 * np.cos(x - 3.0)))),
        ("harmonic", lambda x: (1.0 + 0.9 * np.cos(3.0 * (x - 0.4))) / (2 * pi)),
        ("sine power", lambda x: np.sin(2 * pi * x) ** 4 / 0.375),
    ],
)
def test_quantiles_are_exact_to_rounding(name: str, density: object) -> None:
    law, grid = LINES[name]
    n = 9
    x = sample(law, n, grid, "quantile").points[:, 0]
    low = grid.lower[0] if any(grid.periodic) or name == "sine power" else -12.0
    for i in range(n):
        mass = quad(density, low, x[i], epsabs=1e-13, epsrel=1e-13, limit=300, points=[-0.9, 0.25])[0]
        assert mass == pytest.approx((i + 0.5) / n, abs=2e-12)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("way", SAMPLINGS)
def test_every_way_draws_from_the_law(name: str, way: str) -> None:
    law, grid = LINES[name]
    n = 1500
    drawn = sample(law, n, grid, way, seed=7)
    np.testing.assert_allclose(drawn.weights, 1.0 / n, rtol=1e-14)
    x = np.sort(drawn.points[:, 0])
    if any(grid.periodic):
        assert grid.lower[0] <= x[0] <= x[-1] < grid.upper[0]
    below = np.concatenate([np.zeros(1), np.cumsum(cell_masses(law, grid))])
    gap = np.abs(np.searchsorted(x, grid.edges(0)) / n - below).max()
    # iid: the Kolmogorov distance is below 1.95/sqrt(n) with probability 0.999; the others are even
    assert gap <= (1.95 / n**0.5 if way == "iid" else {"sobol": 8.0, "stratified": 1.0, "quantile": 0.51}[way] / n)
    again = sample(law, n, grid, way, seed=7).points
    np.testing.assert_array_equal(again, drawn.points)
    if way != "quantile":
        assert np.abs(sample(law, n, grid, way, seed=8).points - drawn.points).max() > 1e-6


CORRELATED = Gaussian((0.4, -0.2), ((0.5, 0.3), (0.3, 0.4)))
NARROW = Gaussian((0.5, -0.8), ((0.04, 0.0), (0.0, 0.04)))
THREE = Mixture((0.5, 0.3, 0.2), (CORRELATED, Uniform((-3.0, 1.0), (-1.0, 2.0)), NARROW))


@pytest.mark.parametrize("way", ["iid", "sobol"])
@pytest.mark.parametrize(
    ("law", "grid"),
    [
        (CORRELATED, PLANE),
        (THREE, PLANE),
        (VonMises((0.3, -2.0), (2.0, 5.0)), TORUS),
        (WrappedCauchy((1.0, 3.0), (0.5, 0.2)), TORUS),
        (SlottedDisk((0.0, 0.0), 1.5, 0.5, 1.0), PLANE),
    ],
)  # fmt: skip
def test_laws_in_the_plane_are_drawn_with_their_correlations(law: Law, grid: Grid, way: str) -> None:
    if isinstance(law, SlottedDisk) and way == "sobol":
        with pytest.raises(MeanFieldError, match="slotted-disk law in 2 dimensions is not covered: take 'iid'"):
            sample(law, 16, grid, way)
        return
    n = 4096
    points = sample(law, n, grid, way, seed=2).points
    masses, centres = cell_masses(law, grid).ravel(), grid.points()
    size = 5.0 / n**0.5 if way == "iid" else 0.01
    for test in (np.sin, np.cos):
        for k in ((1, 0), (0, 1), (1, 1), (1, -1), (2, 1)):
            found, wanted = test(points @ np.array(k)).mean(), masses @ test(centres @ np.array(k))
            # cells add h^2/24 |k|^2 of the value, below 2e-3 here
            assert found == pytest.approx(wanted, abs=size + 2e-3)


@pytest.mark.parametrize("way", SAMPLINGS)
def test_atoms_are_drawn_by_their_weights(way: str) -> None:
    inner = Mixture((4.0, 2.0), (Atoms(((-1.0,),)), Atoms(((0.5,),))))
    law = Mixture((3.0, 1.0), (inner, Gaussian((40.0,), ((1e-4,),))))
    x = sample(law, 400, LINE, way, seed=1).points[:, 0]
    counts = [int((x == -1.0).sum()), int((x == 0.5).sum()), int((x > 30.0).sum())]
    assert np.abs(np.array(counts) - [200, 100, 100]).max() <= (40 if way == "iid" else 2)
    pair = sample(Atoms(((1.0,), (-1.0,))), 10, LINE, "quantile").points[:, 0]
    np.testing.assert_array_equal(pair, [-1.0] * 5 + [1.0] * 5)


def test_the_tokens_of_a_law_of_atoms_are_its_own_with_weights() -> None:
    law = Mixture((3.0, 1.0), (Atoms(((-1.0,), (0.5,)), (2.0, 1.0)), Atoms(((2.0,),))))
    found = support(law, LINE)
    np.testing.assert_array_equal(found.points[:, 0], [-1.0, 0.5, 2.0])
    np.testing.assert_allclose(found.weights, [0.5, 0.25, 0.25], rtol=1e-15)
    turned = support(Atoms(((7.0,),)), RING).points[0, 0]
    assert turned == pytest.approx(7.0 - 2.0 * pi, rel=1e-15)
    with pytest.raises(MeanFieldError, match="say how many to draw"):
        support(CLUMPS, LINE)


def test_sample_files_are_drawn_with_and_without_bandwidth(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[-1.0], [0.0], [2.0]]))
    plain = sample(Samples("x.npy"), 300, LINE, "quantile", base=tmp_path).points[:, 0]
    assert [int((plain == v).sum()) for v in (-1.0, 0.0, 2.0)] == [100, 100, 100]
    wide = sample(Samples("x.npy", 0.5), 3000, LINE, "quantile", base=tmp_path)
    assert wide.mean()[0] == pytest.approx(1.0 / 3.0, abs=1e-3)
    assert wide.covariance()[0, 0] == pytest.approx(14.0 / 9.0 + 0.25, abs=5e-3)
    drawn = sample(Samples("x.npy", 0.5), 3000, LINE, "iid", base=tmp_path)
    assert drawn.covariance()[0, 0] == pytest.approx(14.0 / 9.0 + 0.25, abs=0.15)
    with pytest.raises(MeanFieldError, match="dimension 1; the box has 2"):
        sample(Samples("x.npy"), 3, PLANE, base=tmp_path)


@pytest.mark.parametrize(
    ("law", "grid", "way", "words"),
    [
        (CORRELATED, PLANE, "quantile", "one axis, not 2: take 'sobol' or 'iid'"),
        (CORRELATED, PLANE, "stratified", "one axis, not 2"),
        (Density(lambda x: np.ones(len(x))), PLANE, "iid", "give a sample file"),
        (Density(lambda x: np.ones(len(x))), PLANE, "sobol", "density law in 2 dimensions is not covered"),
        (Density(lambda x: np.zeros(len(x))), LINE, "iid", "0 everywhere"),
        (VonMises(0.0, 1.0), LINE, "iid", "lives on rings"),
        (CLUMPS, LINE, "idd", "did you mean 'iid'"),
        (CLUMPS, PLANE, "iid", "dimension"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(law: Law, grid: Grid, way: str, words: str) -> None:
    with pytest.raises(MeanFieldError, match=words):
        sample(law, 8, grid, way)
    with pytest.raises(MeanFieldError, match="at least 1"):
        sample(Gaussian((0.0,), ((1.0,),)), 0, LINE)
