"""What a sample of so many tokens could have seen: the smallest fault of each kind, by the linearised noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meanfield_pde.arrays import FloatArray
from meanfield_pde.validation.effects import Effect
from meanfield_pde.validation.sampling_noise import Noise, positive

POWER = 0.8
# parameters are found to this part of their interval
CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class Detectable:
    """A fault, and how well it would be seen.

    Meaning: with a parameter, ``below`` and ``above`` are the nearest values to ``neutral`` at which the power reaches
    80 %, None where none of the interval does; without one, ``power`` is how often it is seen.
    """

    name: str
    words: str
    neutral: float | None
    below: float | None
    above: float | None
    power: float | None


def detectable(noise: Noise, effects: tuple[Effect, ...], level: float) -> tuple[Detectable, ...]:
    """How well each fault is seen at a level by the smooth statistics.

    Formula: P(max_j |Z_j + e_j/σ_j| > c), e the change by the fault, Z and c as in `family`.
    """
    scale = positive(noise.deviations[noise.judged])

    def power(change: FloatArray) -> float:
        return noise.maximum.power(change[noise.judged] / scale, level)

    return tuple(_detectable(one, power) for one in effects)


def _detectable(effect: Effect, power: Callable[[FloatArray], float]) -> Detectable:
    if effect.interval is None:
        return Detectable(effect.name, effect.words, None, None, None, power(effect.at(None)[0]))
    neutral = 0.0 if effect.interval[0] < 0.0 else 1.0

    def least(end: float) -> float | None:
        if end == neutral or power(effect.at(end)[0]) < POWER:
            return None
        low, high = neutral, end
        while abs(high - low) > CLOSE * abs(end - neutral):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if power(effect.at(middle)[0]) < POWER else (low, middle)
        return high

    below, above = (least(end) for end in effect.interval)
    return Detectable(effect.name, effect.words, neutral, below, above, None)
