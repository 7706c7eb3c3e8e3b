"""Attentions summed axis by axis against sums over all pairs, and their transposes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.log_laplace import box_mean_shift
from meanfield_pde.model import separable
from meanfield_pde.model.box_filter import log_sinhc, mean_shift
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import PairSums
from meanfield_pde.model.l2 import l2_field
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.separable import KERNELS, SeparableField
from meanfield_pde.model.unnormalised import unnormalised_field

SHAPES = {1: (40,), 2: (13, 11), 3: (10, 11, 10)}


def lattice(dim: int, n: tuple[int, ...] | None = None, half: float = 2.0) -> tuple[Grid, Lattice]:
    cells = SHAPES[dim] if n is None else n
    grid = Grid((-half,) * dim, (half + 0.3,) * dim, cells, (False,) * dim)
    return grid, Lattice(tuple(grid.centers(k) for k in range(dim)), np.array(grid.spacing), grid.filters())


def field(name: str, dim: int, seed: int = 0) -> SeparableField:
    """Heads with diagonal A, three of them sharing theirs, and full W."""
    grid, cells = lattice(dim)
    rng = np.random.default_rng(seed + 10 * dim)
    diagonals = np.round(rng.normal(size=(6, dim)), 1)
    diagonals[3] = diagonals[2] + np.eye(dim)[0]
    scores, index = np.unique(diagonals, axis=0, return_inverse=True)
    heads = HeadMatrices(
        scores[:, :, None] * np.eye(dim), np.r_[index.ravel(), 0, 0, 1], rng.normal(size=(9, dim, dim))
    )
    weights = rng.random(9)
    targets = tuple(Target(grid.face_points(k), k, grid.face_axes(k)) for k in range(dim))
    return SeparableField(name, heads, weights / weights.sum(), targets, cells)


def laws(cells: Lattice, count: int = 2) -> np.ndarray:
    x = cells.points
    out = np.array([np.exp(-((x - 0.2 * b) ** 2).sum(axis=1)) + np.exp(-((x + 0.7) ** 2).sum(axis=1) / 0.6)
                    for b in range(count)])  # fmt: skip
    return out / out.sum(axis=1, keepdims=True)


def by_pairs(f: SeparableField, mu: np.ndarray) -> list[np.ndarray]:
    """V of one law by the definition, a sum over all pairs; the box filter removed by its definition."""
    y, widths = f.lattice.points, f.lattice.widths
    q = mu.reshape(f.lattice.shape)
    if f.name == "l2":
        for k, matrix in enumerate(f.lattice.filters):
            q = np.moveaxis(np.tensordot(matrix, q, axes=(0, k)), 0, k)
    # these coarse laws reach the walls, where half the mass is the bound
    q = np.maximum(q.ravel(), 0.5 * mu) if f.name == "l2" else q.ravel()
    out = []
    for target in f.targets:
        total = np.zeros(len(target.points))
        for k, weight in enumerate(f.weights):
            a = f.heads.scores[f.heads.index[k]]
            keys = target.points @ a.T
            score = keys @ y.T
            if f.name == "l2":
                score = score - 0.5 * np.einsum("ni,ij,nj->n", y, a, y)
            e = q * np.exp(score)
            shift = np.array([[box_mean_shift(z, h) for z, h in zip(key, widths, strict=True)] for key in keys])
            if f.name == "softmax":
                mean = e @ y / e.sum(axis=1, keepdims=True) - shift
            elif f.name == "l2":
                mean = e @ y / e.sum(axis=1, keepdims=True)
            else:
                u = 0.5 * keys * widths
                mean = (e @ y - shift * e.sum(axis=1, keepdims=True)) / (np.sinh(u) / u).prod(axis=1)[:, None]
            total += weight * (mean @ f.heads.values[k].T)[:, target.component]
        out.append(total)
    return out


def pairing(cotangents: tuple[np.ndarray, ...], velocity: tuple[np.ndarray, ...]) -> float:
    return float(sum((g * v).sum() for g, v in zip(cotangents, velocity, strict=True)))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_velocity_is_the_sum_over_pairs_and_heads(name: str, dim: int) -> None:
    f = field(name, dim)
    mu = laws(f.lattice)
    found = f.velocity(f.moments(mu))
    for b in range(2):
        for one, wanted in zip(found, by_pairs(f, mu[b]), strict=True):
            np.testing.assert_allclose(one[b], wanted, rtol=0, atol=3e-14 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_transpose_in_the_masses(name: str, dim: int) -> None:
    f = field(name, dim, 1)
    mu = laws(f.lattice)
    mu[1, ::3] = 0.0
    rng = np.random.default_rng(dim)
    change = rng.normal(size=mu.shape) * mu
    g = tuple(rng.normal(size=(2, len(t.points))) for t in f.targets)
    found = f.to_mu(g, f.moments(mu))
    # the weights of l2 have corners where a law is rough: stay on one side of them
    at = 1e-5 if name == "l2" else 1e-3

    def value(e: float) -> float:
        return pairing(g, f.velocity(f.moments(mu + e * change)))

    coarse, fine = (value(at) - value(-at)) / (2 * at), (value(at / 2) - value(-at / 2)) / at
    assert (found * change).sum() == pytest.approx((4 * fine - coarse) / 3, rel=1e-8)
    if name != "unnormalised":
        # degree 0 in mu: moving along mu itself changes nothing
        assert np.abs((found * mu).sum(axis=1)).max() <= 1e-12 * np.abs(found * mu).sum()
    else:
        # linear in mu
        assert (found * mu).sum() == pytest.approx(value(0.0), rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_transpose_in_the_head_weights(name: str, dim: int) -> None:
    f = field(name, dim, 2)
    mu = laws(f.lattice)
    rng = np.random.default_rng(dim)
    g = tuple(rng.normal(size=(2, len(t.points))) for t in f.targets)
    gradient = f.to_rho(g, f.moments(mu))
    for k in range(len(f.weights)):
        # V is linear in the head weights, so one head at a time gives the gradient itself
        alone = replace(f, weights=np.eye(len(f.weights))[k])
        assert gradient[k] == pytest.approx(pairing(g, alone.velocity(mu)), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "l2"])
def test_where_the_shifted_sum_underflows_it_is_redone(name: str, dim: int) -> None:
    grid, cells = lattice(dim, (60, 12)[:dim], 10.0)
    scores = np.array([60.0, 0.3])[:, None, None] * np.eye(dim)
    heads = HeadMatrices(scores, np.arange(2), np.tile(np.eye(dim), (2, 1, 1)))
    targets = tuple(Target(grid.face_points(k), k, grid.face_axes(k)) for k in range(dim))
    f = SeparableField(name, heads, np.array([0.4, 0.6]), targets, cells)
    mu = np.where(np.abs(cells.points[:, 0] + 8.5) < 1.0, 1.0, 0.0)[None]
    found = f.velocity(mu)
    weights = cells.samples(mu)[0] if name == "l2" else mu[0]
    y, on = cells.points, mu[0] > 0
    redone = 0
    for target, values in zip(targets, found, strict=True):
        wanted = np.zeros(len(target.points))
        for a, share in ((60.0, 0.4), (0.3, 0.6)):
            score = a * (target.points @ y[on].T) - (0.5 * a * (y[on] ** 2).sum(axis=1) if name == "l2" else 0.0)
            redone += int((score.max(axis=1) - (a * target.points @ y.T).max(axis=1) < -500).sum())
            e = weights[on] * np.exp(score - score.max(axis=1, keepdims=True))
            mean = (e @ y[on] / e.sum(axis=1, keepdims=True))[:, target.component]
            if name == "softmax":
                c = target.component
                mean -= [box_mean_shift(a * x, cells.widths[c]) for x in target.points[:, c]]
            wanted += share * mean
        np.testing.assert_allclose(values[0], wanted, rtol=0, atol=1e-12)
    assert redone > 0
    rng = np.random.default_rng(5)
    g = tuple(rng.normal(size=(1, len(t.points))) for t in targets)
    change = rng.normal(size=mu.shape) * mu
    back = f.to_mu(g, mu)
    assert np.isfinite(back).all()

    def value(e: float) -> float:
        return pairing(g, f.velocity(mu + e * change))

    assert (back * change).sum() == pytest.approx((value(1e-4) - value(-1e-4)) / 2e-4, rel=1e-6)
    with pytest.raises(MeanFieldError, match="without mass"):
        f.velocity(0.0 * mu)


def test_kernels_beyond_the_largest_number_are_refused() -> None:
    grid, cells = lattice(1, None, 20.0)
    heads = HeadMatrices(np.full((1, 1, 1), 1.6), np.zeros(1, dtype=int), np.ones((1, 1, 1)))
    targets = (Target(grid.face_points(0), 0, grid.face_axes(0)),)
    with pytest.raises(MeanFieldError, match=r"reaches e\^6\d\d on this box, at most e\^600"):
        unnormalised_field(heads, np.ones(1), targets, cells, None)


def test_the_bits_of_a_law_do_not_depend_on_its_batch() -> None:
    for name in KERNELS:
        f = field(name, 2, 3)
        mu = laws(f.lattice, 4)
        g = tuple(np.random.default_rng(1).normal(size=(4, len(t.points))) for t in f.targets)
        together, back = f.velocity(mu), f.to_mu(g, mu)
        for b in (0, 3):
            for x, y in zip(f.velocity(mu[b : b + 1].copy()), together, strict=True):
                np.testing.assert_array_equal(x[0], y[b])
            np.testing.assert_array_equal(f.to_mu(tuple(x[b : b + 1].copy() for x in g), mu[b : b + 1])[0], back[b])


def test_sample_weights_integrate_smooth_functions_and_stay_positive_on_rough_laws() -> None:
    from scipy.special import ndtr

    n, edge = 64, np.linspace(-6.0, 6.0, 65)
    grid = Grid((-6.0,), (6.0,), (n,), (False,))
    cells = Lattice((grid.centers(0),), np.array(grid.spacing), grid.filters())
    masses = np.diff(ndtr((edge - 0.3) / 0.8))[None]
    q = cells.samples(masses)[0]
    x = cells.points[:, 0]
    # ∫ cos dN(m, s) = cos(m) e^{-s/2}
    exact = np.cos(2 * 0.3) * np.exp(-2 * 0.64)
    assert q @ np.cos(2 * x) == pytest.approx(exact, abs=1e-6)
    assert abs(masses[0] @ np.cos(2 * x) - exact) > 1e-3
    rough = np.zeros((1, n))
    rough[0, [5, 6, 40]] = 0.2, 0.5, 0.3
    q = cells.samples(rough)
    assert (q[rough > 0] >= 0.5 * rough[rough > 0]).all()
    assert (q[rough == 0] == 0.0).all()
    np.testing.assert_array_equal(replace(cells, filters=()).samples(rough), rough)


def test_what_cells_do_to_an_exponential_by_quadrature() -> None:
    node, weight = np.polynomial.legendre.leggauss(30)
    z = np.array([-40.0, -3.0, -0.21, -0.19, -1e-5, 0.0, 1e-5, 0.19, 0.21, 3.0, 40.0])
    h = 0.5
    e = 0.5 * weight * np.exp(z[:, None] * 0.5 * h * node)
    np.testing.assert_allclose(log_sinhc(z, h), np.log(e.sum(axis=1)), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(mean_shift(z, h), e @ (0.5 * h * node) / e.sum(axis=1), rtol=1e-12, atol=1e-15)


def test_kernels_that_do_not_fit_leave_the_sums_to_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    f = field("l2", 2)
    # six distinct entries at most on each axis, 13 and 11 positions, centres and faces
    counts = [len(np.unique(f.heads.scores[:, k, k])) for k in range(2)]
    size = 16 * (counts[0] * 13**2 + counts[1] * 11**2)
    for most, goes in ((size, True), (size - 1, False)):
        monkeypatch.setattr(separable, "KEPT", most)
        assert separable.separable(f.heads, f.targets) is goes
        made = l2_field(f.heads, f.weights, f.targets, f.lattice, None)
        assert isinstance(made, SeparableField if goes else PairSums)
        np.testing.assert_allclose(made.velocity(laws(f.lattice))[1], f.velocity(laws(f.lattice))[1], atol=1e-12)
