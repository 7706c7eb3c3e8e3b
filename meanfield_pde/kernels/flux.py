"""Fluxes through faces to rates of cells, and what keeps them positive.

An axis lies in a row as blocks of ``inner`` numbers, one block a cell, so that neighbours on it are ``inner`` apart and
every loop runs along memory. Walls or a ring by the number of faces.
Shapes: u2, rate2 (outer, n inner); v2, flux2 (outer, faces inner), faces = n - 1 between walls, n on a ring.
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit_same


@jit_same
def _cells(flux, scale, inner, rate):
    """rate_j -= (F_{j+1/2} - F_{j-1/2}) scale for one row."""
    size, faces = rate.shape[0], flux.shape[0]
    last = size - inner
    if faces == size:
        for i in range(inner):
            rate[i] -= flux[i] * scale - flux[last + i] * scale
            rate[last + i] -= flux[last + i] * scale - flux[last - inner + i] * scale
    else:
        for i in range(inner):
            rate[i] -= flux[i] * scale
            rate[last + i] += flux[last - inner + i] * scale
    middle, ahead, behind = rate[inner:last], flux[inner:last], flux[: last - inner]
    for i in range(middle.shape[0]):
        middle[i] -= ahead[i] * scale - behind[i] * scale


@jit_same
def add_divergence(flux2, h, inner, rate2):
    """Subtract the divergence of a flux: rate_j -= (F_{j+1/2} - F_{j-1/2}) / h, nothing through walls."""
    for o in range(rate2.shape[0]):
        _cells(flux2[o], 1.0 / h, inner, rate2[o])


@jit_same
def _upwind_faces(v, left, right, low, extra):
    """First-order fluxes v u, and what ``extra`` has beyond them."""
    for i in range(v.shape[0]):
        here, there = left[i], right[i]
        low[i] = v[i] * (here if v[i] >= 0.0 else there)
        extra[i] -= low[i]


@jit_same
def _outflow(extra, scale, inner, out):
    """Add what the fluxes take out of each cell of one row: max(F_right, 0) + max(-F_left, 0)."""
    size, faces = out.shape[0], extra.shape[0]
    last = size - inner
    for i in range(faces):
        out[i] += max(extra[i], 0.0) * scale
    if faces == size:
        for i in range(inner):
            out[i] += max(-extra[last + i], 0.0) * scale
    behind, ahead = out[inner:], extra[: size - inner]
    for i in range(behind.shape[0]):
        behind[i] += max(-ahead[i], 0.0) * scale


@jit_same
def add_outflow(flux2, h, inner, out2):
    """Add, per cell, what the fluxes take out of it, over h."""
    for o in range(out2.shape[0]):
        _outflow(flux2[o], 1.0 / h, inner, out2[o])


@jit_same
def split_flux(u2, v2, h, inner, flux2, after2, wanted2):
    """What fluxes have beyond first-order upwind, in their place; adds the rate of the latter and what is taken out."""
    faces, scale = v2.shape[1], 1.0 / h
    last = u2.shape[1] - inner
    low = np.empty(faces)
    for o in range(u2.shape[0]):
        u, v, flux = u2[o], v2[o], flux2[o]
        _upwind_faces(v[:last], u[:last], u[inner:], low[:last], flux[:last])
        if faces > last:
            _upwind_faces(v[last:], u[last:], u[:inner], low[last:], flux[last:])
        _cells(low, scale, inner, after2[o])
        _outflow(flux, scale, inner, wanted2[o])


@jit_same
def _limited_faces(v, left, right, share_left, share_right, extra):
    """First-order fluxes plus the share of the rest that the giving cell can afford; the number of faces limited."""
    limited = 0
    for i in range(v.shape[0]):
        here, there, more = left[i], right[i], extra[i]
        mine, other = share_left[i], share_right[i]
        share = mine if more > 0.0 else other
        limited += 1 if share < 1.0 and more != 0.0 else 0
        extra[i] = v[i] * (here if v[i] >= 0.0 else there) + share * more
    return limited


@jit_same
def add_limited(u2, v2, share2, h, inner, extra2, rate2):
    """Subtract the divergence of upwind fluxes plus shares of the rest (Zalesak 1979, lower bound 0).

    Shapes: share2 (outer, n inner) in [0, 1]; extra2 like v2, the total flux in its place. Gives the faces limited.
    """
    faces, scale, limited = v2.shape[1], 1.0 / h, 0
    last = u2.shape[1] - inner
    for o in range(u2.shape[0]):
        u, v, share, extra = u2[o], v2[o], share2[o], extra2[o]
        limited += _limited_faces(v[:last], u[:last], u[inner:], share[:last], share[inner:], extra[:last])
        if faces > last:
            limited += _limited_faces(v[last:], u[last:], u[:inner], share[last:], share[:inner], extra[last:])
        _cells(extra, scale, inner, rate2[o])
    return limited


@jit_same
def affordable(u, after, wanted, dt):
    """The share of ``wanted`` that cells can give in a step behind the first-order rate, in its place.

    A hair below 1 so that rounding of the sum cannot end below zero.
    """
    for i in range(u.shape[0]):
        left = max(u[i] + dt * after[i], 0.0)
        wanted[i] = min(1.0, (1.0 - 1e-14) * left / max(dt * wanted[i], 1e-300))
