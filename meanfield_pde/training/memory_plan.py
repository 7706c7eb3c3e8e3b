"""What a run holds in memory at most, part by part, known before its first step, and refused when it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from meanfield_pde.equations.depth_control import ErrorSteps
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.path_budget import stages_fit
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import kernel_bytes
from meanfield_pde.model.heads import HeadMatrices

# bytes that a run may take unless said
MEMORY = 4e9
UNITS = ("bytes", "kB", "MB", "GB", "TB")


class Part(NamedTuple):
    """One part of the plan: what it is, and its bytes at most."""

    name: str
    bytes: float


def head_parts(grid: Grid, layers: int, snapshots: int) -> tuple[Part, ...]:
    """The law of the heads: what a step of order 2 holds at once, the snapshots, and a file being made of them."""
    law = 8.0 * layers * grid.size
    # rho after each axis three times, two rates a face, and a dozen fields more
    fields = 5 * grid.dim + 15
    return Part("law of the heads", law * fields), Part("snapshots and their files", 3.0 * law * (snapshots + 1))


def token_parts(grid: Grid, sequences: int, layers: int, times: int) -> tuple[Part, ...]:
    """mu and p at the layer edges and at the times asked for."""
    return (Part("laws of the tokens", 8.0 * sequences * grid.size * (2.0 * (layers + 1) + 2.0 * times + 8.0)),)


def attention_parts(tokens: GridTokens) -> tuple[Part, ...]:
    """Tables, matrices and kernels of all fields of the token side."""
    plan, heads = tokens.tables.plan, tokens.heads
    scores = len(heads.scores) if isinstance(heads, HeadMatrices) else 0
    direct = plan.way in ("direct", "separable")
    kernels = kernel_bytes(tokens.attention, tokens.lattice, tokens.field_targets, scores) if direct else 0.0
    return tuple(
        part for part in (Part("tables and M", plan.bytes), Part("kernels of attention", kernels)) if part.bytes
    )


def path_part(tokens: GridTokens, rho: tuple[Measure, ...]) -> Part:
    """The path of mu in depth under heads rho: its stages if they fit the budget of the token side, else its steps.

    Raises: MeanFieldError when not even the steps fit.
    """
    size = tokens.first_size(rho, tokens.mu0)[1] if tokens.tables.sizes else None
    path = tokens.path_bytes(rho, len(tokens.mu0), size)
    if isinstance(tokens.transport.control, ErrorSteps):
        # two halves of a step of the Courant number, or what is left: beyond that the path is refused while it grows
        return Part("path of mu, whose steps are not known before", min(2.0 * path.stages, tokens.budget))
    if stages_fit(path, tokens.budget):
        return Part("path of mu with its stages", path.stages)
    return Part("path of mu, its stages made again", path.starts)


def total(parts: Sequence[Part]) -> float:
    """Bytes of all parts."""
    return sum(part.bytes for part in parts)


def check_memory(parts: Sequence[Part], memory: float) -> None:
    """Refuse a plan beyond ``memory`` bytes. Raises: MeanFieldError with the plan."""
    if total(parts) > memory:
        raise MeanFieldError(
            f"this needs {spelled(total(parts))} of memory, over the budget of {spelled(memory)}: "
            f"{in_words(parts)}; take fewer cells, layers, sequences or snapshots, or give more with --memory"
        )


def in_words(parts: Sequence[Part]) -> str:
    """The parts, the largest first."""
    ordered = sorted(parts, key=lambda part: -part.bytes)
    return ", ".join(f"{part.name} {spelled(part.bytes)}" for part in ordered)


def spelled(size: float) -> str:
    """Bytes in words: 512 bytes, 3.2 MB."""
    power = 0
    while size >= 999.5 and power < len(UNITS) - 1:
        size, power = size / 1000.0, power + 1
    return f"{size:.3g} {UNITS[power]}"
