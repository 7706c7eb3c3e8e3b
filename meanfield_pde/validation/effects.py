"""What each alternative does to smooth statistics: paired runs of our own tokens, with it and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import Alternative, alternatives_of
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.smooth_statistics import Statistic

# parameters at which a change is computed, between which it is interpolated; at 1 (scales) and 0 (shifts) it is none
SCALES, SHIFTS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0), (-1.0, -0.4, 0.0, 0.4, 1.0)
INITIAL = "initial law"


@dataclass(frozen=True, slots=True)
class Effect:
    """The change of K statistics by an alternative, at one or several values of its parameter.

    Shapes: values (V,), empty without a parameter (then V = 1 below); changes (V, K); noise (V, K, K), the covariance
    that the changes have because finitely many tokens were carried; spreads (V, K), by what deviations of the
    statistics are multiplied.
    """

    name: str
    words: str
    values: FloatArray
    changes: FloatArray
    noise: FloatArray
    spreads: FloatArray

    @property
    def interval(self) -> tuple[float, float] | None:
        """The least and largest value of the parameter, None without one."""
        return (float(self.values[0]), float(self.values[-1])) if len(self.values) else None

    def among(self, places: IntArray) -> Effect:
        """The same for some of the statistics, at these places (j,)."""
        noise = self.noise[:, places[:, None], places]
        return replace(self, changes=self.changes[:, places], noise=noise, spreads=self.spreads[:, places])

    def at(self, value: float | None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Change (K,), noise (K, K) and spread (K,) at a value: changes by a cubic spline, the others by lines."""
        if value is None or not len(self.values):
            return self.changes[0], self.noise[0], self.spreads[0]
        change = np.asarray(CubicSpline(self.values, self.changes)(value))
        k = int(np.clip(np.searchsorted(self.values, value) - 1, 0, len(self.values) - 2))
        share = (value - self.values[k]) / (self.values[k + 1] - self.values[k])
        noise, spread = (one[k] + share * (one[k + 1] - one[k]) for one in (self.noise, self.spreads))
        return change, noise, spread


def effects_of(
    motion: Motion,
    start: Measure,
    T: float,
    times: tuple[float, ...],
    statistics: tuple[Statistic, ...],
    threads: int = 1,
) -> tuple[Effect, ...]:
    """The effects of all alternatives to a motion, and of a shift or a stretch of the first tokens.

    Formula: e = Σ_i w_i (f(x_i') − f(x_i)) at each time, x' with the alternative and x without from the same tokens.
    Shapes: K counts statistics within times, index m · (number of statistics) + k.
    Meaning: shifts are in deviations of the first tokens on their axis, on the circle radians. What lets tokens run
    away is left out.
    Cost: 7 runs for a scale or the stretch, 5 for a shift, 1 for any other.
    """
    right = _features(motion.run(start, T, times).x, statistics)
    ways = list(_ways(motion, start, T, times))
    jobs = [(way.carried, value) for way in ways for value in way.values or (0.0,)]

    def one(job: tuple[Carried, float]) -> Row | None:
        carried, value = job
        try:
            return _paired(right, _features(carried(value), statistics), start.weights)
        except (NotFiniteError, MeanFieldError):
            return None

    # what has no parameter may need direct sums, which take long: they begin first
    order = sorted(range(len(jobs)), key=lambda k: jobs[k][1] != 0.0)
    with ThreadPoolExecutor(threads) as pool:
        rows = dict(zip(order, pool.map(one, [jobs[k] for k in order]), strict=True))
    done = iter([rows[k] for k in range(len(jobs))])
    out: list[Effect] = []
    for way in ways:
        found = [(value, row) for value in way.values or (0.0,) if (row := next(done)) is not None]
        if len(found) >= min(3, len(way.values) or 1):
            changes, noise, spreads = (np.stack([row[k] for _, row in found]) for k in range(3))
            values = np.array([value for value, _ in found] if way.values else [])
            out.append(Effect(way.name, way.words, values, changes, noise, spreads))
    return tuple(out)


Carried = Callable[[float], FloatArray]
Row = tuple[FloatArray, FloatArray, FloatArray]


class _Way(NamedTuple):
    """An alternative with the values of its parameter, () without one, and what gives the tokens (times, n, d)."""

    name: str
    words: str
    values: tuple[float, ...]
    carried: Carried


def _ways(
    motion: Motion, start: Measure, T: float, times: tuple[float, ...]
) -> Iterator[_Way]:
    """All ways in which a motion can be wrong."""
    for one in alternatives_of(motion.model, motion.integrator):
        yield _Way(one.name, one.words, SCALES if one.value is not None else (), _by(motion, one, start, T, times))
    x, w = start.points, start.weights / start.weights.sum()
    mean = w @ x
    deviation = np.ones(x.shape[1]) if motion.model.circle else np.sqrt(w @ (x - mean) ** 2)
    unit = "radians" if motion.model.circle else "deviations"
    for axis in range(x.shape[1]):
        step = deviation * np.eye(x.shape[1])[axis]
        words = f"the first tokens are shifted along x{axis + 1} by c {unit}"
        yield _Way(INITIAL, words, SHIFTS, _from(motion, start, T, times, step, 1.0))
    if not motion.model.circle:
        words = "the first tokens are stretched from their mean, by c"
        yield _Way(INITIAL, words, SCALES, _from(motion, start, T, times, mean, None))


def _by(motion: Motion, alternative: Alternative, start: Measure, T: float, times: tuple[float, ...]) -> Carried:
    def carried(value: float) -> FloatArray:
        one = alternative if alternative.value is None else alternative.at(value)
        return replace(motion, alternative=one).run(start, T, times).x

    return carried


def _from(
    motion: Motion, start: Measure, T: float, times: tuple[float, ...], place: FloatArray, shift: float | None
) -> Carried:
    """Tokens from x + c ``place``, or without a shift from place + c (x − place)."""

    def carried(value: float) -> FloatArray:
        x = start.points
        moved = place + value * (x - place) if shift is None else x + value * place
        return motion.run(Measure.particles(moved, start.weights), T, times).x

    return carried


def _features(x: FloatArray, statistics: tuple[Statistic, ...]) -> FloatArray:
    """f(x_i) of each statistic at each time, (n, K)."""
    return np.stack([one.function(points) for points in x for one in statistics], axis=1)


def _paired(right: FloatArray, moved: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Change, its covariance as a mean of independent differences, and the ratio of deviations."""
    w = weights / weights.sum()
    apart = moved - right
    change = w @ apart
    centred = apart - change
    noise = (centred * (w**2)[:, None]).T @ centred
    spread = [np.sqrt(w @ (one - w @ one) ** 2) for one in (right, moved)]
    tiny = np.finfo(float).tiny
    return change, noise, (spread[1] + tiny) / (spread[0] + tiny)
