"""The table of softmax means m(z) = ∇Λ(z) of grid laws on Chebyshev nodes, and its exact transposes.

Λ(z) = log ∫ e^{zy} mu(dy). The exponentials ``kernel[j, q] = exp(z_q y_j - shift_q)`` are fixed by the grid;
``kernel_t`` is the same array with axes swapped, so that both directions run along contiguous memory.
A node whose sum underflows (all mass far from the cell that sets the shift) is redone with the true
maximum over the cells that hold mass. Weights must be >= 0; empty cells weigh nothing.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit

# below this the scaled partition sum has lost digits to underflow and is redone with its own shift
UNDERFLOW = 1e-200


@jit
def box_mean_shift(z, h):
    """d/dz log(sinh(zh/2)/(zh/2)): what the box filter of width h adds to the mean of a tilted cell."""
    u = 0.5 * z * h
    if abs(u) < 0.05:
        u2 = u * u
        return 0.5 * h * u * (1.0 / 3.0 - u2 * (1.0 / 45.0 - u2 * (2.0 / 945.0 - u2 / 4725.0)))
    return 0.5 * h * (1.0 / math.tanh(u) - 1.0 / u)


@jit
def box_mean_slope(z, h):
    """Derivative of `box_mean_shift` in z."""
    u = 0.5 * z * h
    if abs(u) < 0.05:
        u2 = u * u
        return 0.25 * h * h * (1.0 / 3.0 - u2 * (1.0 / 15.0 - u2 * (2.0 / 189.0 - u2 / 675.0)))
    return 0.25 * h * h * (1.0 / (u * u) - 1.0 / math.sinh(u) ** 2) if abs(u) < 300.0 else 0.25 * h * h / (u * u)


@jit
def seen_cells(u, core, ring, out):
    """Cells of laws on one axis that carry mass: runs of positive cells that reach ``core`` times the largest value.

    Beyond the first cell that is not positive a tail holds rounding and undershoot, which large keys would blow up
    (e^{zy} reaches 1e30); a true tail is kept however thin it is. On a ring a run goes on across the seam.
    Shapes: u (B, n), out (B, n) overwritten with 1.0 or 0.0.
    """
    batch, n = u.shape
    # twice around a ring: what is reached across the seam is known in the second round
    rounds = 2 * n if ring else n
    for b in range(batch):
        top = 0.0
        for j in range(n):
            top = max(top, u[b, j])
            out[b, j] = 0.0
        reached = False
        for k in range(rounds):
            j = k % n
            reached = u[b, j] > 0.0 and (reached or u[b, j] > core * top)
            if reached:
                out[b, j] = 1.0
        reached = False
        for k in range(rounds - 1, -1, -1):
            j = k % n
            reached = u[b, j] > 0.0 and (reached or u[b, j] > core * top)
            if reached:
                out[b, j] = 1.0


@jit
def table_moments(kernel, nodes, y, width, mu, out):
    """Softmax means of B laws at all nodes.

    Shapes: kernel (n, q), nodes (q,), y (n,) ascending, mu (B, n) weights >= 0, out (B, 3, q): the mean
    (box filter removed), 1/Z in units of the shifted kernel (0 where it underflowed), and Λ of the sum over cells.
    """
    batch, n = mu.shape
    q = nodes.shape[0]
    total = np.empty(q)
    first = np.empty(q)
    for b in range(batch):
        total[:] = 0.0
        first[:] = 0.0
        for j in range(n):
            weight = mu[b, j]
            if weight > 0.0:
                moment = weight * y[j]
                row = kernel[j]
                for k in range(q):
                    total[k] += weight * row[k]
                    first[k] += moment * row[k]
        for k in range(q):
            if total[k] > UNDERFLOW:
                out[b, 0, k] = first[k] / total[k] - box_mean_shift(nodes[k], width)
                out[b, 1, k] = 1.0 / total[k]
                out[b, 2, k] = max(nodes[k] * y[0], nodes[k] * y[n - 1]) + math.log(total[k])
            else:
                top = -np.inf
                for j in range(n):
                    if mu[b, j] > 0.0:
                        top = max(top, nodes[k] * y[j])
                s0 = 0.0
                s1 = 0.0
                for j in range(n):
                    if mu[b, j] > 0.0:
                        e = mu[b, j] * math.exp(nodes[k] * y[j] - top)
                        s0 += e
                        s1 += e * y[j]
                out[b, 0, k] = s1 / s0 - box_mean_shift(nodes[k], width)
                out[b, 1, k] = 0.0
                out[b, 2, k] = top + math.log(s0)


@jit
def table_moments_transpose(kernel_t, nodes, y, width, moments, g, out):
    """Transpose of the derivative of `table_moments`: out_j = sum_q g_q e^{z_q y_j - Λ_q} (y_j - m_q).

    Shapes: kernel_t (q, n), moments (B, 3, q) from `table_moments`, g (B, q), out (B, n) overwritten.
    """
    batch, q = g.shape
    n = y.shape[0]
    for b in range(batch):
        row_out = out[b]
        row_out[:] = 0.0
        for k in range(q):
            mean = moments[b, 0, k] + box_mean_shift(nodes[k], width)
            if moments[b, 1, k] > 0.0:
                slope = g[b, k] * moments[b, 1, k]
                offset = slope * mean
                row = kernel_t[k]
                for j in range(n):
                    row_out[j] += row[j] * (slope * y[j] - offset)
            else:
                for j in range(n):
                    # an empty cell far outside the law may overflow; its weight is capped, not infinite
                    e = math.exp(min(nodes[k] * y[j] - moments[b, 2, k], 600.0))
                    row_out[j] += g[b, k] * e * (y[j] - mean)


@jit
def chebyshev_sum(zeta, scales, weights, out):
    """Chebyshev moments of many heads, out[k, f] = sum_a weights_a T_k(scales_a zeta_f).

    Shapes: zeta (F,), scales (A,), weights (A,), out (q, F) overwritten; |scales zeta| <= 1.
    """
    q, faces = out.shape
    out[:] = 0.0
    argument = np.empty(faces)
    previous = np.empty(faces)
    current = np.empty(faces)
    for a in range(scales.shape[0]):
        weight = weights[a]
        if weight == 0.0:
            continue
        row = out[0]
        for f in range(faces):
            argument[f] = 2.0 * scales[a] * zeta[f]
            previous[f] = 1.0
            current[f] = scales[a] * zeta[f]
            row[f] += weight
        row = out[1]
        for f in range(faces):
            row[f] += weight * current[f]
        for k in range(2, q):
            row = out[k]
            for f in range(faces):
                value = argument[f] * current[f] - previous[f]
                previous[f] = current[f]
                current[f] = value
                row[f] += weight * value


@jit
def chebyshev_sum_transpose(zeta, scales, g, out):
    """Transpose of `chebyshev_sum` in the weights: out[a] = sum_{k,f} T_k(scales_a zeta_f) g[k, f]."""
    q, faces = g.shape
    argument = np.empty(faces)
    previous = np.empty(faces)
    current = np.empty(faces)
    total = np.empty(faces)
    for a in range(scales.shape[0]):
        first = g[0]
        second = g[1]
        for f in range(faces):
            argument[f] = 2.0 * scales[a] * zeta[f]
            previous[f] = 1.0
            current[f] = scales[a] * zeta[f]
            total[f] = first[f] + second[f] * current[f]
        for k in range(2, q):
            row = g[k]
            for f in range(faces):
                value = argument[f] * current[f] - previous[f]
                previous[f] = current[f]
                current[f] = value
                total[f] += row[f] * value
        out[a] = total.sum()


@jit
def matrix_rows(matrix_t, vectors, out):
    """Matrix-vector product for each law of a batch, out_b = matrix · vector_b, same bits for any batch.

    Shapes: matrix_t (q, F) holds the transpose; vectors (B, q) ; out (B, F) overwritten.
    """
    batch, q = vectors.shape
    faces = matrix_t.shape[1]
    for b in range(batch):
        row_out = out[b]
        row_out[:] = 0.0
        for k in range(q):
            weight = vectors[b, k]
            row = matrix_t[k]
            for f in range(faces):
                row_out[f] += weight * row[f]


@jit
def table_error(rows, keys, key_shift, nodes, node_shift, y, width, mu, moments, cells):
    """Largest relative error of interpolated tables at keys between the nodes, of m and of its first variation.

    m is compared with direct sums, relative to max |m| or the spread of the law if that is larger; the first
    variation e^{zy - Λ(z)}(y - m(z)), which carries the costate and needs more nodes than m, at ``cells`` cells y
    spread over the law, relative to its size. NaN when anything is not finite.
    Shapes: rows (k, q) interpolate at keys (k,); nodes (q,); y (n,); mu (B, n) >= 0; moments (B, 3, q).
    """
    count, q = rows.shape
    n = y.shape[0]
    worst = 0.0
    mean = np.empty(count)
    partition = np.empty(count)
    at_nodes = np.empty(q)
    for b in range(mu.shape[0]):
        first, last, mass, centre = -1, 0, 0.0, 0.0
        for j in range(n):
            if mu[b, j] > 0.0:
                first = j if first < 0 else first
                last = j
                mass += mu[b, j]
                centre += mu[b, j] * y[j]
        centre /= mass
        spread = 0.0
        for j in range(n):
            spread += mu[b, j] * (y[j] - centre) ** 2
        scale = math.sqrt(spread / mass) + width
        gap = 0.0
        for k in range(count):
            top = max(keys[k] * y[first], keys[k] * y[last])
            total, moment = 0.0, 0.0
            for j in range(first, last + 1):
                e = mu[b, j] * math.exp(keys[k] * y[j] - top)
                total += e
                moment += e * y[j]
            mean[k] = moment / total
            partition[k] = top + math.log(total)
            found = 0.0
            for i in range(q):
                found += rows[k, i] * moments[b, 0, i]
            scale = max(scale, abs(mean[k] - key_shift[k]))
            gap = max(gap, abs(found - mean[k] + key_shift[k]))
            if not math.isfinite(found):
                return np.nan
        worst = max(worst, gap / scale)
        for c in range(cells):
            place = y[first + (last - first) * c // max(cells - 1, 1)]
            for i in range(q):
                e = math.exp(nodes[i] * place - moments[b, 2, i])
                at_nodes[i] = e * (place - moments[b, 0, i] - node_shift[i])
            size, gap = 0.0, 0.0
            for k in range(count):
                e = math.exp(keys[k] * place - partition[k])
                found = 0.0
                for i in range(q):
                    found += rows[k, i] * at_nodes[i]
                size = max(size, e * (abs(place - mean[k]) + width))
                gap = max(gap, abs(found - e * (place - mean[k])))
            worst = max(worst, gap / size)
    return worst
