"""Faces to cells and back: flux differences with walls or a ring, told apart by the number of faces.

Shapes: cells (outer, n, inner); faces (outer, n - 1, inner) between walls or (outer, n, inner) on a ring.
"""

from __future__ import annotations

from meanfield_pde.kernels._jit import jit


@jit
def difference(p3, h, out3):
    """Face differences of a cell field, (p_{f+1} - p_f) / h: the transpose of minus the divergence."""
    outer, faces, inner = out3.shape
    n = p3.shape[1]
    scale = 1.0 / h
    for o in range(outer):
        for f in range(faces):
            right = f + 1 if f + 1 < n else 0
            for i in range(inner):
                out3[o, f, i] = (p3[o, right, i] - p3[o, f, i]) * scale


@jit
def central(a3, periodic, out3):
    """Undivided central difference along an axis, (a_{j+1} - a_{j-1}) / 2; second order one-sided at walls."""
    outer, n, inner = a3.shape
    for o in range(outer):
        for j in range(n):
            for i in range(inner):
                if 0 < j < n - 1:
                    out3[o, j, i] = 0.5 * (a3[o, j + 1, i] - a3[o, j - 1, i])
                elif periodic:
                    out3[o, j, i] = 0.5 * (a3[o, (j + 1) % n, i] - a3[o, (j - 1) % n, i])
                elif j == 0:
                    out3[o, 0, i] = -1.5 * a3[o, 0, i] + 2.0 * a3[o, 1, i] - 0.5 * a3[o, 2, i]
                else:
                    out3[o, j, i] = 1.5 * a3[o, j, i] - 2.0 * a3[o, j - 1, i] + 0.5 * a3[o, j - 2, i]


@jit
def add_central_transpose(g3, periodic, out3):
    """Add the transpose of `central`."""
    outer, n, inner = g3.shape
    for o in range(outer):
        for j in range(n):
            for i in range(inner):
                g = g3[o, j, i]
                if 0 < j < n - 1:
                    out3[o, j + 1, i] += 0.5 * g
                    out3[o, j - 1, i] -= 0.5 * g
                elif periodic:
                    out3[o, (j + 1) % n, i] += 0.5 * g
                    out3[o, (j - 1) % n, i] -= 0.5 * g
                elif j == 0:
                    out3[o, 0, i] -= 1.5 * g
                    out3[o, 1, i] += 2.0 * g
                    out3[o, 2, i] -= 0.5 * g
                else:
                    out3[o, j, i] += 1.5 * g
                    out3[o, j - 1, i] -= 2.0 * g
                    out3[o, j - 2, i] += 0.5 * g


@jit
def add_curvature(a3, periodic, weight, out3):
    """Add weight · δ²a along an axis, the second difference of the nearest inner cell at walls."""
    outer, n, inner = a3.shape
    for o in range(outer):
        for j in range(n):
            c = j if periodic else min(max(j, 1), n - 2)
            for i in range(inner):
                out3[o, j, i] += weight * (a3[o, (c + 1) % n, i] - 2.0 * a3[o, c, i] + a3[o, (c - 1) % n, i])


@jit
def add_curvature_transpose(g3, periodic, weight, out3):
    """Add the transpose of `add_curvature`."""
    outer, n, inner = g3.shape
    for o in range(outer):
        for j in range(n):
            c = j if periodic else min(max(j, 1), n - 2)
            for i in range(inner):
                g = weight * g3[o, j, i]
                out3[o, (c + 1) % n, i] += g
                out3[o, c, i] -= 2.0 * g
                out3[o, (c - 1) % n, i] += g
