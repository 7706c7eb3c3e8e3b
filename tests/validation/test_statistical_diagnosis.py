"""Faults named from smooth statistics alone: effects against closed forms, fits against linear algebra, samples."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import AXIS, SCORE, SUM, TRANSPOSE_A, TRANSPOSE_W, VALUE, Alternative
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.particles.tokens import ParticleTokens
from meanfield_pde.validation.effects import INITIAL, Effect, effects_of
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.smooth_statistics import Statistic, cosine, moment, sine
from meanfield_pde.validation.statistical_diagnosis import StatisticalFit, diagnose_by_statistics

Array = np.ndarray
PROBLEM, _ = library.get("heun_plane")
TIMES = (0.0, 0.5, 1.0)
STATISTICS: tuple[Statistic, ...] = (
    moment(0), moment(1), moment(0, 0), moment(0, 1), moment(1, 1), cosine((1.0, 0.0)), sine((1.0, 0.0)),
    cosine((0.0, 1.0)), sine((0.0, 1.0)),
)  # fmt: skip
MOTION = Motion(particle_tokens(PROBLEM), "heun", 8)


def statistics_of(motion: Motion, count: int, seed: int) -> Array:
    run = motion.run(initial_tokens(PROBLEM, count, seed=seed), 1.0, TIMES)
    return np.array([one.function(x).mean() for x in run.x for one in STATISTICS])


@pytest.fixture(scope="module")
def null() -> tuple[Array, Array]:
    """Mean, and covariance for one token, over independent runs of 250 tokens."""
    runs = np.stack([statistics_of(MOTION, 250, 1000 + seed) for seed in range(160)])
    return runs.mean(axis=0), 250 * np.cov(runs.T)


@pytest.fixture(scope="module")
def effects() -> tuple[Effect, ...]:
    return effects_of(MOTION, initial_tokens(PROBLEM, 600, seed=5), 1.0, TIMES, STATISTICS)


def named(motion: Motion, null: tuple[Array, Array], effects: tuple[Effect, ...]) -> StatisticalFit:
    mean, covariance = null
    observed = statistics_of(motion, 1500, 7)
    best = diagnose_by_statistics(observed - mean, covariance * (1 / 1500 + 1 / (250 * 160)), effects).best
    assert best is not None
    return best


@pytest.mark.parametrize(
    ("alternative", "value"),
    [(SCORE.at(1.4), 1.4), (VALUE.at(1.3), 1.3), (TRANSPOSE_A, None), (TRANSPOSE_W, None), (AXIS, None), (SUM, None)],
)
def test_faults_of_samples_are_named(
    alternative: Alternative, value: float | None, null: tuple[Array, Array], effects: tuple[Effect, ...]
) -> None:
    best = named(Motion(MOTION.model, "heun", 8, alternative), null, effects)
    assert best.name == alternative.name
    assert best.p >= 0.01
    if value is not None:
        assert best.value == pytest.approx(value, abs=0.12)


def test_another_initial_law_is_named(null: tuple[Array, Array], effects: tuple[Effect, ...]) -> None:
    moved = tuple(one for one in effects if one.name == INITIAL)
    assert [one.words[:30] for one in moved] == [
        "the first tokens are shifted a", "the first tokens are shifted a", "the first tokens are stretched"
    ]  # fmt: skip
    mean, covariance = null
    start = initial_tokens(PROBLEM, 1500, seed=7)
    x = start.points.copy()
    x[:, 1] += 0.2
    run = MOTION.run(Measure.particles(x), 1.0, TIMES)
    observed = np.array([one.function(y).mean() for y in run.x for one in STATISTICS])
    best = diagnose_by_statistics(observed - mean, covariance * (1 / 1500 + 1 / 40_000), effects).best
    assert best is not None
    assert best.words == "the first tokens are shifted along x2 by c deviations"
    assert best.value is not None
    assert best.value * float(start.points[:, 1].std()) == pytest.approx(0.2, abs=0.05)


def test_what_has_no_name_is_none_of_these(null: tuple[Array, Array], effects: tuple[Effect, ...]) -> None:
    mean, covariance = null
    strange = statistics_of(MOTION, 1500, 7) - mean
    strange[-len(STATISTICS) :] += 0.3 * np.arange(len(STATISTICS))
    found = diagnose_by_statistics(strange, covariance / 1500, effects)
    assert found.best is None
    assert found.words.startswith("None of these: the nearest is ")


def test_effects_are_those_of_tokens_that_see_their_mean() -> None:
    # A = 0: x(t) = x(0) + (e^{cwt} - 1) mean, whatever the scores; rk4 in many layers is exact
    w = 0.6
    model = ParticleTokens("softmax", "scalar", (Measure.particles(np.array([[w, 0.0]])),))
    x = np.random.default_rng(0).normal(1.0, 0.5, (50, 1))
    found = effects_of(Motion(model, "rk4", 64), Measure.particles(x), 1.0, (0.5, 1.0), (moment(0), moment(0, 0)))
    value, mean = next(one for one in found if one.name == "value scale"), float(x.mean())
    assert "score scale" not in [one.name for one in found]

    def moments(c: float, t: float) -> Array:
        y = x + (exp(c * w * t) - 1.0) * mean
        return np.array([y.mean(), (y**2).mean()])

    for c in (0.5, 1.0, 1.3, 2.0):
        wanted = np.concatenate([moments(c, t) - moments(1.0, t) for t in (0.5, 1.0)])
        np.testing.assert_allclose(value.at(c)[0], wanted, rtol=0, atol=1e-7 if c in (0.5, 1.0, 2.0) else 2e-3)
    # a mean that all differences share has no noise
    assert value.noise[0, 0, 0] == pytest.approx(0.0, abs=1e-20)
    shift = next(one for one in found if one.name == INITIAL)
    change, noise, spread = shift.at(0.4)
    np.testing.assert_allclose(change[[0, 2]], 0.4 * x.std() * np.exp([0.5 * w, w]), rtol=1e-8)
    np.testing.assert_allclose(spread[[0, 2]], 1.0, rtol=1e-12)
    # 2 a x + a^2 for second moments: its noise is 4 a^2 Var(x)/n
    assert noise[1, 1] == pytest.approx(
        ((0.4 * x.std() * exp(0.5 * w) * 2.0) ** 2) * x.var() / 50, rel=1e-8
    )


def test_a_fit_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(1)
    root, e = rng.normal(size=(6, 6)), rng.normal(size=6)
    covariance, d = root @ root.T + 3.0 * np.eye(6), rng.normal(size=6)
    values = np.array([-2.0, 0.0, 2.0, 4.0])
    line = Effect("line", "", values, values[:, None] * e, np.zeros((4, 6, 6)), np.ones((4, 6)))
    fit = diagnose_by_statistics(d, covariance, (line,)).fits[0]
    inverse = np.linalg.inv(covariance)
    best = float(np.clip(e @ inverse @ d / (e @ inverse @ e), -2.0, 4.0))
    assert fit.value == pytest.approx(best, abs=1e-5)
    assert fit.left == pytest.approx((d - best * e) @ inverse @ (d - best * e), rel=1e-6)
    assert fit.freedom == 5
    # units do not matter
    units = 10.0 ** np.arange(6)
    other = Effect("line", "", values, values[:, None] * e * units, np.zeros((4, 6, 6)), np.ones((4, 6)))
    again = diagnose_by_statistics(d * units, covariance * np.outer(units, units), (other,)).fits[0]
    assert again.left == pytest.approx(fit.left, rel=1e-6)
    assert again.p == pytest.approx(fit.p, rel=1e-6)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MeanFieldError, match="3 statistics need a covariance"):
        diagnose_by_statistics(np.zeros(3), np.eye(2), ())
    one = Effect("one", "", np.empty(0), np.zeros((1, 2)), np.zeros((1, 2, 2)), np.ones((1, 2)))
    with pytest.raises(MeanFieldError, match="statistics that fluctuate"):
        diagnose_by_statistics(np.zeros(2), np.zeros((2, 2)), (one,))
    assert diagnose_by_statistics(np.zeros(2), np.eye(2), ()).words == "There is no alternative to compare with."
