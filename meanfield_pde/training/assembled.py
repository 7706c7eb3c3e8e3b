"""A problem made ready to run, and the steps that all ways of making it share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import HeadSide, TokenSide
from meanfield_pde.particles.token_side import ParticleTokenSide
from meanfield_pde.problem import Problem, given
from meanfield_pde.sequences import SequenceBatch
from meanfield_pde.splitting import head_splitting
from meanfield_pde.training.memory_plan import Part, attention_parts, check_memory, path_part, total
from meanfield_pde.training.scheduler import Training
from meanfield_pde.training.state import TrainingState
from meanfield_pde.training.stepsize import Control, ErrorControl, Fixed


@dataclass(frozen=True, slots=True)
class Assembled:
    """A problem made ready to run; what its kind does not have is None.

    Meaning: ``tokens`` with the ``batch`` of training sequences on ``token_grid``, or N ``particles`` of each;
    ``heads`` on ``head_grid``, or the fixed measures ``fixed_heads`` of a problem of tokens alone; ``training``, whose
    sides are those of its corner, and its first ``state``; ``names`` say where each training sequence came from.
    """

    problem: Problem
    token_grid: Grid | None = None
    head_grid: Grid | None = None
    batch: SequenceBatch | None = None
    tokens: GridTokens | None = None
    particles: ParticleTokenSide | None = None
    heads: FokkerPlanckHeads | None = None
    fixed_heads: tuple[Measure, ...] | None = None
    training: Training | None = None
    state: TrainingState | None = None
    memory: tuple[Part, ...] = ()
    names: tuple[str, ...] = ()


def fitted(
    tokens: GridTokens, rho: tuple[Measure, ...], parts: tuple[Part, ...], memory: float
) -> tuple[GridTokens, tuple[Part, ...]]:
    """The token side with what is left of the memory for its path, and the whole plan."""
    parts += attention_parts(tokens)
    check_memory(parts, memory)
    tokens = replace(tokens, budget=memory - total(parts))
    return tokens, (*parts, path_part(tokens, rho))


def training_of(problem: Problem, tokens: TokenSide, heads: HeadSide) -> Training:
    """The loop that joins two sides as [training] says."""
    keys = given(problem.training, "training")
    fixed, falling = keys.control == "fixed", keys.control == "energy"
    control: Control = Fixed(keys.ds) if fixed else ErrorControl(keys.ds, keys.tolerance, falling)
    return Training(tokens, heads, head_splitting(keys.splitting, keys.flow is not None), keys.order, control)
