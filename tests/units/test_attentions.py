"""Each attention against its definition written as plain sums over cells, and its transposes by differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.log_laplace import box_mean_shift
from meanfield_pde.model import sinkhorn
from meanfield_pde.model.attention import Attention, assemble_field
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import PairSums, coverage
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.linear import LinearField
from meanfield_pde.model.separable import SeparableField
from meanfield_pde.model.sinkhorn import SinkhornField, potentials

WINDOW = 1.1
NAMES = ("linear", "l2", "unnormalised", "windowed", "sinkhorn")
SHAPES = {1: (36,), 2: (11, 10), 3: (5, 6, 4)}


def lattice(dim: int) -> tuple[Grid, Lattice]:
    grid = Grid((-2.0,) * dim, (2.2,) * dim, SHAPES[dim], (False,) * dim)
    return grid, Lattice(tuple(grid.centers(k) for k in range(dim)), np.array(grid.spacing), grid.filters())


def heads_of(rng: np.random.Generator, dim: int, diagonal: bool) -> HeadMatrices:
    # the cells in space are too wide for narrow kernels
    scores = (0.4 if dim == 3 else 1.0) * rng.normal(size=(3, dim, dim))
    if diagonal:
        scores *= np.eye(dim)
    return HeadMatrices(scores, np.array([0, 1, 2, 0, 1]), rng.normal(size=(5, dim, dim)))


def make(name: str, dim: int, seed: int, diagonal: bool = False) -> Any:
    grid, cells = lattice(dim)
    rng = np.random.default_rng(seed + 10 * dim)
    weights = rng.random(5)
    targets = tuple(Target(grid.face_points(k), k, grid.face_axes(k)) for k in range(dim))
    attention = Attention(name, WINDOW if name == "windowed" else None)
    heads = heads_of(rng, dim, diagonal)
    return assemble_field(attention, cells, targets, heads, weights / weights.sum(), None)


def laws(cells: Lattice, count: int = 2) -> np.ndarray:
    x = cells.points
    out = np.array([np.exp(-((x - 0.2 * b) ** 2).sum(axis=1) / 0.5) + np.exp(-((x + 0.5) ** 2).sum(axis=1) / 0.4)
                    for b in range(count)])  # fmt: skip
    return out / out.sum(axis=1, keepdims=True)


def samples(cells: Lattice, mu: np.ndarray) -> np.ndarray:
    q = mu.reshape(cells.shape)
    for k, matrix in enumerate(cells.filters):
        q = np.moveaxis(np.tensordot(matrix, q, axes=(0, k)), 0, k)
    return np.maximum(q.ravel(), 0.5 * mu)


def sinkhorn_by_rows(score: np.ndarray, q: np.ndarray) -> np.ndarray:
    """χ by plain alternation in the log domain, slowly."""
    phi, chi = np.zeros(len(q)), np.zeros(len(q))
    for _ in range(4000):
        phi = -np.log(np.exp(score + chi) @ q)
        before, chi = chi, -np.log(q @ np.exp(score + phi[:, None]))
        if np.abs(chi - before).max() < 1e-14:
            break
    return chi


def mean_at(name: str, x: np.ndarray, a: np.ndarray, mu: np.ndarray, cells: Lattice) -> np.ndarray:
    """What W multiplies at one point x, by the formulas of docs/mathematics.md 2."""
    y, h = cells.points, cells.widths
    key = a @ x
    if name == "linear":
        return (np.einsum("n,ni,nj->ij", mu, y, y) - np.diag(h**2 / 12)) @ key
    if name == "unnormalised":
        u = 0.5 * key * h
        shift = np.array([box_mean_shift(z, w) for z, w in zip(key, h, strict=True)])
        return (mu * np.exp(y @ key)) @ (y - shift) / (np.sinh(u) / u).prod()
    if name == "windowed":
        e = mu * np.exp(y @ key) * coverage(x[None], y, h, WINDOW)[0]
    elif name == "l2":
        e = samples(cells, mu) * np.exp(y @ key - 0.5 * np.einsum("ni,ij,nj->n", y, a, y))
    else:
        q = samples(cells, mu)
        e = q * np.exp(y @ key + sinkhorn_by_rows((y @ a.T) @ y.T, q))
    return e @ y / e.sum()


def pairing(cotangents: tuple[np.ndarray, ...], velocity: tuple[np.ndarray, ...]) -> float:
    return float(sum((g * v).sum() for g, v in zip(cotangents, velocity, strict=True)))


@pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_velocity_is_that_of_the_definition(name: str, dim: int, diagonal: bool) -> None:
    f = make(name, dim, 0, diagonal)
    mu = laws(f.lattice, 1)
    found = f.velocity(f.moments(mu))
    rng = np.random.default_rng(1)
    for target, values in zip(f.targets, found, strict=True):
        for at in rng.integers(0, len(target.points), 2):
            means = [mean_at(name, target.points[at], a, mu[0], f.lattice) for a in f.heads.scores]
            total = sum(
                weight * (f.heads.values[k] @ means[f.heads.index[k]])[target.component]
                for k, weight in enumerate(f.weights)
            )
            assert values[0, at] == pytest.approx(total, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_transpose_in_the_masses(name: str, dim: int) -> None:
    f = make(name, dim, 1)
    mu = laws(f.lattice)
    mu[1, ::3] = 0.0
    rng = np.random.default_rng(dim)
    change = rng.normal(size=mu.shape) * mu
    g = tuple(rng.normal(size=(2, len(t.points))) for t in f.targets)
    found = f.to_mu(g, f.moments(mu))

    def value(e: float) -> float:
        return pairing(g, f.velocity(f.moments(mu + e * change)))

    # sample weights have corners where a law is rough: stay on one side of them
    at = 1e-4
    coarse, fine = (value(at) - value(-at)) / (2 * at), (value(at / 2) - value(-at / 2)) / at
    assert (found * change).sum() == pytest.approx((4 * fine - coarse) / 3, rel=1e-7)
    if name in ("linear", "unnormalised"):
        # linear in mu
        assert (found * mu).sum() == pytest.approx(value(0.0), rel=1e-12)
    else:
        # degree 0 in mu: moving along mu itself changes nothing
        assert np.abs((found * mu).sum(axis=1)).max() <= 1e-12 * np.abs(found * mu).sum()


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_transpose_in_the_head_weights(name: str, dim: int) -> None:
    f = make(name, dim, 2)
    mu = laws(f.lattice)
    rng = np.random.default_rng(dim)
    g = tuple(rng.normal(size=(2, len(t.points))) for t in f.targets)
    gradient = f.to_rho(g, f.moments(mu))
    for k in range(len(f.weights)):
        # V is linear in the head weights, so one head at a time gives the gradient itself
        alone = replace(f, weights=np.eye(len(f.weights))[k])
        assert gradient[k] == pytest.approx(pairing(g, alone.velocity(alone.moments(mu))), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_a_law_do_not_depend_on_its_batch(name: str) -> None:
    f = make(name, 2, 3)
    mu = laws(f.lattice, 4)
    g = tuple(np.random.default_rng(1).normal(size=(4, len(t.points))) for t in f.targets)
    moments = f.moments(mu)
    together, back = f.velocity(moments), f.to_mu(g, moments)
    for b in (0, 3):
        one = f.moments(mu[b : b + 1].copy())
        for x, y in zip(f.velocity(one), together, strict=True):
            np.testing.assert_array_equal(x[0], y[b])
        np.testing.assert_array_equal(f.to_mu(tuple(x[b : b + 1].copy() for x in g), one)[0], back[b])


@pytest.mark.parametrize("name", ["l2", "windowed", "unnormalised"])
def test_kernels_made_again_each_stage_give_the_bits_of_kept_ones(name: str) -> None:
    kept = make(name, 2, 4)
    assert isinstance(kept, PairSums)
    assert kept.blocks
    made = replace(kept, blocks={})
    mu = laws(kept.lattice)
    for x, y in zip(kept.velocity(mu), made.velocity(mu), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", ["l2", "unnormalised", "windowed"])
def test_other_weights_of_the_same_heads_share_the_kernels(name: str) -> None:
    for dim, diagonal in ((2, True), (2, False)):
        first = make(name, dim, 5, diagonal)
        attention = Attention(name, WINDOW if name == "windowed" else None)
        other = assemble_field(
            attention, first.lattice, first.targets, first.heads, first.weights[::-1].copy(), None, first
        )
        if isinstance(first, SeparableField):
            assert other.kernels is first.kernels
        else:
            assert other.blocks is first.blocks
        alone = replace(first, weights=first.weights[::-1].copy())
        mu = laws(first.lattice)
        np.testing.assert_array_equal(other.velocity(mu)[0], alone.velocity(mu)[0])


# ---- windowed ----------------------------------------------------------------------------------------------------


def test_a_window_counts_the_part_of_a_cell_that_it_covers() -> None:
    y = np.array([[-1.0], [0.0], [1.0], [2.0]])
    part = coverage(np.array([[0.25]]), y, np.array([1.0]), 1.3)[0]
    # [0.25 - 1.3, 0.25 + 1.3] = [-1.05, 1.55]
    np.testing.assert_allclose(part, [0.55, 1.0, 1.0, 0.05], rtol=1e-14)
    plane = coverage(np.zeros((1, 2)), np.array([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]]), np.array([1.0, 2.0]), 5.0)[0]
    np.testing.assert_allclose(plane, [1.0, 0.5, 0.0])


def test_a_window_without_mass_gives_no_velocity_and_no_transpose() -> None:
    f = make("windowed", 1, 0)
    mu = np.where(f.lattice.points[:, 0] < -1.2, 1.0, 0.0)[None]
    v = f.velocity(mu)[0][0]
    x = f.targets[0].points[:, 0]
    assert (v[x > 0.2] == 0.0).all()
    assert (v[x < -0.5] != 0.0).any()
    g = np.where(x > 0.2, 1.0, 0.0)[None]
    np.testing.assert_array_equal(f.to_mu((g,), mu), 0.0)
    with pytest.raises(MeanFieldError, match=r"window = 0\.05 is narrower than a token cell of width 0\.11"):
        assemble_field(Attention("windowed", 0.05), f.lattice, f.targets, f.heads, f.weights, None)


def test_a_window_over_the_whole_box_is_softmax() -> None:
    f = make("windowed", 2, 6)
    wide = assemble_field(Attention("windowed", 99.0), f.lattice, f.targets, f.heads, f.weights, None)
    no_filter = replace(f.lattice, widths=np.zeros(2))
    plain = assemble_field(Attention("softmax"), no_filter, f.targets, f.heads, f.weights, None)
    mu = laws(f.lattice)
    for x, y in zip(wide.velocity(mu), plain.velocity(mu), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)


# ---- Sinkhorn ----------------------------------------------------------------------------------------------------


def test_potentials_give_both_marginals_and_their_mean_is_the_barycentric_map() -> None:
    """Also with a score that is not symmetric, that repels, and with thin tails."""
    rng = np.random.default_rng(3)
    y = np.linspace(-5.0, 5.0, 60)
    q = np.exp(-(y**2) / 0.2 * 0.5) / 10
    for score in (0.8 * np.outer(y, y), -0.8 * np.outer(y, y), np.outer(y, y) + 0.3 * rng.normal(size=(60, 60))):
        phi, chi = potentials(score, q)
        pi = np.exp(score + (phi + np.log(q))[:, None] + (chi + np.log(q))[None, :])
        np.testing.assert_allclose(pi.sum(axis=1), q, rtol=0, atol=1e-12 * q.max())
        np.testing.assert_allclose(pi.sum(axis=0), q, rtol=0, atol=1e-12 * q.max())


def test_potentials_that_do_not_converge_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinkhorn, "ITERATIONS", 2 * sinkhorn.ABSORB)
    y = np.linspace(-3.0, 3.0, 40)
    with pytest.raises(NotConvergedError, match="miss their marginals by"):
        potentials(40.0 * np.outer(y, y) + np.outer(y, y**2), np.exp(-((y - 0.5) ** 2)))


def test_cells_that_hardly_see_each_other_still_have_their_potentials() -> None:
    """Alternating steps would take for ever where a kernel is about as narrow as a cell."""
    grid = Grid((-7.0,), (9.0,), (32,), (False,))
    cells = Lattice((grid.centers(0),), np.array(grid.spacing), grid.filters())
    heads = HeadMatrices(np.array([[[10 / 3]], [[9.0]]]), np.arange(2), np.ones((2, 1, 1)))
    f = SinkhornField(heads, np.ones(2), (Target(grid.face_points(0), 0, grid.face_axes(0)),), cells)
    y = cells.points[:, 0]
    masses = (0.7 * np.exp(-((y - 0.7) ** 2) / 1.1) + 0.1 * np.exp(-((y + 3.0) ** 2) / 0.9))[None]
    q = cells.samples(masses)[0]
    for a, chi in zip((10 / 3, 9.0), f.moments(masses)[0, 1:], strict=True):
        # A is symmetric, so both potentials are the same
        log = a * np.outer(y, y) + (chi + np.log(q))[:, None] + (chi + np.log(q))[None, :]
        np.testing.assert_allclose(np.exp(log).sum(axis=0), q, rtol=1e-9, atol=1e-14)


def test_sinkhorn_of_a_gaussian_is_linear() -> None:
    """E[y | x] = m + (c/s)(x - m), c = (-1 + √(1 + 4 a² s²))/(2a) for the score a x y."""
    from scipy.special import ndtr

    grid = Grid((-5.0,), (5.5,), (80,), (False,))
    cells = Lattice((grid.centers(0),), np.array(grid.spacing), grid.filters())
    m, s, a = 0.3, 0.4, 1.7
    masses = np.diff(ndtr((grid.edges(0) - m) / np.sqrt(s)))[None]
    heads = HeadMatrices(np.full((1, 1, 1), a), np.zeros(1, dtype=int), np.ones((1, 1, 1)))
    targets = (Target(grid.face_points(0), 0, grid.face_axes(0)),)
    f = SinkhornField(heads, np.ones(1), targets, cells)
    found = f.velocity(f.moments(masses))[0][0]
    # the coupling of two Gaussians whose density has the mixed derivative a: c/(s² - c²) = a
    c = brentq(lambda c: c - a * (s * s - c * c), 0.0, s, xtol=1e-15)
    x = grid.faces(0)
    near = np.abs(x - m) < 3 * np.sqrt(s)
    np.testing.assert_allclose(found[near], (m + c / s * (x - m))[near], rtol=0, atol=2e-5)


# ---- refusals ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_summed_is_refused() -> None:
    grid, cells = lattice(1)
    targets = (Target(grid.face_points(0), 0, grid.face_axes(0)),)
    narrow = HeadMatrices(np.full((1, 1, 1), 90.0), np.zeros(1, dtype=int), np.ones((1, 1, 1)))
    with pytest.raises(MeanFieldError, match=r"has the width 1/√a = 0\.90\d cells, at least 1"):
        assemble_field(Attention("l2"), cells, targets, narrow, np.ones(1), None)
    many = replace(cells, axes=(np.linspace(-1.0, 1.0, 5000),), filters=())
    with pytest.raises(MeanFieldError, match="all pairs of 5000 token cells, at most 4096"):
        SinkhornField(narrow, np.ones(1), targets, many)
    for name in ("l2", "windowed", "sinkhorn"):
        f = make(name, 1, 0)
        with pytest.raises(MeanFieldError, match="law without mass"):
            f.velocity(f.moments(np.zeros((1, 36))))
    ring = Lattice((grid.centers(0),), np.array(grid.spacing), grid.filters(), circle=True)
    with pytest.raises(MeanFieldError, match="'linear' is not covered on the circle: take 'softmax'"):
        assemble_field(Attention("linear"), ring, targets, narrow, np.ones(1), None)


def test_linear_attention_costs_no_more_with_more_heads() -> None:
    f = make("linear", 2, 0)
    assert isinstance(f, LinearField)
    assert f.moments(laws(f.lattice)).shape == (2, 2, 2)
    assert all(t.shape == (2, 2, 2) for t in f.tensors)


def test_windowed_attention_is_of_order_two() -> None:
    """Against quadrature of a Gaussian restricted to the window, at points that are faces of every grid."""
    from scipy.integrate import quad
    from scipy.special import ndtr

    m, deviation, a, r = 0.3, 0.7, 0.8, 1.03
    x = np.array([-1.0, -0.5, 0.0, 0.5, 1.5])

    def moment(at: float, power: int) -> float:
        def integrand(y: float) -> float:
            return y**power * np.exp(a * at * y - 0.5 * ((y - m) / deviation) ** 2)

        return float(quad(integrand, at - r, at + r, epsabs=1e-13, epsrel=1e-12)[0])

    exact = np.array([moment(at, 1) / moment(at, 0) for at in x])
    errors = []
    for n in (64, 128, 256, 512):
        grid = Grid((-4.0,), (4.0,), (n,), (False,))
        cells = Lattice((grid.centers(0),), np.array(grid.spacing))
        masses = np.diff(ndtr((grid.edges(0) - m) / deviation))[None]
        heads = HeadMatrices(np.full((1, 1, 1), a), np.zeros(1, dtype=int), np.ones((1, 1, 1)))
        f = assemble_field(Attention("windowed", r), cells, (Target(x[:, None], 0),), heads, np.ones(1), None)
        errors.append(np.abs(f.velocity(masses)[0][0] - exact).max())
    assert -np.polyfit(np.log([64, 128, 256, 512]), np.log(errors), 1)[0] == pytest.approx(2.0, abs=0.3)
    assert errors[-1] < 1e-4


def test_l2_and_unnormalised_attention_of_a_gaussian_are_those_of_the_whole_law() -> None:
    """(s x + ε m)/(s + ε), and z -> ∇ of e^{mz + sz²/2}: the box filter leaves nothing of order 2."""
    from scipy.special import ndtr

    m, s, a = 0.3, 0.5, 1.4
    grid = Grid((-8.0,), (8.5,), (132,), (False,))
    cells = Lattice((grid.centers(0),), np.array(grid.spacing), grid.filters())
    z = (grid.edges(0) - m) / np.sqrt(s)
    # each half from its own tail: large keys see the digits of the far one
    masses = np.where(z[1:] < 0.0, np.diff(ndtr(z)), -np.diff(ndtr(-z)))[None]
    heads = HeadMatrices(np.full((1, 1, 1), a), np.zeros(1, dtype=int), np.ones((1, 1, 1)))
    x = grid.faces(0)
    near = np.abs(x - m) < 2.5 * np.sqrt(s)
    for name, exact in (("l2", (s * x + m / a) / (s + 1 / a)),
                        ("unnormalised", (m + s * a * x) * np.exp(m * a * x + 0.5 * s * (a * x) ** 2))):  # fmt: skip
        for axes in ((x,), ()):  # axis by axis, and by sums over pairs
            f = assemble_field(Attention(name), cells, (Target(x[:, None], 0, axes),), heads, np.ones(1), None)
            assert isinstance(f, SeparableField if axes else PairSums)
            found = f.velocity(masses)[0][0]
            np.testing.assert_allclose(found[near], exact[near], rtol=0, atol=3e-6 if name == "l2" else 1e-10)
