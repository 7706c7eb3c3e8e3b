"""Energy distance by sums over pairs, in any dimension and on any mixture of walls and rings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.validation.grid_sample import grid_sample
from meanfield_pde.validation.weighted import weighted

# rows of pairs at a time, and points that stand for a law
BLOCK, SIZE = 1024, 4096


@dataclass(frozen=True, slots=True)
class PairReference:
    """A fixed quasi-random sample Y of a law and its E|Y − Y′|.

    Shapes: points (m, d), lengths (d,).
    Meaning: ``lengths`` are those of rings, 0 between walls.
    """

    points: FloatArray
    lengths: FloatArray
    within: float


def pair_reference(density: FloatArray, grid: Grid, size: int = SIZE) -> PairReference:
    """The reference of the law of cell averages, all pairs counted: its own energy distance to the law is o(1/size).

    Shapes: density (*cells).
    """
    points = grid_sample(density, grid, size)
    lengths = np.where(grid.periodic, np.array(grid.upper) - np.array(grid.lower), 0.0)
    places, share = _embedded(points, lengths), np.full(size, 1.0 / size)
    return PairReference(points, lengths, _mean(places, share, places, share))


def pair_energy(points: FloatArray, law: PairReference, weights: FloatArray | None = None) -> float:
    """2E|X − Y| − E|X − X′| − E|Y − Y′|, |·| Euclidean after rings of length L are put on circles of radius L/2π.

    Chords are of strictly negative type, which the geodesic distance is not. The error of the fixed sample of the law
    is the same for every X.
    Shapes: points (n, d), weights (n,). Source: Székely and Rizzo 2013.
    """
    x, a = weighted(points, weights)
    y, b = weighted(law.points, None)
    x, y = _embedded(x, law.lengths), _embedded(y, law.lengths)
    return 2.0 * _mean(x, a, y, b) - _mean(x, a, x, a) - law.within


def sample_pair_energy(
    first: FloatArray,
    second: FloatArray,
    lengths: FloatArray,
    w: FloatArray | None = None,
    v: FloatArray | None = None,
) -> float:
    """`pair_energy` of two samples with weights ``w`` and ``v``, all pairs counted. Shapes: lengths (d,)."""
    (x, a), (y, b) = weighted(first, w), weighted(second, v)
    x, y = _embedded(x, lengths), _embedded(y, lengths)
    return 2.0 * _mean(x, a, y, b) - _mean(x, a, x, a) - _mean(y, b, y, b)


def _embedded(points: FloatArray, lengths: FloatArray) -> FloatArray:
    if points.shape[1] != len(lengths):
        raise MeanFieldError(f"a sample of dimension {points.shape[1]} on {len(lengths)} axes: they must agree")
    columns = []
    for x, length in zip(points.T, lengths, strict=True):
        radius = length / (2 * np.pi)
        columns += [radius * np.cos(x / radius), radius * np.sin(x / radius)] if length > 0 else [x]
    return np.ascontiguousarray(np.stack(columns, axis=1))


def _mean(x: FloatArray, a: FloatArray, y: FloatArray, b: FloatArray) -> float:
    from scipy.spatial.distance import cdist  # imported late: few runs need it

    blocks = range(0, len(x), BLOCK)
    return float(sum(a[k : k + BLOCK] @ (cdist(x[k : k + BLOCK], y) @ b) for k in blocks))
