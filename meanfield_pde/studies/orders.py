"""Orders of schemes, steppers and splittings, measured on a problem against its exact solution or against itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meanfield_pde.equations.runge_kutta import STEPPERS
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Problem
from meanfield_pde.problem_checks import one_of
from meanfield_pde.studies.order_series import Series, measured
from meanfield_pde.studies.own_fluxes import check_fluxes, fluxes_with_laws
from meanfield_pde.studies.scheme_laws import own_with_laws
from meanfield_pde.studies.space_orders import Reference, space_series
from meanfield_pde.studies.step_orders import coupling_series, time_series
from meanfield_pde.studies.stepper_laws import own_stepper, stepper_laws

KINDS = ("space", "time", "coupling")


def orders(
    problem: Problem,
    exact: Reference | None = None,
    *,
    name: str = "",
    progress: Callable[[str], None] | None = None,
    cells: Sequence[int] | None = None,
    schemes: Iterable[str] | None = None,
    own: Mapping[str, Any] | None = None,
    fluxes: Mapping[str, Any] | None = None,
    steppers: Mapping[str, Any] | None = None,
    kind: str = "space",
    threads: int | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Errors over a row of grids or steps and the orders fitted to them: ``{"rows": [...], "laws": [...]}``.

    Meaning: ``kind`` is "space", "time" (every stepper in depth, or the steps of heads alone in s), "coupling" (the
    splittings of the heads, psi taken at the start or the middle of a step) or "all".
    In space there is one row a scheme and norm. Tokens alone give the flow ``mu`` (final law, every scheme), or where
    the exact costate is known ``costate`` (reported p at depth 0, every scheme with a dual); training gives
    ``gradient`` (δL/δrho at s = 0, relative L1(rho), every scheme with a dual), Fokker-Planck gives ``rho`` (backward
    Euler with ds ∝ h² and the step of order 2 with ds ∝ h). Depth steps are refined with h. The worst sequence or layer
    counts. Without an exact solution (or with that of the state at rest, where the scheme is exact) each grid is
    compared with the next one of twice its cells, and ``error_estimate`` is that of the finest grid by Richardson
    extrapolation. ``fitted`` is the least-squares slope over all grids, ``fitted_finest`` over the three finest (two in
    several dimensions), and ``short`` says that both miss ``declared``.
    ``schemes`` are names that restrict the table; ``own`` are schemes of the user's by name, objects with ``order`` and
    ``faces`` (`equations.schemes.Reconstruction`; with ``cells`` if they have a dual). ``laws`` says of each of them
    what was measured of every law; one that does not give finite values has no rows.
    ``fluxes`` are Fokker-Planck fluxes of the user's by name, objects with ``order`` and ``weight`` (`own_fluxes`), for
    heads in a given potential; one with a broken law of its values or signs has no rows.
    ``steppers`` are steppers of the user's by name, `equations.runge_kutta.Stepper`, for "time".
    In "time" and "coupling" the cells stay and every number of steps is compared with twice as many.
    Solves run on ``threads`` (all processors), which change no digit.
    Raises: MeanFieldError for unknown schemes, objects that lack something, or cells that cannot be compared.
    """
    if problem.sides:
        raise MeanFieldError("orders are those of schemes on grids: take particles.sides = []")
    one_of(kind, (*KINDS, "all"), "kind")
    kinds = KINDS if kind == "all" else (kind,)
    check_fluxes(problem, fluxes or {})
    mine, laws = own_with_laws(own or {})
    own_fluxes, more = fluxes_with_laws(fluxes or {})
    laws += more
    own_steppers = {}
    for one, given in (steppers or {}).items():
        if one in STEPPERS:
            raise MeanFieldError(f"stepper {one!r} of your own has the name of a built-in one: give it another")
        own_steppers[one] = own_stepper(one, given)
        laws += [{"scheme": one, **asdict(law), "held": law.held} for law in stepper_laws(own_steppers[one])]
    table: list[Series] = []
    if "space" in kinds:
        table += space_series(problem, exact, cells, schemes, mine, own_fluxes)
    if "time" in kinds:
        table += time_series(problem, own_steppers)
    if "coupling" in kinds:
        table += coupling_series(problem)
    title = {"problem": name or problem.title}
    rows = [title | row for row in measured(table, threads or len(os.sched_getaffinity(0)), progress)]
    return {"rows": rows, "laws": laws}
