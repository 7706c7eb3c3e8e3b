"""The input laws of a problem on its grid: one batch of cell averages with targets and roles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError, MeanFieldError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.law_deposit import AtomSpread
from meanfield_pde.laws import Vector, cell_averages, normalised
from meanfield_pde.problem import Objective, Problem, Sequence, SequenceFile
from meanfield_pde.problem_checks import ROLES, one_of
from meanfield_pde.problem_objective import UNTARGETED, Target, check_sequences, check_target
from meanfield_pde.problem_queries import check_queries
from meanfield_pde.sample_files import finite_table, read_arrays


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """Input laws as cell averages, with what belongs to each.

    Shapes: mu (B, *cells).
    Meaning: ``roles`` are train or held-out; ``names`` say where each came from; ``outside_mass`` is
    the largest mass that any of them has outside the box; ``queries`` and ``query_targets`` are those of each.
    """

    mu: FloatArray
    targets: tuple[Target, ...]
    roles: tuple[str, ...]
    names: tuple[str, ...]
    outside_mass: float
    queries: tuple[tuple[Vector, ...], ...] = ()
    query_targets: tuple[Vector, ...] = ()


def sequence_batch(
    problem: Problem,
    grid: Grid,
    role: str | None = None,
    entries: tuple[Sequence | SequenceFile, ...] | None = None,
) -> SequenceBatch:
    """All sequences of a problem on a grid, or those of one role, in the order of the problem.

    ``entries`` are taken instead of the problem's own when given, and need no targets.
    Raises: MeanFieldError or FileError naming the entry or the file.
    """
    if role is not None:
        one_of(role, ROLES, "role")
    given = problem.sequences if entries is None else entries
    for k, entry in enumerate(given):
        if not isinstance(entry, Sequence | SequenceFile):
            raise MeanFieldError(f"sequences[{k}] = {entry!r} is no sequence: give Sequence(law) or SequenceFile(file)")
    shallow = problem.kind == "shallow"
    check_sequences(given, problem.objective, grid.dim, entries is None, shallow)
    if problem.tokens is not None and not shallow:
        check_queries(given, problem.objective, problem.tokens, problem.attention, with_targets=entries is None)
    parts = []
    for k, entry in enumerate(given):
        if isinstance(entry, SequenceFile):
            parts.append(_from_file(entry, problem, grid, k, role, with_targets=entries is None))
        elif role in (None, entry.role):
            parts.append(_single(entry, problem, grid, k))
    return SequenceBatch(
        np.concatenate([part.mu for part in parts]) if parts else np.empty((0, *grid.cells)),
        sum((part.targets for part in parts), ()),
        sum((part.roles for part in parts), ()),
        sum((part.names for part in parts), ()),
        max((part.outside_mass for part in parts), default=0.0),
        sum((part.queries for part in parts), ()),
        sum((part.query_targets for part in parts), ()),
    )


def _single(entry: Sequence, problem: Problem, grid: Grid, position: int) -> SequenceBatch:
    name = f"sequences[{position}]"
    try:
        density, outside = cell_averages(entry.initial, grid, Path(problem.base))
    except MeanFieldError as error:
        raise type(error)(f"{name}.initial: {error}") from None
    mine = ((entry.target,), (entry.role,), (name,), outside, (entry.queries,), (entry.query_targets,))
    return SequenceBatch(density[None], *mine)


def _from_file(
    entry: SequenceFile, problem: Problem, grid: Grid, position: int, role: str | None, with_targets: bool
) -> SequenceBatch:
    path = Path(problem.base) / entry.file
    if path.suffix != ".npz":
        raise FileError(
            f"{path}: many sequences come as .npz with arrays {entry.points} (n, d), {entry.weights} (N, n) "
            f"and {entry.labels}"
        )
    arrays = read_arrays(path)
    points = finite_table(_named(arrays, entry.points, path), path, entry.points)
    weights = finite_table(_named(arrays, entry.weights, path), path, entry.weights)
    if weights.shape[1] != len(points):
        raise FileError(f"{path}: {entry.weights} {weights.shape} and {entry.points} {points.shape} do not fit: "
                        "give (N, n) and (n, d)")  # fmt: skip
    if points.shape[1] != grid.dim:
        raise FileError(f"{path}: {entry.points} has dimension {points.shape[1]}, but the tokens have {grid.dim}")
    bad = np.flatnonzero((weights.min(axis=1) < 0) | ~(weights.sum(axis=1) > 0))
    if len(bad):
        raise FileError(f"{path}: row {bad[0] + 1} of {entry.weights} must be >= 0 with a positive sum")
    roles = ["train" if i % entry.train_every == 0 else "held-out" for i in range(len(weights))]
    chosen = [i for i in range(len(weights)) if role in (None, roles[i])]
    # new sequences may come without labels
    loss = problem.objective if with_targets or entry.labels in arrays else None
    targets = _targets(arrays, entry, loss, grid.dim, path, len(weights), problem.kind == "shallow")
    spread = AtomSpread(points, grid, entry.bandwidth)
    mu = np.empty((len(chosen), *grid.cells))
    worst = 0.0
    for row, i in enumerate(chosen):
        name = f"sequences[{position}]: {path}, row {i + 1}:"
        mu[row], outside = normalised(spread(weights[i] / weights[i].sum()), grid, name, entry.bandwidth is None)
        worst = max(worst, outside)
    return SequenceBatch(
        mu,
        tuple(targets[i] for i in chosen),
        tuple(roles[i] for i in chosen),
        tuple(f"{entry.file}[{i}]" for i in chosen),
        worst,
        ((),) * len(chosen),
        ((),) * len(chosen),
    )


def _named(arrays: dict[str, Any], name: str, path: Path) -> Any:
    if name not in arrays:
        raise FileError(f"{path} has no array '{name}'; {nearest(name, sorted(arrays))}")
    return arrays[name]


def _targets(
    arrays: dict[str, Any],
    entry: SequenceFile,
    objective: Objective | None,
    dim: int,
    path: Path,
    count: int,
    shallow: bool,
) -> list[Target]:
    if not shallow and (objective is None or objective.kind in UNTARGETED):
        return [None] * count
    labels = np.asarray(_named(arrays, entry.labels, path))
    finite_table(labels, path, entry.labels)
    if len(labels) != count:
        raise FileError(f"{path}: {entry.labels} has {len(labels)} rows, but {entry.weights} has {count}")
    targets: list[Target] = [tuple(float(v) for v in row) if labels.ndim == 2 else row.item() for row in labels]
    for i, target in enumerate(targets):
        check_target(target, objective, dim, f"{path}: {entry.labels}[{i}]", shallow)
    return targets
