"""Local tensor interpolation of a table at keys A x, one key at a time, and its transpose.

Equally spaced nodes from -reach to reach, on each axis the eight nearest ones by Lagrange's formula. There are always
three axes: in the plane the first has a single node. Every law is summed in an order of its own.
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum

POINTS = 8
# 1 / prod_{j != i} (i - j) for i in 0..7
_SCALE = np.array([-1 / 5040, 1 / 720, -1 / 240, 1 / 144, -1 / 144, 1 / 240, -1 / 720, 1 / 5040])


@jit
def local_weights(place, size, weights):
    """Lagrange weights (8,) at a place in units of nodes, overwritten; returns the first node. One node weighs 1."""
    if size == 1:
        weights[:] = 0.0
        weights[0] = 1.0
        return 0
    first = min(max(int(np.floor(place)) - POINTS // 2 + 1, 0), size - POINTS)
    t = place - first
    product = 1.0
    for i in range(POINTS):
        weights[i] = _SCALE[i] * product
        product *= t - i
    product = 1.0
    for i in range(POINTS - 1, -1, -1):
        weights[i] *= product
        product *= t - i
    return first


@jit_sum
def _dot(row, weights):
    total = 0.0
    for k in range(8):
        total += row[k] * weights[k]
    return total


@jit
def add_at_keys(s, points, inverse, tables, out):
    """out[b, f] += table_b(A x_f).

    Shapes: s (3, 3) = A, points (F, 3), inverse (3,) = (q - 1) / (2 reach), 0 on an axis of one node;
    tables (B, q0, q1, q2), out (B, F).
    """
    batch, q0, q1, q2 = tables.shape
    w0, w1, w2 = np.empty(POINTS), np.empty(POINTS), np.empty(POINTS)
    p0 = 1 if q0 == 1 else POINTS
    for f in range(points.shape[0]):
        x, y, z = points[f, 0], points[f, 1], points[f, 2]
        i0 = local_weights((s[0, 0] * x + s[0, 1] * y + s[0, 2] * z) * inverse[0] + 0.5 * (q0 - 1), q0, w0)
        i1 = local_weights((s[1, 0] * x + s[1, 1] * y + s[1, 2] * z) * inverse[1] + 0.5 * (q1 - 1), q1, w1)
        i2 = local_weights((s[2, 0] * x + s[2, 1] * y + s[2, 2] * z) * inverse[2] + 0.5 * (q2 - 1), q2, w2)
        for b in range(batch):
            total = 0.0
            for i in range(p0):
                for j in range(POINTS):
                    row = tables[b, i0 + i, i1 + j, i2 : i2 + POINTS]
                    total += w0[i] * w1[j] * _dot(row, w2)
            out[b, f] += total


@jit
def add_at_keys_transpose(s, points, inverse, g, out):
    """Transpose of `add_at_keys` in the tables: out (B, q0, q1, q2) added to, for g (B, F)."""
    batch, q0, q1, q2 = out.shape
    w0, w1, w2 = np.empty(POINTS), np.empty(POINTS), np.empty(POINTS)
    p0 = 1 if q0 == 1 else POINTS
    for f in range(points.shape[0]):
        x, y, z = points[f, 0], points[f, 1], points[f, 2]
        i0 = local_weights((s[0, 0] * x + s[0, 1] * y + s[0, 2] * z) * inverse[0] + 0.5 * (q0 - 1), q0, w0)
        i1 = local_weights((s[1, 0] * x + s[1, 1] * y + s[1, 2] * z) * inverse[1] + 0.5 * (q1 - 1), q1, w1)
        i2 = local_weights((s[2, 0] * x + s[2, 1] * y + s[2, 2] * z) * inverse[2] + 0.5 * (q2 - 1), q2, w2)
        for b in range(batch):
            for i in range(p0):
                for j in range(POINTS):
                    weight = g[b, f] * w0[i] * w1[j]
                    row = out[b, i0 + i, i1 + j, i2 : i2 + POINTS]
                    for k in range(POINTS):
                        row[k] += weight * w2[k]
