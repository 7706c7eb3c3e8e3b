"""Softmax attention of N tokens on a line at the cost O(N): the velocity as one Chebyshev polynomial.

V(x) = Σ_a W̄_a m(a x), so if a polynomial of degree q − 1 stands for m on all keys, V is one of that degree, too: m is
summed over the tokens at q nodes, V is put together at q nodes in x, both are evaluated by Clenshaw's recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.token_means import chebyshev_values
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.softmax_cost import chebyshev_size
from meanfield_pde.model.softmax_table import SIZES
from meanfield_pde.particles.velocity import softmax_means

# keys between the nodes at which a table is compared with direct sums
CHECKS = 13


@dataclass(frozen=True, slots=True, eq=False)
class Polynomial:
    """Σ c_k T_k((x − middle)/half)."""

    coefficients: FloatArray
    middle: float
    half: float

    @classmethod
    def through(cls, values: FloatArray, middle: float, half: float) -> Polynomial:
        """The interpolant of values at `nodes`."""
        size = len(values)
        angle = np.pi * (np.arange(size) + 0.5) / size
        coefficients = 2.0 / size * (np.cos(np.arange(size)[:, None] * angle[None, :]) @ values)
        coefficients[0] *= 0.5
        return cls(coefficients, middle, half)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Values at x (n,)."""
        out = np.empty(len(x))
        chebyshev_values(self.coefficients, np.clip((x - self.middle) / self.half, -1.0, 1.0), out)
        return out


def nodes(size: int, middle: float, half: float) -> FloatArray:
    """Chebyshev nodes of the first kind on [middle − half, middle + half]."""
    return np.asarray(middle + half * np.cos(np.pi * (np.arange(size) + 0.5) / size))


def certified(
    function: Callable[[FloatArray], FloatArray],
    low: float,
    high: float,
    growth: float,
    tolerance: float,
    scale: float | None = None,
) -> tuple[Polynomial, float]:
    """The interpolant of a function (n,) -> (n,) on [low, high], and its error at 13 points between the nodes.

    Meaning: sizes go up from that of e^{growth u} until the error over ``scale`` (max |f| at those points) is within
    ``tolerance``; beyond the largest size it is given as it is.
    """
    middle, half = 0.5 * (low + high), max(0.5 * (high - low), 1e-9)
    check = middle + half * np.cos(np.pi * ((np.arange(1, CHECKS + 1) * 0.6180339887498949) % 1.0))
    exact = function(check)
    size_of = max(float(np.abs(exact).max()), np.finfo(float).tiny) if scale is None else scale
    error, first = np.inf, chebyshev_size(growth, tolerance)
    for size in [s for s in SIZES if s >= first] or SIZES[-1:]:
        found = Polynomial.through(function(nodes(size, middle, half)), middle, half)
        error = float(np.abs(found(check) - exact).max()) / size_of
        if error <= tolerance:
            break
    return found, error


def line_velocity(
    heads: HeadMatrices,
    weights: FloatArray,
    points: FloatArray,
    masses: FloatArray,
    at: FloatArray,
    tolerance: float,
) -> tuple[FloatArray, float]:
    """V at ``at`` (m, 1) and the largest error of m at 13 keys between the nodes, over the spread or max |m|.

    Meaning: sizes go up until that error is within ``tolerance``; beyond the largest size it is given as it is.
    Shapes: as `attention_velocity`, d = 1.
    Cost: q (2 N + m + n_A q) multiply-adds and q N exponentials.
    """
    scales, values = heads.scores[:, 0, 0], heads.mean_values(weights)[:, 0, 0]
    low, high = float(at.min()), float(at.max())
    corners = np.outer(scales, [low, high])
    key_low, key_high = float(corners.min()), float(corners.max())
    middle, half = 0.5 * (key_low + key_high), max(0.5 * (key_high - key_low), 1e-9)
    # no products of BLAS over the tokens: its threads are slow to start, and its sums depend on them
    mass = float(masses.sum())
    centre = float((masses * points[:, 0]).sum()) / mass
    centred = points - centre
    # a golden-ratio sequence spreads evenly over the angle and falls on no node
    check = middle + half * np.cos(np.pi * ((np.arange(1, CHECKS + 1) * 0.6180339887498949) % 1.0))
    exact = softmax_means(check[:, None], centred, masses)[0][:, 0]
    spread = float(np.sqrt((masses * centred[:, 0] ** 2).sum() / mass))
    size_of_m = max(spread, float(np.abs(exact + centre).max()), np.finfo(float).tiny)
    growth = half * float(np.abs(centred).max())
    first = chebyshev_size(growth, tolerance)
    error = np.inf
    for size in [s for s in SIZES if s >= first] or SIZES[-1:]:
        keys = nodes(size, middle, half)
        mean = Polynomial.through(softmax_means(keys[:, None], centred, masses)[0][:, 0], middle, half)
        error = float(np.abs(mean(check) - exact).max()) / size_of_m
        if error <= tolerance:
            break
    place, reach = 0.5 * (low + high), max(0.5 * (high - low), 1e-9)
    x = nodes(len(mean.coefficients), place, reach)
    means = mean(np.outer(scales, x).ravel()).reshape(len(scales), -1)
    velocity = Polynomial.through(values @ means, place, reach)
    return (velocity(at[:, 0]) + centre * float(values.sum()))[:, None], error
