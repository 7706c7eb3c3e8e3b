"""One sweep of the flux-limited Lax–Wendroff scheme along an axis.

F = v (u (1 - c dV/2) + (1 - c |v|) σ/2), c = dt/h, u and its limited slope σ those of the cell upwind of the face, dV
the difference of the velocities of its faces: Taylor's series in time at the face with u_t = -(V u)_x. At a wall σ is
the one difference there is, as if the cell beyond lay on the same line.
An axis lies in a row as blocks of ``inner`` numbers, one a cell; walls or a ring by the number of faces.
Shapes: u2, out2 (outer, n inner); v2 (outer, faces inner), faces = n - 1 between walls, n on a ring.
Source: LeVeque (2002), sections 6.4, 6.11 and 9.3; limiters as in `kernels.reconstruction`.
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit_same
from meanfield_pde.kernels.reconstruction import (
    MC,
    MINMOD,
    UPWIND,
    VANLEER,
    harmonic,
    minmod,
    monotonised_central,
    van_albada,
)

# columns whose blocks of all that a face looks at stay in the nearest cache
COLUMNS = 256


@jit_same
def _limit(kind, a, b):
    """Limited slopes in the place of a: one loop a limiter, since a choice inside would keep it from vectorising."""
    if kind == MINMOD:
        for i in range(a.shape[0]):
            a[i] = minmod(a[i], b[i])
    elif kind == MC:
        for i in range(a.shape[0]):
            a[i] = monotonised_central(a[i], b[i])
    elif kind == VANLEER:
        for i in range(a.shape[0]):
            a[i] = harmonic(a[i], b[i])
    else:
        for i in range(a.shape[0]):
            a[i] = van_albada(a[i], b[i])


@jit_same
def _fluxes(kind, u0, u1, u2, u3, v0, v1, v2, c, near, ahead, flux):
    """Fluxes between cells 1 and 2 of four; v1 at the face, v0 and v2 at its neighbours; near, ahead are spare."""
    for i in range(v1.shape[0]):
        first, second, third, fourth = u0[i], u1[i], u2[i], u3[i]
        v = v1[i]
        left, right = v - v0[i], v2[i] - v
        forward = v >= 0.0
        here, spread = (second if forward else third), (left if forward else right)
        near[i] = here - (first if forward else fourth)
        ahead[i] = (third if forward else second) - here
        flux[i] = v * here if kind == UPWIND else v * (here * (1.0 - 0.5 * c * spread))
    if kind == UPWIND:
        return
    _limit(kind, near[: v1.shape[0]], ahead)
    for i in range(v1.shape[0]):
        v = v1[i]
        flux[i] += v * (0.5 * (1.0 - c * abs(v)) * near[i])


@jit_same
def _padded(row, ring, at_wall, out):
    """A row (n,) with a cell before it and two behind it: those across the seam, or on a line through the last two."""
    n = row.shape[0]
    out[1 : n + 1] = row
    if ring:
        out[0], out[n + 1], out[n + 2] = row[n - 1], row[0], row[1]
    elif at_wall:
        out[0], out[n + 1], out[n + 2] = 2.0 * row[0] - row[1], 2.0 * row[n - 1] - row[n - 2], 0.0
    else:
        out[0], out[n + 1], out[n + 2] = 0.0, 0.0, 0.0


@jit_same
def _line(kind, u, v, c, cells, speeds, near, ahead, flux, out):
    n, faces = u.shape[0], v.shape[0]
    ring = faces == n
    _padded(u, ring, True, cells)
    _padded(v, ring, False, speeds)
    a, b, d, e = cells[:faces], cells[1 : faces + 1], cells[2 : faces + 2], cells[3 : faces + 3]
    _fluxes(
        kind,
        a,
        b,
        d,
        e,
        speeds[:faces],
        speeds[1 : faces + 1],
        speeds[2 : faces + 2],
        c,
        near,
        ahead,
        flux[1 : faces + 1],
    )
    # nothing passes a wall
    flux[0] = flux[n] if ring else 0.0
    flux[n] = flux[n] if ring else 0.0
    before, behind = flux[:n], flux[1 : n + 1]
    for i in range(n):
        out[i] = u[i] - c * (behind[i] - before[i])


@jit_same
def _block(row, j, inner, start, stop):
    return row[j * inner + start : j * inner + stop]


@jit_same
def _columns(kind, u, v, c, inner, start, stop, out):
    """The same for columns start..stop of a row of blocks, face by face."""
    n, faces = u.shape[0] // inner, v.shape[0] // inner
    width, ring = stop - start, faces == n
    still, low, high = np.zeros(width), np.empty(width), np.empty(width)
    near, onward = np.empty(width), np.empty(width)
    before, behind, first = np.zeros(width), np.empty(width), np.zeros(width)
    low[:] = 2.0 * _block(u, 0, inner, start, stop) - _block(u, 1, inner, start, stop)
    high[:] = 2.0 * _block(u, n - 1, inner, start, stop) - _block(u, n - 2, inner, start, stop)
    # on a ring the flux across the seam comes first, and closes the last cell
    for f in range(-1 if ring else 0, faces - ring):
        j = f % n
        here, ahead = _block(u, j, inner, start, stop), _block(u, (j + 1) % n, inner, start, stop)
        back = low if not ring and j == 0 else _block(u, (j - 1) % n, inner, start, stop)
        far = high if not ring and j == n - 2 else _block(u, (j + 2) % n, inner, start, stop)
        speed = _block(v, j, inner, start, stop)
        slower = still if not ring and j == 0 else _block(v, (j - 1) % faces, inner, start, stop)
        faster = still if not ring and j == n - 2 else _block(v, (j + 1) % faces, inner, start, stop)
        _fluxes(kind, back, here, ahead, far, slower, speed, faster, c, near, onward, behind)
        if f < 0:
            first[:] = behind
        else:
            to = _block(out, j, inner, start, stop)
            for i in range(width):
                to[i] = here[i] - c * (behind[i] - before[i])
        before, behind = behind, before
    here, to = _block(u, n - 1, inner, start, stop), _block(out, n - 1, inner, start, stop)
    for i in range(width):
        to[i] = here[i] - c * (first[i] - before[i])


@jit_same
def pieces(outer, inner):
    """How many pieces a sweep has, each with bits of its own: lines, or columns of one row of blocks."""
    return outer if inner == 1 else outer * ((inner + COLUMNS - 1) // COLUMNS)


@jit_same
def lax_wendroff(u2, v2, c, inner, kind, first, last, out2):
    """The pieces first..last of one sweep of length dt = c h; ``kind`` names the limiter, `UPWIND` the donor cell."""
    size = u2.shape[1]
    if inner > 1:
        across = pieces(1, inner)
        for piece in range(first, last):
            o, start = piece // across, COLUMNS * (piece % across)
            _columns(kind, u2[o], v2[o], c, inner, start, min(start + COLUMNS, inner), out2[o])
        return
    cells, speeds, flux = np.empty(size + 3), np.empty(size + 3), np.empty(size + 1)
    near, ahead = np.empty(size), np.empty(size)
    for o in range(first, last):
        _line(kind, u2[o], v2[o], c, cells, speeds, near, ahead, flux, out2[o])
