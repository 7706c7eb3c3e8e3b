"""Cells to faces, upwind of the sign of the velocity.

The faces whose stencils for both winds are in the box make one long row: the loop loads the cells of both winds before
it selects, so that it vectorises. The few faces at walls take tables (made by `meanfield_pde.equations.schemes`), so
that both winds share one loop: ``index[s, f, k]`` is the k-th cell of face f, counted from upwind to downwind, for wind
s = 0 (v >= 0) or 1 (v < 0); ``coefficient[s, f, k]`` its weight in the linear reconstruction; ``centred[s, f]`` tells
whether the stencil is the centred one.
"""

from __future__ import annotations

from meanfield_pde.kernels._jit import jit_same
from meanfield_pde.kernels.choose import choose

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
    """WENO-Z of order 5 (Borges, Carmona, Costa & Don 2008, eq. 28 with q = 2), cells from upwind to downwind.

    In differences: h are half the second ones, s the smoothness indicators, and the three candidates are
    c + (c - b)/2 + 2 h0/3, 2 h1/3 and h1 - h2/3.
    """
    behind, ahead = c - b, d - c
    h0, h1, h2 = 0.5 * (behind - (b - a)), 0.5 * (ahead - behind), 0.5 * ((e - d) - ahead)
    e0, e1, e2 = behind + h0, behind + h1, ahead - h2
    s0 = 13.0 / 3.0 * (h0 * h0) + (e0 * e0 + WENO_EPSILON)
    s1 = 13.0 / 3.0 * (h1 * h1) + (e1 * e1 + WENO_EPSILON)
    s2 = 13.0 / 3.0 * (h2 * h2) + (e2 * e2 + WENO_EPSILON)
    # tau / s_k with one division for all three: the product neither vanishes nor overflows for cells up to 1e50
    last = s1 * s2
    share = abs(s0 - s2) / (s0 * last)
    x0, x1, x2 = share * last, share * (s0 * s2), share * (s0 * s1)
    # ten times the weights
    w0, w1, w2 = 1.0 + x0 * x0, 6.0 + 6.0 * (x1 * x1), 3.0 + 3.0 * (x2 * x2)
    curved = (w0 * h0 + w1 * h1) * (2.0 / 3.0) + w2 * (h1 - h2 * (1.0 / 3.0))
    return c + (0.5 * behind + curved / (w0 + w1 + w2))


@jit_same
def minmod(a, b):
    """The smaller of two slopes of one sign, else 0."""
    return max(min(a, b), 0.0) + min(max(a, b), 0.0)


@jit_same
def monotonised_central(a, b):
    """Half the sum, at most twice the smaller, of two slopes of one sign, else 0 (van Leer 1977)."""
    middle, first, second = 0.5 * (a + b), 2.0 * a, 2.0 * b
    return max(min(middle, min(first, second)), 0.0) + min(max(middle, max(first, second)), 0.0)


@jit_same
def harmonic(a, b):
    """The harmonic mean of two slopes of one sign, else 0 (van Leer 1974)."""
    total = a + b
    # chosen before the division, which is done for all
    mean = 2.0 * (a / choose(total != 0.0, total, 1.0)) * b
    return choose((a > 0.0) == (b > 0.0), mean, 0.0)


@jit_same
def van_albada(a, b):
    """Van Albada et al. (1982), in the ratio of the smaller to the larger: neither underflows nor overflows."""
    first = abs(a) < abs(b)
    small, large = choose(first, a, b), choose(first, b, a)
    r = small / choose(large != 0.0, large, 1.0)
    slope = small * (1.0 + r) / (1.0 + r * r)
    return choose((a > 0.0) == (b > 0.0), slope, 0.0)


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
        out[i] = choose(v[i] >= 0.0, left, right)


@jit_same
def _linear3_row(cells, weights, v, out):
    a, b, c, d = cells
    x, y, z = weights[0], weights[1], weights[2]
    for i in range(v.shape[0]):
        aa, bb, cc, dd = a[i], b[i], c[i], d[i]
        right = v[i] >= 0.0
        behind, here, ahead = choose(right, aa, dd), choose(right, bb, cc), choose(right, cc, bb)
        out[i] = x * behind + y * here + z * ahead


@jit_same
def _linear5_row(cells, weights, v, out):
    a, b, c, d, e, f = cells
    w0, w1, w2, w3, w4 = weights[0], weights[1], weights[2], weights[3], weights[4]
    for i in range(v.shape[0]):
        aa, bb, cc, dd, ee, ff = a[i], b[i], c[i], d[i], e[i], f[i]
        right = v[i] >= 0.0
        first, second, third = choose(right, aa, ff), choose(right, bb, ee), choose(right, cc, dd)
        fourth, fifth = choose(right, dd, cc), choose(right, ee, bb)
        out[i] = w0 * first + w1 * second + w2 * third + w3 * fourth + w4 * fifth


@jit_same
def _muscl_row(kind, cells, v, out):
    """One loop a limiter, so that none has a choice inside."""
    a, b, c, d = cells
    if kind == MINMOD:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = choose(right, aa, dd), choose(right, bb, cc), choose(right, cc, bb)
            out[i] = here + 0.5 * minmod(here - behind, ahead - here)
    elif kind == MC:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = choose(right, aa, dd), choose(right, bb, cc), choose(right, cc, bb)
            out[i] = here + 0.5 * monotonised_central(here - behind, ahead - here)
    elif kind == VANLEER:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = choose(right, aa, dd), choose(right, bb, cc), choose(right, cc, bb)
            out[i] = here + 0.5 * harmonic(here - behind, ahead - here)
    else:
        for i in range(v.shape[0]):
            aa, bb, cc, dd = a[i], b[i], c[i], d[i]
            right = v[i] >= 0.0
            behind, here, ahead = choose(right, aa, dd), choose(right, bb, cc), choose(right, cc, bb)
            out[i] = here + 0.5 * van_albada(here - behind, ahead - here)


@jit_same
def _weno_row(cells, v, out):
    a, b, c, d, e, f = cells
    for i in range(v.shape[0]):
        aa, bb, cc, dd, ee, ff = a[i], b[i], c[i], d[i], e[i], f[i]
        right = v[i] >= 0.0
        behind, back, here = choose(right, aa, ff), choose(right, bb, ee), choose(right, cc, dd)
        ahead, far = choose(right, dd, cc), choose(right, ee, bb)
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
def row_faces(u, v, inner, index, coefficient, centred, kind, start, stop, out):
    """Reconstruction at the faces start..stop of one row, in out from its beginning on.

    Shapes: u (n inner,), v (faces inner,).
    """
    n, count = u.shape[0] // inner, v.shape[0] // inner
    ring, r = count == n, reach(kind)
    # faces whose cells f - r ... f + 1 + r lie in the row one behind the other
    first = min(2 if ring else r, count)
    last = max(first, n - 3 if ring else n - 1 - r)
    # on a ring all faces have the stencil of the first
    weights = coefficient[0, first] if first < last else coefficient[0, 0]
    f = start
    # one call for a long row and for single faces of a ring alike: it is much code, and every call compiles it anew
    while f < stop:
        behind = min(last, stop) if first <= f < last else f + 1
        to = out[(f - start) * inner : (behind - start) * inner]
        if first <= f < last or ring:
            size = (behind - f) * inner
            a, b, c = (f - 2) % n * inner, (f - 1) % n * inner, f * inner
            d, e, g = (f + 1) % n * inner, (f + 2) % n * inner, (f + 3) % n * inner
            # those that lie outside a row between walls are not looked at
            _row(kind, u[a:], u[b:], u[c:], u[d:], u[e:], u[g:], weights, v[c : c + size], to)
        else:
            for i in range(inner):
                s = 0 if v[f * inner + i] >= 0.0 else 1
                to[i] = _at_wall(kind, u[i::inner], index[s, f], coefficient[s, f], centred[s, f])
        f = behind


@jit_same
def faces(u2, v2, inner, index, coefficient, centred, kind, out2):
    """Reconstruction at all faces; neighbours on the axis are ``inner`` apart in memory.

    Shapes: u2 (outer, n inner), v2 and out2 (outer, faces inner).
    """
    for o in range(u2.shape[0]):
        row_faces(u2[o], v2[o], inner, index, coefficient, centred, kind, 0, v2.shape[1] // inner, out2[o])
