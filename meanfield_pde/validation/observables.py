"""What is read off the tokens at each time: smooth statistics, and distances to the law of the limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.validation.distances import Readable, distances, readable
from meanfield_pde.validation.limit_law import LimitLaw
from meanfield_pde.validation.smooth_statistics import Statistic, of_sample, standard_statistics


@dataclass(frozen=True, slots=True)
class Observables:
    """Smooth ``statistics`` S and distances D (by name) to ``laws``, one law for each of the m ``times``."""

    times: FloatArray
    statistics: tuple[Statistic, ...]
    laws: tuple[Readable, ...]
    distances: tuple[str, ...]

    def read(self, snapshots: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Statistics (m, S) and distances (m, D) of snapshots (m, N, d) of equal weights."""
        far = [list(distances(x, law).values()) for x, law in zip(snapshots, self.laws, strict=True)]
        return self.smooth(snapshots), np.array(far)

    def smooth(self, snapshots: FloatArray) -> FloatArray:
        """Statistics (m, S) alone."""
        return np.array([[of_sample(s, x) for s in self.statistics] for x in snapshots])


def observables(law: LimitLaw) -> Observables:
    """The standard ones of a law: those that suit it at its last time, at all its times."""
    statistics = standard_statistics(law.density(len(law.times) - 1), law.grid)
    laws = tuple(readable(law.density(k), law.grid) for k in range(len(law.times)))
    names = tuple(distances(law.grid.points()[:1], laws[0]))
    return Observables(law.times, statistics, laws, names)
