"""Checks of the prescribed drift of tokens; the messages name the key in the TOML file."""

from __future__ import annotations

from meanfield_pde.drift_flows import WITH_PERIOD, check_flow
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem_checks import number, vector
from meanfield_pde.problem_sections import Drift


def check_drift(drift: Drift, periodic: tuple[bool, ...]) -> None:
    """Refuse a drift that does not fit the walls and rings of the tokens."""
    number(drift.leak, "tokens.drift.leak")
    if drift.constant:
        vector(drift.constant, "tokens.drift.constant", len(periodic))
    if drift.leak != 0 and any(periodic):
        raise MeanFieldError(
            f"tokens.drift.leak = {drift.leak:g} jumps at the seam of a periodic axis: use walls, or leak = 0"
        )
    if drift.flow is not None and not callable(drift.flow):
        wrong = check_flow(drift.flow, periodic)
        if wrong is not None:
            raise MeanFieldError(f"tokens.drift.flow = {drift.flow!r} {wrong}")
    if drift.period is not None:
        number(drift.period, "tokens.drift.period", 0.0, above=True)
        if drift.flow not in WITH_PERIOD:
            raise MeanFieldError(f"tokens.drift.period is for flow = {' or '.join(map(repr, WITH_PERIOD))}: remove it")
