"""The sides of a training problem that are particles: N tokens a sequence, H heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.particles.backpropagation import Layers
from meanfield_pde.particles.final_loss import FinalLoss
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.particles.langevin import LangevinHeads
from meanfield_pde.particles.of_problem import HEADS, TOKENS
from meanfield_pde.particles.sampling import sample
from meanfield_pde.particles.token_side import ParticleTokenSide
from meanfield_pde.problem import Problem, Sequence, given
from meanfield_pde.problem_objective import UNTARGETED


def trained(problem: Problem) -> list[tuple[int, Sequence]]:
    """The training sequences with their numbers."""
    return [(k, one) for k, one in enumerate(problem.sequences) if isinstance(one, Sequence) and one.role == "train"]


def token_side(problem: Problem) -> ParticleTokenSide:
    """N tokens of every training sequence, drawn as `particles` says, with the loss of the problem.

    Meaning: each sequence has a stream of its own, so that it keeps its tokens when others come or go. Layers are
    those of [particles], or of [depth] where it has none; the integrator is Euler's unless one is declared.
    Raises: MeanFieldError for laws that cannot be drawn from as asked.
    """
    particles, depth = given(problem.particles, "particles"), given(problem.depth, "depth")
    tokens, objective = given(problem.tokens, "tokens"), given(problem.objective, "objective")
    grid, base, sequences = tokens.grid(), Path(problem.base), trained(problem)
    family = given(problem.heads, "heads").family
    if family is None:
        raise MeanFieldError("heads.family is missing: say how a head acts")
    count = given(particles.tokens, "particles.tokens")
    drawn = []
    for k, one in sequences:
        try:
            drawn.append(sample(one.initial, count, grid, particles.sampling, (problem.seed, TOKENS, k), base))
        except MeanFieldError as error:
            raise type(error)(f"sequences[{k}].initial: {error}") from None
    wanted = objective.kind not in UNTARGETED
    targets = np.array([one.target for _, one in sequences], dtype=float) if wanted else None
    constant = np.array(tokens.drift.constant or (0.0,) * grid.dim, dtype=float)
    method = METHODS[particles.integrator or "euler"]
    layers = Layers(depth.T, particles.layers_in(depth), method, constant, tokens.drift.leak)
    return ParticleTokenSide(
        family,
        np.stack([one.points for one in drawn]),
        np.stack([one.weights for one in drawn]),
        layers,
        FinalLoss(objective, targets),
        depth.lengths(),
        "heads" in particles.sides,
    )


def head_side(problem: Problem) -> LangevinHeads:
    """Heads that move by noisy gradient descent as the problem's [training] says."""
    training, box = given(problem.training, "training"), given(problem.heads, "heads").grid()
    lengths = given(problem.depth, "depth").lengths()
    return LangevinHeads(box, training.beta, training.weight_decay, lengths, problem.seed)


def first_heads(problem: Problem) -> FloatArray:
    """H heads a layer drawn from the initial law, (layers, H, q); layers are drawn apart."""
    heads, particles = given(problem.heads, "heads"), given(problem.particles, "particles")
    count, way, base = given(particles.heads, "particles.heads"), particles.head_sampling, Path(problem.base)
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law that the heads are drawn from")
    layers = len(given(problem.depth, "depth").lengths())
    box, seeds = heads.grid(), [(problem.seed, HEADS, layer) for layer in range(layers)]
    return np.stack([sample(heads.initial, count, box, way, seed, base).points for seed in seeds])
