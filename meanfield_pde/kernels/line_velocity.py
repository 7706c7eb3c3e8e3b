"""Softmax attention of tokens on a line at any points: a table of means, put together as one Chebyshev polynomial.

Keys are a x for scores a (A,) and points x in [low, high]; m is tabulated at q nodes on all keys, V = Σ_a W̄_a m(a x) is
put together at q nodes in x. One call a stage, so that runs in several threads do not wait for each other.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit
from meanfield_pde.kernels.token_means import chebyshev_values, token_means

# keys between the nodes at which a table is compared with direct sums; a golden-ratio sequence spreads evenly over the
# angle and falls on no node
CHECKS = 13
CHECK_KEYS = np.cos(np.pi * ((np.arange(1, CHECKS + 1) * 0.6180339887498949) % 1.0))
# half an interval of nearly no length
LEAST = 1e-9


@jit
def chebyshev_nodes(size, middle, half):
    """Nodes of the first kind on [middle - half, middle + half], (size,)."""
    return middle + half * np.cos(math.pi * (np.arange(size) + 0.5) / size)


@jit
def chebyshev_coefficients(values):
    """Of the interpolant of values (q,) at the nodes, (q,)."""
    q = values.shape[0]
    # all angles are multiples of pi/2q
    cosines = np.cos(0.5 * math.pi / q * np.arange(4 * q))
    out = np.empty(q)
    for k in range(q):
        total, angle = 0.0, k
        for i in range(q):
            total += cosines[angle] * values[i]
            angle += 2 * k
            if angle >= 4 * q:
                angle -= 4 * q
        out[k] = 2.0 / q * total
    out[0] *= 0.5
    return out


@jit
def chebyshev_at(coefficients, x, middle, half):
    """The series at x (n,), which are in its interval but for rounding."""
    out = np.empty(x.shape[0])
    chebyshev_values(coefficients, np.minimum(np.maximum((x - middle) / half, -1.0), 1.0), out)
    return out


@jit
def extent(points, masses, at):
    """Least and largest of ``at``; mass, mean, deviation of the points and the farthest from their mean."""
    low, high, mass, first = np.inf, -np.inf, 0.0, 0.0
    for j in range(at.shape[0]):
        low, high = min(low, at[j]), max(high, at[j])
    for j in range(points.shape[0]):
        mass += masses[j]
        first += masses[j] * points[j]
    centre, second, far = first / mass, 0.0, 0.0
    for j in range(points.shape[0]):
        second += masses[j] * (points[j] - centre) ** 2
        far = max(far, abs(points[j] - centre))
    return low, high, mass, centre, math.sqrt(second / mass), far


@jit
def line_velocity(scales, values, points, masses, at, box, sizes, tolerance, velocity):
    """V at ``at`` (m,), overwritten; gives the largest error of m at the keys to check at, over the spread or max |m|.

    Shapes: scales, values (A,) scores and mean W; points, masses (n,); box what `extent` gives; sizes the numbers of
    nodes to try until the error is within the tolerance.
    """
    low, high, _, centre, spread, _ = box
    key_low, key_high = np.inf, -np.inf
    for a in range(scales.shape[0]):
        key_low = min(key_low, scales[a] * low, scales[a] * high)
        key_high = max(key_high, scales[a] * low, scales[a] * high)
    middle, half = 0.5 * (key_low + key_high), max(0.5 * (key_high - key_low), LEAST)
    centred = np.empty((1, points.shape[0]))
    centred[0] = points - centre
    tilt = np.empty(0)
    check = middle + half * CHECK_KEYS
    exact, found = np.empty((CHECKS, 1)), np.empty((sizes[-1], 1))
    log_z = np.empty(max(CHECKS, sizes[-1]))
    token_means(check.reshape(-1, 1), centred, masses, tilt, exact, log_z[:CHECKS])
    size_of_m = spread
    for k in range(CHECKS):
        size_of_m = max(size_of_m, abs(exact[k, 0] + centre))
    error, mean = np.inf, np.empty(0)
    for size in sizes:
        keys = chebyshev_nodes(size, middle, half)
        token_means(keys.reshape(-1, 1), centred, masses, tilt, found[:size], log_z[:size])
        mean = chebyshev_coefficients(found[:size, 0])
        error = np.abs(chebyshev_at(mean, check, middle, half) - exact[:, 0]).max()
        # a spread of 0 is that of one point, and the error is then that of nothing
        error = error / size_of_m if error > 0.0 else error
        if error <= tolerance:
            break
    place, reach = 0.5 * (low + high), max(0.5 * (high - low), LEAST)
    x = chebyshev_nodes(mean.shape[0], place, reach)
    together, total = np.zeros(x.shape[0]), 0.0
    for a in range(scales.shape[0]):
        together += values[a] * chebyshev_at(mean, scales[a] * x, middle, half)
        total += values[a]
    velocity[:] = chebyshev_at(chebyshev_coefficients(together), at, place, reach) + centre * total
    return error
