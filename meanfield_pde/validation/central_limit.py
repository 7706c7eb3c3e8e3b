"""The central limit of smooth statistics of N tokens: their covariance from the costate, without resampling."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import Path, carry_back
from meanfield_pde.grid import Grid
from meanfield_pde.validation.limit_law import LimitLaw
from meanfield_pde.validation.smooth_statistics import Statistic


@dataclass(frozen=True, slots=True)
class CentralLimit:
    """sqrt(N) (T(mu^N_t) − T(mu_t)) → N(0, covariance), jointly for all times and statistics.

    Shapes: influence (k, size), covariance (k, k), weights (size,), for k = times × statistics, times first.
    Meaning: ``influence`` is p_0 at the cell centres: N T(mu^N_t) moves by so much with a token at x more; integrals
    of it against mu_0 are sums with ``weights``.
    """

    influence: FloatArray
    covariance: FloatArray
    weights: FloatArray

    def deviations(self, count: int) -> FloatArray:
        """Standard deviations (k,) of the statistics of ``count`` tokens."""
        return np.asarray(np.sqrt(np.diag(self.covariance) / count))

    def ruled_by_few(self, count: int) -> FloatArray:
        """The share (k,) of the variance due to tokens each of which moves T by more than half its deviation.

        Formula: E[(p_0 − E p_0)²; |p_0 − E p_0| > ε √N σ]/σ² at ε = ½, which goes to 0 with N: where it is not small,
        N is too small for the normal law. Softmax gives single tokens far out exponentially much weight.
        Source: Lindeberg 1922.
        """
        square = (self.influence - (self.influence @ self.weights)[:, None]) ** 2
        variance = np.diag(self.covariance)
        far = square > 0.25 * count * variance[:, None]
        return np.asarray(np.maximum((square * far) @ self.weights, 0.0) / np.where(variance > 0.0, variance, 1.0))


def central_limit(law: LimitLaw, statistics: tuple[Statistic, ...], threads: int = 1) -> CentralLimit:
    """The central limit of statistics at the times of a law, for tokens that are independent draws of mu_0.

    Formula: p_t = δT/δmu(mu_t) is carried back to 0 by (B); Cov_{ij} = ∫ p_i p_j dmu_0 − ∫ p_i dmu_0 ∫ p_j dmu_0.
    Source: docs/mathematics.md 4.3; van der Vaart 1998, theorem 20.8 (the delta method).
    """
    grid = law.grid
    pairs = [(k, s) for k in range(len(law.times)) for s in statistics]
    with ThreadPoolExecutor(threads) as pool:
        influence = np.array(list(pool.map(lambda pair: _influence(law, *pair).ravel(), pairs)))
    weights = quadrature(grid, law.path.nodes[0, 0])
    first = influence @ weights
    covariance = (influence * weights) @ influence.T - np.outer(first, first)
    return CentralLimit(influence, covariance, weights)


def _influence(law: LimitLaw, index: int, statistic: Statistic) -> FloatArray:
    """p_0 (*cells) of a statistic at one of the times."""
    grid, place, path = law.grid, law.places[index], law.path
    values = statistic.function(grid.points()).reshape(grid.cells)
    if place == 0:
        return values
    p_end = grid.deconvolve(values)[None]
    part = Path(path.edges[: place + 1], path.nodes[: place + 1], path.layers[:place], path.courant, path.limited)
    back = carry_back(law.tokens.transport, law.sweep.fields, part, p_end)
    return np.asarray(grid.refilter(back.nodes[0, 0]))


def quadrature(grid: Grid, density: FloatArray) -> FloatArray:
    """Weights (size,) with Σ w f(centre) = ∫ f dmu for cell averages (*cells): masses through the inverse filter."""
    weights = density * grid.cell_volume
    for axis, matrix in enumerate(grid.filters()):
        weights = np.moveaxis(np.tensordot(weights, matrix, axes=(axis, 0)), -1, axis)
    return np.ascontiguousarray(weights).ravel()
