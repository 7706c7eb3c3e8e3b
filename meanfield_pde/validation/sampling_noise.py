"""The noise of statistics of N tokens at several times: from the costate where N is large enough, or from own runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.particles.of_problem import particle_tokens
from meanfield_pde.particles.tokens import edges_at
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.central_limit import central_limit
from meanfield_pde.validation.family import NormalMaximum, normal_maximum
from meanfield_pde.validation.limit_law import LimitLaw, grid_error, limit_law
from meanfield_pde.validation.observables import Found, Label, Observables, observables, predicted
from meanfield_pde.validation.own_runs import STREAM, ParticleCode, Said, layer_error, own_runs

RUNS = 99
# own runs for each run of the data, at least
FOR_EACH = 4
# own runs below this many cannot reject at the usual level, or say what noise is
LEAST_RUNS, MOST_RUNS = 39, 100_000
# the central limit is not used for a statistic if single tokens make more than this share of its variance,
FEW_SHARE = 0.05
# or if own runs show that N is too small: a mean off by more than this part of the noise, or a variance by this factor,
OFF, FACTOR = 0.2, 1.2
# each beyond so many deviations of what that many own runs tell
SURE = 3.5


@dataclass(frozen=True, slots=True)
class Noise:
    """What the statistics at all times are without a fault, for the mean over as many runs as the data have.

    Shapes: predicted, finite, grid_error, center, deviations, holds (k,), judged (j,), covariance (j, j), own: smooth
    (own runs, k) and distances (own runs, l).
    Meaning: ``predicted`` is the limit on the grid with ``finite``, what finitely many steps change. ``holds`` says
    where N is large enough for the central limit: there ``center`` and ``deviations`` are those of the limit; elsewhere
    they are the mean and the deviation of own runs. ``covariance`` is that of the statistics at the places ``judged``:
    where it holds, or all if it holds nowhere; ``maximum`` is the law of the largest of them.
    """

    smooth_labels: tuple[Label, ...]
    distance_labels: tuple[Label, ...]
    predicted: FloatArray
    finite: FloatArray
    grid_error: FloatArray | None
    center: FloatArray
    deviations: FloatArray
    holds: BoolArray
    judged: IntArray
    covariance: FloatArray
    maximum: NormalMaximum
    own: Found

    @property
    def bias(self) -> FloatArray:
        """How far the mean of own runs is from the prediction (k,), in units of the noise."""
        return np.asarray((self.own.smooth.mean(axis=0) - self.predicted) / positive(self.deviations))


@dataclass(frozen=True, slots=True)
class Prepared:
    """The limit of a problem at the times of a trajectory, what is read off tokens there, and the noise of it."""

    law: LimitLaw
    observed: Observables
    noise: Noise

    @property
    def grid(self) -> Grid:
        """The grid of the law."""
        return self.law.grid

    @property
    def densities(self) -> FloatArray:
        """The law (m, *cells) at the times."""
        return self.law.densities


def prepare(
    problem: Problem,
    code: ParticleCode,
    times: FloatArray,
    runs: int = 1,
    own: int = RUNS,
    *,
    threads: int = 1,
    stream: int = STREAM,
    said: Said | None = None,
) -> Prepared:
    """Predict the statistics of the mean over ``runs`` of a code, and their noise, with ``own`` runs of ours, or 4 for
    each of the data if that is more.

    Raises: MeanFieldError for times that are no layer edges, heads that are a law without a number, or too few runs.
    """
    check_own(own)
    particle_tokens(problem, code.heads, seed=problem.seed)  # refuses what particles do not have
    edges_at(tuple(times.tolist()), given(problem.depth, "depth").T, code.layers)
    law = limit_law(problem, times)
    observed = observables(times, law.densities, law.grid)
    finite = layer_error(problem, code, observed)
    found = own_runs(problem, code, observed, max(own, FOR_EACH * runs), threads=threads, stream=stream, said=said)
    expected = predicted(observed, law.densities, law.grid) + finite
    limit = covariance = None
    if code.sampling == "iid" and code.heads is None:
        limit = central_limit(law, observed.statistics, threads)
        covariance = limit.covariance / (code.count * runs)
    few = None if limit is None else limit.ruled_by_few(code.count) <= FEW_SHARE
    labels = observed.smooth_labels, observed.distance_labels
    grouped = in_groups(found, runs, stream)
    error = grid_error(problem, law, observed)
    return Prepared(law, observed, noise_of(labels, expected, finite, error, covariance, few, grouped))


def check_own(own: int, level: float = 0.05) -> None:
    """Refuse too few own runs: their ranks know no p-value below 1/(1 + own)."""
    least = max(LEAST_RUNS, ceil(1.0 / level) - 1)
    if isinstance(own, bool) or not least <= own <= MOST_RUNS:
        why = f" to reject at level {level:g}" if least > LEAST_RUNS else " to know the noise"
        raise MeanFieldError(f"runs = {own}: take {least} to {MOST_RUNS} of our own runs{why}")


def noise_of(
    labels: tuple[tuple[Label, ...], tuple[Label, ...]],
    expected: FloatArray,
    finite: FloatArray,
    error: FloatArray | None,
    covariance: FloatArray | None,
    allowed: BoolArray | None,
    own: Found,
) -> Noise:
    """The noise: of a central limit (k, k) where it is ``allowed`` (k,) and own runs do not deny it, else of these."""
    deviations, center = own.smooth.std(axis=0, ddof=1), own.smooth.mean(axis=0)
    holds, judged = np.zeros(len(expected), dtype=bool), np.arange(len(expected))
    if covariance is not None and allowed is not None:
        wanted = np.sqrt(np.diag(covariance))
        holds = allowed & _met(own.smooth, expected, wanted)
        deviations, center = np.where(holds, wanted, deviations), np.where(holds, expected, center)
    if covariance is not None and holds.any():
        judged = np.flatnonzero(holds)
        covariance = covariance[np.ix_(judged, judged)]
    else:
        covariance = np.atleast_2d(np.cov(own.smooth, rowvar=False))
    maximum = normal_maximum(covariance)
    return Noise(*labels, expected, finite, error, center, deviations, holds, judged, covariance, maximum, own)


def _met(smooth: FloatArray, expected: FloatArray, deviations: FloatArray) -> BoolArray:
    """Whether own runs (own, k) have the mean and the variance that the central limit says, as far as they tell."""
    own, scale = len(smooth), positive(deviations)
    off = np.abs(smooth.mean(axis=0) - expected) / scale
    factor = np.abs(np.log(positive(smooth.var(axis=0, ddof=1) / scale**2)))
    far = (off > OFF) & (off * np.sqrt(own) > SURE)
    wide = (factor > np.log(FACTOR)) & (factor * np.sqrt(own / 2.0) > SURE)
    return np.asarray(~(far | wide))


def positive(values: FloatArray) -> FloatArray:
    """Values with 0 made the least number, to divide by."""
    return np.maximum(values, np.finfo(float).tiny)


def in_groups(own: Found, runs: int, stream: int = STREAM) -> Found:
    """Rows that stand for the mean over ``runs`` runs of the data, as many as own runs.

    Formula: m + (1 + R/M)^{1/2} (mean of R of the M own runs, drawn with replacement, − m), m their mean: as far from m
    as the mean over R fresh runs is.
    Source: Efron 1979 (the bootstrap).
    """
    if runs == 1:
        return own
    rng, count = np.random.default_rng([stream, runs]), len(own.smooth)
    groups, stretch = rng.integers(count, size=(count, runs)), np.sqrt(1.0 + runs / count)
    return Found(*(one.mean(axis=0) + stretch * (one[groups].mean(axis=1) - one.mean(axis=0)) for one in own))
