"""Is a sample what N particles of the limit look like? Statistics against their noise, at one level for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.validation.family import Family, by_rank, two_sided, upper
from meanfield_pde.validation.observables import Found
from meanfield_pde.validation.sampling_noise import Noise, positive

LEVEL = 0.05
# a grid error above this part of the noise is said
GRID_SHARE = 0.2
# a mean of own runs off the limit by more noise than this is said
OFF_NOISE = 1.0


@dataclass(frozen=True, slots=True)
class Smooth:
    """A smooth statistic at a time: what was found and predicted, the noise, and its p-values for the whole family.

    Meaning: ``z`` is the difference in units of the noise, ``p`` from own runs, ``p_clt`` from the central limit; the
    prediction is that of the grid with ``finite``, what finitely many steps change. Where ``p_clt`` is None the central
    limit does not hold, and ``z`` is that from the mean of own runs.
    """

    name: str
    time: float
    value: float
    predicted: float
    finite: float
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
    """Whether the sample is what N particles of the limit look like.

    Meaning: ``p`` is the probability that our own runs show any statistic as extreme as the most extreme one here,
    ``p_clt`` the same for the smooth ones by the central limit, None where that does not hold. ``variance_ratio`` are
    the least and largest variance of own runs over that of the central limit, ``bias`` the largest mean of own runs in
    units of noise: the two routes check each other.
    """

    passed: bool
    level: float
    p: float
    p_clt: float | None
    own_runs: int
    smooth: tuple[Smooth, ...]
    distances: tuple[Distance, ...]
    variance_ratio: tuple[float, float] | None
    bias: float
    notes: tuple[str, ...]


def limit_verdict(noise: Noise, found: Found, level: float = LEVEL) -> LimitVerdict:
    """The verdict on what was found, the mean over the runs of the data.

    Meaning: each row, of the data and of own runs, gets scores −log p: smooth statistics by their distance from the
    center in units of noise, distances by how large they are among the rows; the largest score of a row is ranked
    among the rows, so the level holds whatever the scores are.
    """
    spread = noise.deviations
    if noise.grid_error is not None:
        spread = np.sqrt(spread**2 + noise.grid_error**2)
    z = (np.concatenate([found.smooth[None], noise.own.smooth]) - noise.center) / positive(spread)
    far = upper(np.concatenate([found.distances[None], noise.own.distances]))
    family = by_rank(np.concatenate([two_sided(z), far], axis=1))
    by_clt = noise.maximum.adjusted(z[0, noise.judged]) if noise.holds.any() else None
    p_clt = None if by_clt is None else by_clt.p
    return LimitVerdict(
        family.p > level,
        level,
        family.p,
        p_clt,
        len(noise.own.smooth),
        _smooth(noise, found, z[0].tolist(), family, by_clt),
        _distances(noise, found, family),
        _ratio(noise),
        float(np.abs(noise.bias).max()),
        tuple(_notes(noise, family.p, p_clt, level)),
    )


def _smooth(noise: Noise, found: Found, z: list[float], family: Family, by_clt: Family | None) -> tuple[Smooth, ...]:
    place = {} if by_clt is None else {int(k): float(p) for k, p in zip(noise.judged, by_clt.adjusted, strict=True)}
    return tuple(
        Smooth(
            name,
            time,
            float(found.smooth[k]),
            float(noise.predicted[k]),
            float(noise.finite[k]),
            None if noise.grid_error is None else float(noise.grid_error[k]),
            float(noise.deviations[k]),
            z[k],
            float(family.adjusted[k]),
            place.get(k),
        )
        for k, (name, time) in enumerate(noise.smooth_labels)
    )


def _distances(noise: Noise, found: Found, family: Family) -> tuple[Distance, ...]:
    typical, first = np.median(noise.own.distances, axis=0), len(noise.smooth_labels)
    return tuple(
        Distance(name, time, float(found.distances[k]), float(typical[k]), float(family.adjusted[first + k]))
        for k, (name, time) in enumerate(noise.distance_labels)
    )


def _ratio(noise: Noise) -> tuple[float, float] | None:
    if not noise.holds.any():
        return None
    ratio = (noise.own.smooth.var(axis=0, ddof=1) / positive(noise.deviations) ** 2)[noise.holds]
    return float(ratio.min()), float(ratio.max())


def _notes(noise: Noise, p: float, p_clt: float | None, level: float) -> list[str]:
    out = []
    if noise.grid_error is None:
        out.append("the error of the grid is not known: it has too few cells to be halved")
    else:
        share = float((noise.grid_error / positive(noise.deviations)).max())
        if share > GRID_SHARE:
            out.append(f"the error of the grid is up to {share:.2g} of the noise and is added to it: take more cells")
    if noise.holds.any() and not noise.holds.all():
        without = [label for label, holds in zip(noise.smooth_labels, noise.holds, strict=True) if not holds]
        names = ", ".join(sorted({label.name for label in without}))
        out.append(
            f"from t = {min(label.time for label in without):g} on N is too small for the central limit of {names} (a "
            "few tokens far out rule the noise, or the mean is off by it): our own runs are the measure there"
        )
    off = np.abs(noise.bias)
    if not noise.holds.any() and off.max() > OFF_NOISE:
        name, time = noise.smooth_labels[int(off.argmax())]
        out.append(
            f"the mean of our own runs is off the limit by up to {off.max():.2g} of the noise ({name} at {time:g}): "
            "finitely many particles and steps change more than the noise of one run"
        )
    if p_clt is not None and (p > level) != (p_clt > level):
        out.append(
            f"own runs and the central limit disagree at this level (p = {p:.3g} and {p_clt:.3g}): near the level "
            "this may be chance; with few tokens the central limit is less exact"
        )
    return out
