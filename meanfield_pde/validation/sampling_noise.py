"""The noise of statistics of N tokens at several times: from the costate where N is large enough, or from own runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.particles.tokens import edges_of
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.central_limit import central_limit
from meanfield_pde.validation.family import NormalMaximum, normal_maximum
from meanfield_pde.validation.limit_law import check_one_law, grid_error, limit_law
from meanfield_pde.validation.observables import Observables, observables
from meanfield_pde.validation.own_runs import STREAM, ParticleCode, Said, layer_error, own_runs

RUNS = 99
# own runs below this many cannot reject at the usual level, or say what noise is
LEAST_RUNS = 39
# the central limit is not used for a statistic if single tokens make more than this share of its variance,
FEW_SHARE = 0.05
# or if own runs show that N is too small: a mean off by more than this part of the noise, or a variance by this factor,
OFF, FACTOR = 0.2, 1.2
# each beyond so many deviations of what that many own runs tell
SURE = 3.5


@dataclass(frozen=True, slots=True)
class Noise:
    """What the statistics at all times are without a fault, for the mean over some runs of the code.

    Shapes: predicted, layer, center, deviations (m, S), holds (m, S), covariance (k, k), smooth (own, m, S), distances
    (own, m, D).
    Meaning: ``predicted`` is from the grid with ``layer``, what finitely many layers change. ``holds`` says where N is
    large enough for the central limit: there ``center`` and ``deviations`` are those of the limit; elsewhere they are
    the mean and the deviation of own runs. ``covariance`` is that
    of the statistics at ``judged`` (k,), places in the flat (m, S): where it holds, or all if it holds nowhere, and
    ``maximum`` the law of the largest of them.
    """

    observed: Observables
    predicted: FloatArray
    layer: FloatArray
    grid_error: FloatArray | None
    center: FloatArray
    deviations: FloatArray
    holds: BoolArray
    judged: IntArray
    covariance: FloatArray
    maximum: NormalMaximum
    smooth: FloatArray
    distances: FloatArray


def noise_of(
    problem: Problem,
    code: ParticleCode,
    times: FloatArray,
    runs: int,
    own: int = RUNS,
    *,
    threads: int = 1,
    stream: int = STREAM,
    said: Said | None = None,
) -> Noise:
    """Predict the statistics of a code and their noise: from the costate, and from ``own`` runs of ours.

    Raises: MeanFieldError for times that are no layer edges, heads that are a law without a number, or too few runs.
    """
    check_one_law(problem)
    if own < LEAST_RUNS:
        raise MeanFieldError(f"runs = {own}: at least {LEAST_RUNS} of our own runs are needed to know the noise")
    edges_of(tuple(times.tolist()), given(problem.depth, "depth").T, code.layers)
    law = limit_law(problem, times)
    observed = observables(law)
    independent = code.sampling == "iid" and code.heads is None
    limit = central_limit(law, observed.statistics) if independent else None
    layer = layer_error(problem, code, observed)
    smooth, far = own_runs(problem, code, observed, own, threads=threads, stream=stream, said=said)
    smooth, far = _grouped(smooth, far, runs, stream)
    predicted = law.means(observed.statistics) + layer
    deviations, holds = smooth.std(axis=0, ddof=1), np.zeros(predicted.shape, dtype=bool)
    center, judged = smooth.mean(axis=0), np.arange(predicted.size)
    covariance = np.cov(smooth.reshape(len(smooth), -1), rowvar=False)
    if limit is not None:
        wanted = limit.deviations(code.count * runs)
        holds = (limit.ruled_by_few(code.count) <= FEW_SHARE) & _met(smooth, predicted, wanted)
        deviations, center = np.where(holds, wanted, deviations), np.where(holds, predicted, center)
        if holds.any():
            judged = np.flatnonzero(holds)
            covariance = limit.covariance[np.ix_(judged, judged)] / (code.count * runs)
    error, maximum = grid_error(problem, law, observed.statistics), normal_maximum(covariance)
    return Noise(
        observed, predicted, layer, error, center, deviations, holds, judged, covariance, maximum, smooth, far
    )


def _met(smooth: FloatArray, predicted: FloatArray, deviations: FloatArray) -> BoolArray:
    """Whether own runs (own, m, S) have the mean and the variance that the central limit says, as far as they tell."""
    own = len(smooth)
    off = np.abs(smooth.mean(axis=0) - predicted) / deviations
    factor = np.abs(np.log(smooth.var(axis=0, ddof=1) / deviations**2))
    far = (off > OFF) & (off * np.sqrt(own) > SURE)
    wide = (factor > np.log(FACTOR)) & (factor * np.sqrt(own / 2.0) > SURE)
    return np.asarray(~(far | wide))


def _grouped(smooth: FloatArray, far: FloatArray, runs: int, stream: int) -> tuple[FloatArray, FloatArray]:
    """Means over groups of as many runs as the data have, drawn without replacement from our own."""
    if runs == 1:
        return smooth, far
    rng = np.random.default_rng([stream, runs])
    groups = [rng.choice(len(smooth), runs, replace=runs > len(smooth) // 2) for _ in range(len(smooth))]
    return np.array([smooth[g].mean(axis=0) for g in groups]), np.array([far[g].mean(axis=0) for g in groups])
