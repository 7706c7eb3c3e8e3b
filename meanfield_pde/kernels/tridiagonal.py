"""Backward Euler along one axis by elimination without subtraction, between walls and on a ring."""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit

_EPSILON = 2.0**-53
_HOLDS = 8.0 * _EPSILON  # a cell takes over at most a few ulps of itself: small ones stay right and positive
_LANES = 16  # lines solved side by side, so that the recursion along a line becomes vector instructions


@jit
def _load(a, base, lanes, rows, stride, tile):
    """Copies ``lanes`` lines of the flat array ``a`` into columns of ``tile``; the other columns stay."""
    if lanes == _LANES and base[_LANES - 1] - base[0] == _LANES - 1 and stride >= _LANES:
        for i in range(rows):
            start = base[0] + i * stride
            for j in range(_LANES):
                tile[i, j] = a[start + j]
    else:
        for j in range(lanes):
            for i in range(rows):
                tile[i, j] = a[base[j] + i * stride]


@jit
def _store(a, base, lanes, rows, stride, tile):
    """The way back of ``_load``."""
    if lanes == _LANES and base[_LANES - 1] - base[0] == _LANES - 1 and stride >= _LANES:
        for i in range(rows):
            start = base[0] + i * stride
            for j in range(_LANES):
                a[start + j] = tile[i, j]
    else:
        for j in range(lanes):
            for i in range(rows):
                a[base[j] + i * stride] = tile[i, j]


@jit
def _solve_walls(g, up, dn, ds, keep):
    """One tile between walls; ``g`` enters as right-hand side and leaves as solution."""
    n = g.shape[0]
    for j in range(_LANES):
        keep[j] = 1.0
    for i in range(n - 1):
        for j in range(_LANES):
            rate = ds * up[i, j]
            inverse = 1.0 / (keep[j] + rate)
            stays = keep[j] * inverse
            moves = rate * inverse
            back = ds * dn[i, j]
            g[i + 1, j] += moves * g[i, j]
            keep[j] = 1.0 + back * stays
            up[i, j] = inverse
            dn[i, j] = back
    for j in range(_LANES):
        g[n - 1, j] /= keep[j]
    for i in range(n - 2, -1, -1):
        for j in range(_LANES):
            g[i, j] = (g[i, j] + dn[i, j] * g[i + 1, j]) * up[i, j]


@jit
def _solve_ring(g, up, dn, ds, keep, to_last, from_last, keep_last):
    """One tile on a ring, reduced towards the last cell; ``from_last`` (n, lanes) is kept for the way back."""
    n = g.shape[0]
    last = n - 1
    for j in range(_LANES):
        keep[j] = 1.0
        keep_last[j] = 1.0
        to_last[j] = ds * dn[last, j]
        from_last[0, j] = ds * up[last, j]
    for i in range(n - 2):
        for j in range(_LANES):
            rate = ds * up[i, j]
            inverse = 1.0 / (keep[j] + (rate + to_last[j]))
            stays = keep[j] * inverse
            moves = rate * inverse
            leaps = to_last[j] * inverse
            back = ds * dn[i, j]
            g[i + 1, j] += moves * g[i, j]
            g[last, j] += leaps * g[i, j]
            keep_last[j] += from_last[i, j] * stays
            from_last[i + 1, j] = from_last[i, j] * moves
            keep[j] = 1.0 + back * stays
            to_last[j] = back * leaps
            up[i, j] = inverse
            dn[i, j] = back
    i = n - 2
    for j in range(_LANES):
        rate = ds * up[i, j] + to_last[j]
        inverse = 1.0 / (keep[j] + rate)
        back = ds * dn[i, j] + from_last[i, j]
        g[last, j] += rate * inverse * g[i, j]
        keep_last[j] += back * (keep[j] * inverse)
        g[last, j] /= keep_last[j]
        g[i, j] = (g[i, j] + back * g[last, j]) * inverse
    for i in range(n - 3, -1, -1):
        for j in range(_LANES):
            g[i, j] = (g[i, j] + dn[i, j] * g[i + 1, j] + from_last[i, j] * g[last, j]) * up[i, j]


@jit
def _settle(g, old, defect, carry):
    """Moves cells by ulps so that a line keeps its sum to less than an ulp of one cell.

    Elimination leaves a relative defect of some 1e-16 whose sign repeats once a line stands still. Each cell
    gets its share, and what its last digit cannot hold is handed to the next; a defect that is not rounding stays.
    """
    n = g.shape[0]
    bound = 4.0 * n * _EPSILON
    for j in range(_LANES):
        defect[j] = 0.0
        carry[j] = 0.0
    for i in range(n):
        for j in range(_LANES):
            defect[j] += old[i, j] - g[i, j]
            carry[j] += g[i, j]
    for j in range(_LANES):
        share = defect[j] / (carry[j] if carry[j] > 0.0 else 1.0)
        defect[j] = share if carry[j] > 0.0 and abs(share) <= bound else 0.0
        carry[j] = 0.0
    for i in range(n):
        for j in range(_LANES):
            due = carry[j] + defect[j] * g[i, j]
            moved = g[i, j] + due if abs(due) <= (_HOLDS + abs(defect[j])) * g[i, j] else g[i, j]
            carry[j] = due - (moved - g[i, j])
            g[i, j] = moved


@jit
def backward_euler(rho3, up3, dn3, ds):
    """Solution of new[i] (1 + u[i] + d[i-1]) - u[i-1] new[i-1] - d[i] new[i+1] = rho[i] on every line.

    Formula: u = ds up, d = ds dn; pivot π[i] = e[i] + u[i], e[0] = 1, e[i+1] = 1 + d[i] e[i]/π[i], the
    right-hand side reduced with the same quotients. A ring (as many faces as cells) is reduced towards its
    last cell with two more weights, to it and from it.
    Shapes: ``rho3`` (outer, n, inner), ``up3`` and ``dn3`` (outer, n - 1, inner) or, on a ring, (outer, n, inner).
    Meaning: every term is >= 0, so the solution is >= 0 and each entry is right to a few units in the
    last place whatever ``ds``: mass and the Gibbs state survive ds = 1e12. The last rounding of each line
    is spread over its cells by single ulps, so that mass does not drift over many steps.
    Source: Grassmann, Taksar and Heyman 1985, Oper. Res. 33, section 2.
    """
    outer, n, inner = rho3.shape
    faces = up3.shape[1]
    out3 = np.empty(rho3.shape)
    rho, up, dn, out = rho3.ravel(), up3.ravel(), dn3.ravel(), out3.reshape(outer * n * inner)
    g = np.zeros((n, _LANES))
    up_tile = np.zeros((faces, _LANES))
    dn_tile = np.zeros((faces, _LANES))
    from_last = np.zeros((n, _LANES))
    old = np.zeros((n, _LANES))
    keep = np.empty(_LANES)
    keep_last = np.empty(_LANES)
    to_last = np.empty(_LANES)
    cell_base = np.zeros(_LANES, np.int64)
    face_base = np.zeros(_LANES, np.int64)
    lines = outer * inner
    line = 0
    while line < lines:
        lanes = min(_LANES, lines - line)
        if inner >= _LANES:  # stay inside one outer block: its lines are neighbours in memory
            lanes = min(lanes, inner - line % inner)
        for j in range(lanes):
            o = (line + j) // inner
            k = (line + j) - o * inner
            cell_base[j] = o * n * inner + k
            face_base[j] = o * faces * inner + k
        _load(rho, cell_base, lanes, n, inner, g)
        old[:, :] = g
        _load(up, face_base, lanes, faces, inner, up_tile)
        _load(dn, face_base, lanes, faces, inner, dn_tile)
        if faces == n:
            _solve_ring(g, up_tile, dn_tile, ds, keep, to_last, from_last, keep_last)
        else:
            _solve_walls(g, up_tile, dn_tile, ds, keep)
        _settle(g, old, keep, to_last)
        _store(out, cell_base, lanes, n, inner, g)
        line += lanes
    return out3
