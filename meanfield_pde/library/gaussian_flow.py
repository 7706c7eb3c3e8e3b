"""Gaussian tokens in one dimension under softmax attention stay Gaussian: mean and variance in closed form.

ṁ = (ŵ + κ s − ℓ) m, ṡ = 2 κ s² − 2 ℓ s with ŵ = E[w], κ = E[w a] and the leak ℓ, so 1/s is linear in e^{2ℓt}.
"""

from __future__ import annotations

from math import exp, expm1, inf, log, sqrt

from meanfield_pde.errors import MeanFieldError


def growth(leak: float, t: float) -> float:
    """∫_0^t e^{2ℓτ} dτ."""
    return expm1(2.0 * leak * t) / (2.0 * leak) if leak != 0.0 else t


def blow_up(s0: float, kappa: float, leak: float) -> float:
    """Depth at which the variance becomes infinite: ½ log(κ/(κ − ℓ/s0))/ℓ, or 1/(2 κ s0) without a leak."""
    if kappa * s0 <= max(leak, 0.0):
        return inf
    return log(kappa / (kappa - leak / s0)) / (2.0 * leak) if leak != 0.0 else 1.0 / (2.0 * kappa * s0)


def flow(m0: float, s0: float, w: float, kappa: float, leak: float, t: float) -> tuple[float, float]:
    """Mean and variance after depth t.

    Formula: 1/s = e^{2ℓt}/s0 − 2κ ∫_0^t e^{2ℓτ} dτ, m = m0 e^{ŵt} √(s/s0).
    Raises: MeanFieldError when the law blows up before t, with the depth at which it does.
    """
    precision = exp(2.0 * leak * t) / s0 - 2.0 * kappa * growth(leak, t)
    if not precision > 0.0:
        raise MeanFieldError(
            f"the variance of the tokens blows up at depth {blow_up(s0, kappa, leak):g}, before {t:g} "
            f"(E[w a] = {kappa:g} > 0): take a smaller depth.T, E[w a] or initial variance"
        )
    s = 1.0 / precision
    return m0 * exp(w * t) * sqrt(s / s0), s
