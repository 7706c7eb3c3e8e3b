"""Distribution functions of laws on a line or a ring and their inverses: closed forms, or exact sums inverted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import NODES, RING_IS_FLAT, evaluate
from meanfield_pde.law_classics import JiangShu, SinePower, jiang_shu_integral
from meanfield_pde.law_rings import Harmonic, RingLaw, VonMises, WrappedCauchy, parts_of
from meanfield_pde.laws import Density, Gaussian, Uniform

Function = Callable[[FloatArray], FloatArray]
HALVINGS = 200
# quantiles are found to this part of the interval
CLOSE = 4e-16
# panels of 8 Gauss-Legendre nodes for densities without a closed form
PANELS = 2048


class Marginal(NamedTuple):
    """F(x) = mass below or at x, from the lower end of the box on rings, its least inverse, and where F jumps.

    Shapes: both (n,) -> (n,); the quantile takes levels strictly between 0 and 1; atoms (k,).
    """

    cdf: Function
    quantile: Function
    atoms: FloatArray = np.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Points (n, d) with weights of sum 1, each an atom, or the middle of a normal law of deviation ``bandwidth``."""

    points: FloatArray
    weights: FloatArray
    bandwidth: float | None = None


def inverted(cdf: Function, low: FloatArray, high: FloatArray, level: FloatArray) -> FloatArray:
    """The least x in [low, high] with F(x) >= level, to rounding; F must reach the level at ``high``.

    Source: Oliveira & Takahashi (2020), the method of interpolation, truncation and projection: never more than one
    evaluation over bisection, for any monotone F, and few where F is smooth.
    """
    a, b = low.copy(), high.copy()
    close = CLOSE * max(float(np.abs(a).max()), float(np.abs(b).max()), float((b - a).max()), np.finfo(float).tiny)
    fa, fb = cdf(a) - level, cdf(b) - level
    b = np.where(fa >= 0.0, a, b)
    first = np.maximum(b - a, close)
    left = np.ceil(np.log2(first / close)) + 1.0
    for _ in range(HALVINGS):
        wide = b - a
        if not float(wide.max()) > close:
            break
        middle, room = 0.5 * (a + b), 0.5 * np.maximum(close * 2.0**left - wide, 0.0)
        rise = fb - fa
        secant = np.where(rise > 0.0, a - fa * wide / np.where(rise > 0.0, rise, 1.0), middle)
        side, step = np.sign(middle - secant), 0.2 * wide * wide / first
        x = np.where(step <= np.abs(middle - secant), secant + side * step, middle)
        x = np.where(np.abs(x - middle) <= room, x, middle - side * room)
        f = cdf(x) - level
        below, done = f < 0.0, wide <= close
        a, fa = np.where(below & ~done, x, a), np.where(below & ~done, f, fa)
        b, fb = np.where(~below & ~done, x, b), np.where(~below & ~done, f, fb)
        left -= 1.0
    return b


def on_interval(cdf: Function, lower: float, upper: float) -> Marginal:
    """A law inside [lower, upper] of a continuous distribution function."""

    def quantile(u: FloatArray) -> FloatArray:
        return inverted(cdf, np.full(len(u), lower), np.full(len(u), upper), u)

    return Marginal(cdf, quantile)


def mixture(weights: FloatArray, parts: Sequence[Marginal]) -> Marginal:
    """The mixture of laws with weights of sum 1: a level lies between the quantiles of its parts at that level."""
    if len(parts) == 1:
        return parts[0]

    atoms = np.unique(np.concatenate([part.atoms for part in parts]))

    def cdf(x: FloatArray) -> FloatArray:
        return np.asarray(sum(w * part.cdf(x) for w, part in zip(weights, parts, strict=True)))

    def quantile(u: FloatArray) -> FloatArray:
        each = np.stack([part.quantile(u) for part in parts])
        found = inverted(cdf, each.min(axis=0), each.max(axis=0), u)
        if not len(atoms):
            return found
        # what is at an atom but for rounding is the atom
        place = np.clip(np.searchsorted(atoms, found), 1, len(atoms) - 1) if len(atoms) > 1 else np.zeros(len(u), int)
        near = np.where(np.abs(atoms[place] - found) < np.abs(atoms[place - 1] - found), atoms[place], atoms[place - 1])
        return np.where(np.abs(near - found) <= 10.0 * CLOSE * np.abs(each).max(), near, found)

    return Marginal(cdf, quantile, atoms)


def by_panels(density: Function, lower: float, upper: float, panels: int) -> Marginal:
    """A density on [lower, upper], normalised there, by Gauss-Legendre on equal panels: exact to rounding if smooth."""
    unit, weight = np.polynomial.legendre.leggauss(NODES)
    edges = np.linspace(lower, upper, panels + 1)
    half = 0.5 * (upper - lower) / panels

    def mass(start: FloatArray, stop: FloatArray) -> FloatArray:
        reach = 0.5 * (stop - start)
        nodes = (0.5 * (start + stop))[:, None] + reach[:, None] * unit
        return np.asarray(reach * (density(nodes.ravel()).reshape(nodes.shape) @ weight))

    below = np.concatenate([np.zeros(1), np.cumsum(mass(edges[:-1], edges[1:]))])
    if not below[-1] > 0.0:
        raise MeanFieldError("the density is 0 everywhere on the box: there is nothing to draw from")

    def cdf(x: FloatArray) -> FloatArray:
        x = np.clip(x, lower, upper)
        panel = np.clip(((x - lower) / (2.0 * half)).astype(int), 0, panels - 1)
        return np.asarray((below[panel] + mass(edges[panel], x)) / below[-1])

    def quantile(u: FloatArray) -> FloatArray:
        # the panel is known from the table, with one more on either side for rounding
        panel = np.searchsorted(below / below[-1], u)
        low, high = edges[np.clip(panel - 2, 0, panels)], edges[np.clip(panel + 1, 0, panels)]
        return inverted(cdf, low, high, u)

    return Marginal(cdf, quantile)


def marginal(law: Gaussian | Uniform | RingLaw, box: Grid, axis: int) -> Marginal:
    """One axis of a law that is a product over axes, between walls or wrapped on a ring."""
    lower, upper, ring = box.lower[axis], box.upper[axis], box.periodic[axis]
    if isinstance(law, Gaussian):
        mean, deviation = law.mean[axis], float(np.sqrt(law.covariance[axis][axis]))
        return _wrapped_normal(mean, deviation, lower, upper) if ring else normal(mean, deviation)
    if isinstance(law, Uniform):
        low, width = law.lower[axis], law.upper[axis] - law.lower[axis]
        if ring:
            return _wrapped_uniform(low, width, lower, upper)
        return Marginal(lambda x: np.clip((x - low) / width, 0.0, 1.0), lambda u: low + width * u)
    own = {key: float(values[axis]) for key, values in parts_of(law).items()}
    turn = 2.0 * np.pi / (upper - lower)
    if isinstance(law, VonMises):
        k, middle = own["concentration"], own["mean"]
        panels = 64 * ceil(max(1.0, np.sqrt(k)))
        return by_panels(lambda x: np.exp(-2.0 * k * np.sin(0.5 * turn * (x - middle)) ** 2), lower, upper, panels)
    if isinstance(law, WrappedCauchy):
        return _wrapped_cauchy(own["mean"], own["resultant"], lower, turn)
    assert isinstance(law, Harmonic)
    k, share = own["mode"], own["amplitude"] / own["mode"]
    start = turn * (lower - own["mean"])

    def cdf(x: FloatArray) -> FloatArray:
        angle = turn * (x - own["mean"])
        return np.asarray((angle - start + share * (np.sin(k * angle) - np.sin(k * start))) / (2.0 * np.pi))

    return on_interval(cdf, lower, upper)


def normal(mean: float, deviation: float) -> Marginal:
    """The normal law on the line."""
    return Marginal(lambda x: ndtr((x - mean) / deviation), lambda u: mean + deviation * ndtri(u))


def _wrapped_normal(mean: float, deviation: float, lower: float, upper: float) -> Marginal:
    length = upper - lower
    if deviation > RING_IS_FLAT * length:
        return Marginal(lambda x: (x - lower) / length, lambda u: lower + length * u)
    mean = lower + float(np.mod(mean - lower, length))
    images = ceil(10.0 * deviation / length) + 1
    shifts = [k * length - mean for k in range(-images, images + 1)]

    def cdf(x: FloatArray) -> FloatArray:
        return np.asarray(sum(ndtr((x + s) / deviation) - ndtr((lower + s) / deviation) for s in shifts))

    return on_interval(cdf, lower, upper)


def _wrapped_uniform(low: float, width: float, lower: float, upper: float) -> Marginal:
    length = upper - lower
    low = lower + float(np.mod(low - lower, length))
    shifts = [k * length for k in range(ceil(width / length) + 2)]

    def cdf(x: FloatArray) -> FloatArray:
        parts = [np.clip(x + s, low, low + width) - min(max(lower + s, low), low + width) for s in shifts]
        return np.asarray(sum(parts) / width)

    return on_interval(cdf, lower, upper)


def _wrapped_cauchy(mean: float, r: float, lower: float, turn: float) -> Marginal:
    """Uniform once the disk is mapped to itself: tan of half the angle is stretched by (1 + r)/(1 − r)."""
    stretch = (1.0 + r) / (1.0 - r)

    def turns(x: FloatArray) -> FloatArray:
        angle = turn * (x - mean)
        whole = np.round(angle / (2.0 * np.pi))
        half = 0.5 * (angle - 2.0 * np.pi * whole)
        return np.asarray(whole + np.arctan2(stretch * np.sin(half), np.cos(half)) / np.pi)

    start = float(turns(np.array([lower]))[0])

    def quantile(u: FloatArray) -> FloatArray:
        whole = np.round(u + start)
        half = np.pi * (u + start - whole)
        angle = 2.0 * np.pi * whole + 2.0 * np.arctan2(np.sin(half), stretch * np.cos(half))
        return np.asarray(mean + angle / turn)

    return Marginal(lambda x: turns(x) - start, quantile)


def cloud_marginal(cloud: Cloud, box: Grid) -> Marginal:
    """Weighted points on one axis: steps for atoms, a mixture of normal laws with a bandwidth."""
    x, width = cloud.points[:, 0], cloud.bandwidth
    lower, upper, ring = box.lower[0], box.upper[0], box.periodic[0]
    if width is not None:
        parts = [_wrapped_normal(m, width, lower, upper) if ring else normal(m, width) for m in x.tolist()]
        return mixture(cloud.weights, parts)
    if ring:
        x = lower + np.mod(x - lower, upper - lower)
    order = np.argsort(x, kind="stable")
    x, below = x[order], np.cumsum(cloud.weights[order])

    def quantile(u: FloatArray) -> FloatArray:
        # a level that is a step up to rounding belongs to the atom that makes the step
        return x[np.minimum(np.searchsorted(below, u * (1.0 - 1e-14)), len(x) - 1)]

    steps = np.concatenate([np.zeros(1), below])
    return Marginal(lambda at: steps[np.searchsorted(x, at, side="right")], quantile, x)


def classic_marginal(law: JiangShu | SinePower | Density, box: Grid) -> Marginal:
    """Laws that are a density on the one axis of the box."""
    lower, upper = box.lower[0], box.upper[0]
    length = upper - lower
    if isinstance(law, JiangShu):
        whole = float(jiang_shu_integral(np.array([1.0]))[0])
        return on_interval(
            lambda x: jiang_shu_integral(2.0 * (x - lower) / length - 1.0) / whole, lower, upper
        )
    if isinstance(law, SinePower):
        power = law.power

        def density(x: FloatArray) -> FloatArray:
            return np.asarray(np.sin(2.0 * np.pi * (x - lower) / length) ** power)

        return by_panels(density, lower, upper, 64 * power)
    function = law.function
    return by_panels(lambda x: evaluate(function, x[:, None]), lower, upper, PANELS)
