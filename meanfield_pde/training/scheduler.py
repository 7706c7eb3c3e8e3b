"""The loop in training time: a generator of states that never learns in which limit tokens and heads stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.model.sides import FirstVariation, HeadSide, TokenSide
from meanfield_pde.splitting import Splitting, check_flows
from meanfield_pde.training.head_step import split_step
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stepsize import Control, ErrorControl, Fixed

# a time closer to a step than this share of it is that step
SNAP = 1e-9
# free energies cannot be told apart below this, relative to their size or to 1
ROUNDING = 1e-14


class Trial(NamedTuple):
    """A step: rho after it, rho after the step of the other order, the psi it was taken with, what was limited."""

    rho: FloatArray
    other: FloatArray
    psi: FloatArray
    limited: float


@dataclass(frozen=True, slots=True)
class Training:
    """What a run in s is made of.

    Meaning: ``order`` 1 takes psi at the start of a step, 2 refreshes it at the midpoint.
    """

    tokens: TokenSide
    heads: HeadSide
    splitting: Splitting
    order: int
    control: Control

    def __post_init__(self) -> None:
        check_flows(self.splitting, self.heads.flows_at(0))
        if self.order == 2 and self.splitting.order < 2:
            raise MeanFieldError(
                "training.order = 2 needs a splitting of order 2: take splitting = 'strang' or 'gibbs', or order = 1"
            )

    def moment(self, state: TrainingState, side: bool = False) -> Moment:
        """Evaluate loss, first variation and free energy at a state."""
        _require_finite(state.rho, f"at s = {state.s:g}, step {state.step}")
        variation = self.tokens.first_variation(self.heads.measure(state.rho))
        more = self.heads.regularisation(state.rho)
        energy = variation.loss + (0.0 if more is None else more)
        if not np.isfinite(energy):
            raise NotFiniteError(
                f"the free energy is {energy} at s = {state.s:g}, step {state.step}: loss {variation.loss}"
            )
        slope = self.heads.slope(state.rho, self.heads.driving(variation))
        return Moment(state, variation, nan if more is None else energy, slope, side)

    def step(self, moment: Moment, ds: float) -> Trial:
        """rho after a step ds from ``moment``, and beside it the step of the other order, to tell the error by."""
        rho, flows = moment.state.rho, self.heads.flows_at(moment.state.step)
        psi = self.heads.driving(moment.variation)
        first = split_step(self.splitting, flows, rho, psi, ds, 1)
        if self.order == 1:
            return Trial(first.rho, split_step(self.splitting, flows, rho, psi, ds, 2).rho, psi, first.limited)
        half = split_step(self.splitting, flows, rho, psi, 0.5 * ds, 1).rho
        psi = self.heads.driving(self._variation(half, moment.state, ds))
        second = split_step(self.splitting, flows, rho, psi, ds, 2)
        return Trial(second.rho, first.rho, psi, second.limited)

    def _variation(self, rho: FloatArray, state: TrainingState, ds: float) -> FirstVariation:
        _require_finite(rho, f"after s = {state.s:g} with ds = {ds:g}")
        return self.tokens.first_variation(self.heads.measure(rho))

    def run(self, state: TrainingState, s_end: float, times: Sequence[float] = ()) -> Iterator[Moment]:
        """Moments from ``state`` on: the state itself, every accepted step, and side moments at ``times`` and s_end.

        A time that is no step is reached by a side step that is then discarded, so neither ``times`` nor s_end
        changes the states. Times before the state or after s_end are left out.
        Raises: NotFiniteError; MeanFieldError when step control would go below its smallest step.
        """
        asked = sorted({t for t in (*times, s_end) if state.s < t <= s_end})
        # adaptive steps add up, so a label put on them would change later times; fixed ones are counted
        snap = SNAP * self.control.ds if isinstance(self.control, Fixed) else 0.0
        moment = self.moment(state)
        yield moment
        while asked:
            following = None
            reached = (moment.state.step + 1) * self.control.ds
            if not (isinstance(self.control, Fixed) and asked[-1] < reached - snap):
                # a fixed step beyond the last time would be thrown away; how long an adaptive one is, it tells
                following = self._advance(moment)
                reached = following.state.s
            while asked and asked[0] < reached - snap:
                t = asked.pop(0)
                rho = self.step(moment, max(0.0, t - self._reached(moment.state))).rho
                yield self.moment(replace(moment.state, s=t, rho=rho), side=True)
            if following is None or not asked:
                return
            if asked[0] <= reached + snap:
                following = following._replace(state=replace(following.state, s=asked.pop(0)))
            moment = following
            yield moment

    def _reached(self, state: TrainingState) -> float:
        """The time of a state as it was before a requested time became its label."""
        return state.step * self.control.ds if isinstance(self.control, Fixed) else state.s

    def _advance(self, moment: Moment) -> Moment:
        state = moment.state
        if isinstance(self.control, ErrorControl):
            return self._controlled(moment, self.control)
        trial = self.step(moment, self.control.ds)
        error = self.heads.distance(trial.rho, trial.other)
        # from the count, not by adding up, so that no rounding gathers and no label changes a later time
        limited = max(state.limited, trial.limited)
        after = replace(state, step=state.step + 1, rho=trial.rho, step_error=error, limited=limited)
        return self._accepted(moment, replace(after, s=self._reached(after)))

    def _accepted(self, before: Moment, state: TrainingState) -> Moment:
        after = self.moment(state)
        if isnan(after.free_energy):
            return after
        # fmax leaves the NaN of a run without a step behind
        rise = float(np.fmax(np.fmax(state.energy_rise, 0.0), after.free_energy - before.free_energy))
        return after._replace(state=replace(state, energy_rise=rise))

    def _controlled(self, moment: Moment, control: ErrorControl) -> Moment:
        state, ds, rejected = moment.state, moment.state.ds, moment.state.rejected
        fault: NotFiniteError | None = None
        while True:
            if ds < control.smallest:
                where = f"ds = {ds:.1e} at s = {state.s:g}, step {state.step} (smallest {control.smallest:.0e})"
                if fault is not None:
                    raise NotFiniteError(f"step control fell to {where}: {fault}") from fault
                raise NotConvergedError(
                    f"step control fell to {where}: raise training.tolerance or look for a loss that is not smooth"
                )
            error, rise, estimate = np.inf, np.inf, 0.0
            after = None
            try:
                trial = self.step(moment, ds)
                for rho in (trial.rho, trial.other):
                    _require_finite(rho, f"after s = {state.s:g} with ds = {ds:g}")
                error = self.heads.distance(trial.rho, trial.other)
                if error <= control.tolerance:
                    estimate = abs(self.heads.energy_change(trial.other, trial.rho, trial.psi))
                    estimate += ROUNDING * max(1.0, abs(moment.free_energy))
                    reached = replace(
                        state,
                        s=state.s + ds,
                        step=state.step + 1,
                        rho=trial.rho,
                        step_error=error,
                        limited=max(state.limited, trial.limited),
                    )
                    after = self._accepted(moment, reached)
                    rise = after.free_energy - moment.free_energy
                fault = None
            except NotFiniteError as found:
                # a trial that is not finite is one more rejected trial; the smallest step ends it with words
                error, after, fault = np.inf, None, found
            accepted = after is not None and control.accepts(error, rise, estimate)
            following = control.next_step(ds, error, accepted, state.step_error)
            if accepted and after is not None:
                return after._replace(state=replace(after.state, ds=following, rejected=rejected))
            ds, rejected = following, rejected + 1


def _require_finite(rho: FloatArray, when: str) -> None:
    if not np.isfinite(rho).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(rho))[0])
        raise NotFiniteError(f"rho is not finite in layer and cell {where} {when}")
