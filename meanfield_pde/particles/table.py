"""Softmax attention of N tokens on a line at the cost O(N): the velocity as one Chebyshev polynomial.

V(x) = Σ_a W̄_a m(a x), so if a polynomial of degree q − 1 stands for m on all keys, V is one of that degree, too: m is
summed over the tokens at q nodes, V is put together at q nodes in x, both are evaluated by Clenshaw's recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray
from meanfield_pde.kernels import line_velocity as kernel
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.softmax_cost import chebyshev_size
from meanfield_pde.model.softmax_table import SIZES


@dataclass(frozen=True, slots=True, eq=False)
class Polynomial:
    """Σ c_k T_k((x − middle)/half)."""

    coefficients: FloatArray
    middle: float
    half: float

    @classmethod
    def through(cls, values: FloatArray, middle: float, half: float) -> Polynomial:
        """The interpolant of values at Chebyshev nodes."""
        return cls(kernel.chebyshev_coefficients(values), middle, half)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Values at x (n,)."""
        return np.asarray(kernel.chebyshev_at(self.coefficients, x, self.middle, self.half))


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
    middle, half = 0.5 * (low + high), max(0.5 * (high - low), kernel.LEAST)
    check = middle + half * kernel.CHECK_KEYS
    exact = function(check)
    size_of = max(float(np.abs(exact).max()), np.finfo(float).tiny) if scale is None else scale
    error = np.inf
    for size in _sizes_from(growth, tolerance):
        found = Polynomial.through(function(kernel.chebyshev_nodes(size, middle, half)), middle, half)
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
    scales, values = heads.scores[:, 0, 0].copy(), heads.mean_values(weights)[:, 0, 0].copy()
    tokens, goal = np.ascontiguousarray(points[:, 0]), np.ascontiguousarray(at[:, 0])
    box = kernel.extent(tokens, masses, goal)
    low, high, _, _, _, far = box
    corners = np.outer(scales, [low, high])
    sizes = _sizes_from(0.5 * float(np.ptp(corners)) * far, tolerance)
    velocity = np.empty(len(goal))
    error = kernel.line_velocity(scales, values, tokens, masses, goal, box, sizes, tolerance, velocity)
    return velocity[:, None], float(error)


def _sizes_from(growth: float, tolerance: float) -> IntArray:
    """Sizes to try for e^{growth u} on [-1, 1], the least that may resolve it first."""
    first = chebyshev_size(growth, tolerance)
    return np.array([s for s in SIZES if s >= first] or SIZES[-1:])
