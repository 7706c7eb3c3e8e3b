"""Where the central limit is believed, what stands for several runs, and which faults would be seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from meanfield_pde.validation.detectable import detectable
from meanfield_pde.validation.effects import Effect
from meanfield_pde.validation.observables import Found, Label
from meanfield_pde.validation.sampling_noise import Noise, in_groups, noise_of

LABELS = ((Label("a", 1.0), Label("b", 1.0)), (Label("W1", 1.0),))


def rows(count: int = 400, mean: float = 0.0, factor: float = 1.0) -> Found:
    rng = np.random.default_rng(3)
    smooth = rng.standard_normal((count, 2)) * np.array([1.0, factor]) + np.array([0.0, mean])
    return Found(smooth, np.exp(rng.standard_normal((count, 1))))


def made(own: Found, allowed: tuple[bool, bool] = (True, True)) -> Noise:
    zero = np.zeros(2)
    return noise_of(LABELS, zero, zero, None, np.eye(2), np.array(allowed), own)


def test_the_central_limit_is_believed_where_own_runs_do_not_deny_it() -> None:
    noise = made(rows())
    assert noise.holds.tolist() == [True, True]
    assert noise.deviations.tolist() == [1.0, 1.0]
    assert noise.center.tolist() == [0.0, 0.0]
    for own in (rows(mean=0.4), rows(factor=1.4)):
        noise = made(own)
        assert noise.holds.tolist() == [True, False]
        assert noise.center[1] == pytest.approx(own.smooth[:, 1].mean())
        assert noise.deviations[1] == pytest.approx(own.smooth[:, 1].std(ddof=1))
        assert noise.judged.tolist() == [0]
    assert made(rows(), (False, True)).judged.tolist() == [1]
    # if it holds nowhere, own runs give the covariance too
    nowhere = made(rows(), (False, False))
    np.testing.assert_allclose(nowhere.covariance, np.cov(rows().smooth, rowvar=False))


def test_few_own_runs_deny_nothing_that_chance_explains() -> None:
    assert made(rows(40, mean=0.4)).holds.tolist() == [True, True]


def test_rows_for_several_runs_are_as_far_from_the_mean_of_own_runs_as_fresh_ones() -> None:
    own = rows(4000)
    grouped = in_groups(own, 5)
    center = own.smooth.mean(axis=0)
    # 1/R for the data and 1/M for the mean of own runs
    wanted = own.smooth.var(axis=0) * (1.0 / 5.0 + 1.0 / 4000.0)
    np.testing.assert_allclose(((grouped.smooth - center) ** 2).mean(axis=0), wanted, rtol=0.1)
    assert in_groups(own, 1) is own


def effect(changes: list[list[float]], values: list[float]) -> Effect:
    one = np.array(changes)
    return Effect("fault", "words", np.array(values), one, np.zeros((len(one), 2, 2)), np.ones(one.shape))


def test_the_smallest_fault_and_the_power_are_those_of_the_normal_law() -> None:
    # one statistic is told of the fault: with two independent ones c solves (2Φ(c) − 1)² = .95
    c = norm.ppf(0.5 * (1.0 + 0.95**0.5))
    noise = made(rows())
    one, two = detectable(
        noise,
        (effect([[-8.0, 0.0], [0.0, 0.0], [8.0, 0.0]], [0.0, 1.0, 2.0]), effect([[2.0, 0.0]], [])),
        0.05,
    )

    def power(shift: float) -> float:
        missed = (norm.cdf(c - shift) - norm.cdf(-c - shift)) * (2.0 * norm.cdf(c) - 1.0)
        return float(1.0 - missed)

    assert two.power == pytest.approx(power(2.0), abs=0.01)
    assert one.above is not None
    assert one.below is not None
    assert power(8.0 * (one.above - 1.0)) == pytest.approx(0.8, abs=0.01)
    assert one.above - 1.0 == pytest.approx(1.0 - one.below, abs=0.01)
    (small,) = detectable(noise, (effect([[-0.1, 0.0], [0.0, 0.0], [0.1, 0.0]], [0.0, 1.0, 2.0]),), 0.05)
    assert small.above is None
    assert small.below is None
