"""The corners of the square with particles: N tokens instead of (mu, p), H heads instead of rho, or both."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.model.sides import HeadSide, TokenSide
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.particles.of_training import first_heads, head_side, token_side, trained
from meanfield_pde.particles.point_gradients import PointGradients, with_stencil
from meanfield_pde.problem import Problem, given
from meanfield_pde.sequences import sequence_batch
from meanfield_pde.training.assembled import Assembled, fitted, training_of
from meanfield_pde.training.grid_side import density_of, grid_tokens
from meanfield_pde.training.memory_plan import Part, check_memory, head_parts, token_parts
from meanfield_pde.training.state import TrainingState


def assemble_particles(problem: Problem, threads: int | None, memory: float) -> Assembled:
    """A training problem with particles on the sides that it says, ready to run in at most ``memory`` bytes.

    Raises: MeanFieldError for laws that cannot be drawn from as asked, or a plan over the memory.
    """
    training, heads = given(problem.training, "training"), given(problem.heads, "heads")
    lengths, head_grid = given(problem.depth, "depth").lengths(), heads.grid()
    parts = _head_parts(problem, len(lengths))
    check_memory(parts + _token_parts(problem, len(trained(problem))), memory)
    own: HeadSide
    of_grid: FokkerPlanckHeads | None = None
    rho: FloatArray
    if "heads" in problem.sides:
        own, rho = head_side(problem), first_heads(problem)
    else:
        own = of_grid = FokkerPlanckHeads(head_grid, training.beta, training.weight_decay, lengths, user=training.flow)
        rho = np.repeat(density_of(heads)[None], len(lengths), axis=0)
    state = TrainingState(0.0, 0, training.ds, rho)
    if "tokens" in problem.sides:
        side = token_side(problem)
        parts += _token_parts(problem, len(side.start))
        names = tuple(f"sequences[{k}]" for k, _ in trained(problem))
        return Assembled(problem, head_grid=head_grid, particles=side, heads=of_grid, state=state, memory=parts,
                         training=training_of(problem, side, own), names=names)  # fmt: skip
    grid = given(problem.tokens, "tokens").grid()
    batch = sequence_batch(problem, grid, "train")
    parts += _token_parts(problem, len(batch.mu))
    laws = tuple(with_stencil(law) for law in own.measure(rho))
    tokens, parts = fitted(grid_tokens(problem, batch, laws[0].points, threads), laws, parts, memory)
    joined: TokenSide = PointGradients(tokens)
    return Assembled(problem, token_grid=grid, head_grid=head_grid, batch=batch, tokens=tokens, state=state,
                     memory=parts, training=training_of(problem, joined, own), names=batch.names)  # fmt: skip


def _head_parts(problem: Problem, layers: int) -> tuple[Part, ...]:
    grid, kept = given(problem.heads, "heads").grid(), problem.output.snapshots + len(problem.output.times)
    if "heads" not in problem.sides:
        return head_parts(grid, layers, kept)
    points = 8.0 * layers * grid.dim * given(given(problem.particles, "particles").heads, "particles.heads")
    # on a grid of tokens each head has 6 q points beside it, and a matrix or two for each
    held = Part("heads and their gradients", points * (20.0 + 24.0 * grid.dim))
    return held, Part("snapshots and their files", 3.0 * points * (kept + 1))


def _token_parts(problem: Problem, sequences: int) -> tuple[Part, ...]:
    """What the tokens of so many sequences take; how many a file holds is known once it is read."""
    grid, depth = given(problem.tokens, "tokens").grid(), given(problem.depth, "depth")
    if "tokens" not in problem.sides:
        return token_parts(grid, sequences, depth.layers, 0)
    particles = given(problem.particles, "particles")
    tokens = 8.0 * sequences * grid.dim * given(particles.tokens, "particles.tokens")
    layers, stages = particles.layers_in(depth), len(METHODS[particles.integrator or "euler"].b)
    # a node, and each stage with its velocity, once more when gathered
    return (Part("paths of the tokens", tokens * (layers * (2.0 + 2.0 * stages) + 16.0)),)
