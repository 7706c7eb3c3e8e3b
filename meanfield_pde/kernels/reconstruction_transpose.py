"""The transposes of the linearised reconstructions: what a cotangent of the face values says about the cells.

Stencils are the tables of `kernels.reconstruction`: index, coefficient and ``inner_face[s, f]``, the centred.
Shapes: ``u3`` (outer, n, inner); ``g3`` and ``v3`` (outer, faces, inner); ``out3`` (outer, n, inner) is added to.
"""

from __future__ import annotations

from meanfield_pde.kernels._jit import jit
from meanfield_pde.kernels.reconstruction import WENO_EPSILON


@jit
def linear_cells(g3, v3, index, coefficient, out3):
    """The transpose of a linear reconstruction: adds c_k g_f to cell k of each face's stencil."""
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
def weno5z_cells(u3, g3, v3, index, coefficient, inner_face, out3):
    """Transpose of the derivative of WENO-Z at ``u3``: adds R'(u)ᵀ g, weights differentiated too."""
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
