"""Many statistics at one level: ranks among own runs, the largest of correlated normal numbers, and power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from meanfield_pde.validation.family import by_rank, normal_maximum, two_sided, upper


def test_scores_are_logarithms_of_tail_probabilities() -> None:
    z = np.array([0.0, 1.0, -3.0, 40.0])
    np.testing.assert_allclose(two_sided(z)[:3], -np.log(2.0 * norm.sf(np.abs(z[:3]))), rtol=1e-12)
    assert two_sided(z)[3] == pytest.approx(-norm.logsf(40.0) - np.log(2.0))
    values = np.exp(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]))
    found = upper(values)
    np.testing.assert_allclose(found[:, 0], -norm.logsf(np.array([-1.0, 0.0, 1.0]) * np.sqrt(1.5)), rtol=1e-12)
    # what does not vary says nothing
    np.testing.assert_allclose(found[:, 1], np.log(2.0))


def test_the_rank_counts_rows_at_least_as_extreme_as_each_statistic() -> None:
    scores = np.array([[3.0, 1.0], [2.0, 0.0], [0.0, 3.5], [1.0, 1.0], [0.5, 0.2]])
    family = by_rank(scores)
    np.testing.assert_allclose(family.adjusted, [2 / 5, 4 / 5])
    assert family.p == pytest.approx(2 / 5)


def test_exchangeable_rows_are_rejected_at_the_level_whatever_the_scores() -> None:
    rng = np.random.default_rng(11)
    rejected = sum(by_rank(rng.standard_cauchy((20, 3)) ** 2).p <= 0.05 for _ in range(2000))
    # level 1/20 exactly; the bounds are crossed by chance once in 10^4
    assert binom.ppf(5e-5, 2000, 0.05) <= rejected <= binom.ppf(1 - 5e-5, 2000, 0.05)


def test_the_largest_of_independent_normal_numbers() -> None:
    maximum = normal_maximum(np.diag([4.0, 1.0, 0.01]))
    z = np.array([2.0, 1.2, -2.5])
    exact = 1.0 - (1.0 - 2.0 * norm.sf(np.abs(z))) ** 3
    np.testing.assert_allclose(maximum.adjusted(z).adjusted, exact, atol=5e-3)
    c = maximum.critical(0.05)
    assert 1.0 - (1.0 - 2.0 * norm.sf(c)) ** 3 == pytest.approx(0.05, abs=3e-3)
    # far out the union bound, not 0
    assert maximum.adjusted(np.array([9.0, 0.0, 0.0])).p == pytest.approx(6.0 * norm.sf(9.0))


def test_numbers_that_are_one_number_count_once() -> None:
    maximum = normal_maximum(np.ones((5, 5)))
    assert maximum.critical(0.05) == pytest.approx(norm.isf(0.025), abs=0.02)


def test_power_and_the_smallest_fault_of_one_statistic() -> None:
    maximum = normal_maximum(np.array([[2.0]]))
    c = norm.isf(0.025)
    for shift in (0.0, 1.0, 3.0):
        exact = norm.cdf(shift - c) + norm.cdf(-shift - c)
        assert maximum.power(np.array([shift]), 0.05) == pytest.approx(exact, abs=6e-3)
    # 80 % power at 5 %: shift 2.8016 (Cohen 1988)
    assert maximum.smallest(np.array([0.5]), 0.05, 0.8) == pytest.approx(2.8016 / 0.5, rel=0.01)
    assert maximum.smallest(np.array([0.0]), 0.05, 0.8) == np.inf
