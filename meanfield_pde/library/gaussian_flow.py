"""Gaussian tokens in one dimension under softmax attention stay Gaussian: mean and variance in closed form.

ṁ = (ŵ + κ s − ℓ) m, ṡ = 2 κ s² − 2 ℓ s + 2 D with ŵ = E[w], κ = E[w a], the leak ℓ and the token noise D. Without
noise 1/s is linear in e^{2ℓt}; with it s = −u'/(2κu) makes the Riccati equation linear, u'' + 2ℓu' + 4κD u = 0.
"""

from __future__ import annotations

from math import atan2, atanh, cos, cosh, exp, expm1, inf, log, sin, sinh, sqrt

from meanfield_pde.errors import MeanFieldError


def growth(leak: float, t: float) -> float:
    """∫_0^t e^{2ℓτ} dτ."""
    return expm1(2.0 * leak * t) / (2.0 * leak) if leak != 0.0 else t


def blow_up(s0: float, kappa: float, leak: float, noise: float = 0.0) -> float:
    """Depth at which the variance becomes infinite; without noise ½ log(κ/(κ − ℓ/s0))/ℓ, or 1/(2 κ s0) at ℓ = 0.

    Formula with noise: the first zero of C + (ℓ − 2κ s0) S, C and S as in `flow`.
    """
    if noise > 0.0:
        square, slope = leak * leak - 4.0 * kappa * noise, leak - 2.0 * kappa * s0
        omega = sqrt(abs(square))
        if square < 0.0:
            return atan2(omega, -slope) / omega
        if slope >= -omega:
            return inf
        return atanh(omega / -slope) / omega if omega > 0.0 else -1.0 / slope
    if kappa * s0 <= max(leak, 0.0):
        return inf
    return log(kappa / (kappa - leak / s0)) / (2.0 * leak) if leak != 0.0 else 1.0 / (2.0 * kappa * s0)


def flow(
    m0: float, s0: float, w: float, kappa: float, leak: float, t: float, noise: float = 0.0
) -> tuple[float, float]:
    """Mean and variance after depth t.

    Formula: 1/s = e^{2ℓt}/s0 − 2κ ∫_0^t e^{2ℓτ} dτ, m = m0 e^{ŵt} √(s/s0). With noise, ω² = ℓ² − 4κD, C = cosh ωt,
    S = sinh(ωt)/ω, q = C + (ℓ − 2κ s0) S: s = (s0 C + (2D − ℓ s0) S)/q, m = m0 e^{(ŵ − ℓ/2)t}/√q.
    Raises: MeanFieldError when the law blows up before t, with the depth at which it does.
    """
    end = blow_up(s0, kappa, leak, noise) if noise > 0.0 else inf
    precision = 1.0 if noise > 0.0 else exp(2.0 * leak * t) / s0 - 2.0 * kappa * growth(leak, t)
    if not (precision > 0.0 and t < end):
        raise MeanFieldError(
            f"the variance of the tokens blows up at depth {blow_up(s0, kappa, leak, noise):g}, before {t:g} "
            f"(E[w a] = {kappa:g} > 0): take a smaller depth.T, E[w a] or initial variance"
        )
    if noise > 0.0:
        return _noisy(m0, s0, w, kappa, leak, t, noise)
    s = 1.0 / precision
    return m0 * exp(w * t) * sqrt(s / s0), s


def _noisy(m0: float, s0: float, w: float, kappa: float, leak: float, t: float, noise: float) -> tuple[float, float]:
    square = leak * leak - 4.0 * kappa * noise
    omega = sqrt(abs(square))
    if omega * t < 1e-8:
        c, s = 1.0, t
    elif square > 0.0:
        c, s = cosh(omega * t), sinh(omega * t) / omega
    else:
        c, s = cos(omega * t), sin(omega * t) / omega
    q = c + (leak - 2.0 * kappa * s0) * s
    return m0 * exp((w - 0.5 * leak) * t) / sqrt(q), (s0 * c + (2.0 * noise - leak * s0) * s) / q
