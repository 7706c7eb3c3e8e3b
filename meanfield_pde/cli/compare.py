"""Computed beside exact: the observables of a solution, and their errors where the exact values are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import given

if TYPE_CHECKING:
    from meanfield_pde.library import Exact


MODES = 8  # on a ring: so many of the lowest are compared


def observables_of(solution: Solution, index: int = -1) -> dict[str, float]:
    """Scalars of a solution at a snapshot, by the names of the exact solutions.

    Meaning: for training and Fokker–Planck at the time s of that snapshot ``loss``, ``free_energy`` (training
    alone), and ``mean_i``, ``covariance_ij`` (on rings ``order_i``) of rho averaged over layers; at the last snapshot
    also ``token_mean`` and ``token_variance`` of the final law of the first sequence. For tokens at that depth
    ``mean_b0``, ``variance_b0``, one pair a sequence. In d axes, d > 1, ``mean_b0_k`` and ``covariance_b0_kl``, k <= l,
    and ``token_mean_k``, ``token_covariance_kl``; on one ring of length L instead ``mode1_b0``, .., the modulus of
    ∫ e^{2 pi i k x/L} dmu. What was not recorded is absent.
    """
    if solution.problem.kind == "tokens":
        out = {}
        ring = given(solution.problem.tokens, "tokens").periodic == (True,)
        for b in range(solution.mu.shape[1]):
            if ring:
                out.update({f"mode{k}_b{b}": size for k, size in _token_modes(solution, index, b).items()})
            else:
                out.update(_token_moments(solution, index, b, "", f"_b{b}"))
        return out
    if not len(solution.snapshots):
        return {}
    index = index % len(solution.snapshots)
    out = _recorded(solution, float(solution.snapshot_s[index]))
    out.update(_head_moments(solution, solution.snapshots[index]))
    if (len(solution.mu) or len(solution.points)) and index == len(solution.snapshots) - 1:
        out.update(_token_moments(solution, -1, 0, "token_", ""))
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
    names = ("loss",) if solution.problem.kind == "fokker-planck" else ("loss", "free_energy")
    return {name: float(history[name][rows[-1]]) for name in names if name in history}


def _head_moments(solution: Solution, rho: FloatArray) -> dict[str, float]:
    if solution.heads_are_points:
        law = Measure.particles(rho.reshape(-1, rho.shape[-1]))
        return _moments(law.mean(), law.covariance(), "", "_")
    grid = solution.head_grid
    assert grid is not None
    return head_moments(grid, rho)


def head_moments(grid: Grid, rho: FloatArray) -> dict[str, float]:
    """Moments of rho (layers, *cells) averaged over layers by the names of exact solutions; ``order_k`` on a ring.

    Meaning: ``order_k`` is |∫ e^{i theta_k} drho|, how far the angles of axis k keep together.
    """
    # rho holds samples, so cells have no width here
    law = Measure(grid.points(), rho.mean(axis=0).ravel() * grid.cell_volume, np.zeros(grid.dim))
    out = _moments(law.mean(), law.covariance(), "", "_")
    for axis in np.flatnonzero(grid.periodic).tolist():
        angle = 2.0j * np.pi * law.points[:, axis] / (grid.upper[axis] - grid.lower[axis])
        out[f"order_{axis}"] = float(abs(law.weights @ np.exp(angle)))
    return out


def _token_moments(solution: Solution, index: int, sequence: int, before: str, after: str) -> dict[str, float]:
    """Mean and variance of a token law, by axis when it has several; ``before`` and ``after`` go around the names."""
    grid = solution.token_grid
    assert grid is not None
    points = solution.points
    law = Measure.particles(points[index, sequence]) if len(points) else grid.measure(solution.mu[index, sequence])
    mean, covariance = law.mean(), law.covariance()
    if grid.dim == 1:
        return {f"{before}mean{after}": float(mean[0]), f"{before}variance{after}": float(covariance[0, 0])}
    return _moments(mean, covariance, before, f"{after}_")


def _moments(mean: FloatArray, covariance: FloatArray, before: str, after: str) -> dict[str, float]:
    axes = range(len(mean))
    out = {f"{before}mean{after}{i}": float(mean[i]) for i in axes}
    out.update({f"{before}covariance{after}{i}{j}": float(covariance[i, j]) for i in axes for j in axes[i:]})
    return out


def _token_modes(solution: Solution, index: int, sequence: int) -> dict[int, float]:
    grid = solution.token_grid
    assert grid is not None
    n = grid.cells[0]
    moduli = np.abs(np.fft.rfft(solution.mu[index, sequence])) * grid.cell_volume
    return {k: float(moduli[k] / np.sinc(k / n)) for k in range(1, min(MODES, (n - 1) // 2) + 1)}


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
