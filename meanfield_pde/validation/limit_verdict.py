"""Is a sample what N tokens of the mean-field limit look like? Statistics against their noise, at one level for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.family import Family, by_rank, two_sided, upper
from meanfield_pde.validation.own_runs import ParticleCode
from meanfield_pde.validation.sampling_noise import Noise
from meanfield_pde.validation.trajectory import Trajectory

LEVEL = 0.05
# a grid error above this part of the noise is said
GRID_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Smooth:
    """A smooth statistic at a time: what was found and predicted, the noise, and its p-values for the whole family.

    Meaning: ``z`` is the difference in units of the noise, ``p`` from own runs, ``p_clt`` from the central limit; the
    prediction is that of the grid with ``layer``, what finitely many layers change. Where ``p_clt`` is None the central
    limit does not hold, and ``z`` is that from the mean of own runs.
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


def why_not(problem: Problem, trajectory: Trajectory, code: ParticleCode) -> str | None:
    """Why there is no limit verdict on these data, or None."""
    if not np.allclose(trajectory.weights, 1.0 / trajectory.count, rtol=1e-9, atol=0.0):
        return "the weights of the tokens differ, and how they were drawn is not known: tokens of equal weight have one"
    if code.sampling == "quantile":
        return "tokens at quantiles have no noise: take the identity verdict"
    if given(problem.tokens, "tokens").noise > 0.0:
        return "token noise is not covered for particles"
    return None


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
    z = (rows - noise.center) / spread
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
        float(np.abs((noise.smooth.mean(axis=0) - noise.predicted) / noise.deviations).max()),
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
            f"from t = {first:g} on N is too small for the central limit of {', '.join(names)} (a few tokens far out "
            "rule the noise, or the mean is off by it): our own runs are the measure there"
        )
    if p_clt is not None and (p > level) != (p_clt > level):
        out.append(
            f"own runs and the central limit disagree at this level (p = {p:.3g} and {p_clt:.3g}): near the level "
            "this may be chance; with few tokens the central limit is less exact"
        )
    return out
