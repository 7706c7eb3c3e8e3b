"""How long the steps in depth are: of a given length, or such that they keep to a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

SAFETY, SHRINK, GROW = 0.9, 0.2, 5.0
# a step below this share of the whole depth ends the run
SMALLEST = 1e-10
# two steps of the same length differ by this in L1 from rounding alone
ROUNDING = 1e-15


@dataclass(frozen=True, slots=True)
class FixedSteps:
    """The least number of equal steps of each layer that are at most ``dt`` long."""

    dt: float


@dataclass(frozen=True, slots=True)
class ErrorSteps:
    """Steps whose estimated errors in mu (L1, the worst law of a block) add up to at most ``tolerance`` over depth.

    Formula: |two steps of dt/2 − one of dt| / (2^p − 1) <= tolerance dt/T; what is kept are the two.
    Source: Hairer, Nørsett & Wanner (1993), II.4 (step doubling, error per unit step).
    """

    tolerance: float


class Pace(NamedTuple):
    """The step to try next, and by which factor the error of the last one was what it may be (0 before the first)."""

    dt: float
    ratio: float = 0.0


def next_pace(dt: float, ratio: float, before: float, order: int, accepted: bool) -> Pace:
    """What follows a step of length dt with so much of the error it may have; ``before`` is that of the step before.

    Formula: dt · .9 ratio^{−.7/p} before^{.4/p}, at most 5 and at least 1/5 of dt; .9 ratio^{−1/p}, at most ½, after
    a rejected step; 1/5 where nothing finite came.
    Source: Gustafsson (1991); Hairer & Wanner (1996), IV.2.
    """
    if not isfinite(ratio):
        return Pace(SHRINK * dt, before)
    if not accepted:
        return Pace(dt * min(max(SAFETY * ratio ** (-1.0 / order), SHRINK), 0.5), before)
    if not ratio > 0.0:
        return Pace(GROW * dt, ratio)
    own = SAFETY * ratio ** (-0.7 / order)
    wish = own * before ** (0.4 / order) if before > 0.0 else SAFETY * ratio ** (-1.0 / order)
    return Pace(dt * min(max(wish, SHRINK), GROW), ratio)


def landing(wish: float, remaining: float) -> float:
    """A step of about the wished length after which no sliver is left: the last two of a layer share what remains."""
    if remaining <= wish * (1.0 + 1e-10):
        return remaining
    return min(wish, 0.5 * remaining)
