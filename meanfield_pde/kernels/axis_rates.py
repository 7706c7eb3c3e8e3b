"""The fluxes along one axis and what they change in cells, a few faces at a time, so that all of it stays in the cache.

A stage of a step reads every law and velocity once an axis, and writes nothing of the size of the grid but its result.
An axis lies in a row as blocks of ``inner`` numbers, one block a cell, walls or a ring by the number of faces.
Shapes: u2, out2 (outer, n inner); v2 (outer, faces inner), faces = n - 1 between walls, n on a ring; cells, rings (d,).
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit_same
from meanfield_pde.kernels.increments import euler_increment, increased
from meanfield_pde.kernels.reconstruction import row_faces
from meanfield_pde.kernels.transverse import add_transverse

# numbers of a piece: its cells, velocities and fluxes stay in the two nearest caches
PIECE = 2048
# in the place of the code of a scheme: reconstructions are given
GIVEN = -1
RATES, CHANGES, LAWS = range(3)


@jit_same
def _copy(numbers, out):
    """By a loop: assigning a slice asks first whether the two overlap."""
    for i in range(out.shape[0]):
        out[i] = numbers[i]


@jit_same
def _fluxes(u2, v2, given2, inner, row, cells, rings, axis, index, coefficient, centred, kind, start, stop, flux):
    """F = v R(u) with the terms along the other axes, at faces start..stop of a row."""
    v = v2[row, start * inner : stop * inner]
    if kind == GIVEN:
        _copy(given2[row, start * inner : stop * inner], flux)
    else:
        row_faces(u2[row], v2[row], inner, index, coefficient, centred, kind, start, stop, flux)
    for i in range(v.shape[0]):
        flux[i] *= v[i]
    if cells.shape[0] > 1:
        add_transverse(u2, v2, inner, row, cells, rings, axis, start, stop, flux)


@jit_same
def fluxes(u2, v2, given2, inner, cells, rings, axis, index, coefficient, centred, kind, flux2):
    """Fluxes at all faces; reconstructions are given2 (like v2) if ``kind`` is `GIVEN`, else that is not looked at."""
    faces = v2.shape[1] // inner
    for row in range(u2.shape[0]):
        _fluxes(u2, v2, given2, inner, row, cells, rings, axis, index, coefficient, centred, kind, 0, faces, flux2[row])


@jit_same
def _out_of_cells(before, behind, scale, rate):
    for i in range(rate.shape[0]):
        rate[i] = before[i] * scale - behind[i] * scale


@jit_same
def _out_of_cells_too(before, behind, scale, rate):
    for i in range(rate.shape[0]):
        rate[i] -= behind[i] * scale - before[i] * scale


@jit_same
def pieces(outer, size, inner):
    """How many pieces the rows of an axis have, each with bits of its own."""
    n = size // inner
    blocks = max(PIECE // inner, 1)
    return outer * ((n + blocks - 1) // blocks)


@jit_same
def axis_rates(
    u2,
    v2,
    given2,
    inner,
    cells,
    rings,
    axis,
    spacing,
    index,
    coefficient,
    centred,
    kind,
    first,
    last,
    end,
    dt,
    weight,
    start2,
    out2,
):
    """Rates -(F_{j+1/2} - F_{j-1/2})/h of the pieces first..last, added to out2 behind the first axis.

    At the ``end`` rates become changes of start2 (like u2), dt rate + (u - start), if it is `CHANGES`, or start +
    weight change if it is `LAWS`. Between pieces of a row the flux they share is kept.
    """
    n, faces = u2.shape[1] // inner, v2.shape[1] // inner
    blocks = max(PIECE // inner, 1)
    in_row = (n + blocks - 1) // blocks
    flux = np.zeros((min(blocks, n) + 1) * inner)
    kept = -1
    for piece in range(first, last):
        row, start = piece // in_row, blocks * (piece % in_row)
        stop = min(start + blocks, n)
        size = (stop - start) * inner
        # flux[:inner] enters the first cell: kept, across the seam of a ring, or nothing through a wall
        before, there = (start - 1) % n, min(stop, faces)
        alone = kept != piece
        if alone:
            flux[:inner] = 0.0
        for turn in range(0 if alone and before < faces else 1, 2):
            a, b = (before, before + 1) if turn == 0 else (start, there)
            to = flux[turn * inner : (turn + b - a) * inner]
            _fluxes(u2, v2, given2, inner, row, cells, rings, axis, index, coefficient, centred, kind, a, b, to)
        if there < stop:
            flux[size : size + inner] = 0.0
        out = out2[row, start * inner : stop * inner]
        if axis == 0:
            _out_of_cells(flux[:size], flux[inner : size + inner], 1.0 / spacing, out)
        else:
            _out_of_cells_too(flux[:size], flux[inner : size + inner], 1.0 / spacing, out)
        if end != RATES:
            begun = start2[row, start * inner : stop * inner]
            euler_increment(out, dt, u2[row, start * inner : stop * inner], begun)
            if end == LAWS:
                increased(out, weight, begun)
        _copy(flux[size : size + inner], flux[:inner])
        kept = piece + 1 if stop < n else -1
