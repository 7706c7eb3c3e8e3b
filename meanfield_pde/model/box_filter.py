"""What cells of width h do to e^{zy}: its box filter multiplies by sinhc(zh/2), sinhc(u) = sinh(u)/u."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray

# below this the closed forms cancel and a series is exact to rounding
SERIES = 0.05


def log_sinhc(z: FloatArray, h: float) -> FloatArray:
    """log sinhc(zh/2), what the filter adds to log ∫ e^{zy} mu(dy)."""
    u = np.abs(0.5 * h * np.asarray(z))
    safe = np.maximum(u, SERIES)
    closed = safe + np.log(-np.expm1(-2.0 * safe) / (2.0 * safe))
    u2 = u * u
    return np.asarray(np.where(u < SERIES, u2 * (1 / 6 - u2 * (1 / 180 - u2 * (1 / 2835 - u2 / 37800))), closed))


def mean_shift(z: FloatArray, h: float) -> FloatArray:
    """d/dz log sinhc(zh/2), what the filter adds to the mean of a law tilted by e^{zy}."""
    u = 0.5 * h * np.asarray(z)
    safe = np.where(np.abs(u) < SERIES, SERIES, u)
    u2 = u * u
    series = u * (1 / 3 - u2 * (1 / 45 - u2 * (2 / 945 - u2 / 4725)))
    return np.asarray(0.5 * h * np.where(np.abs(u) < SERIES, series, 1.0 / np.tanh(safe) - 1.0 / safe))
