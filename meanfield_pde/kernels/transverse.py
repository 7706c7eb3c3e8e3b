"""What the face mean of a product v r has beyond the product of face means (McCorquodale & Colella 2011, eq. 14).

Along every other axis k of the grid, with undivided central differences: F += δ_k v δ_k r/12 + δ²_k v r/24, r the mean
of the two cells beside the face. At walls δ is one-sided of order 2 and δ² that of the nearest inner cell.
Shapes: u2 (outer, n inner), v2 (outer, faces inner), the axis of the faces and those behind it in one row.
"""

from __future__ import annotations

from meanfield_pde.kernels._jit import jit_same


@jit_same
def _between(v_behind, v, v_ahead, u_behind, u, u_ahead, w_behind, w, w_ahead, flux):
    """A row of faces with neighbours on both sides along k; u and w are the cells beside the face."""
    for i in range(v.shape[0]):
        slope = (u_ahead[i] - u_behind[i]) + (w_ahead[i] - w_behind[i])
        curved = v_ahead[i] - 2.0 * v[i] + v_behind[i]
        flux[i] += (v_ahead[i] - v_behind[i]) * slope / 96.0 + curved * (u[i] + w[i]) / 48.0


@jit_same
def _at_wall(v0, v1, v2, u0, u1, u2, w0, w1, w2, flux):
    """A row at a wall, the rows further in along k behind it: both slopes change sign at the other wall."""
    for i in range(v0.shape[0]):
        slope_v = -1.5 * v0[i] + 2.0 * v1[i] - 0.5 * v2[i]
        slope = -1.5 * (u0[i] + w0[i]) + 2.0 * (u1[i] + w1[i]) - 0.5 * (u2[i] + w2[i])
        curved = v0[i] - 2.0 * v1[i] + v2[i]
        flux[i] += slope_v * slope / 24.0 + curved * (u0[i] + w0[i]) / 48.0


@jit_same
def _along_block(v, u, w, s, ring, flux):
    """Along an axis with cells ``s`` apart that fills a block of a row."""
    size = v.shape[0]
    a, b, c, t = size - 2 * s, size - s, size - 3 * s, 2 * s
    _between(v[:a], v[s:b], v[t:], u[:a], u[s:b], u[t:], w[:a], w[s:b], w[t:], flux[s:b])
    if ring:
        _between(v[b:], v[:s], v[s:], u[b:], u[:s], u[s:], w[b:], w[:s], w[s:], flux[:s])
        _between(v[a:], v[b:], v, u[a:], u[b:], u, w[a:], w[b:], w, flux[b:])
    else:
        _at_wall(v[:s], v[s:], v[t:], u[:s], u[s:], u[t:], w[:s], w[s:], w[t:], flux[:s])
        _at_wall(v[b:], v[a:], v[c:], u[b:], u[a:], u[c:], w[b:], w[a:], w[c:], flux[b:])


@jit_same
def _across_rows(v2, u2, first, second, third, start, stop, shift, wall, flux):
    """Along an axis on which rows are neighbours: columns start..stop, whose other cells are ``shift`` further on."""
    a, b, c, d = start, stop, start + shift, stop + shift
    v0, v1, v = v2[first], v2[second], v2[third]
    u0, u1, u = u2[first], u2[second], u2[third]
    if wall:
        _at_wall(v0[a:b], v1[a:b], v[a:b], u0[a:b], u1[a:b], u[a:b], u0[c:d], u1[c:d], u[c:d], flux)
    else:
        _between(v0[a:b], v1[a:b], v[a:b], u0[a:b], u1[a:b], u[a:b], u0[c:d], u1[c:d], u[c:d], flux)


@jit_same
def _before(u2, v2, inner, row, m, mid, ring, start, stop, flux):
    """Terms along an axis of m cells that lies before that of the faces: its neighbours are ``mid`` rows apart."""
    j = row // mid % m
    wall = not ring and (j == 0 or j == m - 1)
    if wall:
        # at a wall the three rows begin there and go in
        step = mid if j == 0 else -mid
        first, second, third = row, row + step, row + 2 * step
    else:
        first, second, third = row + ((j - 1) % m - j) * mid, row, row + ((j + 1) % m - j) * mid
    last = (u2.shape[1] // inner - 1) * inner
    a, b = start * inner, stop * inner
    if a < last:
        _across_rows(v2, u2, first, second, third, a, min(b, last), inner, wall, flux[: min(b, last) - a])
    if b > last:
        # across the seam of a ring the other cells are the first
        seam = max(a, last)
        _across_rows(v2, u2, first, second, third, seam, b, -last, wall, flux[seam - a :])


@jit_same
def add_transverse(u2, v2, inner, row, cells, rings, axis, start, stop, flux):
    """Adds the terms along all other axes to the fluxes (from its beginning on) of faces start..stop of a row.

    Shapes: cells, rings (d,) of the grid; flux ((stop - start) inner,).
    """
    u, v = u2[row], v2[row]
    n, mid = u.shape[0] // inner, 1
    for k in range(axis - 1, -1, -1):
        _before(u2, v2, inner, row, cells[k], mid, rings[k], start, stop, flux)
        mid *= cells[k]
    size = inner
    for k in range(axis + 1, cells.shape[0]):
        # blocks of ``size`` numbers, whose cells on k are s apart
        s = size // cells[k]
        for f in range(start, stop):
            shift = ((f + 1) % n - f) * inner
            for begin in range(f * inner, (f + 1) * inner, size):
                end, to = begin + size, begin - start * inner
                w = u[begin + shift : end + shift]
                _along_block(v[begin:end], u[begin:end], w, s, rings[k], flux[to : to + size])
        size = s
