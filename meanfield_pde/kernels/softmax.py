"""Softmax means of weighted points by direct summation, each key once, and the exact transposes.

m(z) = sum_j w_j y_j e^{z·y_j} / sum_j w_j e^{z·y_j}, shifted by a bound of the scores of points of positive weight (by
their maximum where that underflows), with the box filter of cells of width h_k removed per axis
(m_k -= d/dz_k log sinhc(z_k h_k / 2)).
Shapes: keys (K, d), y (n, d), w (n,) >= 0, widths (d,), means (K, d), log_z (K,).
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.kernels.log_laplace import UNDERFLOW, box_mean_shift, box_mean_slope
from meanfield_pde.kernels.powers_of_two import LN2, LOG2E, MAGIC

_SMALLEST = -708.0
# points at a time in several dimensions
BLOCK = 1024


@jit
def _reduced(s):
    """e^s as a polynomial value and a number whose low bits hold the power of 2, for s cut to [-708, 0]."""
    s = s if s < 0.0 else 0.0
    s = s if s > _SMALLEST else _SMALLEST
    shifted = s * LOG2E + MAGIC
    r = s - (shifted - MAGIC) * LN2
    p = 2.748844350914402e-07
    p = p * r + 2.763976826778399e-06
    p = p * r + 2.480191768800904e-05
    p = p * r + 0.000198411713841864
    p = p * r + 0.0013888888499138056
    p = p * r + 0.008333333384665825
    p = p * r + 0.04166666666842602
    p = p * r + 0.16666666666557742
    p = p * r + 0.49999999999997286
    p = p * r + 1.0000000000000064
    return p * r + 1.0, shifted


@jit
def exp_block(factor, x, top, mantissa, scale):
    """exp(factor · x - top) as mantissa · scale by Cody–Waite reduction and a minimax polynomial.

    Relative error 5e-16 + 3.4e-17 |factor x - top|. Scores above 0 (only points without weight have them) count
    as 0, those below -708 as -708: beside a term of weight 1 neither can be seen.
    Shapes: x, mantissa, scale (n,), the last two overwritten.
    Source: Cody & Waite (1980), ch. 6; coefficients by the Remez exchange on |r| <= ln(2)/2, degree 10.
    """
    for j in range(x.shape[0]):
        mantissa[j], scale[j] = _reduced(factor * x[j] - top)
    _powers(scale)


@jit
def exp_block_plane(a, x, b, y, top, mantissa, scale):
    """exp(a x + b y - top), as `exp_block`."""
    for j in range(x.shape[0]):
        mantissa[j], scale[j] = _reduced(a * x[j] + b * y[j] - top)
    _powers(scale)


@jit
def _powers(scale):
    """2^k in place of the numbers whose low bits hold k."""
    bits = scale.view(np.int64)
    for j in range(bits.shape[0]):
        bits[j] = (bits[j] + 1023) << 52


@jit_sum
def _weighted_sum(mantissa, scale, a):
    total = 0.0
    for j in range(a.shape[0]):
        total += mantissa[j] * scale[j] * a[j]
    return total


@jit_sum
def _weighted_sums(mantissa, scale, a, b):
    first = 0.0
    second = 0.0
    for j in range(a.shape[0]):
        e = mantissa[j] * scale[j]
        first += e * a[j]
        second += e * b[j]
    return first, second


@jit_sum
def _weighted_triple(mantissa, scale, a, b, c):
    first = 0.0
    second = 0.0
    third = 0.0
    for j in range(a.shape[0]):
        e = mantissa[j] * scale[j]
        first += e * a[j]
        second += e * b[j]
        third += e * c[j]
    return first, second, third


@jit
def _score_block(key, y_t, start, out):
    """Scores z·y_j of the points from ``start`` on, as many as ``out`` holds."""
    n = out.shape[0]
    out[:] = 0.0
    for c in range(y_t.shape[0]):
        z = key[c]
        row = y_t[c, start : start + n]
        for j in range(n):
            out[j] += z * row[j]


@jit
def _top_score(key, y_t, occupied):
    """Largest z·y_j over points of positive weight."""
    top = -np.inf
    for j in range(y_t.shape[1]):
        if occupied[j] == 0.0:
            score = 0.0
            for c in range(y_t.shape[0]):
                score += key[c] * y_t[c, j]
            top = max(top, score)
    return top


@jit
def _sums_of_key(key, y_t, w, moment, top, score, mantissa, scale, sums):
    """Partition sum and first moments of e^{z·y - top}, block by block so that all stays in the nearest cache."""
    d, n = y_t.shape
    sums[:] = 0.0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        s, m, e = score[:size], mantissa[:size], scale[:size]
        if d == 2:
            exp_block_plane(key[0], y_t[0, start : start + size], key[1], y_t[1, start : start + size], top, m, e)
        else:
            _score_block(key, y_t, start, s)
            exp_block(1.0, s, top, m, e)
        weight = w[start : start + size]
        total, first, second = _weighted_triple(
            m, e, weight, moment[0, start : start + size], moment[1, start : start + size]
        )
        sums[0] += total
        sums[1] += first
        sums[2] += second
        for c in range(2, d):
            sums[c + 1] += _weighted_sum(m, e, moment[c, start : start + size])


@jit
def softmax_means(keys, y_t, w, occupied, widths, means, log_z):
    """Softmax mean and log partition sum at every key.

    Scores are shifted by their bound on the box of the occupied points, which on a line is their maximum; a sum that
    this lets underflow is redone with the maximum itself.
    Shapes: y_t (d, n) points by coordinate; occupied (n,) 0 where w > 0, else -inf.
    """
    d, n = y_t.shape
    moment = y_t * w
    length = n if d == 1 else min(n, BLOCK)
    score = np.empty(length)
    mantissa = np.empty(length)
    scale = np.empty(length)
    sums = np.empty(d + 1)
    low = np.full(d, np.inf)
    high = np.full(d, -np.inf)
    for j in range(n):
        if occupied[j] == 0.0:
            for c in range(d):
                low[c] = min(low[c], y_t[c, j])
                high[c] = max(high[c], y_t[c, j])
    for k in range(keys.shape[0]):
        top = 0.0
        for c in range(d):
            top += max(keys[k, c] * low[c], keys[k, c] * high[c])
        if d == 1:
            exp_block(keys[k, 0], y_t[0], top, mantissa, scale)
            sums[0], sums[1] = _weighted_sums(mantissa, scale, w, moment[0])
        else:
            _sums_of_key(keys[k], y_t, w, moment, top, score, mantissa, scale, sums)
            if not sums[0] > UNDERFLOW:
                top = _top_score(keys[k], y_t, occupied)
                _sums_of_key(keys[k], y_t, w, moment, top, score, mantissa, scale, sums)
        for c in range(d):
            means[k, c] = sums[c + 1] / sums[0] - box_mean_shift(keys[k, c], widths[c])
        log_z[k] = top + math.log(sums[0])


@jit
def softmax_to_weights(keys, y_t, w, occupied, widths, means, log_z, g, out):
    """Transpose in the weights of points that have some: out_j += sum_k e^{z_k·y_j - log_z_k} g_k·(y_j - m_k).

    Shapes: g (K, d) cotangents of the means, out (n,) added to.
    """
    d, n = y_t.shape
    for k in range(keys.shape[0]):
        offset = 0.0
        for c in range(d):
            offset += g[k, c] * (means[k, c] + box_mean_shift(keys[k, c], widths[c]))
        for j in range(n):
            if occupied[j] == 0.0:
                score = -log_z[k]
                along = -offset
                for c in range(d):
                    score += keys[k, c] * y_t[c, j]
                    along += g[k, c] * y_t[c, j]
                out[j] += math.exp(score) * along


@jit
def softmax_to_points(keys, y_t, w, occupied, widths, means, log_z, g, key_out, y_out):
    """Transposes in the keys and in the points.

    key_out_k = Cov_k g_k - slope(z_k) g_k; y_out_j += sum_k p_kj [g_k + (g_k·(y_j - m_k)) z_k], p_kj softmax weights.
    Shapes: key_out (K, d) overwritten, y_out (n, d) added to.
    """
    d, n = y_t.shape
    for k in range(keys.shape[0]):
        offset = 0.0
        for c in range(d):
            offset += g[k, c] * (means[k, c] + box_mean_shift(keys[k, c], widths[c]))
            key_out[k, c] = -box_mean_slope(keys[k, c], widths[c]) * g[k, c]
        for j in range(n):
            if occupied[j] == 0.0:
                score = -log_z[k]
                along = -offset
                for c in range(d):
                    score += keys[k, c] * y_t[c, j]
                    along += g[k, c] * y_t[c, j]
                p = w[j] * math.exp(score)
                for c in range(d):
                    key_out[k, c] += p * along * (y_t[c, j] - means[k, c] - box_mean_shift(keys[k, c], widths[c]))
                    y_out[j, c] += p * (g[k, c] + along * keys[k, c])
