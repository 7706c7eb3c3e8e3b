"""What the face mean of a product v r has beyond the product of face means (McCorquodale & Colella 2011, eq. 14).

Along an axis k of the face, with undivided central differences: F += δ_k v δ_k r/12 + δ²_k v r/24, r the mean of the
two cells beside the face. At walls δ is one-sided of order 2 and δ² that of the nearest inner cell.
Shapes: with k behind the axis of the faces in memory v4, flux4 (outer, faces, mid, m inner), u4 (outer, n, mid,
m inner); with k before it v4, flux4 (outer, m, mid, faces inner), u4 (outer, m, mid, n inner).
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
def transverse_behind(v4, u4, inner, ring, flux4):
    """Adds the terms along an axis that lies behind that of the faces in memory."""
    outer, faces, mid, size = v4.shape
    n, s = u4.shape[1], inner
    for o in range(outer):
        for f in range(faces):
            for q in range(mid):
                v, flux = v4[o, f, q], flux4[o, f, q]
                u, w = u4[o, f, q], u4[o, (f + 1) % n, q]
                a, b = size - 2 * s, size - s
                _between(v[:a], v[s:b], v[2 * s :], u[:a], u[s:b], u[2 * s :], w[:a], w[s:b], w[2 * s :], flux[s:b])
                if ring:
                    _between(v[b:], v[:s], v[s:], u[b:], u[:s], u[s:], w[b:], w[:s], w[s:], flux[:s])
                    _between(v[a:], v[b:], v, u[a:], u[b:], u, w[a:], w[b:], w, flux[b:])
                else:
                    c = a - s
                    t = 2 * s
                    _at_wall(v[:s], v[s:], v[t:], u[:s], u[s:], u[t:], w[:s], w[s:], w[t:], flux[:s])
                    _at_wall(v[b:], v[a:], v[c:], u[b:], u[a:], u[c:], w[b:], w[a:], w[c:], flux[b:])


@jit_same
def _pair(v0, v1, v2, u0, u1, u2, start, stop, shift, wall, flux):
    """The faces start..stop of three rows, whose other cells are ``shift`` further on."""
    a, b, c, d = start, stop, start + shift, stop + shift
    if wall:
        _at_wall(v0[a:b], v1[a:b], v2[a:b], u0[a:b], u1[a:b], u2[a:b], u0[c:d], u1[c:d], u2[c:d], flux[a:b])
    else:
        _between(v0[a:b], v1[a:b], v2[a:b], u0[a:b], u1[a:b], u2[a:b], u0[c:d], u1[c:d], u2[c:d], flux[a:b])


@jit_same
def transverse_before(v4, u4, inner, ring, flux4):
    """Adds the terms along an axis that lies before that of the faces in memory."""
    outer, m, mid, faces = v4.shape
    last = u4.shape[3] - inner
    for o in range(outer):
        for j in range(m):
            wall = not ring and (j == 0 or j == m - 1)
            # at a wall the three rows begin there and go in
            first, second, third = (j - 1) % m, j, (j + 1) % m
            if wall:
                first, second, third = (0, 1, 2) if j == 0 else (m - 1, m - 2, m - 3)
            for q in range(mid):
                v0, v1, v2 = v4[o, first, q], v4[o, second, q], v4[o, third, q]
                u0, u1, u2 = u4[o, first, q], u4[o, second, q], u4[o, third, q]
                flux = flux4[o, j, q]
                _pair(v0, v1, v2, u0, u1, u2, 0, last, inner, wall, flux)
                if faces > last:
                    # across the seam the other cells are the first
                    _pair(v0, v1, v2, u0, u1, u2, last, faces, -last, wall, flux)
