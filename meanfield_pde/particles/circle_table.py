"""Attention of N tokens on the unit circle at the cost O(N): the velocity as one trigonometric polynomial.

A key A x(φ) is a smooth function of the angle alone, so V(x(φ)) of all heads is summed at M equal angles; for softmax
with small scores from the Fourier moments of the tokens, which all heads share.
"""

from __future__ import annotations

from math import ceil, exp, hypot, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.ring_moments import ring_means, ring_moments
from meanfield_pde.kernels.token_tables import ring_values
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import LARGEST
from meanfield_pde.model.softmax_cost import chebyshev_size
from meanfield_pde.particles.plane_table import CHECKS, TINY, growth, nodes_for
from meanfield_pde.particles.velocity import attention_velocity

MOST = 4096
# what is lost to cancellation in moments: Z may be e^{-2|A|} of its terms
ROUNDING = 1e-15


def circle_velocity(
    attention: str,
    heads: HeadMatrices,
    weights: FloatArray,
    points: FloatArray,
    masses: FloatArray,
    at: FloatArray,
    tolerance: float,
    cheaper: bool,
) -> tuple[FloatArray, float]:
    """V at ``at`` (m, 2) on the unit circle and its largest error at 13 angles, over the largest speed.

    Meaning: M goes up until that error is within ``tolerance``; beyond the largest, or with ``cheaper`` half the number
    of targets, it is given as it is, inf if there was no table.
    Shapes: as `attention_velocity`, d = 2.
    Cost: (M + 13) N n_A exponentials and 4 M m multiply-adds; 13 N n_A exponentials and K (6 N + 15 M n_A) more
    multiply-adds where e^{2|A|} is so small that K Fourier moments of the tokens give the sums.
    """
    a, b, c, d = heads.scores.reshape(-1, 4).T
    norm = 0.5 * float((np.hypot(a + d, c - b) + np.hypot(a - d, b + c)).max())
    centre = [float((masses * column).sum()) / float(masses.sum()) for column in points.T]
    deviation = sqrt(max(1.0 - hypot(*centre) ** 2, 0.0))
    # |Im A x(φ)| <= |A| sinh |Im φ|, and M angles carry M/2 modes
    modes = max(nodes_for(norm * deviation, tolerance), 4.0)
    most = len(at) // 2 if cheaper else MOST
    found, error, part = np.full(at.shape, np.nan), np.inf, 1.0
    # beyond, an unnormalised sum may overflow at a node where it does at no token
    if 2.0 * modes > most or (attention == "unnormalised" and norm > LARGEST):
        return found, error
    exact = attention_velocity(attention, heads, weights, points, masses, CHECK)
    near = attention == "softmax" and ROUNDING * exp(min(2.0 * norm, LARGEST)) <= tolerance
    while error > tolerance and (size := 2 * ceil(part * modes)) <= most:
        x = _at_angles(2.0 * pi / size * np.arange(size))
        if near:
            nodes, near = _by_moments(heads, weights, points, masses, x, norm, tolerance), False
        else:
            nodes = attention_velocity(attention, heads, weights, points, masses, x)
        series = np.fft.rfft(nodes, axis=0) / size
        series[1:-1] *= 2.0
        found = _values(series, at)
        fastest = max(float(found.max()), -float(found.min()), TINY)
        error = float(np.abs(_values(series, CHECK) - exact).max()) / fastest
        part *= growth(error, tolerance)
    return found, error


def _at_angles(angles: NDArray[np.floating]) -> FloatArray:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1, dtype=float)


# a golden-ratio sequence spreads evenly and falls on no node
CHECK = _at_angles(2.0 * pi * ((np.arange(1, CHECKS + 1) * 0.6180339887498949) % 1.0))


def _by_moments(
    heads: HeadMatrices,
    weights: FloatArray,
    points: FloatArray,
    masses: FloatArray,
    x: FloatArray,
    norm: float,
    tolerance: float,
) -> FloatArray:
    """Σ_A W̄ m(A x) at x (k, 2), |A| <= norm, from as many moments as Z needs where it is e^{-2 norm} of its terms."""
    moments = np.empty((2, chebyshev_size(norm, tolerance * exp(-2.0 * norm)) + 2))
    ring_moments(np.ascontiguousarray(points), masses, moments)
    out, means = np.zeros(x.shape), np.empty(x.shape)
    for score, value in zip(heads.scores, heads.mean_values(weights), strict=True):
        ring_means(np.ascontiguousarray(x @ score.T), moments, means)
        out += means @ value.T
    return out


def _values(series: NDArray[np.complex128], points: FloatArray) -> FloatArray:
    """The trigonometric polynomials of two components at points (n, 2) of the circle."""
    out = np.empty(points.shape)
    real, imaginary = np.ascontiguousarray(series.real), np.ascontiguousarray(series.imag)
    ring_values(real, imaginary, np.ascontiguousarray(points), out)
    return out
