"""Slopes of errors that are known to fall at a rate, how often their intervals hold it, and floors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.validation.rates import fit_rate

SIZES = np.array([64.0, 128.0, 256.0, 512.0, 1024.0])
LONG = np.array([16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0])


def noisy(seed: int, slope: float, runs: tuple[int, ...], floor: float = 0.0) -> list[np.ndarray]:
    """Errors whose mean square is n^{2 slope} + floor²: of one clump (chi squared) and of two (|normal|) in turn."""
    rng = np.random.default_rng(seed)
    scale = rng.normal(size=(len(runs), max(runs)))
    share = scale**2 if seed % 2 else np.abs(scale) * math.sqrt(math.pi / 2)
    return [
        np.sqrt(share[k, :r] * n ** (2 * slope) + floor**2) for k, (n, r) in enumerate(zip(SIZES, runs, strict=True))
    ]


def test_an_exact_power_has_its_slope_and_no_interval_from_single_runs() -> None:
    rate = fit_rate(SIZES[::-1], [np.array([3.0 * n**-0.25]) for n in SIZES[::-1]])
    assert rate.slope == pytest.approx(-0.25, abs=1e-13)
    assert rate.factor == pytest.approx(3.0, rel=1e-12)
    assert (rate.lower, rate.upper, rate.straight, rate.floor) == (None, None, None, 0.0)
    np.testing.assert_array_equal(rate.sizes, SIZES)
    assert "no interval: it takes 4 runs" in rate.words()


@pytest.mark.parametrize(
    ("slope", "runs", "floor"),
    [(-0.25, (8,) * 5, 0.0), (-0.5, (40, 40, 20, 10, 10), 0.0), (-0.5, (30,) * 5, 0.03)],
)
def test_the_interval_holds_the_slope_as_often_as_it_says(slope: float, runs: tuple[int, ...], floor: float) -> None:
    # 95 % of 300 are 285 ± 3.8; percentiles of heavy tails fall short by a few
    rates = [fit_rate(SIZES, noisy(k, slope, runs, floor), floor=floor, resamples=500, seed=k) for k in range(300)]
    held = np.mean([r.lower <= slope <= r.upper for r in rates if r.lower is not None and r.upper is not None])
    assert 0.90 <= held <= 0.99
    spread = np.std([r.slope for r in rates])
    wide = np.mean([r.upper - r.lower for r in rates if r.lower is not None and r.upper is not None])
    assert 0.8 <= wide / (2 * 1.96 * spread) <= 1.3
    assert np.mean([r.slope for r in rates]) == pytest.approx(slope, abs=4 * spread / math.sqrt(300) + 0.01)
    # lines are seldom said to be bent
    assert np.mean([r.straight < 0.05 for r in rates if r.straight is not None]) <= 0.13


def test_ninety_per_cent_hold_less_often_than_ninety_nine() -> None:
    held = [
        np.mean(
            [
                r.lower <= -0.5 <= r.upper
                for k in range(200)
                for r in [fit_rate(SIZES, noisy(k, -0.5, (20,) * 5), level=level, resamples=500, seed=k)]
                if r.lower is not None and r.upper is not None
            ]
        )
        for level in (0.5, 0.99)
    ]
    assert 0.4 <= held[0] <= 0.6
    assert held[1] >= 0.95


@pytest.mark.parametrize("slope", [-0.25, -1.0, -4.0])
def test_a_known_floor_comes_off_in_quadrature(slope: float) -> None:
    exact = 0.7 * LONG**slope
    floor = float(exact[-1])
    errors = [np.array([value]) for value in np.hypot(exact, floor)]
    rate = fit_rate(LONG, errors, floor=floor)
    assert rate.slope == pytest.approx(slope, abs=1e-9)
    np.testing.assert_allclose(rate.above, exact, rtol=1e-7)
    assert abs(fit_rate(LONG, errors).slope - slope) > 0.01


@pytest.mark.parametrize("slope", [-0.25, -0.5, -1.0, -4.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 3.0])
def test_a_floor_that_is_not_known_is_found_with_the_slope(slope: float, share: float) -> None:
    exact = 0.7 * LONG**slope
    floor = share * float(exact[-2])
    rate = fit_rate(LONG, [np.array([value]) for value in np.hypot(exact, floor)], floor="fit")
    assert rate.slope == pytest.approx(slope, abs=2e-3)
    assert rate.floor == pytest.approx(floor, rel=0.02, abs=0.02 * exact[-1])
    assert rate.factor == pytest.approx(0.7, rel=0.02)
    assert rate.fitted
    assert rate.straight is None


def test_an_interval_with_a_fitted_floor_is_wider_and_holds_the_slope() -> None:
    held, wider = [], []
    for k in range(40):
        errors = noisy(k, -0.5, (60,) * 5, 0.04)
        fitted, known = (fit_rate(SIZES, errors, floor=f, resamples=300, seed=k) for f in ("fit", 0.04))
        assert fitted.lower is not None
        assert fitted.upper is not None
        assert known.lower is not None
        assert known.upper is not None
        held.append(fitted.lower <= -0.5 <= fitted.upper)
        wider.append(fitted.upper - fitted.lower > known.upper - known.lower)
    # 95 % of 40 are 38 ± 1.4
    assert sum(held) >= 34
    assert all(wider)


def test_runs_that_are_the_same_at_every_size_are_resampled_together() -> None:
    # one factor a run: it moves the line and not its slope
    factor = np.random.default_rng(3).lognormal(sigma=0.8, size=20)
    errors = [factor / n for n in SIZES]
    paired, apart = (fit_rate(SIZES, errors, paired=way, seed=1) for way in (True, False))
    assert paired.lower == pytest.approx(-1.0, abs=1e-12)
    assert paired.upper == pytest.approx(-1.0, abs=1e-12)
    assert apart.lower is not None
    assert apart.lower < -1.1


def test_a_bend_is_noticed() -> None:
    rng = np.random.default_rng(0)
    curve = SIZES**-0.5 + 8.0 / SIZES
    rate = fit_rate(SIZES, [value * np.sqrt(rng.chisquare(20, 800) / 20) for value in curve])
    assert rate.straight is not None
    assert rate.straight < 1e-4
    assert "not on one line" in rate.words()
    line = fit_rate(SIZES, [n**-0.5 * np.sqrt(rng.chisquare(20, 800) / 20) for n in SIZES])
    assert line.straight is not None
    assert line.straight > 0.01
    assert "not on one line" not in line.words()


def test_the_slope_does_not_depend_on_units_or_order_and_the_interval_on_the_seed_alone() -> None:
    errors = noisy(1, -0.5, (10,) * 5)
    one, same = fit_rate(SIZES, errors, seed=4), fit_rate(SIZES, errors, seed=4)
    assert (one.lower, one.upper) == (same.lower, same.upper)
    assert fit_rate(SIZES, errors, seed=5).lower != one.lower
    scaled = fit_rate(10 * SIZES[::-1], [1e-9 * e for e in errors[::-1]])
    assert scaled.slope == pytest.approx(one.slope, abs=1e-12)
    more = fit_rate(SIZES, [np.tile(e, 4) for e in errors])
    assert more.slope == pytest.approx(one.slope, abs=1e-12)
    assert more.lower is not None
    assert one.lower is not None
    assert more.slope - more.lower < 0.6 * (one.slope - one.lower)


ERRORS = [np.array([1.0, 2.0]) / n for n in SIZES]
FAULTS: dict[str, tuple[tuple[Any, Any], dict[str, Any], str]] = {
    "one size": (([64], ERRORS[:1]), {}, "at least 2 different numbers"),
    "twice": (([64, 64], ERRORS[:2]), {}, "different numbers > 0"),
    "no size": (([0, 64], ERRORS[:2]), {}, "different numbers > 0"),
    "not as many": ((SIZES, ERRORS[:2]), {}, "2 lists of errors for sizes of shape"),
    "a table": (([64, 128], [np.ones((2, 2)), np.ones(2)]), {}, r"errors at size 64 have shape \(2, 2\)"),
    "nan": (([64, 128], [np.ones(2), np.array([np.nan, 1])]), {}, "errors at size 128 must be finite"),
    "negative": (([64, 128], [np.ones(2), np.array([-1.0, 1])]), {}, r"≥ 0: \[-1.0\]"),
    "zero": (([64, 128], [np.ones(2), np.zeros(2)]), {}, "all errors at size 128 are 0"),
    "floor too high": ((SIZES, ERRORS), {"floor": 0.01}, "at size 256 is not clear of the floor of 1.00e-02"),
    "floor below 0": ((SIZES, ERRORS), {"floor": -1.0}, "floor = -1.0 must be"),
    "floor in words": ((SIZES, ERRORS), {"floor": "grid"}, "floor = 'grid': give a number"),
    "too few for a floor": ((SIZES[:3], ERRORS[:3]), {"floor": "fit"}, "from at least 4 sizes, not 3"),
    "level": ((SIZES, ERRORS), {"level": 95}, "level = 95 must be between 0 and 1"),
    "resamples": ((SIZES, [np.ones(4)] * 5), {"resamples": 10}, "at least 100"),
    "pairs": ((SIZES[:2], [np.ones(2), np.ones(3)]), {"paired": True}, r"as many at each size, not \[2, 3\]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_that_have_no_rate_are_refused(fault: str) -> None:
    given, keys, words = FAULTS[fault]
    with pytest.raises(MeanFieldError, match=words):
        fit_rate(*given, **keys)


def test_every_run_has_the_same_weight_in_the_slope() -> None:
    runs = (40, 20, 10, 8, 4)
    errors = noisy(2, -0.5, runs)
    logs = [0.5 * math.log(np.mean(one**2)) for one in errors]
    # polyfit weighs residuals before they are squared
    exact = np.polyfit(np.log(SIZES), logs, 1, w=np.sqrt(runs))
    rate = fit_rate(SIZES, errors)
    assert rate.slope == pytest.approx(exact[0], abs=1e-12)
    assert rate.factor == pytest.approx(math.exp(exact[1]), rel=1e-12)
