"""A problem: what is solved, validated in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem_checks import (
    KINDS,
    check_acts,
    check_attention,
    check_heads,
    check_output,
    check_sections,
    check_tokens,
    check_training,
    integer,
    one_of,
)
from meanfield_pde.problem_depth import check_depth, check_followed
from meanfield_pde.problem_drift import check_drift
from meanfield_pde.problem_objective import check_objective, check_potential, check_rings, check_sequences
from meanfield_pde.problem_particles import check_head_side, check_particles, check_token_side
from meanfield_pde.problem_queries import check_queries
from meanfield_pde.problem_sections import (
    DataFile,
    Depth,
    Drift,
    Feature,
    Heads,
    Objective,
    Output,
    Particles,
    Potential,
    QueryTerm,
    Sequence,
    SequenceFile,
    Shallow,
    Tokens,
    Training,
    TwoGaussians,
    given,
)
from meanfield_pde.problem_shallow import check_shallow

__all__ = [
    "DataFile",
    "Depth",
    "Drift",
    "Feature",
    "Heads",
    "Objective",
    "Output",
    "Particles",
    "Potential",
    "Problem",
    "QueryTerm",
    "Sequence",
    "SequenceFile",
    "Shallow",
    "Tokens",
    "Training",
    "TwoGaussians",
    "given",
    "validate",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Tokens only, Fokker-Planck only, a shallow model, or the training of heads by tokens carried through depth.

    Meaning: ``reference`` names the library problem whose exact solution holds for a problem of this
    form. ``base`` is the folder that sample files are relative to; it is no part of the TOML file.
    Raises: MeanFieldError naming the key, what was given, what is allowed and the remedy.
    """

    kind: str
    title: str = ""
    reference: str | None = None
    attention: str | None = None
    window: float | None = None
    seed: int = 0
    tokens: Tokens | None = None
    heads: Heads | None = None
    depth: Depth | None = None
    sequences: tuple[Sequence | SequenceFile, ...] = ()
    objective: Objective | None = None
    potential: Potential | None = None
    shallow: Shallow | None = None
    data: DataFile | TwoGaussians | None = None
    training: Training | None = None
    particles: Particles | None = None
    output: Output = field(default_factory=Output)
    base: str = field(default=".", compare=False, metadata={"toml": False})

    def __post_init__(self) -> None:
        validate(self)

    @property
    def sides(self) -> tuple[str, ...]:
        """What a run takes as particles: tokens, heads, both or neither."""
        return () if self.particles is None else self.particles.sides


def validate(problem: Problem) -> None:
    """Refuse a problem that cannot be solved as it says.

    Raises: MeanFieldError naming the key, what was given, what is allowed and the remedy.
    """
    one_of(problem.kind, KINDS, "kind")
    integer(problem.seed, "seed", 0)
    check_attention(problem.attention, problem.window)
    present = {name for name in ("attention", "tokens", "heads", "depth", "objective", "potential", "shallow", "data",
                                "training", "particles")
             if getattr(problem, name) is not None}  # fmt: skip
    if problem.sequences:
        present.add("sequences")
    check_sections(problem.kind, present)
    if problem.tokens is not None:
        check_tokens(problem.tokens, problem.attention)
        check_drift(problem.tokens.drift, problem.tokens.periodic or (False,) * len(problem.tokens.cells))
    if problem.heads is not None:
        check_heads(problem.heads, problem.kind, problem.tokens)
        check_acts(problem.heads.family, problem.attention, problem.kind)
    if problem.depth is not None:
        check_depth(problem.depth)
    if problem.training is not None:
        check_training(problem.training)
    if problem.particles is not None:
        check_particles(problem.particles, problem.tokens, problem.heads, problem.depth)
    if problem.tokens is not None:
        dim = len(problem.tokens.cells)
        if problem.objective is not None:
            check_objective(problem.objective, dim)
            check_rings(problem.objective, problem.tokens)
        check_sequences(problem.sequences, problem.objective, dim, shallow=problem.kind == "shallow")
        check_queries(problem.sequences, problem.objective, problem.tokens, problem.attention)
        queried = any(getattr(entry, "queries", ()) for entry in problem.sequences)
        check_followed(problem.depth, "[objective]" if problem.objective else "sequences.queries" if queried else None)
    if problem.kind == "shallow":
        check_shallow(
            problem.attention, problem.tokens, problem.sequences, problem.heads, problem.shallow, problem.data
        )
    _check_sides(problem)
    if problem.potential is not None and problem.heads is not None:
        check_potential(problem.potential, problem.heads.grid())
    end = problem.training.s_end if problem.training is not None else problem.depth.T if problem.depth else 0.0
    check_output(problem.output, end, "training.s_end" if problem.training is not None else "depth.T")


def _check_sides(problem: Problem) -> None:
    """Refuse particles in place of laws where a run cannot take them."""
    particles = problem.particles
    if particles is None or not particles.sides:
        return
    if problem.kind != "training":
        raise MeanFieldError(
            f"particles.sides = {list(particles.sides)} is for kind = 'training', not '{problem.kind}': leave it out"
        )
    tokens, depth, objective = (given(getattr(problem, name), name) for name in ("tokens", "depth", "objective"))
    if "tokens" in particles.sides:
        check_token_side(particles, problem.attention, tokens, depth, objective, problem.sequences)
    if "heads" in particles.sides:
        check_head_side(given(problem.training, "training"), given(problem.heads, "heads"), problem.seed)
