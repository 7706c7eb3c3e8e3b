"""The problem with the heads that a trajectory says it was made with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.perceptron import heads_at
from meanfield_pde.particles.alternatives import head_points
from meanfield_pde.problem import Heads, Problem, given
from meanfield_pde.validation.trajectory import Trajectory

# matrices that differ by less, relative to the largest, are the same up to rounding of single precision
SAME = 1e-6


def with_heads_of(problem: Problem, data: Trajectory) -> tuple[Problem, str | None]:
    """The problem with the heads A, W of the data, and a note on how they were taken where there is anything to say.

    Meaning: they act as exp⟨A x, y⟩, unless the problem states its heads as points and these are the transposes of A:
    then scores of the data are ⟨x, A y⟩. Heads of the data that are not those stated take their place.
    """
    A, W = data.A, data.W
    if A is None or W is None or problem.heads is None:
        return problem, None
    stated = _matrices(problem) if problem.heads.points else None
    if stated is not None and _same(stated, (A, W)):
        return problem, None
    if stated is not None and _same(stated, (A.transpose(0, 2, 1), W)):
        return problem, "heads of the problem, which are those of the data with scores ⟨x, A y⟩"
    points = tuple(tuple(row) for row in head_points(A, W).tolist())
    note = f"the {len(A)} heads of the data, in the convention exp⟨A x, y⟩"
    if problem.heads.points:
        note += ": they are not those that the problem states"
    return replace(problem, heads=Heads(family="matrix", points=points)), note


def _matrices(problem: Problem) -> tuple[FloatArray, FloatArray] | None:
    heads, grid = given(problem.heads, "heads"), given(problem.tokens, "tokens").grid()
    dim = 2 if grid.dim == 1 and grid.periodic[0] else grid.dim
    made = heads_at("scalar" if heads.family is None else heads.family, np.array(heads.points, dtype=float), dim)
    return (made.scores[made.index], made.values) if isinstance(made, HeadMatrices) else None


def _same(stated: tuple[FloatArray, FloatArray], given_here: tuple[FloatArray, FloatArray]) -> bool:
    return all(
        a.shape == b.shape and float(np.abs(a - b).max()) <= SAME * float(np.abs(a).max())
        for a, b in zip(stated, given_here, strict=True)
    )
