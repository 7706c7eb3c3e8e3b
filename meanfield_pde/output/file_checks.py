"""Whether what a file holds fits its own problem: a file with a right seal may still come from another hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.output.record import Record
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem
from meanfield_pde.problem_sections import given
from meanfield_pde.training.state import TrainingState

# far above what any run errs by, far below what another hand would put there
MASS = 1e-3


def law_shape(problem: Problem) -> tuple[int, ...]:
    """The shape of rho in a problem with training, (layers, *cells), or (layers, H, q) where heads are points."""
    layers = 1 if problem.depth is None or problem.depth.shared else problem.depth.layers
    cells = given(problem.heads, "heads").cells
    if "heads" in problem.sides:
        return (layers, given(given(problem.particles, "particles").heads, "particles.heads"), len(cells))
    return (layers, *cells)


def _heads(path: Path, name: str, values: Any, problem: Problem) -> None:
    """Refuse laws of heads of another mass than 1, and heads that are not finite."""
    if "heads" not in problem.sides:
        grid = given(problem.heads, "heads").grid()
        _laws(path, name, values, grid.cells, grid.cell_volume)
    elif not np.isfinite(values).all():
        _refuse(path, name, "not finite somewhere", "finite")


def _refuse(path: Path, name: str, found: Any, wanted: object) -> None:
    raise FileError(f"{path} does not fit its own problem: {name} is {found}, not {wanted}; run the problem anew")


def _numbers(path: Path, name: str, values: Any, shape: tuple[int, ...]) -> None:
    """Refuse what is not an array of doubles of that shape."""
    kind, found = getattr(values, "dtype", type(values)), np.shape(values)
    if kind != np.float64 or found != shape:
        _refuse(path, name, f"{kind} of shape {found}", f"float64 of shape {shape}")


def _laws(path: Path, name: str, values: Any, cells: tuple[int, ...], volume: float) -> None:
    """Refuse densities (..., *cells) that are not finite or have another mass than 1."""
    axes = tuple(range(np.ndim(values) - len(cells), np.ndim(values)))
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(np.sum(values, axis=axes) * volume - 1.0)
    if not (error <= MASS).all():
        worst = "not finite" if not np.isfinite(error).all() else f"of a mass {error.max():g} off"
        _refuse(path, name, worst, "of mass 1")


def check_state(path: Path, state: TrainingState, problem: Problem) -> None:
    """Refuse a state of another shape than the problem's, or with counters that no run has. Raises: FileError."""
    if problem.training is None:
        _refuse(path, "the training state", "there", "in a problem without training")
    _numbers(path, "rho", state.rho, law_shape(problem))
    _heads(path, "rho", state.rho, problem)
    for name, kind in (("s", float), ("ds", float), ("step", int), ("rejected", int)):
        value = getattr(state, name)
        if type(value) is not kind or not 0 <= value < np.inf:
            _refuse(path, name, value, f"a finite {kind.__name__} of at least 0")
    for name in ("energy_rise", "step_error", "limited"):
        if type(getattr(state, name)) is not float:
            _refuse(path, name, getattr(state, name), "a float")


def check_record(path: Path, record: Record) -> None:
    """Refuse series of different lengths, times that do not increase, and snapshots that are not one a time.

    Raises: FileError.
    """
    rows = len(np.atleast_1d(next(iter(record.history.values()), np.empty(0))))
    for name, series in record.history.items():
        _numbers(path, f"history/{name}", series, (rows,))
    times = record.snapshot_s
    _numbers(path, "heads/s", times, (np.size(times),))
    for name, series in (("history/s", record.history.get("s", np.empty(0))), ("heads/s", times)):
        if not (np.isfinite(series).all() and (np.diff(series) > 0).all()):
            _refuse(path, name, "out of order", "finite and increasing")
    if len(times) or np.size(record.snapshots):
        _numbers(path, "heads/rho", record.snapshots, (len(times), *np.shape(record.snapshots)[1:]))


def check_solution(path: Path, solution: Solution) -> None:
    """Refuse a result whose arrays do not fit its problem or each other. Raises: FileError."""
    problem = solution.problem
    if solution.state is not None:
        check_state(path, solution.state, problem)
    check_record(path, Record(dict(solution.history), solution.snapshot_s, solution.snapshots))
    if problem.training is not None and np.size(solution.snapshots):
        _numbers(path, "heads/rho", solution.snapshots, (len(solution.snapshot_s), *law_shape(problem)))
        _heads(path, "heads/rho", solution.snapshots, problem)
    cells = () if problem.tokens is None else problem.tokens.cells
    laws: Mapping[str, tuple[Any, Any]] = {
        "mu": (solution.depth_t, solution.mu),
        "p": (solution.costate_t, solution.p),
    }
    for name, (times, values) in laws.items():
        _numbers(path, f"the depths of {name}", times, (np.size(times),))
        if np.size(values):
            _numbers(path, name, values, (len(times), len(solution.names), *cells))
            if not np.isfinite(values).all():
                _refuse(path, name, "not finite somewhere", "finite")
    if problem.tokens is not None and np.size(solution.mu):
        _laws(path, "mu", solution.mu, cells, problem.tokens.grid().cell_volume)
    if np.size(solution.points):
        if "tokens" not in problem.sides:
            _refuse(path, "tokens/points", "there", "in a problem whose tokens are a law")
        count = given(given(problem.particles, "particles").tokens, "particles.tokens")
        wanted = (len(solution.depth_t), len(solution.names), count, len(cells))
        _numbers(path, "tokens/points", solution.points, wanted)
        if not np.isfinite(solution.points).all():
            _refuse(path, "tokens/points", "not finite somewhere", "finite")
    if np.size(solution.queries) and np.ndim(solution.queries) != 4:
        _refuse(path, "queries/x", f"of {np.ndim(solution.queries)} axes", "of 4")
