"""Work against precision: error, seconds and memory of every scheme over grids and steps, and what each one kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.schemes import Reconstruction
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Problem, given
from meanfield_pde.studies.order_norms import distances
from meanfield_pde.studies.order_runs import averaged, sampled
from meanfield_pde.studies.own_fluxes import OwnFlux, check_fluxes, fluxes_with_laws
from meanfield_pde.studies.scheme_laws import own_with_laws
from meanfield_pde.studies.space_orders import Reference
from meanfield_pde.studies.work_cases import FINEST, Case, Solved, cases_of, flow_of, ready

REPEATS, MOST_REPEATS = 3, 1000
# a drift of mass beyond this is a fault
CONSERVED = 1e-10
NORMS = {"mu": "L1", "rho": "L1", "gradient": "relative L1(rho)"}
Said = Callable[[str], None]


def work_precision(
    problem: Problem,
    exact: Reference | None = None,
    *,
    cells: Sequence[int] | None = None,
    schemes: Sequence[str] | None = None,
    steppers: Sequence[str] | None = None,
    own: Mapping[str, Any] | None = None,
    fluxes: Mapping[str, Any] | None = None,
    repeats: int = REPEATS,
    budget: float | None = None,
    threads: int = 1,
    progress: Said | None = None,
) -> dict[str, Any]:
    """Solve a problem by every scheme on every grid and step: ``{"rows": [...], "left_out": [...], "laws": [...]}``.

    Meaning: tokens alone are compared by their final law, training by δL/δrho at s = 0 (a sweep forward and one back),
    heads alone by their final law; by the exact solution, or the best scheme on twice the finest grid. A row has the
    L1 ``error`` (of a gradient relative, in L1(rho)), the median and quartiles of ``repeats`` timed solves behind one
    that warms up, the peak of ``memory`` in bytes that a solve takes (arrays of numpy alone), ``steps``,
    ``nanoseconds`` for one cell and step, mass drift, least value and the largest rise of the free energy; ``fault``
    says what is not finite or not conservative; ``frontier`` that no other row is both faster and more accurate.
    ``own`` are schemes of the user's by name, ``fluxes`` fluxes of heads, as in `orders`; their ``laws`` come first.
    ``budget`` seconds stop the study between cases, the coarsest grids first; what was not done is in ``left_out``.
    Raises: MeanFieldError for settings out of range.
    """
    if isinstance(repeats, bool) or not 1 <= repeats <= MOST_REPEATS:
        raise MeanFieldError(f"repeats = {repeats} must be between 1 and {MOST_REPEATS}, such as {REPEATS}")
    if budget is not None and not budget > 0.0:
        raise MeanFieldError(f"budget = {budget} must be > 0 seconds, or left out")
    check_fluxes(problem, fluxes or {})
    mine, laws = own_with_laws(own or {})
    own_fluxes, more = fluxes_with_laws(fluxes or {})
    laws += more
    cases = cases_of(problem, cells, schemes, steppers, mine, tuple(own_fluxes))
    begun = perf_counter()
    with threadpool_limits(limits=1, user_api="blas"):
        known = _known(problem, exact, cases, progress)
        rows: list[dict[str, Any]] = []
        left_out: list[dict[str, Any]] = []
        for number, case in enumerate(cases, start=1):
            label = {"scheme": case.scheme, "stepper": case.stepper, "n": case.cells, "step": case.step}
            if budget is not None and perf_counter() - begun > budget:
                left_out.append(label)
                continue
            if progress is not None:
                progress(f"case {number} of {len(cases)}: {case.scheme}, {case.cells} cells")
            rows.append(label | _measured(problem, case, known, repeats, threads, mine, own_fluxes))
    for row, best in zip(rows, _frontier(rows), strict=True):
        row["frontier"] = best
    reference = "exact" if _field(problem, exact) is not None else "the best scheme on twice the finest grid"
    return {"flow": flow_of(problem), "reference": reference, "repeats": repeats, "rows": rows, "left_out": left_out,
            "laws": laws}  # fmt: skip


def _measured(
    problem: Problem,
    case: Case,
    known: Callable[[Grid], FloatArray],
    repeats: int,
    threads: int,
    own: Mapping[str, Reconstruction],
    fluxes: Mapping[str, OwnFlux],
) -> dict[str, Any]:
    """The figures of one case; those that cannot be had are None."""
    empty = {"error": None, "seconds": None, "quartiles": None, "memory": None, "steps": None, "nanoseconds": None,
             "mass_drift": None, "minimum": None, "energy_rise": None, "fault": None}  # fmt: skip
    try:
        made = ready(problem, case, threads, own, fluxes)
        solved = made.read(made.run())
        if not np.isfinite(solved.law.values).all():
            return empty | {"fault": "the result is not finite"}
        seconds = []
        for _ in range(repeats):
            start = perf_counter()
            made.run()
            seconds.append(perf_counter() - start)
        tracemalloc.start()
        try:
            made.run()
            memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    except (NotFiniteError, NotConvergedError) as error:
        return empty | {"fault": str(error)}
    flow = flow_of(problem)
    low, median, high = (float(q) for q in np.quantile(seconds, (0.25, 0.5, 0.75)))
    drift = solved.mass_drift
    return {
        "error": distances(flow, solved.law, known(solved.law.grid), 1)[NORMS[flow]],
        "seconds": median,
        "quartiles": [low, high],
        "memory": memory,
        "steps": solved.steps,
        "nanoseconds": 1e9 * median / (made.updates * solved.steps) if solved.steps else None,
        "mass_drift": drift,
        "minimum": solved.minimum,
        "energy_rise": solved.energy_rise,
        "fault": None if drift <= CONSERVED else f"mass drifts by {drift:.1e}, more than {CONSERVED:g}",
    }


def _field(problem: Problem, exact: Reference | None) -> Callable[[Grid], FloatArray] | None:
    """The exact values on a grid, if they are known."""
    if exact is None:
        return None
    if problem.kind == "tokens":
        field, end = exact.mu, given(problem.depth, "depth").T
    elif problem.kind == "training":
        field, end = exact.first_variation, 0.0
    else:
        field, end = None if exact.limit else exact.rho, given(problem.training, "training").s_end
    return None if field is None else lambda grid: field(end, grid)


def _known(
    problem: Problem, exact: Reference | None, cases: list[Case], progress: Said | None
) -> Callable[[Grid], FloatArray]:
    """What solutions are compared with."""
    field = _field(problem, exact)
    if field is not None:
        return field
    flow = flow_of(problem)
    grids = sorted({case.cells for case in cases})
    finest = 2 * grids[-1]
    if flow != "gradient" and any(2 * a != b for a, b in pairwise(grids)):
        raise MeanFieldError(
            f"cells = {tuple(grids)} cannot be compared without an exact solution: each must be twice the one before"
        )
    if progress is not None:
        progress(f"reference: {FINEST[flow]}, {finest} cells")
    alike = [case for case in cases if case.cells == grids[-1]]
    stepper, step = alike[0].stepper, min(case.step for case in alike)
    # twice the cells at the same Courant number are half the steps; those of heads are halved here
    best = Case(FINEST[flow], stepper if flow == "rho" else "ssprk3", finest, 0.5 * step if flow == "rho" else step)
    made = ready(problem, best)
    fine: Solved = made.read(made.run())

    def known(grid: Grid) -> FloatArray:
        values, at = fine.law.values, fine.law.grid
        while flow != "gradient" and at.cells != grid.cells:
            values = averaged(values, at.dim) if flow == "mu" else sampled(values, at)
            at = Grid(at.lower, at.upper, tuple(n // 2 for n in at.cells), at.periodic)
        return values

    return known


def _frontier(rows: list[dict[str, Any]]) -> list[bool]:
    """Whether no other row without a fault is at least as fast and as accurate, and better in one of them."""
    sound = [(row["seconds"], row["error"]) for row in rows if row["fault"] is None]
    out = []
    for row in rows:
        here = (row["seconds"], row["error"])
        out.append(row["fault"] is None and not any(a <= here[0] and b <= here[1] and (a, b) != here for a, b in sound))
    return out
