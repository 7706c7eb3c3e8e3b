"""Token noise: the heat equation ∂_t mu = D Δ mu on cell averages, exact in time, no flux through walls.

Axis by axis in the cosine modes of a wall axis (their half-sample form) or the Fourier modes of a ring: mode k times
e^{−D k² dt}. With positivity the symbol is that of the three-point Laplacian, (2/h²)(1 − cos kh), whose exponential has
the positive entries e^{−2r} I_j(2r), r = D dt/h² (Feller 1971, XVII.6): second order in h instead of spectral.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.special import ive

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.splitting import TOKENS, Splitting

# weights of the positive heat kernel below this are left out
LEAST = 1e-20


@dataclass(frozen=True, slots=True)
class TokenNoise:
    """Heat steps of tokens dx = V dt + sqrt(2 D) dB beside their transport.

    Meaning: ``coefficient`` D of the Laplacian; ``splitting`` is the table of transport and noise of every step;
    ``positive`` takes the positive kernel. A heat step is symmetric in the cells, so that it is its own dual, and
    keeps mode 0, the mass.
    Raises: MeanFieldError for a coefficient that is not positive.
    """

    grid: Grid
    coefficient: float
    splitting: Splitting = TOKENS["strang"]
    positive: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.coefficient < np.inf:
            raise MeanFieldError(f"tokens.noise = {self.coefficient:g} must be finite and >= 0")

    def heat(self, u: FloatArray, dt: float) -> FloatArray:
        """e^{dt D Δ} u. Shapes: u (B, *cells); one transform of one shape a law, whatever the batch."""
        one = self._positive if self.positive else self._spectral
        return np.stack([one(law, dt) for law in u])

    def _spectral(self, law: FloatArray, dt: float) -> FloatArray:
        out = law
        for axis, (n, h) in enumerate(zip(self.grid.cells, self.grid.spacing, strict=True)):
            shape = [1] * law.ndim
            shape[axis] = -1
            ring = self.grid.periodic[axis]
            k = np.arange(n // 2 + 1) * (2.0 * np.pi / (n * h)) if ring else np.arange(n) * (np.pi / (n * h))
            # the change, not the new value: mode 0 has none
            change = np.expm1(-self.coefficient * dt * k * k).reshape(shape)
            if ring:
                out = out + fft.irfft(change * fft.rfft(out, axis=axis), n, axis=axis)
            else:
                out = out + fft.idct(change * fft.dct(out, axis=axis, norm="ortho"), axis=axis, norm="ortho")
        return np.ascontiguousarray(out)

    def _positive(self, law: FloatArray, dt: float) -> FloatArray:
        from scipy.ndimage import convolve1d  # imported late: only positivity needs it

        out = law
        for axis, (n, h) in enumerate(zip(self.grid.cells, self.grid.spacing, strict=True)):
            ring = self.grid.periodic[axis]
            weights = heat_kernel(self.coefficient * dt / (h * h), n if ring else 2 * n)
            out = convolve1d(out, weights, axis=axis, mode="wrap" if ring else "reflect")
        return np.ascontiguousarray(out)


def heat_kernel(r: float, period: int) -> FloatArray:
    """Weights e^{−2r} I_j(2r), j = −J..J, of the three-point heat flow, folded to one ``period``; they sum to 1.

    Source: Feller, An Introduction to Probability Theory II (1971), XVII.6; Lindeberg (1990), eq. 19.
    """
    reach = int(np.ceil(20.0 + 10.0 * np.sqrt(2.0 * r)))
    half = ive(np.arange(reach + 1), 2.0 * r)
    half = half[: max(1, int(np.count_nonzero(half > LEAST)))]
    if 2 * len(half) - 1 > period:
        folded = np.zeros(period)
        j = np.arange(1 - len(half), len(half))
        np.add.at(folded, j % period, half[np.abs(j)])
        half = folded[: period // 2 + 1].copy()
        if period % 2 == 0:
            half[-1] *= 0.5  # it is reached from both sides
    weights = np.concatenate([half[:0:-1], half])
    return np.asarray(weights / weights.sum())
