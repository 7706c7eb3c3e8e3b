"""What is read off particles at each time: smooth statistics, and distances to the law of the limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.validation.distances import Readable, distances, readable
from meanfield_pde.validation.smooth_statistics import Statistic, of_grid, of_sample, standard_statistics


class Label(NamedTuple):
    """The name of a statistic and its time."""

    name: str
    time: float


class Found(NamedTuple):
    """Smooth statistics (k,) and distances (l,), all times in turn."""

    smooth: FloatArray
    distances: FloatArray


@dataclass(frozen=True, slots=True)
class Observables:
    """Smooth ``statistics`` and distances (by name) to ``laws``, one law for each of the ``times`` (m,)."""

    times: FloatArray
    statistics: tuple[Statistic, ...]
    laws: tuple[Readable, ...]
    distances: tuple[str, ...]

    @property
    def smooth_labels(self) -> tuple[Label, ...]:
        """Of the smooth statistics."""
        return tuple(Label(s.name, t) for t in self.times.tolist() for s in self.statistics)

    @property
    def distance_labels(self) -> tuple[Label, ...]:
        """Of the distances."""
        return tuple(Label(name, t) for t in self.times.tolist() for name in self.distances)

    def read(self, snapshots: FloatArray) -> Found:
        """What snapshots (m, N, d) of equal weights show."""
        far = [list(distances(x, law).values()) for x, law in zip(snapshots, self.laws, strict=True)]
        return Found(self.smooth(snapshots), np.array(far).ravel())

    def smooth(self, snapshots: FloatArray) -> FloatArray:
        """The smooth statistics (k,) alone."""
        return np.array([of_sample(s, x) for x in snapshots for s in self.statistics])

    def mean(self, runs: FloatArray) -> Found:
        """The means over runs (R, m, N, d)."""
        each = [self.read(one) for one in runs]
        return Found(np.mean([f.smooth for f in each], axis=0), np.mean([f.distances for f in each], axis=0))


def observables(times: FloatArray, densities: FloatArray, grid: Grid) -> Observables:
    """The standard ones of laws (m, *cells): those that suit the last, at all times."""
    laws = tuple(readable(density, grid) for density in densities)
    names = tuple(distances(grid.points()[:1], laws[0]))
    return Observables(times, standard_statistics(densities[-1], grid), laws, names)


def predicted(observed: Observables, densities: FloatArray, grid: Grid) -> FloatArray:
    """The smooth statistics (k,) of the laws themselves."""
    return np.array([of_grid(s, density, grid) for density in densities for s in observed.statistics])
