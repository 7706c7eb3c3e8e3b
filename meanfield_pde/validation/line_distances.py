"""Distances on a line between a weighted sample and a law, and between two samples: exact, without bins."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.validation.line_laws import LineLaw
from meanfield_pde.validation.weighted import on_axis

# exact for the polynomials that occur: the square of the CDF has degree 10
NODES, WEIGHTS = (a / 2 for a in np.polynomial.legendre.leggauss(6))


def line_w1(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """W1 = ∫_0^1 |X(u) − Q(u)| du, X and Q the quantile functions of the sample and of the law.

    The cost is integrated over the law, ∫ |x_i − y| G(dy) for y between Q(U_{i−1}) and Q(U_i), exactly for the
    polynomial pieces of G. Shapes: points (n,) or (n, 1), weights (n,).
    Source: Vallender 1974.
    """
    return _cost(points, law, weights, 1)


def line_w2(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """W2 = (∫_0^1 (X(u) − Q(u))² du)^{1/2}, as `line_w1`. Source: Villani 2003, Theorem 2.18."""
    return float(np.sqrt(_cost(points, law, weights, 2)))


def line_ks(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """Kolmogorov and Smirnov: sup |F − G|, F the step function of the sample. Source: Kolmogorov 1933."""
    x, total = on_axis(points, weights)
    above, below = excess(x, total, law)
    return max(above, below)


def line_energy(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """Energy 2E|X − Y| − E|X − X′| − E|Y − Y′| = 2 ∫ (F − G)² dx (Székely and Rizzo 2013, section 2)."""
    x, total = on_axis(points, weights)
    return energy_of_sorted(x, total, law)


def sample_w1(first: FloatArray, second: FloatArray, w: FloatArray | None = None, v: FloatArray | None = None) -> float:
    """W1 of two samples on a line with weights ``w`` and ``v``; as `line_w1`."""
    return _between(first, second, w, v, 1)


def sample_w2(first: FloatArray, second: FloatArray, w: FloatArray | None = None, v: FloatArray | None = None) -> float:
    """W2 of two samples on a line with weights ``w`` and ``v``; as `line_w2`."""
    return float(np.sqrt(_between(first, second, w, v, 2)))


def sample_ks(first: FloatArray, second: FloatArray, w: FloatArray | None = None, v: FloatArray | None = None) -> float:
    """sup |F − G| of two samples on a line with weights ``w`` and ``v``."""
    _, gap = step_difference(on_axis(first, w), on_axis(second, v))
    return float(np.abs(gap).max(initial=0.0))


def sample_energy(
    first: FloatArray, second: FloatArray, w: FloatArray | None = None, v: FloatArray | None = None
) -> float:
    """Energy distance 2 ∫ (F − G)² dx of two samples on a line with weights ``w`` and ``v``."""
    at, gap = step_difference(on_axis(first, w), on_axis(second, v))
    return float(2.0 * np.diff(at) @ gap[:-1] ** 2)


def excess(x: FloatArray, total: FloatArray, law: LineLaw) -> tuple[float, float]:
    """max (F − G) and max (G − F) over the line, for sorted points and their cumulative weights."""
    g = law.cdf(x)
    return max(0.0, float((total[1:] - g).max())), max(0.0, float((g - total[:-1]).max()))


def pieces(breaks: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Middles (k,) of the intervals between sorted breaks, Gauss nodes (k, 6) in them and their weights (k, 6)."""
    width, middle = np.diff(breaks), 0.5 * (breaks[1:] + breaks[:-1])
    return middle, middle[:, None] + width[:, None] * NODES, width[:, None] * WEIGHTS


def cdf_difference(x: FloatArray, total: FloatArray, law: LineLaw, cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """F − G at Gauss nodes between all knots, points and ``cuts``, and the weights of the nodes; both (k, 6)."""
    breaks = np.sort(np.concatenate([law.knots, x, cuts]))
    middle, nodes, weight = pieces(breaks)
    j = law.piece(middle)[:, None]
    return total[np.searchsorted(x, middle, side="right")][:, None] - law.cdf_in(nodes, j), weight


def energy_of_sorted(x: FloatArray, total: FloatArray, law: LineLaw) -> float:
    """2 ∫ (F − G)² dx for sorted points and their cumulative weights."""
    gap, weight = cdf_difference(x, total, law, x[:0])
    return float(2.0 * (weight * gap * gap).sum())


def cost_of_sorted(x: FloatArray, total: FloatArray, law: LineLaw, power: int) -> float:
    """∫ |X(u) − Q(u)|^power du for sorted points and their cumulative weights."""
    bounds = law.quantile(total[1:-1])
    cuts = [law.knots, bounds]
    if power == 1:  # |x_i − y| has a kink at y = x_i
        cuts.append(np.clip(x, law.knots[0], law.knots[-1]))
    middle, nodes, weight = pieces(np.sort(np.concatenate(cuts)))
    owner = x[np.searchsorted(bounds, middle, side="right")]
    density = law.density(nodes, law.piece(middle)[:, None])
    return float((weight * density * np.abs(owner[:, None] - nodes) ** power).sum())


def _cost(points: FloatArray, law: LineLaw, weights: FloatArray | None, power: int) -> float:
    x, total = on_axis(points, weights)
    return cost_of_sorted(x, total, law, power)


def _between(
    first: FloatArray, second: FloatArray, w: FloatArray | None, v: FloatArray | None, power: int
) -> float:
    (x, f), (y, g) = on_axis(first, w), on_axis(second, v)
    levels = np.sort(np.concatenate([f, g]))
    middle = 0.5 * (levels[1:] + levels[:-1])
    return float(np.diff(levels) @ np.abs(step_quantile(x, f, middle) - step_quantile(y, g, middle)) ** power)


def step_quantile(x: FloatArray, total: FloatArray, u: FloatArray) -> FloatArray:
    """The quantile function of sorted points with cumulative weights, at u in (0, 1)."""
    return np.asarray(x[np.clip(np.searchsorted(total, u, side="right") - 1, 0, len(x) - 1)])


def step_difference(
    first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """All points of two sorted samples and F − G from each of them to the next."""
    (x, f), (y, g) = first, second
    at = np.unique(np.concatenate([x, y]))
    return at, f[np.searchsorted(x, at, side="right")] - g[np.searchsorted(y, at, side="right")]
