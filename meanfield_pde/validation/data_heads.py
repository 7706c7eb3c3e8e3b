"""The problem with the heads that a trajectory says it was made with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import FileError
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.perceptron import heads_at
from meanfield_pde.particles.alternatives import head_points
from meanfield_pde.problem import Heads, Problem, given
from meanfield_pde.validation.trajectory import Trajectory

# matrices that differ by less, relative to the largest, are the same up to rounding of single precision
SAME = 1e-6


def with_heads_of(problem: Problem, trajectory: Trajectory) -> tuple[Problem, str | None]:
    """The problem with the heads A, W of the data in place of a law of heads, and a note on how they were taken.

    Meaning: where the problem states its heads as points, theirs are kept, and those of the data must be the same
    matrices, in the convention exp⟨A x, y⟩ or in that of scores ⟨x, A y⟩, which the note then says.
    Raises: FileError where they are others.
    """
    A, W = trajectory.A, trajectory.W
    if A is None or W is None or problem.heads is None:
        return problem, None
    if not problem.heads.points:
        points = tuple(tuple(row) for row in head_points(A, W).tolist())
        note = f"the {len(A)} heads are those of the data (A in the convention exp⟨A x, y⟩)"
        return replace(problem, heads=Heads(family="matrix", points=points)), note
    stated = _matrices(problem)
    if stated is None or len(stated[0]) != len(A):
        count = "no matrices" if stated is None else f"{len(stated[0])} heads"
        raise FileError(f"{trajectory.source} has {len(A)} heads A, W, but the problem states {count}: correct one")
    gaps = [_gap(stated, turned, W) for turned in (A, A.transpose(0, 2, 1))]
    if gaps[0] <= SAME:
        return problem, None
    if gaps[1] <= SAME:
        return problem, "A of the data is that of scores ⟨x, A y⟩: its transpose is the problem's"
    raise FileError(
        f"{trajectory.source} [A, W] are not the heads that the problem states: they differ by {min(gaps):.1e} of the "
        "largest entry, in either convention: correct heads.points, or leave A and W out of the data"
    )


def _matrices(problem: Problem) -> tuple[FloatArray, FloatArray] | None:
    heads, grid = given(problem.heads, "heads"), given(problem.tokens, "tokens").grid()
    dim = 2 if grid.dim == 1 and grid.periodic[0] else grid.dim
    made = heads_at("scalar" if heads.family is None else heads.family, np.array(heads.points, dtype=float), dim)
    return (made.scores[made.index], made.values) if isinstance(made, HeadMatrices) else None


def _gap(stated: tuple[FloatArray, FloatArray], A: FloatArray, W: FloatArray) -> float:
    """The largest difference, relative to the largest entry; inf where shapes differ."""
    if stated[0].shape != A.shape or stated[1].shape != W.shape:
        return np.inf
    pairs = ((stated[0], A), (stated[1], W))
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), np.finfo(float).tiny)) for a, b in pairs)
