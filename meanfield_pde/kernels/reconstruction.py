"""Cells to faces, upwind of the sign of the velocity.

The faces whose stencils for both winds are in the box make one long row: the loop loads the cells of both winds before
it selects, so that it vectorises. The few faces at walls take tables (made by `meanfield_pde.equations.schemes`), so
that both winds share one loop: ``index[s, f, k]`` is the k-th cell of face f, counted from upwind to downwind, for wind
s = 0 (v >= 0) or 1 (v < 0); ``coefficient[s, f, k]`` its weight in the linear reconstruction; ``centred[s, f]`` tells
whether the stencil is the centred one.
"""

from __future__ import annotations

from meanfield_pde.kernels._jit import jit_same

UPWIND, LINEAR3, LINEAR5, MINMOD, MC, VANLEER, VANALBADA, WENO5Z = range(8)
# Borges et al. (2008): small enough not to touch the order on data of any practical size
WENO_EPSILON = 1e-40


@jit_same
def reach(kind):
    """Cells beyond the upwind one on each side."""
    if kind == UPWIND:
        return 0
    return 2 if kind in (LINEAR5, WENO5Z) else 1


@jit_same
def weno_value(a, b, c, d, e):
    """WENO-Z of order 5 (Borges, Carmona, Costa & Don 2008, eq. 28 with q = 2), cells from upwind to downwind."""
    q0 = (2.0 * a - 7.0 * b + 11.0 * c) / 6.0
    q1 = (-b + 5.0 * c + 2.0 * d) / 6.0
    q2 = (2.0 * c + 5.0 * d - e) / 6.0
    s0 = 13.0 / 12.0 * (a - 2.0 * b + c) ** 2 + 0.25 * (a - 4.0 * b + 3.0 * c) ** 2 + WENO_EPSILON
    s1 = 13.0 / 12.0 * (b - 2.0 * c + d) ** 2 + 0.25 * (b - d) ** 2 + WENO_EPSILON
    s2 = 13.0 / 12.0 * (c - 2.0 * d + e) ** 2 + 0.25 * (3.0 * c - 4.0 * d + e) ** 2 + WENO_EPSILON
    tau = abs(s0 - s2)
    w0 = 0.1 * (1.0 + (tau / s0) ** 2)
    w1 = 0.6 * (1.0 + (tau / s1) ** 2)
    w2 = 0.3 * (1.0 + (tau / s2) ** 2)
    return (w0 * q0 + w1 * q1 + w2 * q2) / (w0 + w1 + w2)


@jit_same
def minmod(a, b):
    """The smaller of two slopes of one sign, else 0."""
    smaller = a if abs(a) < abs(b) else b
    return smaller if a * b > 0.0 else 0.0


@jit_same
def monotonised_central(a, b):
    """Half the sum, at most twice the smaller (van Leer 1977)."""
    size = min(0.5 * abs(a + b), 2.0 * min(abs(a), abs(b)))
    signed = size if a > 0.0 else -size
    return signed if a * b > 0.0 else 0.0


@jit_same
def harmonic(a, b):
    """The harmonic mean (van Leer 1974)."""
    total = a + b
    # chosen before the division, which is done for all
    mean = 2.0 * (a / (total if total != 0.0 else 1.0)) * b
    return mean if a * b > 0.0 else 0.0


@jit_same
def van_albada(a, b):
    """Van Albada et al. (1982), in the ratio of the smaller to the larger: neither underflows nor overflows."""
    first = abs(a) < abs(b)
    small, large = (a if first else b), (b if first else a)
    r = small / (large if large != 0.0 else 1.0)
    slope = small * (1.0 + r) / (1.0 + r * r)
    return slope if a * b > 0.0 else 0.0


@jit_same
def limited(kind, a, b):
    """Limited slope of the one-sided differences a and b (Sweby 1984)."""
    if kind == MINMOD:
        return minmod(a, b)
    if kind == MC:
        return monotonised_central(a, b)
    return harmonic(a, b) if kind == VANLEER else van_albada(a, b)


@jit_same
def _upwind_row(cells, v, out):
    a, b = cells
    for i in range(v.shape[0]):
        left, right = a[i], b[i]
        out[i] = left if v[i] >= 0.0 else right


@jit_same
def _linear3_row(cells, weights, v, out):
    a, b, c, d = cells
    x, y, z = weights[0], weights[1], weights[2]
    for i in range(v.shape[0]):
        aa, bb, cc, dd = a[i], b[i], c[i], d[i]
        right = v[i] >= 0.0
        behind, here, ahead = (aa if right else dd), (bb if right else cc), (cc if right else bb)
        out[i] = x * behind + y * here + z * ahead


@jit_same
def _linear5_row(cells, weights, v, out):
    a, b, c, d, e, f = cells
    w0, w1, w2, w3, w4 = weights[0], weights[1], weights[2], weights[3], weights[4]
    for i in range(v.shape[0]):
        aa, bb, cc, dd, ee, ff = a[i], b[i], c[i], d[i], e[i], f[i]
        right = v[i] >= 0.0
        first, second, third = (aa if right else ff), (bb if right else ee), (cc if right else dd)
        fourth, fifth = (dd if right else cc), (ee if right else bb)
        out[i] = w0 * first + w1 * second + w2 * third + w3 * fourth + w4 * fifth


@jit_same
def _muscl_row(kind, cells, v, out):
    """One loop a limiter, so that none has a choice inside."""
    a, b, c, d = cells
    if kind == MINMOD:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = (aa if right else dd), (bb if right else cc), (cc if right else bb)
            out[i] = here + 0.5 * minmod(here - behind, ahead - here)
    elif kind == MC:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = (aa if right else dd), (bb if right else cc), (cc if right else bb)
            out[i] = here + 0.5 * monotonised_central(here - behind, ahead - here)
    elif kind == VANLEER:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = (aa if right else dd), (bb if right else cc), (cc if right else bb)
            out[i] = here + 0.5 * harmonic(here - behind, ahead - here)
    else:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = (aa if right else dd), (bb if right else cc), (cc if right else bb)
            out[i] = here + 0.5 * van_albada(here - behind, ahead - here)


@jit_same
def _weno_row(cells, v, out):
    a, b, c, d, e, f = cells
    for i in range(v.shape[0]):
        aa, bb, cc, dd, ee, ff = a[i], b[i], c[i], d[i], e[i], f[i]
        right = v[i] >= 0.0
        behind, back, here = (aa if right else ff), (bb if right else ee), (cc if right else dd)
        ahead, far = (dd if right else cc), (ee if right else bb)
        out[i] = weno_value(behind, back, here, ahead, far)


@jit_same
def _row(kind, a, b, c, d, e, f, weights, v, out):
    """Faces between c and d; only the cells within reach are looked at."""
    if kind == UPWIND:
        _upwind_row((c, d), v, out)
    elif kind == LINEAR3:
        _linear3_row((b, c, d, e), weights, v, out)
    elif kind == LINEAR5:
        _linear5_row((a, b, c, d, e, f), weights, v, out)
    elif kind == WENO5Z:
        _weno_row((a, b, c, d, e, f), v, out)
    else:
        _muscl_row(kind, (b, c, d, e), v, out)


@jit_same
def _at_wall(kind, line, cells, weights, centred):
    """The value at one face of a line (n,) from its table; in a cell at a wall the slope is the one there is."""
    if centred and kind == WENO5Z:
        return weno_value(line[cells[0]], line[cells[1]], line[cells[2]], line[cells[3]], line[cells[4]])
    if MINMOD <= kind <= VANALBADA:
        first, second = line[cells[0]], line[cells[1]]
        if centred:
            return second + 0.5 * limited(kind, second - first, line[cells[2]] - second)
        # the stencil starts at the wall, with the cell upwind of the face
        return first + 0.5 * (second - first)
    total = 0.0
    for k in range(cells.shape[0]):
        total += weights[k] * line[cells[k]]
    return total


@jit_same
def _block(row, j, inner):
    return row[j * inner : (j + 1) * inner]


@jit_same
def faces(u2, v2, inner, index, coefficient, centred, kind, out2):
    """Reconstruction at all faces; neighbours on the axis are ``inner`` apart in memory.

    Shapes: u2 (outer, n inner), v2 and out2 (outer, faces inner).
    """
    outer, n, count = u2.shape[0], u2.shape[1] // inner, v2.shape[1] // inner
    ring, r = count == n, reach(kind)
    # faces whose cells f - r ... f + 1 + r lie in the row one behind the other
    first = min(2 if ring else r, count)
    last = max(first, n - 3 if ring else n - 1 - r)
    weights = coefficient[0, first] if first < last else coefficient[0, 0]
    start, stop, size = first * inner, last * inner, (last - first) * inner
    back, far = max(start - inner, 0), max(start - 2 * inner, 0)
    for o in range(outer):
        u, v, out = u2[o], v2[o], out2[o]
        if size > 0:
            c, d, e, g = u[start:], u[start + inner :], u[start + 2 * inner :], u[start + 3 * inner :]
            _row(kind, u[far:], u[back:], c, d, e, g, weights, v[start:stop], out[start:stop])
        for f in range(count):
            if first <= f < last:
                continue
            if ring:
                a, b, c = _block(u, (f - 2) % n, inner), _block(u, (f - 1) % n, inner), _block(u, f, inner)
                d, e = _block(u, (f + 1) % n, inner), _block(u, (f + 2) % n, inner)
                g = _block(u, (f + 3) % n, inner)
                # on a ring all faces have the stencil of the first
                _row(kind, a, b, c, d, e, g, coefficient[0, 0], _block(v, f, inner), _block(out, f, inner))
                continue
            for i in range(inner):
                s = 0 if v[f * inner + i] >= 0.0 else 1
                out[f * inner + i] = _at_wall(kind, u[i::inner], index[s, f], coefficient[s, f], centred[s, f])
