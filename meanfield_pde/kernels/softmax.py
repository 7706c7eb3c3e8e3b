"""Softmax means of weighted points by direct summation, each key once, and the exact transposes.

m(z) = sum_j w_j y_j e^{z·y_j} / sum_j w_j e^{z·y_j}, shifted by the true maximum over points of positive
weight, with the box filter of cells of width h_k removed per axis (m_k -= d/dz_k log sinhc(z_k h_k / 2)).
Shapes: keys (K, d), y (n, d), w (n,) >= 0, widths (d,), means (K, d), log_z (K,).
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.kernels.log_laplace import box_mean_shift, box_mean_slope

_LOG2E = 1.4426950408889634
_LN2 = 0.6931471805599453
# adding 1.5 * 2**52 rounds to an integer and leaves it in the low bits
_MAGIC = 6755399441055744.0
_SMALLEST = -708.0


@jit
def exp_block(factor, x, top, mantissa, scale):
    """exp(factor · x - top) as mantissa · scale by Cody–Waite reduction and a minimax polynomial.

    Relative error 5e-16 + 3.4e-17 |factor x - top|. Scores above 0 (only points without weight have them) count
    as 0, those below -708 as -708: beside a term of weight 1 neither can be seen.
    Shapes: x, mantissa, scale (n,), the last two overwritten.
    Source: Cody & Waite (1980), ch. 6; coefficients by the Remez exchange on |r| <= ln(2)/2, degree 10.
    """
    bits = scale.view(np.int64)
    for j in range(x.shape[0]):
        s = factor * x[j] - top
        s = s if s < 0.0 else 0.0
        s = s if s > _SMALLEST else _SMALLEST
        shifted = s * _LOG2E + _MAGIC
        k = shifted - _MAGIC
        r = s - k * _LN2
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
        mantissa[j] = p * r + 1.0
        scale[j] = shifted
    for j in range(x.shape[0]):
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


@jit
def _scores(key, y_t, occupied, out):
    """Scores z·y_j into out; returns their maximum over points of positive weight."""
    n = out.shape[0]
    out[:] = 0.0
    for c in range(y_t.shape[0]):
        z = key[c]
        row = y_t[c]
        for j in range(n):
            out[j] += z * row[j]
    # lanes of comparisons vectorise where one running maximum does not
    lanes = np.full(64, -np.inf)
    whole = n - n % 64
    for start in range(0, whole, 64):
        chunk = out[start : start + 64]
        mask = occupied[start : start + 64]
        for j in range(64):
            value = chunk[j] + mask[j]
            lanes[j] = value if value > lanes[j] else lanes[j]
    top = -np.inf
    for j in range(64):
        top = max(top, lanes[j])
    for j in range(whole, n):
        top = max(top, out[j] + occupied[j])
    return top


@jit
def softmax_means(keys, y_t, w, occupied, widths, means, log_z):
    """Softmax mean and log partition sum at every key.

    Shapes: y_t (d, n) points by coordinate; occupied (n,) 0 where w > 0, else -inf.
    """
    d, n = y_t.shape
    score = np.empty(n)
    mantissa = np.empty(n)
    scale = np.empty(n)
    moment = y_t * w
    low = np.inf
    high = -np.inf
    for j in range(n):
        if occupied[j] == 0.0:
            low = min(low, y_t[0, j])
            high = max(high, y_t[0, j])
    for k in range(keys.shape[0]):
        if d == 1:
            # on a line the largest score is at one end of the occupied points
            z = keys[k, 0]
            top = max(z * low, z * high)
            exp_block(z, y_t[0], top, mantissa, scale)
        else:
            top = _scores(keys[k], y_t, occupied, score)
            exp_block(1.0, score, top, mantissa, scale)
        total, first = _weighted_sums(mantissa, scale, w, moment[0])
        means[k, 0] = first / total - box_mean_shift(keys[k, 0], widths[0])
        for c in range(1, d):
            first = _weighted_sum(mantissa, scale, moment[c])
            means[k, c] = first / total - box_mean_shift(keys[k, c], widths[c])
        log_z[k] = top + math.log(total)


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
