"""Computed beside exact: the observables of a solution, and their errors where the exact values are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.measure import Measure
from meanfield_pde.output.solution import Solution

if TYPE_CHECKING:
    from meanfield_pde.library import Exact


def observables_of(solution: Solution, index: int = -1) -> dict[str, float]:
    """Scalars of a solution at a snapshot, by the names of the exact solutions.

    Meaning: for training and Fokker–Planck at the time s of that snapshot ``loss``, ``free_energy`` (training
    alone), and ``mean_i``, ``covariance_ij`` of rho averaged over layers; at the last snapshot also ``token_mean``
    and ``token_variance`` of the final law of the first sequence. For tokens at that depth ``mean_b0``,
    ``variance_b0``, one pair a sequence. What was not recorded is absent.
    """
    if solution.problem.kind == "tokens":
        out = {}
        for b in range(solution.mu.shape[1]):
            out[f"mean_b{b}"], out[f"variance_b{b}"] = _token_moments(solution, index, b)
        return out
    if not len(solution.snapshots):
        return {}
    index = index % len(solution.snapshots)
    out = _recorded(solution, float(solution.snapshot_s[index]))
    out.update(_head_moments(solution, solution.snapshots[index]))
    if len(solution.mu) and index == len(solution.snapshots) - 1:
        out["token_mean"], out["token_variance"] = _token_moments(solution, -1, 0)
    return out


def comparison(solution: Solution, exact: Exact, index: int = -1) -> list[dict[str, Any]]:
    """Rows {quantity, computed, exact, error} for every quantity that both sides know at a snapshot.

    Meaning: ``error`` is computed − exact; for whole laws (``mu_l1``, ``rho_l1``) computed is the L1 distance, the
    exact value of which is 0.
    """
    tokens = solution.problem.kind == "tokens"
    times = solution.depth_t if tokens else solution.snapshot_s
    if not len(times):
        return []
    at = float(times[index])
    computed, known = observables_of(solution, index), exact.observables(at)
    rows = [(name, computed[name], known[name]) for name in known if name in computed]
    rows += [(name, distance, 0.0) for name, distance in _distances(solution, exact, index, at).items()]
    return [{"quantity": name, "computed": c, "exact": e, "error": c - e} for name, c, e in rows]


def _recorded(solution: Solution, s: float) -> dict[str, float]:
    history = solution.history
    rows = np.flatnonzero(history["s"] == s) if "s" in history else np.empty(0, int)
    if not len(rows):
        return {}
    names = ("loss", "free_energy") if solution.problem.kind == "training" else ("loss",)
    return {name: float(history[name][rows[-1]]) for name in names if name in history}


def _head_moments(solution: Solution, rho: FloatArray) -> dict[str, float]:
    grid = solution.head_grid
    assert grid is not None
    # rho holds samples, so cells have no width here
    law = Measure(grid.points(), rho.mean(axis=0).ravel() * grid.cell_volume, np.zeros(grid.dim))
    mean, covariance = law.mean(), law.covariance()
    out = {f"mean_{i}": float(mean[i]) for i in range(grid.dim)}
    out.update({f"covariance_{i}{j}": float(covariance[i, j]) for i in range(grid.dim) for j in range(i, grid.dim)})
    return out


def _token_moments(solution: Solution, index: int, sequence: int) -> tuple[float, float]:
    grid = solution.token_grid
    assert grid is not None
    law = grid.measure(solution.mu[index, sequence])
    return float(law.mean()[0]), float(law.covariance()[0, 0])


def _distances(solution: Solution, exact: Exact, index: int, at: float) -> dict[str, float]:
    out = {}
    head_grid, token_grid = solution.head_grid, solution.token_grid
    if solution.problem.kind == "tokens":
        mu = exact.mu(at, token_grid) if exact.mu is not None and token_grid is not None else None
        if mu is not None and token_grid is not None:
            out["mu_l1"] = float(token_grid.integral(np.abs(solution.mu[index] - mu)).max())
        return out
    rho = exact.rho(at, head_grid) if exact.rho is not None and head_grid is not None else None
    if rho is not None and head_grid is not None:
        out["rho_l1"] = float(head_grid.integral(np.abs(solution.snapshots[index] - rho)).max())
    return out
