"""The heads of a problem at rest, and the beta at which they lose their symmetry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations import stationary as rest
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.sides import TokenSide
from meanfield_pde.problem import Problem
from meanfield_pde.training.assemble import assemble


def stationary(problem: Problem, *, tolerance: float = 1e-10, threads: int | None = None) -> rest.Stationary:
    """The law of heads at rest, rho = Gibbs(psi[rho]), that the free energy descends to from ``heads.initial``.

    Meaning: there may be several; the start decides. ``training.s_end`` and the steps are not looked at.
    Raises: MeanFieldError for tokens alone or beta = 0; NotConvergedError with the residual reached.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, heads, rho = _sides(problem, threads)
        return rest.stationary_state(tokens, heads, rho, tolerance)


def stability(problem: Problem, found: rest.Stationary, *, threads: int | None = None) -> float:
    """The largest eigenvalue of the linearised fixed-point map at a law at rest: below 1 it is stable.

    Raises: MeanFieldError for one law a layer.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, heads, _ = _sides(problem, threads)
        return rest.largest_eigenvalue(tokens, heads, found.rho)


def critical_beta(problem: Problem, lower: float, upper: float, *, threads: int | None = None) -> float:
    """The beta in [lower, upper] at which the state on the branch of the uniform law loses stability (eigenvalue 1).

    Meaning: that branch is the symmetric one where the potential and the box are symmetric.
    Raises: MeanFieldError unless the eigenvalue passes 1 between the two; NotConvergedError.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, heads, rho = _sides(problem, threads)
        flat = np.full_like(rho, 1.0 / (heads.grid.size * heads.grid.cell_volume))

        def at(beta: float) -> tuple[TokenSide, FokkerPlanckHeads, FloatArray]:
            return tokens, replace(heads, beta=beta), flat

        return rest.critical_beta(at, lower, upper)


def _sides(problem: Problem, threads: int | None) -> tuple[TokenSide, FokkerPlanckHeads, FloatArray]:
    if problem.sides:
        raise MeanFieldError("heads at rest are sought for laws on grids: take particles.sides = []")
    ready = assemble(problem, threads)
    if ready.training is None or ready.heads is None or ready.state is None:
        raise MeanFieldError("kind = 'tokens' has heads that do not move, so none come to rest: take another kind")
    return ready.training.tokens, ready.heads, ready.state.rho
