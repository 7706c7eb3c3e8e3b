"""Softmax attention against sums in extended precision, at the ends of the range, and its transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.log_laplace import UNDERFLOW, box_mean_shift, box_mean_slope
from meanfield_pde.kernels.softmax import exp_block
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices, head_matrices
from meanfield_pde.model.softmax_direct import DirectField, SoftmaxSums
from meanfield_pde.model.softmax_table import SoftmaxTable, TabulatedField, table_reach

LONG = np.longdouble


def brute_means(keys: np.ndarray, points: np.ndarray, weights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """m(z) by sums in extended precision, the box filter removed by its definition."""
    z, y, w = keys.astype(LONG), points.astype(LONG), weights.astype(LONG)
    score = z @ y.T
    score = np.where(w[None, :] > 0, score, -np.inf)
    e = w[None, :] * np.exp(score - score.max(axis=1, keepdims=True))
    mean = (e @ y) / e.sum(axis=1, keepdims=True)
    u = 0.5 * z * widths.astype(LONG)
    small = np.abs(u) < 1e-3
    safe = np.where(small, LONG(1), u)
    shift = np.where(small, u / 3 - u**3 / 45 + 2 * u**5 / 945, 1 / np.tanh(safe) - 1 / safe)
    return np.asarray((mean - 0.5 * widths * shift).astype(float))


def grid_line(n: int, low: float, high: float) -> tuple[np.ndarray, float]:
    h = (high - low) / n
    return low + h * (np.arange(n) + 0.5), h


def two_bumps(y: np.ndarray) -> np.ndarray:
    mu = 0.3 * np.exp(-((y - 0.9) ** 2) / 0.08) + 0.7 * np.exp(-((y + 0.6) ** 2) / 0.18)
    return mu / mu.sum()


@pytest.mark.parametrize("widths", [0.0, 0.3])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("count", [5, 64, 200])
def test_means_are_those_of_the_definition(dim: int, count: int, widths: float) -> None:
    rng = np.random.default_rng(dim)
    points, weights = rng.normal(size=(count, dim)), rng.random(count)
    weights[rng.random(count) < 0.3] = 0.0
    weights[0] = 1e-9
    keys = 4.0 * rng.normal(size=(40, dim))
    keys[0] = 0.0
    width = np.full(dim, widths) * (1.0 + np.arange(dim))
    found, log_z = SoftmaxSums(points, weights, width).means(keys)
    np.testing.assert_allclose(found, brute_means(keys, points, weights, width), rtol=0, atol=2e-14)
    score = keys.astype(LONG) @ points.T.astype(LONG)
    wanted = np.log((weights * np.exp(score)).sum(axis=1)).astype(float)
    np.testing.assert_allclose(log_z, wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("size", [1e3, 1e4, 1e6])
def test_huge_scores_reach_the_largest_one(size: float, dim: int) -> None:
    rng = np.random.default_rng(11)
    # integer points, so that scores of different points are well apart
    points = np.unique(rng.integers(-9, 10, size=(70, dim)), axis=0).astype(float)
    weights = 0.1 + rng.random(len(points))
    keys = size * rng.choice([-1.0, 1.0], size=(20, dim)) * (1.0 + np.sqrt(np.arange(1, dim + 1)))
    found, log_z = SoftmaxSums(points, weights, np.zeros(dim)).means(keys)
    np.testing.assert_allclose(found, points[(keys @ points.T).argmax(axis=1)], rtol=0, atol=1e-12)
    assert np.isfinite(log_z).all()
    # with cells the limit is the far edge of the cell, here one of width 1
    edge, _ = SoftmaxSums(points, weights, np.ones(dim)).means(keys)
    np.testing.assert_allclose(found - edge, np.sign(keys) * (0.5 - 1.0 / np.abs(keys)), rtol=0, atol=1e-12)


def test_all_scores_far_below_zero_weigh_alike() -> None:
    # a shift by max(0, ·) would make every term vanish
    points = np.full((9, 1), -1.0)
    points[4:] += 1e-9
    sums = SoftmaxSums(np.c_[points, np.arange(9.0)], np.full(9, 1 / 9), np.zeros(2))
    found, log_z = sums.means(np.array([[1e4, 0.0]]))
    assert found[0, 1] == pytest.approx(4.0, abs=1e-3)
    assert log_z[0] == pytest.approx(-1e4, abs=1e-4)
    even, _ = SoftmaxSums(np.c_[np.full(9, -1.0), np.arange(9.0)], np.full(9, 1 / 9), np.zeros(2)).means(
        np.array([[1e4, 0.0]])
    )
    assert even[0, 1] == pytest.approx(4.0, abs=1e-14)


@pytest.mark.parametrize("dim", [1, 2])
def test_empty_cells_weigh_nothing_even_where_their_score_is_largest(dim: int) -> None:
    n = 200
    points = np.zeros((n, dim))
    points[:, 0] = np.linspace(-1.0, 1.0, n)
    weights = np.where(points[:, 0] < 0, 1.0, 0.0)
    keys = np.zeros((4, dim))
    keys[:, 0] = [1e3, 1e5, -1e5, 0.0]
    full, _ = SoftmaxSums(points, weights, np.zeros(dim)).means(keys)
    half, _ = SoftmaxSums(points[weights > 0], weights[weights > 0], np.zeros(dim)).means(keys)
    assert np.isfinite(full).all()
    np.testing.assert_allclose(full, half, rtol=0, atol=1e-14)
    assert full[1, 0] < 0


@pytest.mark.parametrize("weights", [np.zeros(5), -np.ones(5), np.full(5, np.nan)])
def test_a_law_without_mass_is_refused(weights: np.ndarray) -> None:
    with pytest.raises(MeanFieldError, match="positive weight"):
        SoftmaxSums(np.arange(5.0)[:, None], weights, np.zeros(1))


def test_exponentials_are_accurate_over_their_whole_range() -> None:
    x = np.r_[0.0, -np.logspace(-17, np.log10(707.9), 4001), -np.arange(1, 1021) * np.log(2.0)]
    x = x[x > -708.0]
    mantissa, scale = np.empty_like(x), np.empty_like(x)
    exp_block(1.0, x, 0.0, mantissa, scale)
    exact = np.exp(x.astype(LONG))
    error = np.abs((mantissa * scale).astype(LONG) / exact - 1).astype(float)
    assert error[0] == 0.0
    # 5e-16, and the part of ln 2 that a double cannot hold, 2.32e-17 a power of 2
    assert (error <= 5e-16 + 3.4e-17 * np.abs(x)).all()
    # beyond both ends
    ends = np.array([1e-3, 50.0, 1e6, -709.0, -1e6, -np.inf])
    mantissa, scale = np.empty_like(ends), np.empty_like(ends)
    exp_block(1.0, ends, 0.0, mantissa, scale)
    np.testing.assert_array_equal((mantissa * scale)[:3], 1.0)
    assert ((mantissa * scale)[3:] < 1e-306).all()


def test_the_box_filter_of_a_cell_by_quadrature() -> None:
    node, weight = np.polynomial.legendre.leggauss(40)
    for h in (0.01, 0.5):
        for z in (0.0, 1e-6, 0.1, 0.199 / h * 0.5, 0.101 / h, 3.0 / h, 40.0 / h):
            for sign in (1.0, -1.0):
                y = 0.5 * h * node
                e = weight * np.exp(sign * z * y - abs(z) * 0.5 * h)
                mean = (e @ y) / e.sum()
                assert box_mean_shift(sign * z, h) == pytest.approx(mean, abs=2e-14 * h, rel=2e-13)
                variance = (e @ (y - mean) ** 2) / e.sum()
                assert box_mean_slope(sign * z, h) == pytest.approx(variance, rel=2e-11)
    assert box_mean_slope(1e6, 1.0) == pytest.approx(1e-12)


@pytest.mark.parametrize(("n", "mean", "variance"), [(160, 0.4, 0.35), (500, -0.3, 0.1)])
def test_a_gaussian_in_cells_has_the_mean_of_the_gaussian(n: int, mean: float, variance: float) -> None:
    from scipy.special import ndtr

    y, h = grid_line(n, -8.0, 8.0)
    edge = np.linspace(-8.0, 8.0, n + 1)
    weights = np.diff(ndtr((edge - mean) / np.sqrt(variance)))
    keys = np.linspace(-4.0, 4.0, 33)
    for found in (
        SoftmaxSums(y[:, None], weights, np.array([h])).means(keys[:, None])[0][:, 0],
        _interpolated(SoftmaxTable.build(y, h, 4.0, 96), weights, keys),
    ):
        np.testing.assert_allclose(found, mean + variance * keys, rtol=0, atol=1e-9)
    raw = SoftmaxSums(y[:, None], weights, np.zeros(1)).means(keys[:, None])[0][:, 0]
    assert np.abs(raw - mean - variance * keys).max() > 1e-4


def _interpolated(table: SoftmaxTable, weights: np.ndarray, keys: np.ndarray) -> np.ndarray:
    values = table.moments(weights[None])[0, 0]
    return np.polynomial.chebyshev.chebval(keys / table.reach, table.interpolation @ values)


# ---- the field of many heads -------------------------------------------------------------------------------------


def random_heads(rng: np.random.Generator, count: int, dim: int) -> tuple[HeadMatrices, np.ndarray]:
    """Heads with full matrices, three of them sharing their scores, and their weights."""
    scores = rng.normal(size=(count, dim, dim))
    index = np.r_[np.arange(count), 0, 0, 1]
    weights = rng.random(count + 3)
    return HeadMatrices(scores, index, rng.normal(size=(count + 3, dim, dim))), weights / weights.sum()


def direct(rng: np.random.Generator, dim: int, n: int = 24) -> DirectField:
    heads, weights = random_heads(rng, 4, dim)
    targets = tuple(Target(rng.normal(size=(7 + c, dim)), c) for c in range(dim))
    return DirectField(heads, weights, targets, rng.normal(size=(n, dim)), 0.2 + 0.1 * np.arange(dim))


def tabulated(rng: np.random.Generator, n: int, size: int) -> tuple[TabulatedField, DirectField]:
    y, h = grid_line(n, -3.0, 3.0)
    theta = rng.normal(size=(30, 2))
    theta[5:9, 1] = theta[4, 1]
    weights = rng.random(30)
    heads = head_matrices("scalar", theta, 1)
    targets = (Target((y[1:] - 0.5 * h)[:, None], 0),)
    table = SoftmaxTable.build(y, h, table_reach(heads, targets), size)
    plain = DirectField(heads, weights, targets, y[:, None], np.array([h]))
    return TabulatedField.assemble(table, heads, weights, targets), plain


def pairing(cotangents: tuple[np.ndarray, ...], velocity: tuple[np.ndarray, ...]) -> float:
    return float(sum((g * v).sum() for g, v in zip(cotangents, velocity, strict=True)))


def central(f, at: float = 1e-4) -> float:
    """Derivative of f at 0 by central differences and one Richardson step (error h⁴)."""
    coarse, fine = (f(at) - f(-at)) / (2 * at), (f(at / 2) - f(-at / 2)) / at
    return float((4 * fine - coarse) / 3)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_velocity_is_the_sum_over_heads(dim: int) -> None:
    rng = np.random.default_rng(20 + dim)
    field = direct(rng, dim)
    laws = rng.random((2, 24))
    found = field.velocity(field.moments(laws))
    for target, values in zip(field.targets, found, strict=True):
        for b, law in enumerate(laws):
            total = np.zeros(len(target.points))
            for k, weight in enumerate(field.weights):
                keys = target.points @ field.heads.scores[field.heads.index[k]].T
                mean = brute_means(keys, field.points, law, field.widths)
                total += weight * (mean @ field.heads.values[k].T)[:, target.component]
            np.testing.assert_allclose(values[b], total, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_transpose_in_the_token_weights(dim: int) -> None:
    rng = np.random.default_rng(30 + dim)
    field = direct(rng, dim)
    laws, change = rng.random((3, 24)), rng.normal(size=(3, 24))
    laws[1, ::3] = 0.0
    change[laws == 0.0] = 0.0
    cotangents = tuple(rng.normal(size=(3, len(t.points))) for t in field.targets)
    found = field.to_mu(cotangents, field.moments(laws))
    wanted = central(lambda e: pairing(cotangents, field.velocity(field.moments(laws + e * change))))
    assert (found * change).sum() == pytest.approx(wanted, rel=1e-9)
    # degree 0 in mu: moving along mu itself changes nothing
    assert np.abs((found * laws).sum(axis=1)).max() <= 1e-12 * np.abs(found * laws).sum()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_transpose_in_the_head_weights(dim: int) -> None:
    rng = np.random.default_rng(40 + dim)
    field = direct(rng, dim)
    laws = rng.random((3, 24))
    cotangents = tuple(rng.normal(size=(3, len(t.points))) for t in field.targets)
    gradient = field.to_rho(cotangents, field.moments(laws))
    # V is linear in the head weights, so one head at a time gives the gradient itself
    for k in range(len(field.weights)):
        one = np.zeros(len(field.weights))
        one[k] = 1.0
        alone = DirectField(field.heads, one, field.targets, field.points, field.widths)
        wanted = pairing(cotangents, alone.velocity(laws))
        assert gradient[k] == pytest.approx(wanted, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_transposes_in_the_points(dim: int) -> None:
    rng = np.random.default_rng(50 + dim)
    field = direct(rng, dim)
    laws = rng.random((2, 24))
    laws[1, ::4] = 0.0
    cotangents = tuple(rng.normal(size=(2, len(t.points))) for t in field.targets)
    moved, tokens = field.to_points(cotangents, laws)
    steps = tuple(rng.normal(size=t.points.shape) for t in field.targets)
    push = rng.normal(size=field.points.shape)

    def value(e: float, of_targets: bool) -> float:
        targets = tuple(
            Target(t.points + e * s, t.component) for t, s in zip(field.targets, steps, strict=True)
        ) if of_targets else field.targets  # fmt: skip
        points = field.points if of_targets else field.points + e * push
        return pairing(
            cotangents, DirectField(field.heads, field.weights, targets, points, field.widths).velocity(laws)
        )

    along = sum((m.sum(axis=0) * s).sum() for m, s in zip(moved, steps, strict=True))
    assert along == pytest.approx(central(lambda e: value(e, True)), rel=1e-9)
    assert (tokens.sum(axis=0) * push).sum() == pytest.approx(central(lambda e: value(e, False)), rel=1e-9)


@pytest.mark.parametrize("law", ["gaussian", "two bumps", "far"])
@pytest.mark.parametrize("n", [257, 512])
def test_table_and_direct_sums_agree(n: int, law: str) -> None:
    plain, table = _pair(n)
    y = plain.points[:, 0]
    mu = {
        "gaussian": np.exp(-((y - 0.3) ** 2) / 0.5),
        "two bumps": two_bumps(y),
        "far": np.where(y > 2.5, 1.0, 0.0),
    }[law]
    mu = (mu / mu.sum())[None]
    direct_v, table_v = plain.velocity(mu)[0], table.velocity(table.moments(mu))[0]
    assert np.abs(direct_v - table_v).max() <= 1e-10 * np.abs(direct_v).max()


def _pair(n: int) -> tuple[DirectField, TabulatedField]:
    table, plain = tabulated(np.random.default_rng(60), n, 512)
    return plain, table


@pytest.mark.parametrize("empty", [False, True])
def test_transposes_of_the_table(empty: bool) -> None:
    rng = np.random.default_rng(61)
    field, plain = tabulated(rng, 64, 256)
    y = plain.points[:, 0]
    laws = np.stack([two_bumps(y), np.exp(-(y**2)) / 10])
    change = rng.normal(size=laws.shape) * laws
    if empty:
        laws[0, :30] = 0.0
        change[0, :30] = 0.0
    g = (rng.normal(size=(2, len(field.targets[0].points))),)
    moments = field.moments(laws)
    found = field.to_mu(g, moments)
    wanted = central(lambda e: pairing(g, field.velocity(field.moments(laws + e * change))))
    assert abs((found * change).sum() - wanted) <= 1e-9 * np.abs(found * change).sum()
    np.testing.assert_allclose(
        np.where(laws > 0, found, 0.0), plain.to_mu(g, laws), rtol=0, atol=1e-9 * np.abs(plain.to_mu(g, laws)).max()
    )
    gradient = field.to_rho(g, moments)
    for k in range(0, 30, 3):
        one = np.zeros(30)
        one[k] = 1.0
        alone = TabulatedField.assemble(field.table, field.heads, one, field.targets)
        assert gradient[k] == pytest.approx(pairing(g, alone.velocity(moments)), rel=1e-11, abs=1e-12)


def test_where_the_shifted_sum_underflows_the_table_is_redone() -> None:
    # all mass at the left, keys pulling to the right: e^{z (y - 1)} is 1e-700 wherever there is mass
    n, reach = 300, 900.0
    y, h = grid_line(n, -1.0, 1.0)
    weights = np.where(y < -0.9, 1.0, 0.0)
    weights /= weights.sum()
    table = SoftmaxTable.build(y, h, reach, 1024)
    assert reach * (y[-1] - y[weights > 0].max()) > 800.0
    moments = table.moments(weights[None])
    redone = moments[0, 1] == 0.0
    assert redone.any()
    assert not redone.all()
    assert np.isfinite(moments).all()
    exact = brute_means(table.nodes[:, None], y[:, None], weights, np.array([h]))[:, 0]
    np.testing.assert_allclose(moments[0, 0], exact, rtol=1e-12)
    assert UNDERFLOW < 1e-100

    # and its transpose there, by central differences
    rng = np.random.default_rng(62)
    heads = head_matrices("scalar", np.array([[0.7, reach], [0.3, -0.6 * reach]]), 1)
    target = (Target(np.linspace(-0.97, 0.97, 30)[:, None], 0),)
    field = TabulatedField.assemble(table, heads, np.array([0.4, 0.6]), target)
    plain = DirectField(heads, np.array([0.4, 0.6]), target, y[:, None], np.array([h]))
    values, wanted_values = field.velocity(moments)[0], plain.velocity(weights[None])[0]
    assert np.abs(values - wanted_values).max() <= 1e-10 * np.abs(wanted_values).max()
    g = (rng.normal(size=(1, 30)),)
    change = rng.normal(size=n) * weights
    found = field.to_mu(g, moments)
    assert np.isfinite(found).all()
    wanted = central(lambda e: pairing(g, field.velocity(field.moments((weights + e * change)[None]))), 1e-2)
    assert abs(found[0] @ change - wanted) <= 1e-9 * np.abs(found[0] * change).sum()


def test_the_bits_of_a_law_do_not_depend_on_its_batch() -> None:
    rng = np.random.default_rng(63)
    table, plain = tabulated(rng, 80, 64)
    plane = direct(rng, 2)
    for field, n in ((table, 80), (plain, 80), (plane, 24)):
        laws = 0.01 + rng.random((5, n))
        g = tuple(rng.normal(size=(5, len(t.points))) for t in field.targets)
        together = field.velocity(field.moments(laws))
        back = field.to_mu(g, field.moments(laws))
        for b in (0, 3):
            one = field.moments(laws[b : b + 1].copy())
            for x, y in zip(field.velocity(one), together, strict=True):
                np.testing.assert_array_equal(x[0], y[b])
            np.testing.assert_array_equal(field.to_mu(tuple(x[b : b + 1].copy() for x in g), one)[0], back[b])


def test_the_reported_table_error_is_the_error() -> None:
    y, h = grid_line(200, -3.0, 3.0)
    law = two_bumps(y)[None]
    for size in (24, 48, 96):
        table = SoftmaxTable.build(y, h, 6.0, size)
        reported = table.error(law, table.moments(law))
        keys = np.linspace(-6.0, 6.0, 501)
        exact = brute_means(keys[:, None], y[:, None], law[0], np.array([h]))[:, 0]
        true = np.abs(_interpolated(table, law[0], keys) - exact).max() / np.abs(exact).max()
        assert true <= 10.0 * reported + 1e-14
    fine = SoftmaxTable.build(y, h, 6.0, 256)
    assert fine.error(law, fine.moments(law)) < 1e-10


def test_a_table_is_refused_in_the_plane() -> None:
    y, h = grid_line(20, -1.0, 1.0)
    heads = head_matrices("scalar", np.array([[1.0, 1.0]]), 2)
    with pytest.raises(MeanFieldError, match="direct field"):
        TabulatedField.assemble(SoftmaxTable.build(y, h, 1.0, 24), heads, np.ones(1), (Target(np.zeros((3, 2)), 0),))


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_mass_far_from_the_corner_that_bounds_its_scores(size: float) -> None:
    """On the diagonal of a square both scores are 0 at a key that would reach 2 size at its far corner."""
    points, weights = np.array([[-1.0, 1.0], [1.0, -1.0], [0.5, -0.5]]), np.array([0.25, 0.75, 0.5])
    means, log_z = SoftmaxSums(points, weights, np.zeros(2)).means(np.array([[size, size], [size, 0.0]]))
    assert means[0] == pytest.approx(weights @ points / weights.sum(), rel=1e-14)
    assert log_z[0] == pytest.approx(np.log(1.5), rel=1e-14)
    assert means[1] == pytest.approx([1.0, -1.0], rel=1e-12)
    cube = np.concatenate([points, points[:, :1]], axis=1)
    means, log_z = SoftmaxSums(cube, weights, np.zeros(3)).means(np.array([[size, 2 * size, size]]))
    assert means[0] == pytest.approx(weights @ cube / weights.sum(), rel=1e-14)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda theta: None, "gives a NoneType; it must give the pair"),
        (lambda theta: (np.zeros((2, 3, 3)), np.zeros((2, 2, 2))), r"A of shape \(2, 3, 3\) .* must be \(2, 2, 2\)"),
        (lambda theta: (np.zeros((2, 2, 2)), 1j * np.zeros((2, 2, 2))), "W of shape .* complex128.* of real numbers"),
        (lambda theta: (np.full((2, 2, 2), np.nan), np.zeros((2, 2, 2))), "A of the head function is not finite"),
    ],
)
def test_head_functions_that_do_not_fit_are_refused(function: Any, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        head_matrices(function, np.ones((2, 2)), 2)


def test_a_head_function_may_alter_its_argument() -> None:
    theta = np.ones((2, 2))
    theta.setflags(write=False)

    def doubled(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points *= 2.0
        return points[:, 0, None, None] * np.eye(2), points[:, 1, None, None] * np.eye(2)

    heads = head_matrices(doubled, theta, 2)
    assert np.array_equal(heads.scores, 2.0 * np.eye(2)[None])
