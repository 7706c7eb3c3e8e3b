"""When a run stops before its end time: enough steps, enough time on the clock, or heads at rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.training.state import Moment

# how the outcome begins of a run that ended early because nothing moved any more
AT_REST = "at rest:"


@dataclass(frozen=True, slots=True)
class Stop:
    """How much of a run to do now: at most ``steps`` more steps, at most ``seconds`` on the clock.

    Meaning: neither belongs to the problem, and a run that was stopped goes on bit for bit. A step that would likely
    end after the time is over, judged by the longest step so far, is not begun.
    Raises: MeanFieldError for numbers that are not positive.
    """

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.steps, int) and not isinstance(self.steps, bool)
        if self.steps is not None and not (whole and self.steps >= 1):
            raise MeanFieldError(f"steps = {self.steps!r} must be an integer of at least 1, the number of more steps")
        if self.seconds is not None and not (isfinite(self.seconds) and self.seconds > 0.0):
            raise MeanFieldError(f"seconds = {self.seconds!r} must be positive: say how long the run may take")


UNLIMITED = Stop()


@dataclass(slots=True)
class Watch:
    """Looks at the moments of one run and says when it has to stop.

    Meaning: ``rest`` is the slope of the free energy at which heads count as resting, None for never; the clock runs
    from here on.
    """

    stop: Stop
    rest: float | None
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    before: float = field(init=False)
    longest: float = 0.0
    first: int | None = None

    def __post_init__(self) -> None:
        self.began = self.before = self.clock()

    def reason(self, moment: Moment) -> str | None:
        """Why the run stops at this moment, in words; None to go on. Side moments stop nothing."""
        if moment.side:
            return None
        state, now = moment.state, self.clock()
        if self.first is None:
            self.first = state.step
        else:
            self.longest = max(self.longest, now - self.before)
        self.before = now
        if self.rest is not None and moment.slope <= self.rest:
            return f"{AT_REST} slope {moment.slope:.2e} of the free energy, at most {self.rest:g}, at s = {state.s:g}"
        steps, seconds = self.stop.steps, self.stop.seconds
        if steps is not None and state.step - self.first >= steps:
            return f"stopped: steps = {steps} were asked for; s = {state.s:g}"
        if seconds is not None and now - self.began + self.longest > seconds:
            return f"stopped: the {seconds:g} s on the clock are over; s = {state.s:g}"
        return None
