"""Tables of the velocity of tokens: sums of a separable kernel at tensor nodes, and interpolants at many points.

Interpolants are evaluated in blocks of points, each in an order of its own, so that the bits of a point do not depend
on those it is asked for together with.
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.kernels.powers_of_two import LOG2E
from meanfield_pde.kernels.token_means import line_powers

# points whose powers at all nodes stay in the nearest caches
BLOCK = 256


@jit_sum
def _add_products(rows, one, two, first, second):
    """first_k += <rows_k, one>, second_k += <rows_k, two> for six rows."""
    a0, a1, a2, a3, a4, a5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    b0, b1, b2, b3, b4, b5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    r0, r1, r2, r3, r4, r5 = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    for j in range(one.shape[0]):
        c, d = one[j], two[j]
        a0 += r0[j] * c
        b0 += r0[j] * d
        a1 += r1[j] * c
        b1 += r1[j] * d
        a2 += r2[j] * c
        b2 += r2[j] * d
        a3 += r3[j] * c
        b3 += r3[j] * d
        a4 += r4[j] * c
        b4 += r4[j] * d
        a5 += r5[j] * c
        b5 += r5[j] * d
    first[0] += a0
    first[1] += a1
    first[2] += a2
    first[3] += a3
    first[4] += a4
    first[5] += a5
    second[0] += b0
    second[1] += b1
    second[2] += b2
    second[3] += b3
    second[4] += b4
    second[5] += b5


@jit
def tensor_sums(nodes, y_t, w, sums):
    """sum_j w_j e^{z_a y1_j + v_b y2_j - shift_a - shift_b} (1, y1_j, y2_j) at all tensor nodes (z_a, v_b).

    Shapes: nodes (2, q), q even, y_t (2, n), w (n,), sums (q/2, q, 2, 3) overwritten: node a of the first axis stands
    at [a // 2, b, a % 2].
    Meaning: the shifts bound the scores along an axis, which may be 1020 ln 2 apart; quotients of the sums are means.
    Cost: 2 q n exponentials, 3 q^2 n multiply-adds.
    """
    q, n = nodes.shape[1], y_t.shape[1]
    half = q // 2
    scaled, tops = nodes * LOG2E, np.empty((2, q))
    for c in range(2):
        low, high = y_t[c].min(), y_t[c].max()
        for a in range(q):
            # whole, so that it goes into the number that rounds without loss
            tops[c, a] = np.ceil(max(scaled[c, a] * low, scaled[c, a] * high))
    # two nodes with three rows each are the tile of one product
    rows, columns = np.empty((half, 6, BLOCK)), np.empty((q, BLOCK))
    tiles = np.zeros((half, q, 6))
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        stop = start + size
        for a in range(q):
            line_powers(scaled[1, a], y_t[1, start:stop], tops[1, a], columns[a, :size])
            r = 3 * (a % 2)
            e, first, second = rows[a // 2, r, :size], rows[a // 2, r + 1, :size], rows[a // 2, r + 2, :size]
            line_powers(scaled[0, a], y_t[0, start:stop], tops[0, a], e)
            for j in range(size):
                e[j] *= w[start + j]
                first[j] = e[j] * y_t[0, start + j]
                second[j] = e[j] * y_t[1, start + j]
        for a in range(half):
            tile = rows[a, :, :size]
            for b in range(0, q, 2):
                _add_products(tile, columns[b, :size], columns[b + 1, :size], tiles[a, b], tiles[a, b + 1])
    sums[:] = tiles.reshape(half, q, 2, 3)


@jit
def tensor_values(coefficients, unit, out):
    """sum_ik c_ik T_i(u) T_k(v) at many (u, v) in [-1, 1]^2, for two components.

    Shapes: coefficients (2, q, q), q even, unit and out (n, 2), the last overwritten.
    """
    q, n = coefficients.shape[1], unit.shape[0]
    t = np.empty((q, BLOCK))
    u, now, last = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    one, two, sum_one, sum_two = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for j in range(size):
            u[j] = unit[start + j, 0]
            t[0, j] = 1.0
            t[1, j] = unit[start + j, 1]
            now[j], last[j] = 1.0, u[j]
            sum_one[j], sum_two[j] = 0.0, 0.0
        for k in range(2, q):
            for j in range(size):
                t[k, j] = 2.0 * t[1, j] * t[k - 1, j] - t[k - 2, j]
        for i in range(q):
            one[:] = 0.0
            two[:] = 0.0
            for k in range(0, q, 2):
                c0, c1 = coefficients[0, i, k], coefficients[0, i, k + 1]
                d0, d1 = coefficients[1, i, k], coefficients[1, i, k + 1]
                for j in range(size):
                    one[j] += c0 * t[k, j] + c1 * t[k + 1, j]
                    two[j] += d0 * t[k, j] + d1 * t[k + 1, j]
            for j in range(size):
                # now = T_i(u), last = T_{i-1}(u), and T_{-1} = T_1
                sum_one[j] += now[j] * one[j]
                sum_two[j] += now[j] * two[j]
                after = 2.0 * u[j] * now[j] - last[j]
                last[j] = now[j]
                now[j] = after
        for j in range(size):
            out[start + j, 0] = sum_one[j]
            out[start + j, 1] = sum_two[j]


@jit
def ring_values(real, imaginary, points, out):
    """Re sum_k c_k (x + i y)^k at points (x, y) of the unit circle by Horner's rule, for two components.

    Shapes: real and imaginary (K, 2), the parts of c; points and out (n, 2), the last overwritten.
    """
    n, modes = points.shape[0], real.shape[0]
    x, y = np.empty(BLOCK), np.empty(BLOCK)
    a, b, c, d = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for j in range(size):
            x[j], y[j] = points[start + j, 0], points[start + j, 1]
            a[j], b[j], c[j], d[j] = 0.0, 0.0, 0.0, 0.0
        for k in range(modes - 1, -1, -1):
            r0, i0, r1, i1 = real[k, 0], imaginary[k, 0], real[k, 1], imaginary[k, 1]
            for j in range(size):
                turned = a[j] * y[j] + b[j] * x[j] + i0
                a[j] = a[j] * x[j] - b[j] * y[j] + r0
                b[j] = turned
                turned = c[j] * y[j] + d[j] * x[j] + i1
                c[j] = c[j] * x[j] - d[j] * y[j] + r1
                d[j] = turned
        for j in range(size):
            out[start + j, 0] = a[j]
            out[start + j, 1] = c[j]
