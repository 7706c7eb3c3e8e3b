"""Objectives against closed forms, quadrature and differences of their own values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import erf, ive, ndtr

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.objective import (
    CrossEntropy,
    EnergyDistance,
    FeatureMap,
    Objective,
    PooledRegression,
    Potential,
    deconvolved_polynomial,
)


def gaussian_masses(mean: float, variance: float, edges: FloatArray) -> FloatArray:
    return np.diff(ndtr((edges - mean) / np.sqrt(variance)))


def folded_mean(mean: float, variance: float) -> float:
    """E|N(mean, variance)|: Leone, Nelson and Nottingham, Technometrics 3 (1961), 543."""
    scale = np.sqrt(2 * variance)
    return float(scale / np.sqrt(np.pi) * np.exp(-((mean / scale) ** 2)) + mean * erf(mean / scale))


def gaussian_energy_distance(m1: float, s1: float, m2: float, s2: float) -> float:
    """2E|X−Y| − E|X−X'| − E|Y−Y'|, as X−Y ~ N(m1−m2, s1+s2), X−X' ~ N(0, 2 s1), Y−Y' ~ N(0, 2 s2)."""
    return 2 * folded_mean(m1 - m2, s1 + s2) - folded_mean(0, 2 * s1) - folded_mean(0, 2 * s2)


def some_weights(batch: int, n: int, seed: int = 3) -> FloatArray:
    weights = np.random.default_rng(seed).uniform(0.1, 1.0, (batch, n))
    return weights / weights.sum(axis=1, keepdims=True)


FEATURES = FeatureMap(np.random.default_rng(5).normal(size=(3, 12)))
CASES: dict[str, tuple[Objective, ArrayLike | None]] = {
    "potential": (Potential(FEATURES.values[0]), None),
    "regression": (PooledRegression(FEATURES), np.random.default_rng(6).normal(size=(4, 3))),
    "binary": (CrossEntropy(FEATURES, np.array([[2.0, -3.0, 1.0]]), np.array([0.3])), [0, 1, 1, 0]),
    "four classes": (
        CrossEntropy(FEATURES, np.random.default_rng(7).normal(size=(4, 3)), np.array([0.0, 0.1, -0.4, 0.2])),
        [3, 0, 1, 2],
    ),
    "energy distance 1-D": (EnergyDistance((12,), (0.25,)), some_weights(4, 12, 8)),
    "energy distance 2-D": (EnergyDistance((3, 4), (0.25, 0.4)), some_weights(1, 12, 9)[0]),
    "energy distance 3-D": (EnergyDistance((3, 2, 2), (0.25, 0.4, 1.0)), some_weights(4, 12, 9)),
}


@pytest.mark.parametrize("name", CASES)
def test_variation_is_the_derivative_of_the_value(name: str) -> None:
    objective, targets = CASES[name]
    weights = some_weights(4, 12)
    direction = np.random.default_rng(11).normal(size=weights.shape)
    _, variation = objective.value_and_variation(weights, targets)
    expected = np.sum(variation * direction, axis=1)
    # fourth-order differences in a step of 1e-3: truncation and rounding both near 1e-12
    values = [objective.value_and_variation(weights + k * 1e-3 * direction, targets)[0] for k in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12e-3
    np.testing.assert_allclose(expected, slope, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_a_sequence_does_not_see_its_batch(name: str) -> None:
    objective, targets = CASES[name]
    weights = some_weights(4, 12)
    losses, variation = objective.value_and_variation(weights, targets)
    # a copy, so that the last row stands at another address in a batch of one
    alone_targets = targets if targets is None or np.shape(targets) == (12,) else np.asarray(targets)[3:]
    alone, alone_variation = objective.value_and_variation(weights[3:].copy(), alone_targets)
    assert np.array_equal(losses[3:], alone)
    assert np.array_equal(variation[3:], alone_variation)


def test_regression_and_potential_on_a_gaussian() -> None:
    edges = np.linspace(-8, 8, 65)
    x, h = 0.5 * (edges[1:] + edges[:-1]), 0.25
    weights = gaussian_masses(0.3, 0.49, edges)[None, :]
    polynomials = [[0, 1], [0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0, 1]]
    values = np.stack([Polynomial(deconvolved_polynomial(c, h))(x) for c in polynomials])
    m, s = 0.3, 0.49
    moments = np.array([m, m**2 + s, m**3 + 3 * m * s, m**4 + 6 * m**2 * s + 3 * s**2])
    regression = PooledRegression(FeatureMap(values))
    np.testing.assert_allclose(regression.predict(weights)["features"][0], moments, rtol=1e-13)
    loss, variation = regression.value_and_variation(weights, [[1.0, 0.0, 0.0, 2.0]])
    residual = moments - [1.0, 0.0, 0.0, 2.0]
    np.testing.assert_allclose(loss, [0.5 * residual @ residual], rtol=1e-13)
    # the mean of the variation against a law is residual · its moments: take N(0, 1)
    other = gaussian_masses(0.0, 1.0, edges)
    np.testing.assert_allclose(variation[0] @ other, residual @ [0.0, 1.0, 0.0, 3.0], atol=1e-12)
    potential, slope = Potential(values[1]).value_and_variation(weights, None)
    np.testing.assert_allclose(potential, [m**2 + s], rtol=1e-13)
    assert np.array_equal(slope[0], values[1])


def test_one_feature_takes_flat_targets() -> None:
    objective = PooledRegression(FeatureMap(np.array([[1.0, 2.0]])))
    loss, _ = objective.value_and_variation(np.array([[0.5, 0.5], [0.0, 1.0]]), [1.0, 1.0])
    np.testing.assert_allclose(loss, [0.125, 0.5], rtol=1e-15)


def test_binary_cross_entropy_by_hand() -> None:
    objective = CrossEntropy(FeatureMap(np.array([[0.0, 1.0]])), np.array([[np.log(3.0)]]), np.array([0.0]))
    weights = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    losses, variation = objective.value_and_variation(weights, [1, 0, 1])
    # z = log 3 gives the probability 3/4 of class 1, z = 0 gives 1/2
    np.testing.assert_allclose(losses, [np.log(4 / 3), np.log(4), np.log(2)], rtol=1e-15)
    np.testing.assert_allclose(variation[:, 1], np.log(3) * np.array([-0.25, 0.75, -0.5]), rtol=1e-15)
    shown = objective.predict(weights)
    assert set(shown) == {"features", "logits", "probabilities"}
    np.testing.assert_allclose(shown["probabilities"], [[0.25, 0.75], [0.25, 0.75], [0.5, 0.5]], rtol=1e-15)
    np.testing.assert_allclose(shown["logits"], np.log([[3.0], [3.0], [1.0]]), rtol=1e-15)


def test_softmax_cross_entropy_by_hand() -> None:
    objective = CrossEntropy(FeatureMap(np.eye(2)), np.zeros((3, 2)), np.log([1.0, 2.0, 5.0]))
    weights = np.tile([0.4, 0.6], (3, 1))
    losses, _ = objective.value_and_variation(weights, [0, 1, 2])
    np.testing.assert_allclose(losses, -np.log([1 / 8, 2 / 8, 5 / 8]), rtol=1e-15)
    np.testing.assert_allclose(objective.predict(weights)["probabilities"][0], [1 / 8, 2 / 8, 5 / 8], rtol=1e-15)


@pytest.mark.parametrize("rows", [1, 2])
def test_cross_entropy_of_huge_scores_is_finite(rows: int) -> None:
    readout = np.array([[1e6]]) if rows == 1 else np.array([[-1e6], [1e6]])
    objective = CrossEntropy(FeatureMap(np.array([[-1.0, 1.0]])), readout, np.zeros(rows))
    weights = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    losses, variation = objective.value_and_variation(weights, [1, 0, 1])
    gap = 1e6 * rows
    np.testing.assert_allclose(losses, [0.0, gap, gap], atol=1e-12)
    np.testing.assert_allclose(variation[:, 1], [0.0, gap, -gap], atol=1e-12)


def test_small_loss_of_a_sure_answer_keeps_its_digits() -> None:
    objective = CrossEntropy(FeatureMap(np.ones((1, 1))), np.array([[40.0]]), np.zeros(1))
    losses, variation = objective.value_and_variation(np.ones((1, 1)), [1])
    np.testing.assert_allclose(losses, [np.exp(-40.0)], rtol=1e-12)
    np.testing.assert_allclose(variation, [[-40.0 * np.exp(-40.0)]], rtol=1e-12)


@pytest.mark.parametrize("n", [48, 64])
def test_energy_distance_of_two_gaussians_is_spectrally_accurate(n: int) -> None:
    edges = np.linspace(-12, 12, n + 1)
    objective = EnergyDistance((n,), (24 / n,))
    mu = gaussian_masses(0.4, 0.9, edges)
    nu = gaussian_masses(-0.5, 1.6, edges)
    loss, _ = objective.value_and_variation(mu[None, :], nu)
    exact = gaussian_energy_distance(0.4, 0.9, -0.5, 1.6)
    by_cdf = 2 * quad(lambda t: (ndtr((t - 0.4) / 0.9**0.5) - ndtr((t + 0.5) / 1.6**0.5)) ** 2, -12, 12)[0]
    assert exact == pytest.approx(by_cdf, rel=1e-11)
    assert loss[0] == pytest.approx(exact, rel=1e-11)


def test_energy_distance_is_twice_the_squared_cdf_difference_at_faces() -> None:
    mu, nu = some_weights(3, 20, 1), some_weights(3, 20, 2)
    loss, _ = EnergyDistance((20,), (0.3,)).value_and_variation(mu, nu)
    faces = np.cumsum(mu - nu, axis=1)[:, :-1]
    np.testing.assert_allclose(loss, 2 * 0.3 * np.sum(faces**2, axis=1), rtol=1e-12)


@pytest.mark.parametrize(("shape", "spacing"), [((30,), (0.3,)), ((6, 5), (0.3, 0.7)), ((3, 4, 2), (0.2, 0.5, 0.9))])
def test_energy_distance_is_the_double_sum(shape: tuple[int, ...], spacing: tuple[float, ...]) -> None:
    axes = [h * np.arange(n) for n, h in zip(shape, spacing, strict=True)]
    points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    mu, nu = some_weights(2, len(points), 1), some_weights(1, len(points), 2)[0]
    loss, variation = EnergyDistance(shape, spacing).value_and_variation(mu, nu)
    for b in range(2):
        direct = 2 * mu[b] @ distance @ nu - mu[b] @ distance @ mu[b] - nu @ distance @ nu
        assert loss[b] == pytest.approx(direct, rel=1e-12)
        np.testing.assert_allclose(variation[b], 2 * distance @ (nu - mu[b]), atol=1e-13)


def test_energy_distance_in_the_plane_converges_at_order_two() -> None:
    def rice_mean(shift: float, variance: float) -> float:
        """E|N((shift, 0), variance I)|: Rice, Bell Syst. Tech. J. 24 (1945), 46, section 3.10."""
        z = shift**2 / (4 * variance)
        return float(np.sqrt(np.pi * variance / 2) * ((1 + 2 * z) * ive(0, z) + 2 * z * ive(1, z)))

    exact = 2 * rice_mean(1.0, 1.1) - rice_mean(0.0, 0.8) - rice_mean(0.0, 1.4)
    errors = []
    for n in (48, 96):
        edges = np.linspace(-6, 6, n + 1)
        mu = np.outer(gaussian_masses(0.5, 0.4, edges), gaussian_masses(0.0, 0.4, edges)).reshape(1, -1)
        nu = np.outer(gaussian_masses(-0.5, 0.7, edges), gaussian_masses(0.0, 0.7, edges)).ravel()
        errors.append(abs(EnergyDistance((n, n), (12 / n, 12 / n)).value_and_variation(mu, nu)[0][0] - exact))
    assert errors[1] < 1e-3
    assert np.log2(errors[0] / errors[1]) > 1.8


def test_energy_distance_of_a_law_to_itself_is_zero() -> None:
    mu = some_weights(2, 20)
    loss, variation = EnergyDistance((4, 5), (1.0, 1.0)).value_and_variation(mu, mu)
    assert not loss.any()
    assert not variation.any()


@pytest.mark.parametrize("degree", range(9))
def test_box_filter_of_the_deconvolved_polynomial_is_the_polynomial(degree: int) -> None:
    coefficients = np.random.default_rng(degree).normal(size=degree + 1)
    h = 0.7
    primitive = Polynomial(deconvolved_polynomial(coefficients, h)).integ()
    x = np.linspace(-1.5, 1.5, 11)
    filtered = (primitive(x + h / 2) - primitive(x - h / 2)) / h
    np.testing.assert_allclose(filtered, Polynomial(coefficients)(x), rtol=1e-12, atol=1e-12)


def test_deconvolved_powers_by_hand() -> None:
    h = 0.5
    np.testing.assert_allclose(deconvolved_polynomial([0, 0, 1], h), [-(h**2) / 12, 0, 1], rtol=1e-15)
    quartic = [7 * h**4 / 240, 0, -(h**2) / 2, 0, 1]  # x⁴ − h²/24 · 12 x² + 7h⁴/5760 · 24
    np.testing.assert_allclose(deconvolved_polynomial([0, 0, 0, 0, 1], h), quartic, rtol=1e-15)
    given = [1.0, 2.0, 3.0]
    assert deconvolved_polynomial(given, 0.0).tolist() == given
    assert given == [1.0, 2.0, 3.0]
    array = np.array([0.0, 0.0, 1.0])
    deconvolved_polynomial(array, h)
    assert array.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "targets", "words"),
    [
        ("regression", np.full((4, 3), np.nan), "finite"),
        ("regression", np.zeros((4, 2)), r"\(4, 3\)"),
        ("regression", np.zeros((3, 3)), r"\(4, 3\)"),
        ("regression", [[1.0], [1.0, 2.0]], "numbers"),
        ("regression", None, "missing"),
        ("binary", [0, 1, 2, 0], "sequence 2 is 2; allowed: whole numbers from 0 to 1"),
        ("binary", [0, -1, 1, 0], "sequence 1 is -1"),
        ("binary", [0, 0.5, 1, 0], r"sequence 1 is 0\.5"),
        ("binary", [0, 1, 1], "each of the 4"),
        ("binary", [0, 1, np.nan, 0], "finite"),
        ("four classes", [0, 1, 4, 2], "from 0 to 3"),
        ("energy distance 1-D", np.zeros(11), r"\(4, 12\)"),
        ("energy distance 1-D", np.full(12, np.inf), "finite"),
    ],
)
def test_unusable_targets_are_refused(name: str, targets: ArrayLike | None, words: str) -> None:
    with pytest.raises(MeanFieldError, match=words):
        CASES[name][0].value_and_variation(some_weights(4, 12), targets)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MeanFieldError, match="finite"):
        FeatureMap(np.array([[1.0, np.nan]]))
    with pytest.raises(MeanFieldError, match="at least one"):
        FeatureMap(np.zeros((0, 3)))
    with pytest.raises(MeanFieldError, match=r"readout \(2, 2\) must be \(classes, 3\)"):
        CrossEntropy(FEATURES, np.zeros((2, 2)), np.zeros(2))
    with pytest.raises(MeanFieldError, match="bias"):
        CrossEntropy(FEATURES, np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(MeanFieldError, match="finite"):
        CrossEntropy(FEATURES, np.zeros((1, 3)), np.array([np.inf]))
    with pytest.raises(MeanFieldError, match="one positive entry per axis"):
        EnergyDistance((4, 4), (1.0,))
    with pytest.raises(MeanFieldError, match="one mass per point"):
        PooledRegression(FEATURES).predict(some_weights(2, 11))
    with pytest.raises(MeanFieldError, match="flat list"):
        deconvolved_polynomial([[1.0]], 0.1)
