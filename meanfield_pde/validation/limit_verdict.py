"""Is a sample what N tokens of the mean-field limit look like? Statistics against their noise, at one level for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.particles.tokens import edges_of
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.central_limit import central_limit
from meanfield_pde.validation.family import Family, NormalMaximum, by_rank, normal_maximum, two_sided, upper
from meanfield_pde.validation.limit_law import check_one_law, grid_error, limit_law
from meanfield_pde.validation.observables import Observables, observables
from meanfield_pde.validation.own_runs import STREAM, ParticleCode, Said, layer_error, own_runs
from meanfield_pde.validation.trajectory import Trajectory

LEVEL, RUNS = 0.05, 99
# own runs below this many cannot reject at the usual level, or say what noise is
LEAST_RUNS = 39
# a grid error above this part of the noise is said
GRID_SHARE = 0.2
# the central limit is not used for a statistic if single tokens make more than this share of its variance
FEW_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Smooth:
    """A smooth statistic at a time: what was found and predicted, the noise, and its p-values for the whole family.

    Meaning: ``z`` is the difference in units of the noise, ``p`` from own runs, ``p_clt`` from the central limit; the
    prediction is that of the grid with ``layer``, what finitely many layers change.
    """

    name: str
    time: float
    value: float
    predicted: float
    layer: float
    grid_error: float | None
    noise: float
    z: float
    p: float
    p_clt: float | None


@dataclass(frozen=True, slots=True)
class Distance:
    """A distance to the law at a time, the middle one of our own runs, and its p-value for the whole family."""

    name: str
    time: float
    value: float
    typical: float
    p: float


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """Whether the sample is what N tokens of the limit look like.

    Meaning: ``p`` is the probability that our own runs show any statistic as extreme as the most extreme one here,
    ``p_clt`` the same for the smooth ones by the central limit, None where that does not hold. ``variance_ratio`` are
    the least and largest variance of own runs over that of the central limit, ``bias`` the largest mean of own runs in
    units of noise: the two routes check each other.
    """

    passed: bool
    level: float
    p: float
    p_clt: float | None
    code: ParticleCode
    runs: int
    own_runs: int
    smooth: tuple[Smooth, ...]
    distances: tuple[Distance, ...]
    variance_ratio: tuple[float, float] | None
    bias: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noise:
    """What the statistics at all times are without a fault, for the mean over some runs of the code.

    Shapes: predicted, layer, deviations (m, S), holds (m, S), covariance (k, k), smooth (own, m, S), distances
    (own, m, D).
    Meaning: ``holds`` says where the central limit gives the deviation; elsewhere own runs do. ``covariance`` is that
    of the statistics at ``judged`` (k,), places in the flat (m, S): where it holds, or all if it holds nowhere, and
    ``maximum`` the law of the largest of them.
    """

    observed: Observables
    predicted: FloatArray
    layer: FloatArray
    grid_error: FloatArray | None
    deviations: FloatArray
    holds: BoolArray
    judged: IntArray
    covariance: FloatArray
    maximum: NormalMaximum
    smooth: FloatArray
    distances: FloatArray


def why_not(problem: Problem, trajectory: Trajectory, code: ParticleCode) -> str | None:
    """Why there is no limit verdict on these data, or None."""
    if not np.allclose(trajectory.weights, 1.0 / trajectory.count, rtol=1e-9, atol=0.0):
        return "the weights of the tokens differ, and how they were drawn is not known: tokens of equal weight have one"
    if code.sampling == "quantile":
        return "tokens at quantiles have no noise: take the identity verdict"
    if given(problem.tokens, "tokens").noise > 0.0:
        return "token noise is not covered for particles"
    return None


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
    judged = np.arange(predicted.size)
    covariance = np.cov(smooth.reshape(len(smooth), -1), rowvar=False)
    if limit is not None:
        holds = limit.ruled_by_few(code.count) <= FEW_SHARE
        deviations = np.where(holds, limit.deviations(code.count * runs), deviations)
        if holds.any():
            judged = np.flatnonzero(holds)
            covariance = limit.covariance[np.ix_(judged, judged)] / (code.count * runs)
    error, maximum = grid_error(problem, law, observed.statistics), normal_maximum(covariance)
    return Noise(observed, predicted, layer, error, deviations, holds, judged, covariance, maximum, smooth, far)


def _grouped(smooth: FloatArray, far: FloatArray, runs: int, stream: int) -> tuple[FloatArray, FloatArray]:
    """Means over groups of as many runs as the data have, drawn without replacement from our own."""
    if runs == 1:
        return smooth, far
    rng = np.random.default_rng([stream, runs])
    groups = [rng.choice(len(smooth), runs, replace=runs > len(smooth) // 2) for _ in range(len(smooth))]
    return np.array([smooth[g].mean(axis=0) for g in groups]), np.array([far[g].mean(axis=0) for g in groups])


def limit_verdict(noise: Noise, code: ParticleCode, snapshots: FloatArray, level: float = LEVEL) -> LimitVerdict:
    """The verdict on snapshots (runs, m, N, d) at the times of the noise.

    Meaning: each row, of the data and of own runs, gets scores −log p: smooth statistics by their distance from the
    prediction in units of noise, distances by how large they are among the rows; the largest score of a row is ranked
    among the rows, so the level holds whatever the scores are.
    """
    both = [noise.observed.read(one) for one in snapshots]
    smooth, far = np.mean([a for a, _ in both], axis=0), np.mean([b for _, b in both], axis=0)
    own = len(noise.smooth)
    spread = noise.deviations
    if noise.grid_error is not None:
        spread = np.sqrt(spread**2 + noise.grid_error**2)
    rows = np.concatenate([smooth[None], noise.smooth])
    z = (rows - noise.predicted) / spread
    scores = np.concatenate(
        [two_sided(z).reshape(own + 1, -1), upper(np.concatenate([far[None], noise.distances]).reshape(own + 1, -1))],
        axis=1,
    )
    family = by_rank(scores)
    by_clt = noise.maximum.adjusted(z[0].ravel()[noise.judged]) if noise.holds.any() else None
    return LimitVerdict(
        family.p > level,
        level,
        family.p,
        None if by_clt is None else by_clt.p,
        code,
        len(snapshots),
        own,
        _smooth(noise, smooth, z[0], family, by_clt),
        _distances(noise, far, family),
        _ratio(noise),
        float(np.abs(z[1:].mean(axis=0)).max()),
        tuple(_notes(noise, family.p, None if by_clt is None else by_clt.p, level)),
    )


def _smooth(
    noise: Noise, found: FloatArray, z: FloatArray, family: Family, by_clt: Family | None
) -> tuple[Smooth, ...]:
    out = []
    place = {int(k): n for n, k in enumerate(noise.judged)} if by_clt is not None else {}
    for k, (i, j) in enumerate(np.ndindex(*found.shape)):
        error = None if noise.grid_error is None else float(noise.grid_error[i, j])
        out.append(
            Smooth(
                noise.observed.statistics[j].name,
                float(noise.observed.times[i]),
                float(found[i, j]),
                float(noise.predicted[i, j]),
                float(noise.layer[i, j]),
                error,
                float(noise.deviations[i, j]),
                float(z[i, j]),
                float(family.adjusted[k]),
                float(by_clt.adjusted[place[k]]) if by_clt is not None and k in place else None,
            )
        )
    return tuple(out)


def _distances(noise: Noise, found: FloatArray, family: Family) -> tuple[Distance, ...]:
    typical, first = np.median(noise.distances, axis=0), noise.predicted.size
    return tuple(
        Distance(
            noise.observed.distances[j],
            float(noise.observed.times[i]),
            float(found[i, j]),
            float(typical[i, j]),
            float(family.adjusted[first + k]),
        )
        for k, (i, j) in enumerate(np.ndindex(*found.shape))
    )


def _ratio(noise: Noise) -> tuple[float, float] | None:
    if not noise.holds.any():
        return None
    ratio = (noise.smooth.var(axis=0, ddof=1) / noise.deviations**2)[noise.holds]
    return float(ratio.min()), float(ratio.max())


def _notes(noise: Noise, p: float, p_clt: float | None, level: float) -> list[str]:
    out = []
    if noise.grid_error is None:
        out.append("the grid is too coarse to be halved, so its error is not known: take at least 20 cells an axis")
    else:
        share = float((noise.grid_error / noise.deviations).max())
        if share > GRID_SHARE:
            out.append(f"the error of the grid is up to {share:.2g} of the noise and is added to it: take more cells")
    if noise.holds.any() and not noise.holds.all():
        names = sorted({noise.observed.statistics[j].name for _, j in np.argwhere(~noise.holds)})
        first = float(noise.observed.times[np.argwhere(~noise.holds)[:, 0].min()])
        out.append(
            f"single tokens rule the noise of {', '.join(names)} from t = {first:g} on: N is too small there for the "
            "central limit, and own runs alone judge"
        )
    if p_clt is not None and (p > level) != (p_clt > level):
        out.append(
            f"own runs and the central limit disagree at this level (p = {p:.3g} and {p_clt:.3g}): near the level "
            "this may be chance; with few tokens the central limit is less exact"
        )
    return out
