"""What is printed of heads at rest: how they were found, their moments, beside the exact ones where known."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde.cli.compare import head_moments
from meanfield_pde.cli.showing import print_json
from meanfield_pde.cli.terminal import table
from meanfield_pde.errors import MeanFieldError

if TYPE_CHECKING:
    from meanfield_pde.library import Exact
    from meanfield_pde.problem import Problem

NEUTRAL = 1e-7


def print_stationary(
    problem: Problem, critical: tuple[float, float] | None, tolerance: float, as_json: bool, threads: int | None
) -> None:
    """The law at rest of a problem in numbers, and the critical beta if it is asked for.

    Raises: MeanFieldError for problems without heads that move; NotConvergedError.
    """
    from meanfield_pde.output.background import interruptible
    from meanfield_pde.output.report import clean

    facts = interruptible(lambda: at_rest(problem, critical, tolerance, threads))
    if as_json:
        print_json(clean(facts))
        return
    rows = [
        ("beta", f"{facts['beta']:.10g}"),
        ("‖rho − Gibbs(psi[rho])‖_1", f"{facts['residual']:.1e}"),
        ("steps, first variations", f"{facts['iterations']}, {facts['evaluations']}"),
        ("loss", f"{facts['loss']:.12g}"),
        ("free energy", f"{facts['free_energy']:.12g}"),
    ]
    if facts["eigenvalue"] is not None:
        above = facts["eigenvalue"] - 1.0
        # a symmetry that the state has broken leaves the eigenvalue 1
        verdict = "neutral" if abs(above) < NEUTRAL else "stable" if above < 0.0 else "unstable"
        rows.append(("eigenvalue of the fixed-point map", f"{facts['eigenvalue']:.8f}, {verdict}"))
    if facts["critical_beta"] is not None:
        rows.append(("critical beta", f"{facts['critical_beta']:.12g}"))
    table(("at rest", ""), rows)
    print()
    cells = [
        (name, f"{value:.12f}", *_beside(value, facts["exact"].get(name))) for name, value in facts["moments"].items()
    ]
    table(("quantity", "computed", "exact", "error"), cells)


def _beside(value: float, known: float | None) -> tuple[str, str]:
    return ("", "") if known is None else (f"{known:.12f}", f"{value - known:.1e}")


def at_rest(
    problem: Problem, critical: tuple[float, float] | None, tolerance: float, threads: int | None
) -> dict[str, Any]:
    """The same as a tree: what `stationary --json` prints."""
    from meanfield_pde.training.stationary import critical_beta, stability, stationary

    found = stationary(problem, tolerance=tolerance, threads=threads)
    assert problem.heads is not None
    assert problem.training is not None
    grid = problem.heads.grid()
    return {
        "reference": problem.reference,
        "beta": problem.training.beta,
        "residual": found.residual,
        "iterations": found.iterations,
        "evaluations": found.evaluations,
        "loss": found.loss,
        "free_energy": found.free_energy,
        "eigenvalue": stability(problem, found, threads=threads) if len(found.rho) == 1 else None,
        "critical_beta": None if critical is None else critical_beta(problem, *critical, threads=threads),
        "moments": {"loss": found.loss, "free_energy": found.free_energy, **head_moments(grid, found.rho)},
        "exact": _exact_values(problem),
    }


def _exact_values(problem: Problem) -> dict[str, float]:
    """The exact values at rest, s = ∞, of a problem that has them."""
    from meanfield_pde import library

    if problem.reference is None:
        return {}
    try:
        exact: Exact | None = library.exact_of(problem)
        values = {} if exact is None else exact.observables(inf)
    except MeanFieldError:
        return {}
    return {name: value for name, value in values.items() if np.isfinite(value)}
