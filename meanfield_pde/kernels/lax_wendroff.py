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
from meanfield_pde.kernels.choose import choose
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
# a density below this is taken for none: products with it stay normal numbers, which are fast
NEGLIGIBLE = 1e-290


@jit_same
def _upwind(before, here, ahead, beyond, slower, v, faster):
    """What the wind chooses of four cells and three faces: the cell, the difference behind it, that of its speeds."""
    forward = v >= 0.0
    return (
        choose(forward, here, ahead),
        choose(forward, here - before, beyond - ahead),
        choose(forward, v - slower, faster - v),
    )


@jit_same
def _flux(v, cell, spread, slope, c):
    """The flux of a cell and its slope along the axis (not along the wind: hence |v|)."""
    return v * (cell * (1.0 - 0.5 * c * spread)) + 0.5 * abs(v) * (1.0 - c * abs(v)) * slope


@jit_same
def _fluxes(kind, u0, u1, u2, u3, v0, v1, v2, c, flux):
    """Fluxes between cells 1 and 2 of four; v1 at the face, v0 and v2 at its neighbours. One loop a limiter."""
    if kind == UPWIND:
        for i in range(flux.shape[0]):
            flux[i] = v1[i] * choose(v1[i] >= 0.0, u1[i], u2[i])
    elif kind == MINMOD:
        for i in range(flux.shape[0]):
            cell, behind, spread = _upwind(u0[i], u1[i], u2[i], u3[i], v0[i], v1[i], v2[i])
            flux[i] = _flux(v1[i], cell, spread, minmod(behind, u2[i] - u1[i]), c)
    elif kind == MC:
        for i in range(flux.shape[0]):
            cell, behind, spread = _upwind(u0[i], u1[i], u2[i], u3[i], v0[i], v1[i], v2[i])
            flux[i] = _flux(v1[i], cell, spread, monotonised_central(behind, u2[i] - u1[i]), c)
    elif kind == VANLEER:
        for i in range(flux.shape[0]):
            cell, behind, spread = _upwind(u0[i], u1[i], u2[i], u3[i], v0[i], v1[i], v2[i])
            flux[i] = _flux(v1[i], cell, spread, harmonic(behind, u2[i] - u1[i]), c)
    else:
        for i in range(flux.shape[0]):
            cell, behind, spread = _upwind(u0[i], u1[i], u2[i], u3[i], v0[i], v1[i], v2[i])
            flux[i] = _flux(v1[i], cell, spread, van_albada(behind, u2[i] - u1[i]), c)


@jit_same
def _moved(u, c, before, behind, out):
    """Cells less what the fluxes take, without the numbers too small to be normal: they cost a hundred cycles each."""
    for i in range(out.shape[0]):
        value = u[i] - c * (behind[i] - before[i])
        # asked this way round what is not a number stays so
        out[i] = choose(abs(value) < NEGLIGIBLE, 0.0, value)


@jit_same
def _at_end(kind, u, v, f, c, near, flux):
    """The flux through face f near an end of a line, whose cells go on across the seam, or on a line at a wall."""
    n, ring = u.shape[0], v.shape[0] == u.shape[0]
    for k in range(4):
        j = f - 1 + k
        if ring or 0 <= j < n:
            near[k] = u[j % n]
        else:
            near[k] = 2.0 * u[0] - u[1] if j < 0 else 2.0 * u[n - 1] - u[n - 2]
    for k in range(3):
        j = f - 1 + k
        near[4 + k] = v[j % n] if ring else (v[j] if 0 <= j < n - 1 else 0.0)
    a, b, d, e, x, y, z = near[:1], near[1:2], near[2:3], near[3:4], near[4:5], near[5:6], near[6:7]
    _fluxes(kind, a, b, d, e, x, y, z, c, flux[f + 1 : f + 2])


@jit_same
def _line(kind, u, v, c, near, flux, out):
    """One line; flux[j] enters cell j from before it."""
    n, faces = u.shape[0], v.shape[0]
    inside = n - 3
    a, b, d = u[:inside], u[1 : 1 + inside], u[2 : 2 + inside]
    slower, speed, faster = v[:inside], v[1 : 1 + inside], v[2 : 2 + inside]
    _fluxes(kind, a, b, d, u[3:], slower, speed, faster, c, flux[2 : 2 + inside])
    _at_end(kind, u, v, 0, c, near, flux)
    for f in range(n - 2, faces):
        _at_end(kind, u, v, f, c, near, flux)
    # nothing passes a wall
    flux[0] = flux[n] if faces == n else 0.0
    flux[n] = flux[0]
    _moved(u, c, flux[:n], flux[1 : n + 1], out)


@jit_same
def _block(row, j, inner, start, stop):
    return row[j * inner + start : j * inner + stop]


@jit_same
def _columns(kind, u, v, c, inner, start, stop, out):
    """The same for columns start..stop of a row of blocks, face by face."""
    n, faces = u.shape[0] // inner, v.shape[0] // inner
    width, ring = stop - start, faces == n
    still, low, high = np.zeros(width), np.empty(width), np.empty(width)
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
        _fluxes(kind, back, here, ahead, far, slower, speed, faster, c, behind)
        if f < 0:
            first[:] = behind
        else:
            _moved(here, c, before, behind, _block(out, j, inner, start, stop))
        before, behind = behind, before
    here = _block(u, n - 1, inner, start, stop)
    _moved(here, c, before, first, _block(out, n - 1, inner, start, stop))


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
    near, flux = np.empty(7), np.empty(size + 1)
    for o in range(first, last):
        _line(kind, u2[o], v2[o], c, near, flux, out2[o])
