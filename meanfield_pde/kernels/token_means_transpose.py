"""The softmax means of tokens transposed: what a cotangent of the means says about keys and tokens.

m(z) = sum_j pi_j y_j, pi_j = w_j e^{z·y_j} / sum_i w_i e^{z·y_i}, has the derivative
dm = sum_j pi_j dy_j + sum_j pi_j (y_j - m) (z·dy_j + dz·(y_j - m)), so that a cotangent u of m gives
y_j += pi_j (u + <u, y_j - m> z) and z += C u, C the covariance of pi. Memory O(points + keys).
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.kernels.powers_of_two import LOG2E, SMALLEST
from meanfield_pde.kernels.token_means import BLOCK, block_powers, top_score


@jit_sum
def _weighted_sum(e, w):
    total = 0.0
    for j in range(e.shape[0]):
        e[j] *= w[j]
        total += e[j]
    return total


@jit_sum
def _dot(a, b):
    total = 0.0
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@jit_sum
def _line_back(share, y, mean, u, z, out):
    """Adds to the tokens on a line and gives u times the variance."""
    total = 0.0
    for j in range(share.shape[0]):
        gap = y[j] - mean
        pull = share[j] * u
        out[j] += pull + pull * gap * z
        total += pull * gap * gap
    return total


@jit
def token_means_transpose(keys, y_t, w, u, means, to_keys, to_points):
    """Means at every key, and the transpose of their derivative applied to cotangents u.

    Shapes: keys, u (K, d), y_t (d, n) points by coordinate, w (n,) >= 0; means and to_keys (K, d) overwritten,
    to_points (d, n) is added to.
    """
    d, n = y_t.shape
    scaled = keys * LOG2E
    tilt = np.empty(0)
    share, along, width = np.empty(n), np.empty(n), np.empty(d)
    for c in range(d):
        width[c] = y_t[c].max() - y_t[c].min()
    all_seen = w.min() > 0.0
    for k in range(keys.shape[0]):
        key = scaled[k]
        # whole, so that it goes into the number that rounds without loss
        top, span = np.ceil(top_score(key, y_t, w, tilt)), 0.0
        for c in range(d):
            span += abs(key[c]) * width[c]
        # a token of weight 0 may have a score beyond the top, which only the general block cuts
        near = span + 2.0 < -SMALLEST and all_seen
        total = 0.0
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            block_powers(key, y_t, tilt, start, top, near, share[start:stop])
            total += _weighted_sum(share[start:stop], w[start:stop])
        share /= total
        for c in range(d):
            means[k, c] = _dot(share, y_t[c])
        if d == 1:
            to_keys[k, 0] = _line_back(share, y_t[0], means[k, 0], u[k, 0], keys[k, 0], to_points[0])
            continue
        along[:] = 0.0
        for c in range(d):
            along += u[k, c] * (y_t[c] - means[k, c])
        along *= share
        for c in range(d):
            to_points[c] += u[k, c] * share + keys[k, c] * along
            # the sum of `along` is 0 but for rounding, which a mean far from 0 would magnify
            to_keys[k, c] = _dot(along, y_t[c]) - means[k, c] * along.sum()
