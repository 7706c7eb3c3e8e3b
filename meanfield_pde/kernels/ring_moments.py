"""Softmax means of tokens on the unit circle from their Fourier moments, where scores are small.

e^{<z,y>} = J_0 + 2 Re Σ_{n>=1} J_n ζ^n e^{-inψ} for y = (cos ψ, sin ψ), ζ = (z_1 + i z_2)/2 and J_n = I_n(|z|)/|ζ|^n,
the modified Bessel functions: Jacobi and Anger's expansion (Abramowitz & Stegun 1964, 9.6.34).
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit, jit_sum

BLOCK = 256


@jit_sum
def _two_totals(a, b):
    first = 0.0
    second = 0.0
    for j in range(a.shape[0]):
        first += a[j]
        second += b[j]
    return first, second


@jit
def ring_moments(points, w, moments):
    """mu_n = sum_j w_j (x_j - i y_j)^n, n = 0.., for points (x, y) of the unit circle.

    Shapes: points (n, 2), w (n,), moments (2, K) overwritten, their real and imaginary parts.
    """
    count = points.shape[0]
    x, y, a, b = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    moments[:] = 0.0
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        for j in range(size):
            x[j], y[j] = points[start + j, 0], points[start + j, 1]
            a[j], b[j] = w[start + j], 0.0
        for n in range(moments.shape[1]):
            first, second = _two_totals(a[:size], b[:size])
            moments[0, n] += first
            moments[1, n] += second
            for j in range(size):
                turned = a[j] * x[j] + b[j] * y[j]
                b[j] = b[j] * x[j] - a[j] * y[j]
                a[j] = turned


@jit
def ring_means(keys, moments, means):
    """m(z) at keys (k, 2) from mu_0 .. mu_{K+1}, moments (2, K + 2); means (k, 2) overwritten.

    Meaning: J_{n-1} = |z|²/4 J_{n+1} + n J_n, downward from J_{K+1} = 0; the factor that J has too much falls out of
    the quotient. Digits go where Z is far below e^|z|.
    Source: Abramowitz & Stegun (1964), 9.6.26.
    """
    last = moments.shape[1] - 2
    above, here = np.empty(BLOCK), np.empty(BLOCK)
    x, y, q = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    # sums over n >= 1 of J_n ζ^{n-1} times mu_n, mu_{n-1} and mu_{n+1}
    s, t = np.empty((3, BLOCK)), np.empty((3, BLOCK))
    for start in range(0, keys.shape[0], BLOCK):
        size = min(BLOCK, keys.shape[0] - start)
        for j in range(size):
            x[j], y[j] = 0.5 * keys[start + j, 0], 0.5 * keys[start + j, 1]
            q[j] = x[j] * x[j] + y[j] * y[j]
            # small, since the recurrence grows as n!
            above[j], here[j] = 0.0, 1e-150
        s[:] = 0.0
        t[:] = 0.0
        for n in range(last, 0, -1):
            for c in range(3):
                k = n + (0, -1, 1)[c]
                a, b = moments[0, k], moments[1, k]
                for j in range(size):
                    turned = s[c, j] * y[j] + t[c, j] * x[j] + here[j] * b
                    s[c, j] = s[c, j] * x[j] - t[c, j] * y[j] + here[j] * a
                    t[c, j] = turned
            for j in range(size):
                below = q[j] * above[j] + n * here[j]
                above[j] = here[j]
                here[j] = below
        for j in range(size):
            total = here[j] * moments[0, 0] + 2.0 * (s[0, j] * x[j] - t[0, j] * y[j])
            along = (s[1, j] + s[2, j]) * x[j] - (t[1, j] + t[2, j]) * y[j]
            across = (s[1, j] - s[2, j]) * y[j] + (t[1, j] - t[2, j]) * x[j]
            means[start + j, 0] = (here[j] * moments[0, 1] + along) / total
            means[start + j, 1] = (across - here[j] * moments[1, 1]) / total
