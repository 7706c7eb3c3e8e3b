"""Scharfetter-Gummel face rates of a drift-diffusion operator along one axis, and their face fluxes."""

from __future__ import annotations

import math

import numpy as np

from meanfield_pde.kernels._jit import jit
from meanfield_pde.kernels.powers_of_two import LOG2E, MAGIC

_LN2_HI = 6.93147180369123816490e-01  # ln 2 with 21 trailing zero bits, so that k * _LN2_HI is exact
_LN2_LO = 1.90821492927058770002e-10
_FAR = 700.0  # beyond it B(z) < 1e-301: no rate
_NO_DIFFUSION = 1e-200  # a smaller beta is the upwind limit to every digit


@jit
def _bernoulli_near(z):
    """B(z) on 0 <= z <= 701 without a branch or a library call, so that loops over it become vectors."""
    shifted = z * LOG2E + MAGIC
    k = shifted - MAGIC
    power = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    r = (z - k * _LN2_HI) - k * _LN2_LO
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    expm1 = power * (r + r * r * p) + (power - 1.0)
    # the denominator is moved off 0 at z = 0 only, where the choice below discards the quotient
    quotient = z / (expm1 if z > 0.0 else 1.0)
    return quotient if z > 0.0 else 1.0


@jit
def bernoulli(z):
    """Bernoulli function B(z) = z / expm1(z), for every double: B(0) = 1, B(inf) = 0, B(-inf) = inf.

    Shapes: ``z`` (n,) → (n,).
    Meaning: relative error a few units in the last place; B(-|z|) = B(|z|) + |z| has no cancellation.
    Source: Scharfetter and Gummel 1969, IEEE Trans. Electron Devices 16, eq. 10.
    """
    out = np.empty(z.shape[0])
    for i in range(z.shape[0]):
        size = abs(z[i])
        if size <= _FAR:
            value = _bernoulli_near(size)
        elif size <= 746.0:
            value = size * math.exp(-size)
        else:
            value = 0.0 * (size != size)
        if z[i] < 0.0:
            value += size
        out[i] = value if size == size else z[i]
    return out


@jit
def face_rates(psi3, beta, spacing, ring):
    """Rates across each face per unit of training time: up = beta B(Δ)/h², dn = beta B(-Δ)/h².

    Formula: Δ = (psi[i+1] - psi[i])/beta; up[i] takes cell i to i + 1, dn[i] takes i + 1 to i. beta = 0 is
    the upwind limit max(∓(psi[i+1] - psi[i]), 0)/h².
    Shapes: ``psi3`` (outer, n, inner) → up, dn (outer, n, inner) on a ring, (outer, n - 1, inner) between walls.
    Meaning: up e^{-psi[i]/beta} = dn e^{-psi[i+1]/beta} to rounding, whatever the mesh.
    Source: Scharfetter and Gummel 1969, eq. 10; Chang and Cooper 1970, J. Comput. Phys. 6, eq. 18.
    """
    outer, n, inner = psi3.shape
    faces = n if ring else n - 1
    up3 = np.empty((outer, faces, inner))
    dn3 = np.empty((outer, faces, inner))
    psi = psi3.reshape(outer, n * inner)
    up = up3.reshape(outer, faces * inner)
    dn = dn3.reshape(outer, faces * inner)
    diffusion = beta if beta > _NO_DIFFUSION else 0.0
    inverse = 1.0 / diffusion if diffusion > 0.0 else 0.0
    far = _FAR * diffusion
    square = spacing * spacing
    coefficient = diffusion / square
    drift = 1.0 / square
    inside = (n - 1) * inner
    for o in range(outer):
        for m in range(inside):
            step = psi[o, m + inner] - psi[o, m]
            size = abs(step)
            slow = coefficient * _bernoulli_near(min(size, far) * inverse) if size < far else 0.0
            # B(-|Δ|) = B(|Δ|) + |Δ|: a sum of positive terms
            fast = slow + drift * size
            fast = fast if size > 0.0 else coefficient
            slow = slow if size > 0.0 else coefficient
            up[o, m] = slow if step > 0.0 else fast
            dn[o, m] = fast if step > 0.0 else slow
        for k in range(faces * inner - inside):
            step = psi[o, k] - psi[o, inside + k]
            size = abs(step)
            slow = coefficient * _bernoulli_near(min(size, far) * inverse) if size < far else 0.0
            fast = slow + drift * size
            fast = fast if size > 0.0 else coefficient
            slow = slow if size > 0.0 else coefficient
            up[o, inside + k] = slow if step > 0.0 else fast
            dn[o, inside + k] = fast if step > 0.0 else slow
    return up3, dn3


@jit
def face_flux(rho3, up3, dn3, ds):
    """Flux through each face over one step, in density per cell: ds (up[i] rho[i] - dn[i] rho[i+1]).

    Shapes: ``rho3`` (outer, n, inner), rates as of ``face_rates`` → the shape of the rates.
    Meaning: backward Euler along the axis is new[i] = old[i] - flux[i] + flux[i-1] with the flux of ``new``.
    """
    outer, n, inner = rho3.shape
    flux3 = np.empty(up3.shape)
    for o in range(outer):
        for i in range(up3.shape[1]):
            right = i + 1 if i + 1 < n else 0
            for k in range(inner):
                flux3[o, i, k] = ds * (up3[o, i, k] * rho3[o, i, k] - dn3[o, i, k] * rho3[o, right, k])
    return flux3


@jit
def summed_flux(change3, mean3, size3, up3, dn3, ds):
    """Face fluxes whose difference along the axis is ``change``, to rounding of the cells whatever ``ds``.

    Formula: flux[i] = flux[i-1] + change[i] added up from the nearer end of the line (on a ring from its
    emptiest face), or ds (up[i] mean[i] - dn[i] mean[i+1]) where that has the smaller rounding.
    Shapes: cells (outer, n, inner), rates as of ``face_rates`` → the shape of the rates.
    Meaning: ``change`` = cells before minus cells after, ``mean`` the combination of solutions whose flux over
    ds it is, ``size`` the magnitudes it was combined from.
    """
    outer, n, inner = change3.shape
    faces = up3.shape[1]
    flux3 = np.empty(up3.shape)
    for o in range(outer):
        for k in range(inner):
            origin, start, blur = n - 1, 0.0, 0.0
            if faces == n:
                blur = np.inf
                for i in range(n):
                    right = i + 1 if i + 1 < n else 0
                    noise = up3[o, i, k] * size3[o, i, k] + dn3[o, i, k] * size3[o, right, k]
                    if noise < blur:
                        origin, blur = i, noise
                right = origin + 1 if origin + 1 < n else 0
                start = ds * (up3[o, origin, k] * mean3[o, origin, k] - dn3[o, origin, k] * mean3[o, right, k])
                blur *= ds
                flux3[o, origin, k] = start
            ahead = start
            total = 0.0
            for m in range(n - 1):
                i = origin + 1 + m
                i = i if i < n else i - n
                ahead += change3[o, i, k]
                total += size3[o, i, k]
                flux3[o, i, k] = ahead
            total += size3[o, origin, k]
            right = origin
            behind = start
            passed = 0.0
            for _ in range(n - 1):
                i = right - 1 if right > 0 else n - 1
                behind -= change3[o, right, k]
                passed += size3[o, right, k]
                if passed < total - passed:
                    flux3[o, i, k] = behind
                noise = ds * (up3[o, i, k] * size3[o, i, k] + dn3[o, i, k] * size3[o, right, k])
                if noise < blur + min(passed, total - passed):
                    flux3[o, i, k] = ds * (up3[o, i, k] * mean3[o, i, k] - dn3[o, i, k] * mean3[o, right, k])
                right = i
    return flux3


@jit
def move_limited(flux3, share3, rest3, gain3, touched3):
    """Moves the ``share`` of its donor of each face flux from ``rest`` to ``gain``; the count of shares below 1.

    Shapes: cells (outer, n, inner); ``touched3`` is set to 1 on both sides of a limited face.
    Source: Zalesak 1979, J. Comput. Phys. 31, eqs. 10-14, with the lower bound 0 alone.
    """
    outer, n, inner = rest3.shape
    limited = 0
    for o in range(outer):
        for i in range(flux3.shape[1]):
            right = i + 1 if i + 1 < n else 0
            for k in range(inner):
                flux = flux3[o, i, k]
                donor, taker = (i, right) if flux > 0.0 else (right, i)
                share = share3[o, donor, k]
                amount = share * abs(flux)
                rest3[o, donor, k] -= amount
                gain3[o, taker, k] += amount
                if share < 1.0 and flux != 0.0:
                    limited += 1
                    touched3[o, i, k] = 1.0
                    touched3[o, right, k] = 1.0
    return limited
