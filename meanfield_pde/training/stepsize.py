"""Step control in training time: fixed steps, or steps that keep the error small and the free energy falling."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

SAFETY, SHRINK, GROW = 0.9, 0.2, 2.0


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every step is ds; a trial that is not finite ends the run."""

    ds: float


@dataclass(frozen=True, slots=True)
class EnergyControl:
    """Steps whose estimated error in rho (L1, the worst layer) is at most ``tolerance`` and whose free energy does not
    rise by more than its own error estimate.

    The estimate is the distance to the step of one order less, so it scales like ds² and the next step like its
    root (Hairer, Nørsett & Wanner 1993, II.4).
    """

    ds: float
    tolerance: float
    smallest: float = 1e-10

    def accepts(self, error: float, rise: float, rise_estimate: float) -> bool:
        """Whether a trial passes; anything that is not finite fails."""
        finite = isfinite(error) and isfinite(rise) and isfinite(rise_estimate)
        return finite and error <= self.tolerance and rise <= rise_estimate

    def next_step(self, ds: float, error: float, accepted: bool) -> float:
        """The step to try after one of length ds with that error."""
        if not isfinite(error):
            return SHRINK * ds
        wish = SAFETY * sqrt(self.tolerance / error) if error > 0.0 else GROW
        return ds * min(max(wish, SHRINK), GROW if accepted else 0.5)


Control = Fixed | EnergyControl
