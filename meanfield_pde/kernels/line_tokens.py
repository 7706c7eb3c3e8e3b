"""Softmax attention of tokens on a line by one small matrix for all heads, forward and transposed, batch by batch.

With tokens in [-L, L] and scores a = A·ã, |ã| <= 1, keys are tabulated at A L u_q, u_q the Chebyshev nodes of the first
kind: m_q. V(L u) is then the Chebyshev sum with coefficients c = G m, where G depends on the heads alone.
Shapes: x, w, velocity (B, n); unit (q + k,) the nodes and then keys to check at; mixture G (q, q); rows (k, q)
interpolate at those keys; means, coefficients (B, q); half (B,) the L of each sequence. A sequence is summed by itself.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit
from meanfield_pde.kernels.token_means import chebyshev_values, token_means
from meanfield_pde.kernels.token_means_transpose import token_means_transpose


@jit
def line_tokens(x, w, reach, least, unit, mixture, rows, velocity, means, coefficients, half):
    """V at the tokens of every sequence, ``reach`` the A above; L is at least ``least``. All but the first are filled.

    Gives the largest error of m at the keys to check at, over the spread or the largest |m|; NaN if not finite.
    """
    batch, n = x.shape
    q = mixture.shape[0]
    keys, centred = np.empty((unit.shape[0], 1)), np.empty((1, n))
    found, log_z, tilt = np.empty(keys.shape), np.empty(unit.shape[0]), np.empty(0)
    worst = 0.0
    for b in range(batch):
        far, mass, centre, spread = least, 0.0, 0.0, 0.0
        for j in range(n):
            far = max(far, abs(x[b, j]))
            mass += w[b, j]
            centre += w[b, j] * x[b, j]
        centre /= mass
        for j in range(n):
            centred[0, j] = x[b, j] - centre
            spread += w[b, j] * centred[0, j] ** 2
        half[b] = far
        for k in range(unit.shape[0]):
            keys[k, 0] = reach * far * unit[k]
        token_means(keys, centred, w[b], tilt, found, log_z)
        size, gap = math.sqrt(spread / mass), 0.0
        for k in range(rows.shape[0]):
            value = 0.0
            for i in range(q):
                value += rows[k, i] * found[i, 0]
            if not math.isfinite(value):
                return np.nan
            size = max(size, abs(found[q + k, 0] + centre))
            gap = max(gap, abs(value - found[q + k, 0]))
        if gap > 0.0:
            worst = max(worst, gap / size)
        for i in range(q):
            means[b, i] = found[i, 0] + centre
        for p in range(q):
            value = 0.0
            for i in range(q):
                value += mixture[p, i] * means[b, i]
            coefficients[b, p] = value
        chebyshev_values(coefficients[b], x[b] / far, velocity[b])
    return worst


@jit
def line_tokens_transpose(x, w, reach, unit, mixture, coefficients, half, g, to_x, to_mixture):
    """Cotangents g (B, n) of V at the tokens of `line_tokens` carried to the tokens and, added up, to G.

    Shapes: unit (q,) the nodes alone; to_x (B, n) overwritten, to_mixture (q, q) added to. L and the centre count as
    constants: V depends on them by the error of the table alone.
    """
    batch, n = x.shape
    q = mixture.shape[0]
    keys, tokens, back = np.empty((q, 1)), np.empty((1, n)), np.zeros((1, n))
    found, unused, pull = np.empty((q, 1)), np.empty((q, 1)), np.empty((q, 1))
    first, second, along = np.empty(n), np.empty(n), np.empty(n)
    slope, before, sums = np.empty(n), np.empty(n), np.empty(q)
    for b in range(batch):
        far = half[b]
        for j in range(n):
            tokens[0, j] = x[b, j]
            along[j] = x[b, j] / far
            first[j], second[j] = 1.0, along[j]
            # U_0 and U_1: T_p' = p U_{p-1}
            before[j], slope[j] = 1.0, 2.0 * along[j]
            back[0, j] = coefficients[b, 1]
        sums[0], sums[1] = g[b].sum(), (g[b] * along).sum()
        for p in range(2, q):
            total, factor = 0.0, p * coefficients[b, p]
            for j in range(n):
                value = 2.0 * along[j] * second[j] - first[j]
                first[j], second[j] = second[j], value
                total += g[b, j] * value
                back[0, j] += factor * slope[j]
                following = 2.0 * along[j] * slope[j] - before[j]
                before[j], slope[j] = slope[j], following
            sums[p] = total
        back[0] *= g[b] / far
        for i in range(q):
            keys[i, 0] = reach * far * unit[i]
            total = 0.0
            for p in range(q):
                total += mixture[p, i] * sums[p]
            pull[i, 0] = total
        token_means_transpose(keys, tokens, w[b], pull, found, unused, back)
        to_x[b] = back[0]
        for p in range(q):
            for i in range(q):
                to_mixture[p, i] += sums[p] * found[i, 0]
