"""W2 in two and three dimensions against a fixed sample of a law, by optimal transport, with its bias subtracted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.validation.grid_sample import grid_sample
from meanfield_pde.validation.weighted import weighted

REMEDY = 'install the extra: pip install "meanfield-pde[validate]"'
MOST_PIVOTS = 10_000_000


@dataclass(frozen=True, slots=True)
class TransportReference:
    """A fixed sample Y of a law and what W2²(X, Y) is for samples X of the law itself.

    Shapes: points (m, d), lengths (d,), replicas (r,).
    Meaning: ``lengths`` are those of rings, 0 between walls; ``replicas`` are W2²(X_r, Y) for independent samples X_r
    of the law with as many points and the same weights as the sample in question.
    """

    points: FloatArray
    lengths: FloatArray
    replicas: FloatArray

    @property
    def bias(self) -> float:
        """Mean of the replicas."""
        return float(self.replicas.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation of one replica: the noise of W2² of one sample."""
        return float(self.replicas.std(ddof=1))


def transport_reference(
    density: FloatArray,
    grid: Grid,
    count: int,
    size: int = 2048,
    replicas: int = 4,
    weights: FloatArray | None = None,
) -> TransportReference:
    """The reference for samples of ``count`` points: ``size`` quasi-random points of the law of cell averages.

    Shapes: density (*cells), weights (count,).
    Raises: MeanFieldError without POT, or with fewer than two replicas.
    """
    if replicas < 2:
        raise MeanFieldError(f"replicas = {replicas}: at least 2 are needed for the noise of the bias")
    points = grid_sample(density, grid, size)
    sides = np.array(grid.upper) - np.array(grid.lower)
    lengths = np.where(np.array(grid.periodic), sides, 0.0)
    drawn = [grid_sample(density, grid, count, seed, quasi=False) for seed in range(1, replicas + 1)]
    return TransportReference(points, lengths, np.array([squared_w2(x, points, lengths, weights) for x in drawn]))


def excess_w2(points: FloatArray, reference: TransportReference, weights: FloatArray | None = None) -> float:
    """W2²(X, Y) − bias: 0 on average for samples of the law, the squared distance for far ones; it may be negative.

    In d = 2, 3 W2²(X_N, mu) of a sample of mu itself is of order log N/N and N^{−2/3}, and swamps small differences.
    A shift by a adds |a|² + 2⟨a, mean X − mean Y⟩, whatever the bias.
    Shapes: points (n, d), weights (n,).
    Source: Fournier and Guillin 2015 (rates); Flamary et al. 2021 (POT).
    """
    return squared_w2(points, reference.points, reference.lengths, weights) - reference.bias


def squared_w2(
    first: FloatArray,
    second: FloatArray,
    lengths: FloatArray,
    w: FloatArray | None = None,
    v: FloatArray | None = None,
) -> float:
    """W2² = min_π Σ π_ij |x_i − y_j|² of two samples by the network simplex, |·| geodesic on rings of positive length.

    Raises: MeanFieldError without POT, and where dimensions differ.
    Source: Bonneel et al. 2011 (simplex); Flamary et al. 2021 (POT).
    """
    try:
        import ot
    except ImportError:
        raise MeanFieldError(f"W2 in two and three dimensions needs POT, which is not there: {REMEDY}") from None
    (x, a), (y, b) = weighted(first, w), weighted(second, v)
    if x.shape[1] != len(lengths) or y.shape[1] != len(lengths):
        raise MeanFieldError(f"samples of dimension {x.shape[1]} and {y.shape[1]} on {len(lengths)} axes must agree")
    cost = np.zeros((len(x), len(y)))
    for axis, length in enumerate(lengths):
        gap = x[:, axis, None] - y[:, axis]
        if length > 0:
            gap -= length * np.rint(gap / length)
        cost += gap * gap
    return float(ot.emd2(a, b, cost, numItermax=MOST_PIVOTS))
