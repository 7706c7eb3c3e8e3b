"""From a problem to the two sides, the initial state and the loop that joins them."""

from __future__ import annotations

import numpy as np

from meanfield_pde.equations.given_potential import given_potential
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.model.sides import TokenSide
from meanfield_pde.problem import Problem, Sequence, TwoGaussians, given
from meanfield_pde.sequences import sequence_batch
from meanfield_pde.training.assemble_particles import assemble_particles
from meanfield_pde.training.assembled import Assembled, fitted, training_of
from meanfield_pde.training.grid_side import density_of, fixed_heads, grid_tokens
from meanfield_pde.training.memory_plan import (
    MEMORY,
    Part,
    check_memory,
    head_parts,
    token_parts,
    total,
)
from meanfield_pde.training.shallow import shallow_model
from meanfield_pde.training.state import TrainingState


def assemble(problem: Problem, threads: int | None = None, memory: float = MEMORY) -> Assembled:
    """Make a problem ready to run in at most ``memory`` bytes; `Assembled.memory` is the plan.

    Raises: MeanFieldError for laws that do not fit their box, unstable schemes, or a plan over the memory.
    """
    if problem.kind in ("fokker-planck", "shallow"):
        return _heads_alone(problem, memory)
    if problem.sides:
        return assemble_particles(problem, threads, memory)
    grid = given(problem.tokens, "tokens").grid()
    depth = given(problem.depth, "depth")
    kept = problem.output.snapshots + len(problem.output.times)
    singles = sum(isinstance(entry, Sequence) for entry in problem.sequences)
    times = kept if problem.kind == "tokens" else 0
    check_memory(token_parts(grid, singles, depth.layers, times), memory)
    if problem.kind == "tokens":
        batch = sequence_batch(problem, grid, "train")
        parts = token_parts(grid, len(batch.mu), depth.layers, times)
        fixed = fixed_heads(problem)
        tokens, parts = fitted(grid_tokens(problem, batch, fixed[0].points, threads), fixed, parts, memory)
        return Assembled(problem, token_grid=grid, batch=batch, tokens=tokens, fixed_heads=fixed, memory=parts,
                         names=batch.names)  # fmt: skip
    head_grid = given(problem.heads, "heads").grid()
    training = given(problem.training, "training")
    lengths = depth.lengths()
    parts = head_parts(head_grid, len(lengths), kept)
    check_memory(parts, memory)
    batch = sequence_batch(problem, grid, "train")
    parts += token_parts(grid, len(batch.mu), depth.layers, 0)
    heads = FokkerPlanckHeads(head_grid, training.beta, training.weight_decay, lengths, user=training.flow)
    rho = np.repeat(density_of(given(problem.heads, "heads"))[None], len(lengths), axis=0)
    # one array of points for both sides, so that the distinct scores are found once
    tokens, parts = fitted(
        grid_tokens(problem, batch, heads.points, threads), heads.measure(rho), parts, memory
    )
    return Assembled(
        problem,
        token_grid=grid,
        head_grid=head_grid,
        batch=batch,
        tokens=tokens,
        heads=heads,
        training=training_of(problem, tokens, heads),
        state=TrainingState(0.0, 0, training.ds, rho),
        memory=parts,
        names=batch.names,
    )


def _heads_alone(problem: Problem, memory: float) -> Assembled:
    """Heads in a given potential, or in one layer without transport."""
    grid = given(problem.heads, "heads").grid()
    keys = given(problem.training, "training")
    parts = head_parts(grid, 1, problem.output.snapshots + len(problem.output.times))
    check_memory(parts, memory)
    radial = problem.data.dimension if isinstance(problem.data, TwoGaussians) else 1
    heads = FokkerPlanckHeads(grid, keys.beta, keys.weight_decay, radial=radial, user=keys.flow)
    rho = density_of(given(problem.heads, "heads"))[None]
    batch, tokens = None, None
    side: TokenSide
    if problem.kind == "shallow":
        tokens = None if problem.tokens is None else problem.tokens.grid()
        batch = None if tokens is None else sequence_batch(problem, tokens, "train")
        side = shallow_model(problem, heads.points, batch, memory - total(parts))
        parts += (Part("kernel of rows and heads", side.kernel.nbytes),)
    else:
        side = given_potential(given(problem.potential, "potential"), grid, heads.points)
    return Assembled(
        problem,
        token_grid=tokens,
        head_grid=grid,
        batch=batch,
        heads=heads,
        training=training_of(problem, side, heads),
        state=TrainingState(0.0, 0, keys.ds, rho),
        memory=parts,
        names=() if batch is None else batch.names,
    )

