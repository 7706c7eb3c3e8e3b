"""What the table of softmax means on tensor nodes does beside its products of matrices: quotients, underflow, batches.

The exponentials are shifted by their maximum over all cells of each axis, so that they separate. A node whose
partition sum underflows (all mass far from the corner that sets the shift) is summed anew, shifted by the true
maximum over the cells that hold mass. Every law is summed in an order of its own, whatever it shares a batch with.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.kernels.log_laplace import UNDERFLOW


@jit
def finish_means(total, shift, filter_shift, keys, y_t, mu, out):
    """Means, 1/Z and Λ from the shifted sums.

    Shapes: total (B, Q); shift (Q,); filter_shift and keys (d, Q); y_t (d, n); mu (B, n) >= 0;
    out (B, d + 2, Q): its first d rows hold the shifted first moments and become the means with the box filter
    removed, then come 1/Z in units of the shifted exponentials (0 where they underflowed) and Λ of the sum over cells.
    """
    batch, count = total.shape
    d, n = y_t.shape
    for b in range(batch):
        for q in range(count):
            if total[b, q] > UNDERFLOW:
                inverse = 1.0 / total[b, q]
                for c in range(d):
                    out[b, c, q] = out[b, c, q] * inverse - filter_shift[c, q]
                out[b, d, q] = inverse
                out[b, d + 1, q] = shift[q] + math.log(total[b, q])
                continue
            top = -np.inf
            for j in range(n):
                if mu[b, j] > 0.0:
                    score = 0.0
                    for c in range(d):
                        score += keys[c, q] * y_t[c, j]
                    top = max(top, score)
            mass = 0.0
            for c in range(d):
                out[b, c, q] = 0.0
            for j in range(n):
                if mu[b, j] > 0.0:
                    score = -top
                    for c in range(d):
                        score += keys[c, q] * y_t[c, j]
                    e = mu[b, j] * math.exp(score)
                    mass += e
                    for c in range(d):
                        out[b, c, q] += e * y_t[c, j]
            for c in range(d):
                out[b, c, q] = out[b, c, q] / mass - filter_shift[c, q]
            out[b, d, q] = 0.0
            out[b, d + 1, q] = top + math.log(mass)


@jit
def start_transpose(moments, filter_shift, g, slope, offset):
    """Cotangents of the shifted sums: slope_c = g_c / Z, offset = -sum_c slope_c (m_c + filter shift).

    Shapes: moments (B, d + 2, Q), g and slope (B, d, Q), offset (B, Q); the last two overwritten, 0 at nodes that
    underflowed. Returns the number of those.
    """
    batch, d, count = g.shape
    lost = 0
    for b in range(batch):
        for q in range(count):
            inverse = moments[b, d, q]
            if inverse == 0.0:
                lost += 1
            total = 0.0
            for c in range(d):
                s = g[b, c, q] * inverse
                slope[b, c, q] = s
                total -= s * (moments[b, c, q] + filter_shift[c, q])
            offset[b, q] = total
    return lost


@jit
def add_lost_nodes(moments, filter_shift, keys, y_t, g, out):
    """Add to out (B, n) what the nodes that underflowed give: sum_q e^{<z_q,y_j> - Λ_q} <g_q, y_j - m_q>."""
    batch, d, count = g.shape
    n = y_t.shape[1]
    for b in range(batch):
        for q in range(count):
            if moments[b, d, q] != 0.0:
                continue
            for j in range(n):
                score = -moments[b, d + 1, q]
                along = 0.0
                for c in range(d):
                    score += keys[c, q] * y_t[c, j]
                    along += g[b, c, q] * (y_t[c, j] - moments[b, c, q] - filter_shift[c, q])
                # an empty cell far outside the law may overflow; its weight is capped, not infinite
                out[b, j] += math.exp(min(score, 600.0)) * along


@jit_sum
def _four_dots(r0, r1, r2, r3, v):
    a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
    for k in range(v.shape[0]):
        a0 += r0[k] * v[k]
        a1 += r1[k] * v[k]
        a2 += r2[k] * v[k]
        a3 += r3[k] * v[k]
    return a0, a1, a2, a3


@jit
def batch_times(matrix, vectors, out):
    """out_b = matrix · vector_b; the matrix is read once for the whole batch.

    Shapes: matrix (F, R), vectors (B, R), out (B, F) overwritten.
    """
    faces = matrix.shape[0]
    batch = vectors.shape[0]
    for f in range(0, faces, 4):
        # at the end the last row stands in for those that are not there
        f1, f2, f3 = min(f + 1, faces - 1), min(f + 2, faces - 1), min(f + 3, faces - 1)
        for b in range(batch):
            a0, a1, a2, a3 = _four_dots(matrix[f], matrix[f1], matrix[f2], matrix[f3], vectors[b])
            out[b, f3] = a3
            out[b, f2] = a2
            out[b, f1] = a1
            out[b, f] = a0


@jit
def batch_times_transpose(matrix, g, out):
    """out_b = matrixᵀ · g_b; the matrix is read once for the whole batch.

    Shapes: matrix (F, R), g (B, F), out (B, R) overwritten.
    """
    faces, size = matrix.shape
    batch = g.shape[0]
    out[:] = 0.0
    whole = faces - faces % 4
    for f in range(0, whole, 4):
        r0, r1, r2, r3 = matrix[f], matrix[f + 1], matrix[f + 2], matrix[f + 3]
        for b in range(batch):
            g0, g1, g2, g3 = g[b, f], g[b, f + 1], g[b, f + 2], g[b, f + 3]
            row = out[b]
            for k in range(size):
                row[k] += (g0 * r0[k] + g1 * r1[k]) + (g2 * r2[k] + g3 * r3[k])
    for f in range(whole, faces):
        r0 = matrix[f]
        for b in range(batch):
            g0 = g[b, f]
            row = out[b]
            for k in range(size):
                row[k] += g0 * r0[k]
