"""Softmax means of tokens, weighted points of width 0, at many keys: direct sums in blocks, memory O(points + keys).

m(z) = sum_j w_j y_j e^{s_j} / sum_j w_j e^{s_j}, s_j = z·y_j + tilt_j. The sum of a key runs over blocks of `BLOCK`
points one after the other and looks at no other key, so that its bits do not depend on what is asked for together.
Shapes: keys (K, d), y_t (d, n) points by coordinate, w (n,) >= 0, tilt (n,), or (0,) for none.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.kernels.log_laplace import UNDERFLOW
from meanfield_pde.kernels.powers_of_two import LN2, LOG2E, MAGIC, SMALLEST, power_of_two

# points that stay in the nearest cache, and keys that share one reading of them
BLOCK, KEYS = 1024, 16


@jit
def line_powers(z, y, top, out):
    """2^{z y - top}, an exponent in [-1021, 0]; `top` is whole."""
    magic = MAGIC - top
    for j in range(y.shape[0]):
        out[j] = power_of_two(z * y[j], magic)


@jit
def _plane_powers(z0, y0, z1, y1, top, out):
    magic = MAGIC - top
    for j in range(y0.shape[0]):
        out[j] = power_of_two(z0 * y0[j] + z1 * y1[j], magic)


@jit
def _any_powers(key, y_t, tilt, start, top, out):
    """The same for any dimension, tilt and score; exponents are cut to [-1021, 0]: beyond nothing of weight is seen."""
    n = out.shape[0]
    out[:] = -top
    if tilt.shape[0] > 0:
        for j in range(n):
            out[j] += LOG2E * tilt[start + j]
    for c in range(y_t.shape[0]):
        row = y_t[c, start : start + n]
        z = key[c]
        for j in range(n):
            out[j] += z * row[j]
    for j in range(n):
        out[j] = power_of_two(max(min(out[j], 0.0), SMALLEST), MAGIC)


@jit
def block_powers(key, y_t, tilt, start, top, near, e):
    """e = 2^{score - top} of the points of one block from ``start`` on; ``near`` says that none is cut to 2^-1021."""
    d, stop = y_t.shape[0], start + e.shape[0]
    if near and d == 1:
        line_powers(key[0], y_t[0, start:stop], top, e)
    elif near and d == 2:
        _plane_powers(key[0], y_t[0, start:stop], key[1], y_t[1, start:stop], top, e)
    else:
        _any_powers(key, y_t, tilt, start, top, e)


@jit_sum
def _line_sums(z, y, top, a, b):
    """Sums of e a and e b on a line, e as `line_powers`, which is not stored."""
    magic = MAGIC - top
    first = 0.0
    second = 0.0
    for j in range(y.shape[0]):
        e = power_of_two(z * y[j], magic)
        first += e * a[j]
        second += e * b[j]
    return first, second


@jit_sum
def _plane_sums(z0, y0, z1, y1, top, a, b, c):
    magic = MAGIC - top
    first = 0.0
    second = 0.0
    third = 0.0
    for j in range(y0.shape[0]):
        e = power_of_two(z0 * y0[j] + z1 * y1[j], magic)
        first += e * a[j]
        second += e * b[j]
        third += e * c[j]
    return first, second, third


@jit_sum
def _one_sum(e, a):
    first = 0.0
    for j in range(e.shape[0]):
        first += e[j] * a[j]
    return first


@jit
def top_score(key, y_t, w, tilt):
    """Largest score, in powers of 2, of a point of positive weight."""
    top = -np.inf
    for j in range(w.shape[0]):
        if w[j] > 0.0:
            score = LOG2E * tilt[j] if tilt.shape[0] > 0 else 0.0
            for c in range(y_t.shape[0]):
                score += key[c] * y_t[c, j]
            top = max(top, score)
    return top


@jit
def _add_block(key, y_t, w, moment, tilt, start, size, top, near, e, sums):
    """Adds one block of points to the partition sum and first moments of a key."""
    d = y_t.shape[0]
    stop = start + size
    if near and d == 1:
        total, first = _line_sums(key[0], y_t[0, start:stop], top, w[start:stop], moment[0, start:stop])
        sums[0] += total
        sums[1] += first
    elif near and d == 2:
        along, across = y_t[0, start:stop], y_t[1, start:stop]
        weighted = w[start:stop], moment[0, start:stop], moment[1, start:stop]
        total, first, second = _plane_sums(key[0], along, key[1], across, top, *weighted)
        sums[0] += total
        sums[1] += first
        sums[2] += second
    else:
        _any_powers(key, y_t, tilt, start, top, e[:size])
        sums[0] += _one_sum(e[:size], w[start:stop])
        for c in range(d):
            sums[c + 1] += _one_sum(e[:size], moment[c, start:stop])


@jit
def token_means(keys, y_t, w, tilt, means, log_z):
    """Softmax mean and log partition sum at every key.

    Scores are shifted by their bound on the box of the points, with a tilt by their maximum; a sum that the bound lets
    underflow is redone with the maximum.
    Shapes: means (K, d), log_z (K,), both overwritten.
    """
    d, n = y_t.shape
    moment = y_t * w
    # scores are powers of 2 from here on: a rounded key is a key next to it
    scaled = keys * LOG2E
    e = np.empty(BLOCK)
    sums, tops, near = np.empty((KEYS, d + 1)), np.empty(KEYS), np.empty(KEYS, dtype=np.bool_)
    low, high = np.empty(d), np.empty(d)
    for c in range(d):
        low[c], high[c] = y_t[c].min(), y_t[c].max()
    for begin in range(0, keys.shape[0], KEYS):
        count = min(KEYS, keys.shape[0] - begin)
        sums[:] = 0.0
        for k in range(count):
            key = scaled[begin + k]
            if tilt.shape[0] > 0:
                tops[k], near[k] = top_score(key, y_t, w, tilt), False
                continue
            top, span = 0.0, 0.0
            for c in range(d):
                top += max(key[c] * low[c], key[c] * high[c])
                span += abs(key[c]) * (high[c] - low[c])
            # whole, so that it goes into the number that rounds without loss
            tops[k], near[k] = np.ceil(top), span + 1.0 < -SMALLEST
        for start in range(0, n, BLOCK):
            size = min(BLOCK, n - start)
            for k in range(count):
                _add_block(scaled[begin + k], y_t, w, moment, tilt, start, size, tops[k], near[k], e, sums[k])
        for k in range(count):
            if not sums[k, 0] > UNDERFLOW:
                tops[k] = top_score(scaled[begin + k], y_t, w, tilt)
                sums[k] = 0.0
                for start in range(0, n, BLOCK):
                    size = min(BLOCK, n - start)
                    _add_block(scaled[begin + k], y_t, w, moment, tilt, start, size, tops[k], False, e, sums[k])
            for c in range(d):
                means[begin + k, c] = sums[k, c + 1] / sums[k, 0]
            log_z[begin + k] = LN2 * tops[k] + math.log(sums[k, 0])


@jit
def chebyshev_values(coefficients, unit, out):
    """sum_k c_k T_k(u) at many u in [-1, 1] by the recurrence of Clenshaw (1955), in blocks.

    Shapes: coefficients (q,), unit and out (n,), the last overwritten.
    """
    q = coefficients.shape[0]
    one, two = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, unit.shape[0], BLOCK):
        u = unit[start : start + BLOCK]
        size = u.shape[0]
        one[:] = 0.0
        two[:] = 0.0
        for k in range(q - 1, 0, -1):
            c = coefficients[k]
            for j in range(size):
                value = 2.0 * u[j] * one[j] - two[j] + c
                two[j] = one[j]
                one[j] = value
        for j in range(size):
            out[start + j] = u[j] * one[j] - two[j] + coefficients[0]
