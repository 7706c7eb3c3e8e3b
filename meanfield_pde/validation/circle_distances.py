"""Distances on a ring between a weighted sample and a law, and between two samples: exact, and free of the cut."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.validation.line_distances import cdf_difference, excess, pieces, step_difference, step_quantile
from meanfield_pde.validation.line_laws import LineLaw
from meanfield_pde.validation.weighted import on_axis

Sorted = tuple[FloatArray, FloatArray]
Quantile = Callable[[FloatArray], FloatArray]


def circle_w1(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """W1 = min_c ∫ |F − G − c| dx = ∫ |F − G − median| dx for the geodesic distance, in the units of x.

    The median of F − G over the ring is found from {F − G > c} = {G < F − c}, an interval in each gap of the
    sample, and the integral is exact for the polynomial pieces of G.
    Source: Cabrelli and Molter 1995; Rabin, Delon and Gousseau 2011, (17).
    """
    x, total = _on_ring(points, law, weights)
    left, right = np.append(law.knots[0], x), np.append(x, law.knots[-1])

    def surplus(c: float) -> float:
        """The length of {F − G > c} beyond half of the ring; falls as c grows."""
        level = total - c
        reach = np.where(level >= 1, right, np.clip(law.quantile(level), left, right))
        return float((np.where(level <= 0, left, reach) - left).sum() - 0.5 * law.length)

    median = _crossing(surplus, -1.0, 1.0)
    gap, weight = cdf_difference(x, total, law, np.clip(law.quantile(total - median), left, right))
    return float((weight * np.abs(gap - median)).sum())


def circle_w2(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """W2 for the geodesic distance: W2² = min_θ C(θ), C(θ) = ∫_0^1 (X(u) − Q(u + θ))² du, Q(u + 1) = Q(u) + length.

    C is convex and C′(θ) = Σ_i (x_i − b_i)² − (x_i − a_i)² with a_i, b_i = Q at the ends of atom i, shifted by θ; its
    zero is bracketed by −1 and 1. C itself is integrated exactly over the pieces of the law, as on the line.
    Source: Delon, Salomon and Sobolevski 2010, sections 3 and 4.
    """
    x, total = _on_ring(points, law, weights)
    theta = _best_cut(x, total, law.lifted)
    bounds = law.lifted(total + theta)
    knots = np.unique(np.concatenate([law.knots + k * law.length for k in (-2, -1, 0, 1, 2)]))
    inner = knots[(knots > bounds[0]) & (knots < bounds[-1])]
    middle, nodes, weight = pieces(np.sort(np.concatenate([bounds, inner])))
    owner = x[np.clip(np.searchsorted(bounds, middle, side="right") - 1, 0, len(x) - 1)]
    turn = np.floor((middle - law.knots[0]) / law.length) * law.length
    density = law.density(nodes - turn[:, None], law.piece(middle - turn)[:, None])
    return float(np.sqrt((weight * density * (owner[:, None] - nodes) ** 2).sum()))


def circle_kuiper(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """Kuiper: max (F − G) + max (G − F), the same for every cut of the ring. Source: Kuiper 1960."""
    return sum(excess(*_on_ring(points, law, weights), law))


def circle_energy(points: FloatArray, law: LineLaw, weights: FloatArray | None = None) -> float:
    """Energy distance 2E d(X, Y) − E d(X, X′) − E d(Y, Y′) = 2 ∫ (F − G − mean)² dx for d = r (1 − r/length).

    r is the geodesic distance. d is of strictly negative type: on the ring −d/2 is the Green's function of −∂², up to a
    constant, so the distance sees every mode (the geodesic distance itself is blind to the even ones).
    Source: Watson 1961 (the integral); Székely and Rizzo 2013 (energy).
    """
    return energy_on_ring(*_on_ring(points, law, weights), law)


def energy_on_ring(x: FloatArray, total: FloatArray, law: LineLaw) -> float:
    """`circle_energy` of sorted points on the ring and their cumulative weights."""
    gap, weight = cdf_difference(x, total, law, x[:0])
    mean = (weight * gap).sum() / law.length
    return float(2.0 * (weight * (gap - mean) ** 2).sum())


def ring_sample_w1(
    first: FloatArray, second: FloatArray, length: float, w: FloatArray | None = None, v: FloatArray | None = None
) -> float:
    """W1 of two samples on a ring of this length with weights ``w`` and ``v``; as `circle_w1`."""
    gap, width = _ring_difference(first, second, length, w, v)
    order = np.argsort(gap)
    half = int(np.searchsorted(np.cumsum(width[order]), 0.5 * length))
    return float(width @ np.abs(gap - gap[order[min(half, len(gap) - 1)]]))


def ring_sample_w2(
    first: FloatArray, second: FloatArray, length: float, w: FloatArray | None = None, v: FloatArray | None = None
) -> float:
    """W2 of two samples on a ring of this length with weights ``w`` and ``v``; as `circle_w2`."""
    (x, f), (y, g) = _wrapped(first, length, w), _wrapped(second, length, v)

    def lifted(u: FloatArray) -> FloatArray:
        turns = np.floor(u)
        return step_quantile(y, g, u - turns) + turns * length

    theta = _best_cut(x, f, lifted)
    inner = np.mod(g[:-1] - theta, 1.0)
    levels = np.sort(np.concatenate([f, inner]))
    middle = 0.5 * (levels[1:] + levels[:-1])
    return float(np.sqrt(np.diff(levels) @ (step_quantile(x, f, middle) - lifted(middle + theta)) ** 2))


def ring_sample_kuiper(
    first: FloatArray, second: FloatArray, length: float, w: FloatArray | None = None, v: FloatArray | None = None
) -> float:
    """Kuiper's statistic of two samples on a ring of this length with weights ``w`` and ``v``."""
    gap, _ = _ring_difference(first, second, length, w, v)
    return float(gap.max() - gap.min())


def ring_sample_energy(
    first: FloatArray, second: FloatArray, length: float, w: FloatArray | None = None, v: FloatArray | None = None
) -> float:
    """Energy distance of two samples on a ring of this length with weights ``w`` and ``v``; as `circle_energy`."""
    gap, width = _ring_difference(first, second, length, w, v)
    return float(2.0 * width @ (gap - width @ gap / length) ** 2)


def _best_cut(x: FloatArray, total: FloatArray, lifted: Quantile) -> float:
    def slope(theta: float) -> float:
        ends = lifted(total + theta)
        return float(((x - ends[1:]) ** 2 - (x - ends[:-1]) ** 2).sum())

    return _crossing(slope, -1.0, 1.0)


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotone function, which may jump, passes 0; the nearer end if it does not."""
    at_low, at_high = function(low), function(high)
    if at_low * at_high >= 0:
        return low if abs(at_low) <= abs(at_high) else high
    return float(brentq(function, low, high, xtol=1e-15, rtol=1e-14, maxiter=200))


def _on_ring(points: FloatArray, law: LineLaw, weights: FloatArray | None) -> Sorted:
    if not law.ring:
        raise MeanFieldError("the law lives between walls, not on a ring: take the distances on a line")
    start, length = law.knots[0], law.length
    return on_axis(start + np.mod(np.asarray(points, dtype=float) - start, length), weights)


def _wrapped(points: FloatArray, length: float, weights: FloatArray | None) -> Sorted:
    if not 0 < length < np.inf:
        raise MeanFieldError(f"a ring of length {length}: give a positive number, 2π for angles")
    return on_axis(np.mod(np.asarray(points, dtype=float), length), weights)


def _ring_difference(
    first: FloatArray, second: FloatArray, length: float, w: FloatArray | None, v: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """F − G between the points of two samples on a ring, and the lengths on which it holds; together the ring."""
    at, gap = step_difference(_wrapped(first, length, w), _wrapped(second, length, v))
    # before the first point F − G is 0, as it is behind the last
    return np.append(gap[:-1], 0.0), np.append(np.diff(at), length - at[-1] + at[0])
