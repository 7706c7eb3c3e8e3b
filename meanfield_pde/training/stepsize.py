"""Step control in training time: fixed steps, or steps that keep the error small and the free energy falling."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan

SAFETY, SHRINK, GROW = 0.9, 0.2, 2.0
# the estimate is the distance to a step of the other order: it scales like ds²
POWER = 2.0
# a step answers to its own error and to that of the step before (Gustafsson 1991; Hairer & Wanner 1996, IV.2)
OWN, BEFORE = 0.7 / POWER, 0.4 / POWER


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every step is ds; a trial that is not finite ends the run."""

    ds: float


@dataclass(frozen=True, slots=True)
class ErrorControl:
    """Steps whose estimated error in rho (L1, the worst layer) is at most ``tolerance``.

    Meaning: the estimate is the distance to the step of the other order. With ``falling`` a step is cut as well when
    the free energy rises in it by more than its own error estimate. The next step follows by a PI controller from the
    errors of this step and of the one before, which the training state carries.
    Source: Gustafsson (1991); Hairer & Wanner (1996), IV.2.
    """

    ds: float
    tolerance: float
    falling: bool = True
    smallest: float = 1e-10

    def accepts(self, error: float, rise: float, rise_estimate: float) -> bool:
        """Whether a trial passes; anything that is not finite fails."""
        finite = isfinite(error) and isfinite(rise) and isfinite(rise_estimate)
        return finite and error <= self.tolerance and (rise <= rise_estimate or not self.falling)

    def next_step(self, ds: float, error: float, accepted: bool, before: float = nan) -> float:
        """The step to try after one of length ds with that error; ``before`` is the error of the step before it."""
        if not isfinite(error):
            return SHRINK * ds
        if not error > 0.0:
            return (GROW if accepted else 0.5) * ds
        if accepted and before > 0.0:
            wish = SAFETY * (self.tolerance / error) ** OWN * (before / self.tolerance) ** BEFORE
        else:
            wish = SAFETY * (self.tolerance / error) ** (1.0 / POWER)
        return float(ds * min(max(wish, SHRINK), GROW if accepted else 0.5))


Control = Fixed | ErrorControl
