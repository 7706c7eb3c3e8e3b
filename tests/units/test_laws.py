from __future__ import annotations

import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import i0, i1
from scipy.stats import norm

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import (
    Atoms,
    Density,
    Gaussian,
    Harmonic,
    Law,
    Mixture,
    RingLaw,
    Samples,
    Uniform,
    VonMises,
    WrappedCauchy,
    cell_averages,
    head_samples,
)


def box(n: int, dim: int = 1, ring: bool = False, lower: float = -4.0, upper: float = 4.0) -> Grid:
    return Grid((lower,) * dim, (upper,) * dim, (n,) * dim, (ring,) * dim)


def every_law(dim: int, folder: Path) -> list[Law]:
    correlated = np.full((dim, dim), 0.08) + 0.2 * np.eye(dim)
    spread = tuple(map(tuple, 0.25 * np.eye(dim)))
    np.save(folder / "s.npy", np.random.default_rng(1).uniform(-1.5, 1.5, (37, dim)))
    gaussian = Gaussian((0.3,) * dim, tuple(map(tuple, correlated)))
    uniform = Uniform((-1.0,) * dim, (0.7,) * dim)
    atoms = Atoms(tuple((0.1 * k,) * dim for k in range(7)), (1.0, 2.0, 3.0, 1.0, 0.0, 0.5, 0.1))
    return [
        gaussian,
        Gaussian((0.1,) * dim, spread),
        uniform,
        atoms,
        Samples("s.npy"),
        Samples("s.npy", 0.3),
        Mixture((0.2, 0.3, 0.5), (gaussian, uniform, atoms)),
        Density(lambda x: 3.0 * np.exp(-(x**2).sum(axis=1))),
        VonMises((0.4,) * dim, (1.7,) * dim),
        WrappedCauchy((0.4,) * dim, (0.6,) * dim),
        Harmonic((0.4,) * dim, (-0.6,) * dim, (2,) * dim),
    ]


# some of these laws are narrow for 9 cells; their mass is what is looked at
@pytest.mark.filterwarnings("ignore:the .* law of the heads is too narrow")
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [9, 11, 15])
def test_every_law_has_mass_one(n: int, dim: int, ring: bool, tmp_path: Path) -> None:
    grid = box(n, dim, ring)
    for law in every_law(dim, tmp_path):
        if isinstance(law, RingLaw) and not ring:
            continue
        density, outside = cell_averages(law, grid, tmp_path)
        assert density.shape == grid.cells
        assert abs(density.sum() * grid.cell_volume - 1) <= 1e-14, law
        assert density.min() >= 0
        assert 0 <= outside <= 1e-6
        if not isinstance(law, Atoms | Samples) and not (isinstance(law, Mixture)):
            samples = head_samples(law, grid)
            assert abs(samples.sum() * grid.cell_volume - 1) <= 1e-14, law


def test_normal_averages_agree_with_quadrature_in_the_bulk_and_the_tail() -> None:
    grid = box(16)
    density, outside = cell_averages(Gaussian((0.4,), ((0.3,),)), grid)
    edges = grid.edges(0)
    for j in range(16):
        exact = quad(norm(0.4, np.sqrt(0.3)).pdf, edges[j], edges[j + 1], epsabs=0, epsrel=1e-12)[0] / grid.spacing[0]
        assert density[j] == pytest.approx(exact, rel=1e-10)
    assert outside == pytest.approx(norm.sf((4 - 0.4) / np.sqrt(0.3)), abs=1e-15)


def test_correlated_normal_averages_agree_with_quadrature() -> None:
    covariance = np.array([[0.3, 0.2], [0.2, 0.25]])
    inverse, scale = np.linalg.inv(covariance), 2 * np.pi * np.sqrt(np.linalg.det(covariance))

    def pdf(y: float, x: float) -> float:
        z = np.array([x - 0.2, y + 0.1])
        return float(np.exp(-0.5 * z @ inverse @ z) / scale)

    grid = Grid((-4.0, -4.0), (4.0, 4.0), (12, 14), (False, False))
    density, _ = cell_averages(Gaussian((0.2, -0.1), tuple(map(tuple, covariance))), grid)
    x, y = grid.edges(0), grid.edges(1)
    for i, j in ((6, 6), (5, 8), (7, 9), (4, 4)):
        exact = dblquad(pdf, x[i], x[i + 1], y[j], y[j + 1], epsabs=1e-15, epsrel=1e-12)[0] / grid.cell_volume
        assert density[i, j] == pytest.approx(exact, rel=1e-10, abs=1e-14)


def test_correlated_normal_in_three_dimensions_has_the_moments_of_the_law() -> None:
    covariance = ((0.3, 0.1, 0.05), (0.1, 0.25, -0.08), (0.05, -0.08, 0.2))
    grid = Grid((-4.0,) * 3, (4.0,) * 3, (20, 18, 22), (False,) * 3)
    measure = grid.measure(cell_averages(Gaussian((0.2, -0.1, 0.3), covariance), grid)[0])
    np.testing.assert_allclose(measure.mean(), [0.2, -0.1, 0.3], atol=1e-9)
    np.testing.assert_allclose(measure.covariance(), covariance, atol=1e-8)


def test_a_correlated_law_with_tiny_correlation_is_the_product_of_its_axes() -> None:
    grid = Grid((-4.0, 0.0), (4.0, 3.0), (11, 9), (False, True))
    joint = cell_averages(Gaussian((0.2, 5.5), ((0.3, 1e-13), (1e-13, 0.4))), grid)[0]
    product = cell_averages(Gaussian((0.2, 2.5), ((0.3, 0.0), (0.0, 0.4))), grid)[0]
    np.testing.assert_allclose(joint, product, atol=1e-12)


@pytest.mark.parametrize("deviation", [0.05, 0.4, 1.3, 40.0])
def test_wrapped_normal_has_the_known_circular_moment(deviation: float) -> None:
    """E exp(i k x) = exp(i k m - k² s²/2) on a ring of length 2 pi; cells filter mode k by its sinc."""
    grid = box(32, ring=True, lower=0.0, upper=2 * np.pi)
    mean = -50.0  # eight turns away
    density, outside = cell_averages(Gaussian((mean,), ((deviation**2,),)), grid)
    x, h = grid.centers(0), grid.spacing[0]
    assert outside <= 1e-15
    moment = (density * np.exp(1j * x)).sum() * h / (np.sin(h / 2) / (h / 2))
    if deviation > 0.3:
        assert abs(moment - np.exp(1j * mean - deviation**2 / 2)) < 1e-13
    else:  # 31 aliased modes do not vanish, but the mean direction is right to a part of a cell
        assert abs(np.angle(moment * np.exp(-1j * mean))) < h
    if deviation > 0.3:
        samples = head_samples(Gaussian((mean,), ((deviation**2,),)), grid)
        expected = np.exp(1j * mean - deviation**2 / 2)
        assert abs((samples * np.exp(1j * x)).sum() * h - expected) < 1e-13


@pytest.mark.parametrize("law", [WrappedCauchy(0.7, 0.35), Harmonic(0.7, 0.8, 3), Harmonic(-1.0, -1.0)])
def test_ring_laws_are_the_integrals_of_their_densities(law: RingLaw) -> None:
    grid = Grid((-1.0,), (2.0,), (17,), (True,))

    def density(x: np.ndarray) -> np.ndarray:
        angle = 2 * np.pi * (x - law.mean) / 3.0
        if isinstance(law, WrappedCauchy):
            r = law.resultant
            return np.asarray((1 - r * r) / (1 + r * r - 2 * r * np.cos(angle)) / 3.0)
        assert isinstance(law, Harmonic)
        return np.asarray((1 + law.amplitude * np.cos(law.mode * angle)) / 3.0)

    unit, weight = np.polynomial.legendre.leggauss(20)
    x = grid.centers(0)[:, None] + 0.5 * grid.spacing[0] * unit
    np.testing.assert_allclose(cell_averages(law, grid)[0], density(x) @ weight / 2, rtol=0, atol=1e-14)
    samples = density(grid.centers(0))
    np.testing.assert_allclose(head_samples(law, grid), samples / samples.sum() / grid.spacing[0], rtol=0, atol=1e-13)


def test_von_mises_has_the_bessel_ratio_as_mean_resultant() -> None:
    grid = box(40, ring=True, lower=0.0, upper=2 * np.pi)
    law = VonMises(0.8, 3.0)
    x, h = grid.centers(0), grid.spacing[0]
    density, _ = cell_averages(law, grid)
    moment = (density * np.exp(1j * x)).sum() * h / (np.sin(h / 2) / (h / 2))
    assert abs(moment - i1(3.0) / i0(3.0) * np.exp(0.8j)) < 1e-14
    assert abs((head_samples(law, grid) * np.exp(1j * x)).sum() * h - i1(3.0) / i0(3.0) * np.exp(0.8j)) < 1e-14


def test_uniform_is_shared_by_overlap_and_wraps() -> None:
    density, _ = cell_averages(Uniform((-0.5,), (1.5,)), box(4, lower=-2.0, upper=2.0))
    np.testing.assert_allclose(density, [0.0, 0.25, 0.5, 0.25], atol=1e-15)
    density, outside = cell_averages(Uniform((1.5,), (2.5,)), box(4, ring=True, lower=-2.0, upper=2.0))
    np.testing.assert_allclose(density, [0.5, 0.0, 0.0, 0.5], atol=1e-15)
    assert outside == 0
    samples = head_samples(Uniform((1.4,), (2.6,)), box(4, ring=True, lower=-2.0, upper=2.0))
    np.testing.assert_allclose(samples, [0.5, 0.0, 0.0, 0.5], atol=1e-15)


def test_head_samples_are_proportional_to_the_density_at_centres() -> None:
    grid = Grid((-4.0, -3.0), (4.0, 3.0), (30, 28), (False, False))
    covariance = np.array([[0.2, 0.05], [0.05, 0.15]])
    narrow = Gaussian((0.9, -0.1), ((0.01, 0.0), (0.0, 0.01)))
    law = Mixture((1.0, 3.0), (Gaussian((0.2, -0.1), tuple(map(tuple, covariance))), narrow))
    samples = head_samples(law, grid).ravel()
    z = grid.points() - np.array([0.2, -0.1])
    wide = np.exp(-0.5 * np.einsum("ni,ij,nj->n", z, np.linalg.inv(covariance), z)) / np.sqrt(np.linalg.det(covariance))
    y = grid.points() - np.array([0.9, -0.1])
    exact = wide + 3 * np.exp(-0.5 * (y**2).sum(axis=1) / 0.01) / 0.01
    np.testing.assert_allclose(samples, exact / exact.sum() / grid.cell_volume, rtol=1e-11, atol=1e-300)


def test_a_function_is_averaged_by_quadrature_of_high_order() -> None:
    grid = box(8, lower=0.0, upper=1.0)
    density, _ = cell_averages(Density(lambda x: 5 * x[:, 0] ** 4), grid)
    np.testing.assert_allclose(density, np.diff(grid.edges(0) ** 5) * 8, rtol=1e-14)
    plane = Grid((0.0, 0.0), (1.0, 2.0), (3, 4), (False, False))
    density, _ = cell_averages(Density(lambda x: x[:, 0] ** 2 * x[:, 1] ** 3), plane)
    exact = np.outer(np.diff(plane.edges(0) ** 3), np.diff(plane.edges(1) ** 4) / 16) / plane.cell_volume
    np.testing.assert_allclose(density, exact, rtol=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_atoms_keep_the_mean_to_rounding(dim: int) -> None:
    rng = np.random.default_rng(5)
    points, weights = rng.uniform(-3, 3, (50, dim)), rng.uniform(0, 1, 50)
    law = Atoms(tuple(map(tuple, points.tolist())), tuple(weights.tolist()))
    grid = box(11, dim)
    density, outside = cell_averages(law, grid)
    mean = grid.measure(density).mean()
    np.testing.assert_allclose(mean, weights @ points / weights.sum(), atol=1e-14)
    assert outside <= 1e-15


def test_two_atoms_are_shared_linearly() -> None:
    density, _ = cell_averages(Atoms(((0.25,), (1.5,))), box(4, lower=-2.0, upper=2.0))
    np.testing.assert_allclose(density, [0.0, 0.125, 0.375, 0.5], atol=1e-15)


@pytest.mark.parametrize("length", [1.0, 0.3, 2 * np.pi])
def test_points_on_the_seam_of_a_ring_are_counted_once(length: float) -> None:
    grid = box(10, ring=True, lower=0.0, upper=length)
    points = (-1e-17, 0.0, length, np.nextafter(length, 0), 5.3 * length)
    for x in points:
        density, outside = cell_averages(Atoms(((x,),)), grid)
        masses = density * grid.cell_volume
        assert abs(masses.sum() - 1) <= 1e-14
        assert outside <= 1e-15
        if x == points[-1]:
            np.testing.assert_allclose(masses[[2, 3]], [0.5, 0.5], atol=1e-13)
        else:
            np.testing.assert_allclose(masses[[0, 9]], [0.5, 0.5], atol=1e-13)
    density, _ = cell_averages(Atoms(tuple((x,) for x in points)), grid)
    np.testing.assert_allclose(density * grid.cell_volume, [0.4, 0, 0.1, 0.1, 0, 0, 0, 0, 0, 0.4], atol=1e-13)


def test_a_centre_reached_by_rounding_at_the_seam_stays_in_range() -> None:
    grid = box(10, ring=True, lower=0.0, upper=1.0)
    below = np.nextafter(grid.centers(0)[0], -1)  # its position in cells is -1e-16, which modulo 10 rounds to 10
    density, _ = cell_averages(Atoms(((below,),)), grid)
    assert density[0] * grid.cell_volume == pytest.approx(1.0, abs=1e-13)


def test_an_atom_a_rounding_beyond_the_first_or_last_centre_never_reaches_the_other_wall() -> None:
    grid = box(10)
    first, last = np.nextafter(grid.centers(0)[0], -9), np.nextafter(grid.centers(0)[-1], 9)
    low, high = (cell_averages(Atoms(((x,),)), grid)[0] * grid.cell_volume for x in (first, last))
    assert np.array_equal(low[1:], np.zeros(9))
    assert np.array_equal(high[:-1], np.zeros(9))


def test_kernel_samples_are_the_mixture_of_gaussians(tmp_path: Path) -> None:
    points = np.array([[0.3, -0.2], [1.0, 0.5]])
    np.save(tmp_path / "s.npy", points)
    covariance = ((0.09, 0.0), (0.0, 0.09))
    mixture = Mixture((1.0, 1.0), tuple(Gaussian(tuple(p), covariance) for p in points))
    grid = Grid((-3.0, -3.0), (4.0, 3.0), (20, 21), (False, False))
    kernel = cell_averages(Samples("s.npy", 0.3), grid, tmp_path)[0]
    np.testing.assert_allclose(kernel, cell_averages(mixture, grid)[0], atol=1e-14)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (Gaussian((3.0,), ((0.3,),)), r"0\.033\d* of its mass outside the box \[-4, 4\].*widen the box"),
        (Uniform((-5.0,), (1.0,)), r"0\.167 of its mass outside"),
        (Atoms(((0.0,), (4.5,))), r"0\.5 of its mass outside.*half a cell"),
        (Atoms(((3.9,),)), "half a cell of a wall"),
        (Gaussian((0.0, 0.0), ((1.0, 0.0), (0.0, 1.0))), "mean has dimension 2, .* dimension 1"),
        (Gaussian((0.0,), ((-1.0,),)), "positive definite"),
        (Gaussian((np.nan,), ((1.0,),)), "must be finite"),
        (Gaussian((0.0,), ((1.0, 0.0),)), "1 rows of 1 numbers"),
        (Uniform((1.0,), (1.0,)), "below upper"),
        (Uniform((0.0,), (1.0, 2.0)), "upper has dimension 2"),
        (Atoms(()), "at least one point"),
        (Atoms(((0.0,),), (1.0, 1.0)), "2 entries for 1"),
        (Atoms(((0.0,),), (-1.0,)), ">= 0"),
        (Mixture((0.0,), (Gaussian((0.0,), ((1.0,),)),)), "one of them positive"),
        (Mixture((1.0,), (Gaussian((0.0, 1.0), ((1.0,),)),)), r"components\[0\]\.mean has dimension 2"),
        (VonMises(0.0, 1.0), "lives on rings"),
        (VonMises(0.0, -1.0), "concentration = -1.0"),
        (WrappedCauchy(0.0, 0.5), "lives on rings"),
        (WrappedCauchy(0.0, 1.0), r"resultant = 1\.0 must be >= 0 and < 1"),
        (WrappedCauchy((0.0, 1.0), 0.5), "mean has dimension 2"),
        (Harmonic(0.0, 0.5), "lives on rings"),
        (Harmonic(0.0, 1.5), r"amplitude = 1\.5 must be between -1 and 1"),
        (Harmonic(0.0, 0.5, 0), "mode = 0 must be at least 1"),
        (Samples("missing.npy"), "missing.npy is missing"),
        (Samples("x.npy", -1.0), "bandwidth = -1.0"),
        (Density(lambda x: -np.ones(len(x))), ">= 0"),
        (Density(lambda x: x), r"not to \(8, 1\)"),
        (Density(lambda x: 0 * x[:, 0]), "0 everywhere"),
        (Density(lambda x: np.nan * x[:, 0]), "finite"),
    ],
)
def test_laws_that_cannot_be_put_on_the_grid_are_refused(law: Law, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        cell_averages(law, box(10))


def test_heads_refuse_atoms_lost_mass_and_laws_between_the_centres() -> None:
    grid = box(10)
    with pytest.raises(MeanFieldError, match="atoms law has no density"):
        head_samples(Mixture((1.0, 1.0), (Uniform((0.0,), (1.0,)), Atoms(((0.0,),)))), grid)
    with pytest.raises(MeanFieldError, match="outside the box"):
        head_samples(Gaussian((3.0,), ((0.3,),)), grid)
    with pytest.raises(MeanFieldError, match="at any cell centre"):
        head_samples(Uniform((0.05,), (0.1,)), grid)


def test_correlated_laws_too_narrow_or_too_wide_are_refused() -> None:
    narrow = Gaussian((0.0, 0.0), ((1.0, 0.9999999), (0.9999999, 1.0)))
    with pytest.raises(MeanFieldError, match="refine the grid"):
        cell_averages(narrow, box(10, 2))
    with pytest.raises(MeanFieldError, match="too wide for a ring"):
        cell_averages(Gaussian((0.0, 0.0), ((1e4, 0.1), (0.1, 1.0))), box(10, 2, ring=True))


TABLE = np.array([[0.5, -1.0], [0.25, 1.5], [1e-3, 0.125]])


def write(path: Path, table: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, table)
    elif path.suffix == ".npz":
        np.savez(path, samples=table, other=np.zeros(3))
    elif path.suffix == ".csv":
        rows = "\n".join(",".join(repr(float(v)) for v in row) for row in table)
        path.write_text(f"x, y\n{rows}\n")
    else:
        with h5py.File(path, "w") as file:
            file["anything"] = table


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".h5"])
def test_the_same_samples_from_every_kind_of_file(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"s{suffix}", TABLE)
    grid = box(10, 2)
    atoms = Atoms(tuple(map(tuple, TABLE.tolist())))
    density = cell_averages(Samples(f"s{suffix}"), grid, tmp_path)[0]
    np.testing.assert_allclose(density, cell_averages(atoms, grid)[0], atol=1e-15)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".h5"])
def test_nan_is_refused_with_file_row_and_column(suffix: str, tmp_path: Path) -> None:
    bad = TABLE.copy()
    bad[2, 1] = np.nan
    write(tmp_path / f"s{suffix}", bad)
    with pytest.raises(FileError, match=rf"s\{suffix}.*nan in row 3, column 2"):
        cell_averages(Samples(f"s{suffix}"), box(10, 2), tmp_path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".h5"])
@pytest.mark.parametrize("content", [b"", b"garbage \xff\x00", None])
def test_damaged_files_are_refused_with_their_path(suffix: str, content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / f"s{suffix}"
    write(path, TABLE)
    if suffix == ".csv" and content is None:
        content = b"x,y\n1,2\n3"
    path.write_bytes(path.read_bytes()[:20] if content is None else content)
    with pytest.raises(FileError, match=rf"s\{suffix}"):
        cell_averages(Samples(path.name), box(10, 2), tmp_path)


def test_other_misuse_of_files_is_refused(tmp_path: Path) -> None:
    grid = box(10, 2)
    np.save(tmp_path / "three.npy", np.zeros((4, 3)))
    with pytest.raises(MeanFieldError, match=r"dimension 3, .* dimension 2"):
        cell_averages(Samples("three.npy"), grid, tmp_path)
    np.savez(tmp_path / "two.npz", a=TABLE, b=TABLE)
    with pytest.raises(FileError, match="a, b: name the wanted one 'samples'"):
        cell_averages(Samples("two.npz"), grid, tmp_path)
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    with pytest.raises(FileError, match="1 entries in row 2"):
        cell_averages(Samples("ragged.csv"), grid, tmp_path)
    (tmp_path / "word.csv").write_text("1,2\n3,four\n")
    with pytest.raises(FileError, match="'four' in row 2, column 2"):
        cell_averages(Samples("word.csv"), grid, tmp_path)
    (tmp_path / "s.txt").write_text("1 2\n")
    with pytest.raises(FileError, match=r"'\.txt' files are not read"):
        cell_averages(Samples("s.txt"), grid, tmp_path)
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    with pytest.raises(FileError, match="numbers are needed"):
        cell_averages(Samples("words.npy"), grid, tmp_path)


class Trap:
    fired = False

    def __reduce__(self) -> tuple:
        return (setattr, (Trap, "fired", True))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_objects_are_never_run(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"s{suffix}"
    np.save(tmp_path / "s.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(tmp_path / "s.npy", "samples.npy")
    with pytest.raises(FileError, match="cannot be read"):
        cell_averages(Samples(path.name), box(10), tmp_path)
    assert not Trap.fired


@pytest.mark.parametrize(
    ("law", "cells"),
    [
        (Mixture((0.5, 0.5), (Gaussian((-0.5,), ((0.05,),)), Gaussian((0.53,), ((1e-7,),)))), 40),
        (Mixture((0.5, 0.5), (Gaussian((-0.5,), ((0.05,),)), Gaussian((0.53,), ((1e-5,),)))), 400),
        (Gaussian((0.53,), ((1e-6,),)), 40),
        (Uniform((0.0,), (0.13,)), 40),
    ],
)
def test_a_head_law_that_its_cells_do_not_resolve_is_said(law: Law, cells: int) -> None:
    with pytest.warns(UserWarning, match="too narrow"):
        head_samples(law, Grid((-2.0,), (2.0,), (cells,), (False,)))


def test_numbers_of_any_size_take_no_memory_of_their_size() -> None:
    ring = box(12, ring=True, lower=-np.pi, upper=np.pi)
    for concentration in (1e308, float(2**62), 1e7):
        with pytest.raises(MeanFieldError, match="under 1/64 of one of the 12 cells"):
            cell_averages(VonMises((0.4,), (concentration,)), ring)
    # a uniform law many times around is uniform, and the rest of a turn is where it begins
    far, _ = cell_averages(Uniform((0.0,), (1e15,)), ring)
    np.testing.assert_allclose(far, 1 / (2 * np.pi), rtol=1e-14)
    density, _ = cell_averages(Uniform((0.0,), (2 * np.pi * 3 + np.pi / 2,)), ring)
    step = np.where((ring.centers(0) > 0) & (ring.centers(0) < np.pi / 2), 4.0, 3.0)
    np.testing.assert_allclose(density, step / step.sum() / ring.spacing[0], rtol=1e-13)
    assert cell_averages(Gaussian((0.3,), ((1e300,),)), ring)[0] == pytest.approx(1 / (2 * np.pi), rel=1e-14)
