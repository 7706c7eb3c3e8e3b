"""Cells to faces, upwind of the sign of the velocity, and the transposes of the linearised maps.

Stencils come as tables (made by `meanfield_pde.equations.schemes`), so that walls, rings and both
wind directions share one loop: ``index[s, f, k]`` is the k-th cell of face f, counted from upwind to
downwind, for wind s = 0 (v >= 0) or 1 (v < 0); ``coefficient[s, f, k]`` its weight in the linear
reconstruction; ``inner[s, f]`` tells whether the stencil is the centred one.
Shapes: ``u3`` (outer, n, inner); ``v3`` and ``out3`` (outer, faces, inner); transposes add to (outer, n, inner).
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit

MINMOD, MC, VANLEER, VANALBADA = 0, 1, 2, 3
# Borges et al. (2008): small enough not to touch the order on data of any practical size
WENO_EPSILON = 1e-40


@jit
def linear_faces(u3, v3, index, coefficient, out3):
    """Linear upwind-biased reconstruction, R_f = sum_k c_k u_k (Shu 1998, table 2.1)."""
    outer, faces, inner = v3.shape
    width = index.shape[2]
    for o in range(outer):
        for f in range(faces):
            for i in range(inner):
                s = 0 if v3[o, f, i] >= 0.0 else 1
                total = 0.0
                for k in range(width):
                    total += coefficient[s, f, k] * u3[o, index[s, f, k], i]
                out3[o, f, i] = total


@jit
def linear_cells(g3, v3, index, coefficient, out3):
    """Transpose of `linear_faces`: adds c_k g_f to cell k of each face's stencil."""
    outer, faces, inner = v3.shape
    width = index.shape[2]
    for o in range(outer):
        for f in range(faces):
            for i in range(inner):
                s = 0 if v3[o, f, i] >= 0.0 else 1
                g = g3[o, f, i]
                for k in range(width):
                    out3[o, index[s, f, k], i] += coefficient[s, f, k] * g


@jit
def _limited(a, b, limiter):
    """Limited slope of the one-sided differences a and b (Sweby 1984; van Albada et al. 1982)."""
    if a * b <= 0.0:
        return 0.0
    if limiter == MINMOD:
        return a if abs(a) < abs(b) else b
    if limiter == MC:
        centred = 0.5 * abs(a + b)
        return np.sign(a) * min(centred, 2.0 * min(abs(a), abs(b)))
    if limiter == VANLEER:
        return 2.0 * (a / (a + b)) * b
    # van Albada, written in the ratio of the smaller to the larger: neither underflows nor overflows
    small, large = (a, b) if abs(a) < abs(b) else (b, a)
    r = small / large
    return small * (1.0 + r) / (1.0 + r * r)


@jit
def muscl_faces(u3, v3, index, inner_face, limiter, out3):
    """Piecewise linear reconstruction with a limited slope (van Leer 1979), stencil of three cells.

    In a cell at a wall the slope is the one difference there is.
    """
    outer, faces, inner = v3.shape
    for o in range(outer):
        for f in range(faces):
            for i in range(inner):
                s = 0 if v3[o, f, i] >= 0.0 else 1
                first, second = u3[o, index[s, f, 0], i], u3[o, index[s, f, 1], i]
                if inner_face[s, f]:
                    ahead = u3[o, index[s, f, 2], i] - second
                    out3[o, f, i] = second + 0.5 * _limited(second - first, ahead, limiter)
                else:
                    # the stencil starts at the wall, with the cell upwind of the face
                    out3[o, f, i] = first + 0.5 * (second - first)


@jit
def weno5z_faces(u3, v3, index, coefficient, inner_face, out3):
    """WENO-Z reconstruction of order 5 (Borges, Carmona, Costa & Don 2008, eq. 28 with q = 2).

    Faces whose centred stencil leaves the box use the one-sided linear stencil of order 5.
    """
    outer, faces, inner = v3.shape
    for o in range(outer):
        for f in range(faces):
            for i in range(inner):
                s = 0 if v3[o, f, i] >= 0.0 else 1
                a = u3[o, index[s, f, 0], i]
                b = u3[o, index[s, f, 1], i]
                c = u3[o, index[s, f, 2], i]
                d = u3[o, index[s, f, 3], i]
                e = u3[o, index[s, f, 4], i]
                if not inner_face[s, f]:
                    total = 0.0
                    for k in range(index.shape[2]):
                        total += coefficient[s, f, k] * u3[o, index[s, f, k], i]
                    out3[o, f, i] = total
                    continue
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
                out3[o, f, i] = (w0 * q0 + w1 * q1 + w2 * q2) / (w0 + w1 + w2)


@jit
def weno5z_cells(u3, g3, v3, index, coefficient, inner_face, out3):
    """Transpose of the derivative of `weno5z_faces` at ``u3``: adds R'(u)ᵀ g, weights differentiated too."""
    outer, faces, inner = v3.shape
    for o in range(outer):
        for f in range(faces):
            for i in range(inner):
                s = 0 if v3[o, f, i] >= 0.0 else 1
                g = g3[o, f, i]
                ja, jb, jc, jd, je = (
                    index[s, f, 0],
                    index[s, f, 1],
                    index[s, f, 2],
                    index[s, f, 3],
                    index[s, f, 4],
                )
                if not inner_face[s, f]:
                    for k in range(index.shape[2]):
                        out3[o, index[s, f, k], i] += coefficient[s, f, k] * g
                    continue
                a, b, c, d, e = u3[o, ja, i], u3[o, jb, i], u3[o, jc, i], u3[o, jd, i], u3[o, je, i]
                q0 = (2.0 * a - 7.0 * b + 11.0 * c) / 6.0
                q1 = (-b + 5.0 * c + 2.0 * d) / 6.0
                q2 = (2.0 * c + 5.0 * d - e) / 6.0
                x0, y0 = a - 2.0 * b + c, a - 4.0 * b + 3.0 * c
                x1, y1 = b - 2.0 * c + d, b - d
                x2, y2 = c - 2.0 * d + e, 3.0 * c - 4.0 * d + e
                s0 = 13.0 / 12.0 * x0**2 + 0.25 * y0**2 + WENO_EPSILON
                s1 = 13.0 / 12.0 * x1**2 + 0.25 * y1**2 + WENO_EPSILON
                s2 = 13.0 / 12.0 * x2**2 + 0.25 * y2**2 + WENO_EPSILON
                tau = abs(s0 - s2)
                r0, r1, r2 = tau / s0, tau / s1, tau / s2
                w0, w1, w2 = 0.1 * (1.0 + r0**2), 0.6 * (1.0 + r1**2), 0.3 * (1.0 + r2**2)
                total = w0 + w1 + w2
                value = (w0 * q0 + w1 * q1 + w2 * q2) / total
                # dR = sum w_k dq_k + sum (q_k - R) dw_k with w_k normalised, dw_k = 2 d_k r_k dr_k, r_k = tau / s_k
                h0 = 0.2 * r0 * ((q0 - value) / total) / s0
                h1 = 1.2 * r1 * ((q1 - value) / total) / s1
                h2 = 0.6 * r2 * ((q2 - value) / total) / s2
                dtau = h0 + h1 + h2
                sign = 1.0 if s0 >= s2 else -1.0
                b0 = g * (sign * dtau - h0 * r0)
                b1 = -g * h1 * r1
                b2 = g * (-sign * dtau - h2 * r2)
                # derivatives of the smoothness indicators
                cx0, cy0 = 13.0 / 6.0 * x0 * b0, 0.5 * y0 * b0
                cx1, cy1 = 13.0 / 6.0 * x1 * b1, 0.5 * y1 * b1
                cx2, cy2 = 13.0 / 6.0 * x2 * b2, 0.5 * y2 * b2
                k0, k1, k2 = g * w0 / total / 6.0, g * w1 / total / 6.0, g * w2 / total / 6.0
                out3[o, ja, i] += 2.0 * k0 + cx0 + cy0
                out3[o, jb, i] += -7.0 * k0 - k1 - 2.0 * cx0 - 4.0 * cy0 + cx1 + cy1
                out3[o, jc, i] += 11.0 * k0 + 5.0 * k1 + 2.0 * k2 + cx0 + 3.0 * cy0 - 2.0 * cx1 + cx2 + 3.0 * cy2
                out3[o, jd, i] += 2.0 * k1 + 5.0 * k2 + cx1 - cy1 - 2.0 * cx2 - 4.0 * cy2
                out3[o, je, i] += -k2 + cx2 + cy2
