"""Laws on a line or a ring by their cumulative distribution: high-order monotone pieces between exact values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Law, Mixture, Uniform

STENCIL, DEGREE = 5, 5
# beyond this much negative mass cell averages are no law
NEGATIVE_ALLOWED = 1e-3
# knots of exact normal laws: quintic pieces of this many deviations, out to so many
FINE, REACH = 1 / 32, 9.0


@dataclass(frozen=True, slots=True)
class LineLaw:
    """A law of mass 1 by its cumulative distribution G, a polynomial of degree 5 between knots.

    G(x) = cumulative_j + Σ_{m=1..5} coefficients[m−1, j] ξ^m, ξ = (x − knots_j)/(knots_{j+1} − knots_j).
    Shapes: knots, cumulative (k + 1,), coefficients (5, k).
    Meaning: ``ring`` says that the last knot is the first one again, one length further.
    """

    knots: FloatArray
    cumulative: FloatArray
    coefficients: FloatArray
    ring: bool = False

    @property
    def length(self) -> float:
        """From the first knot to the last: on a ring its length."""
        return float(self.knots[-1] - self.knots[0])

    def piece(self, x: FloatArray) -> IntArray:
        """Index of the piece that holds each x; those beyond the ends go to the first and the last."""
        found = np.searchsorted(self.knots, x, side="right") - 1
        return np.asarray(np.clip(found, 0, len(self.knots) - 2))

    def cdf(self, x: FloatArray) -> FloatArray:
        """G(x), 0 before the first knot and 1 after the last, on a ring too."""
        return self.cdf_in(x, self.piece(x))

    def cdf_in(self, x: FloatArray, j: IntArray) -> FloatArray:
        """G(x) at points of the pieces ``j``, or beyond them at an end."""
        xi = np.clip((x - self.knots[j]) / (self.knots[j + 1] - self.knots[j]), 0.0, 1.0)
        return np.clip(self.cumulative[j] + _value(self.coefficients[:, j], xi), 0.0, 1.0)

    def density(self, x: FloatArray, j: IntArray) -> FloatArray:
        """G'(x) at points of the pieces ``j``."""
        width = self.knots[j + 1] - self.knots[j]
        xi = (x - self.knots[j]) / width
        return np.asarray(_slope(self.coefficients[:, j], xi) / width)

    def quantile(self, u: FloatArray) -> FloatArray:
        """The least x with G(x) ≥ u, for u clipped to [0, 1]; Newton's method kept within brackets."""
        u = np.clip(u, self.cumulative[0], self.cumulative[-1])
        j = np.clip(np.searchsorted(self.cumulative, u, side="left") - 1, 0, len(self.knots) - 2)
        c = self.coefficients[:, j]
        mass = self.cumulative[j + 1] - self.cumulative[j]
        target = np.clip(u - self.cumulative[j], 0.0, mass)
        low, high = np.zeros_like(target), np.ones_like(target)
        xi = np.divide(target, mass, out=np.zeros_like(target), where=mass > 0)
        for _ in range(60):
            miss = _value(c, xi) - target
            high, low = np.where(miss >= 0, xi, high), np.where(miss < 0, xi, low)
            slope = _slope(c, xi)
            step = xi - np.divide(miss, slope, out=np.full_like(miss, np.inf), where=slope > 0)
            new = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            done = (np.abs(new - xi) <= 4e-16) | (miss == 0)
            xi = np.where(done, xi, new)
            if done.all():
                break
        return np.asarray(self.knots[j] + xi * (self.knots[j + 1] - self.knots[j]))

    def lifted(self, u: FloatArray) -> FloatArray:
        """The quantile function of a ring continued by Q(u + 1) = Q(u) + length."""
        turns = np.floor(u)
        return np.asarray(self.quantile(u - turns) + turns * self.length)


def _value(c: FloatArray, xi: FloatArray) -> FloatArray:
    return np.asarray(xi * (c[0] + xi * (c[1] + xi * (c[2] + xi * (c[3] + xi * c[4])))))


def _slope(c: FloatArray, xi: FloatArray) -> FloatArray:
    value = c[0] + xi * (2 * c[1] + xi * (3 * c[2] + xi * (4 * c[3] + xi * 5 * c[4])))
    return np.asarray(np.maximum(value, 0.0))


def grid_line(density: FloatArray, grid: Grid) -> LineLaw:
    """The law that cell averages on a line or a ring stand for.

    G is exact at the faces, where it is a sum of masses. Between them it is the polynomial of degree 5 through six
    faces, that is the density of degree 4 with the averages of five cells: the error of G is O(h⁶) and of its density
    O(h⁵), where constant pieces have O(h²) and O(h). Where such a density is not certain to be ≥ 0 (a negative
    Bernstein coefficient: at jumps and far out in tails) the piece is the monotone cubic of Fritsch and Butland.
    Shapes: density (cells,).
    Meaning: where a scheme left negative masses, G is replaced by the nearest rising one (isotonic regression), which
    is nearer to every law than G was.
    Raises: MeanFieldError for more axes, what is not finite, or over 1e-3 of negative mass.
    Source: Fritsch and Butland 1984 (cubic); Barlow et al. 1972 (regression).
    """
    if grid.dim != 1 or density.shape != grid.cells:
        raise MeanFieldError(f"cell averages {density.shape} on {grid.dim} axes: give (cells,) on one axis")
    masses = density * grid.spacing[0]
    negative = -float(masses[masses < 0].sum())
    if not (np.isfinite(masses).all() and masses.sum() > 0 and negative <= NEGATIVE_ALLOWED * masses.sum()):
        raise MeanFieldError(
            f"the cell averages have {negative:.3g} of negative mass in {masses.sum():.3g}, at most "
            f"{NEGATIVE_ALLOWED:g} of it is read as a law: refine the grid or set depth.positivity = true"
        )
    return masses_line(grid.edges(0), masses, grid.periodic[0])


def masses_line(edges: FloatArray, masses: FloatArray, ring: bool) -> LineLaw:
    """`grid_line` for masses between equally spaced edges, whatever their signs; the total is scaled to 1."""
    if (masses < 0).any():
        rising = isotonic_regression(np.concatenate([[0.0], np.cumsum(masses)])).x
        masses = np.diff(np.clip(rising, 0.0, None))
    cumulative = np.concatenate([[0.0], np.cumsum(masses)])
    masses, cumulative = masses / cumulative[-1], cumulative / cumulative[-1]
    if len(masses) < STENCIL:
        return step_line(edges, cumulative, ring)
    high = _through_faces(masses, ring)
    # density of degree 4: power coefficients to Bernstein ones
    density = high * np.arange(1, DEGREE + 1)[:, None]
    safe = (_bernstein() @ density).min(axis=0) >= 0
    coefficients = np.where(safe, high, _monotone_cubic(masses, ring))
    return LineLaw(edges, cumulative, coefficients, ring)


@cache
def _bernstein() -> FloatArray:
    n = DEGREE - 1
    rows = [[comb(i, j) / comb(n, j) if j <= i else 0.0 for j in range(n + 1)] for i in range(n + 1)]
    return np.array(rows)


@cache
def _weights(first: int) -> FloatArray:
    """Masses of the cells first .. first + 4, counted from one cell, to the coefficients of G in that cell."""
    start = np.arange(first, first + STENCIL, dtype=np.float64)[:, None]
    power = np.arange(1, DEGREE + 1)
    return np.asarray(np.linalg.inv((start + 1) ** power - start**power))


def _through_faces(masses: FloatArray, ring: bool) -> FloatArray:
    n, half = len(masses), STENCIL // 2
    if ring:
        stencils = masses[(np.arange(n) + np.arange(-half, half + 1)[:, None]) % n]
        return np.asarray(_weights(-half) @ stencils)
    out = np.empty((DEGREE, n))
    for first in range(-2 * half, 1):
        cells = {0: np.array([0]), -half: np.arange(half, n - half), -2 * half: np.array([n - 1])}.get(
            first, np.array([-first if first > -half else n - 1 - (first + 2 * half)])
        )
        out[:, cells] = _weights(first) @ masses[cells + first + np.arange(STENCIL)[:, None]]
    return out


def _monotone_cubic(masses: FloatArray, ring: bool) -> FloatArray:
    """Cubic pieces whose slopes at faces are harmonic means of the masses on both sides: rising, and C¹."""
    left, right = (np.roll(masses, 1), masses) if ring else (masses[:-1], masses[1:])
    total = left + right
    slope = np.divide(2 * left * right, total, out=np.zeros_like(total), where=total > 0)
    if ring:
        slope = np.append(slope, slope[0])
    else:
        ends = [np.clip(1.5 * a - 0.5 * b, 0.0, 2 * a) for a, b in ((masses[0], masses[1]), (masses[-1], masses[-2]))]
        slope = np.concatenate([ends[:1], slope, ends[1:]])
    low, high = slope[:-1], slope[1:]
    zero = np.zeros_like(low)
    return np.stack([low, 3 * masses - 2 * low - high, low + high - 2 * masses, zero, zero])


def step_line(knots: FloatArray, cumulative: FloatArray, ring: bool = False) -> LineLaw:
    """The law with a constant density between knots: a histogram, or a mixture of uniform laws exactly."""
    coefficients = np.zeros((DEGREE, len(knots) - 1))
    coefficients[0] = np.diff(cumulative)
    return LineLaw(np.asarray(knots, dtype=float), np.asarray(cumulative, dtype=float), coefficients, ring)


def exact_line(law: Law) -> LineLaw:
    """A normal or uniform law on a line, or a mixture of them: quintic pieces with the exact G, G′, G″ at both ends.

    Exact for uniform laws; for normal ones G is off by under 1e-12, and 1e-18 of their mass is left out.
    Raises: MeanFieldError for other laws and dimensions.
    """
    parts = _parts(law, 1.0)
    knots = [np.array([p.lower[0], p.upper[0]]) for p, _ in parts if isinstance(p, Uniform)]
    for p, _ in parts:
        if isinstance(p, Gaussian):
            deviation = np.sqrt(p.covariance[0][0])
            knots.append(p.mean[0] + deviation * np.arange(-REACH, REACH + FINE / 2, FINE))
    x = np.unique(np.concatenate(knots))
    # knots of two laws that differ by rounding would make an empty piece
    x = x[np.concatenate([[True], np.diff(x) > 1e-12 * (x[-1] - x[0])])]
    width, middle = np.diff(x), 0.5 * (x[1:] + x[:-1])
    value, ends = np.zeros(len(x)), np.zeros((4, len(width)))
    for p, share in parts:
        if isinstance(p, Uniform):
            low, high = p.lower[0], p.upper[0]
            value += share * np.clip((x - low) / (high - low), 0.0, 1.0)
            inside = (middle > low) & (middle < high)
            ends[:2] += share * inside / (high - low)
        elif isinstance(p, Gaussian):
            deviation = np.sqrt(p.covariance[0][0])
            z = (x - p.mean[0]) / deviation
            bell = share * np.exp(-0.5 * z * z) / (deviation * np.sqrt(2 * np.pi))
            value += share * ndtr(z)
            ends += np.stack([bell[:-1], bell[1:], (-z * bell)[:-1] / deviation, (-z * bell)[1:] / deviation])
    value = (value - value[0]) / (value[-1] - value[0])
    return LineLaw(x, value, _quintic(np.diff(value), *(ends[:2] * width), *(ends[2:] * width**2)))


def _quintic(mass: FloatArray, d0: FloatArray, d1: FloatArray, s0: FloatArray, s1: FloatArray) -> FloatArray:
    """Coefficients of the quintic on [0, 1] from 0 to ``mass`` with slopes d and second derivatives s at the ends."""
    rest, slope, bend = mass - d0 - s0 / 2, d1 - d0 - s0, s1 - s0
    c3 = 10 * rest - 4 * slope + bend / 2
    return np.stack([d0, s0 / 2, c3, -15 * rest + 7 * slope - bend, 6 * rest - 3 * slope + bend / 2])


def _parts(law: Law, share: float) -> list[tuple[Law, float]]:
    if isinstance(law, Mixture):
        total = sum(law.weights)
        pairs = zip(law.components, law.weights, strict=True)
        return [part for inner, w in pairs for part in _parts(inner, share * w / total)]
    one = (isinstance(law, Gaussian) and len(law.mean) == 1) or (isinstance(law, Uniform) and len(law.lower) == 1)
    if not one:
        raise MeanFieldError(
            f"a {law.law} law has no quantile function here: allowed: gaussian, uniform and mixtures of them in "
            "one dimension; else put it onto a grid and take grid_line"
        )
    return [(law, share)]
