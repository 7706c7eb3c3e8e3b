"""A network's blocks of attention run on tokens drawn from a problem, layer by layer, whatever library they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.particles.of_problem import initial_tokens
from meanfield_pde.particles.sampling import wrapped
from meanfield_pde.particles.tokens import edges_at
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.reading import from_arrays
from meanfield_pde.validation.trajectory import Trajectory

Block = Callable[[Any], Any]
# a block is tried on so few tokens first, and may differ by so many times its precision
TRIED, ROUNDING = 64, 1e3


class Bridge(Protocol):
    """Between arrays (N, d) and the tensors (1, N, d) of a library, whose numbers have a relative ``precision``."""

    @property
    def precision(self) -> float:
        """The distance from 1 to the next number."""
        ...

    def tensor(self, points: FloatArray) -> Any:
        """Points as a batch of one sequence."""
        ...

    def array(self, tensor: Any) -> FloatArray:
        """The points of the one sequence, in double precision."""
        ...


@dataclass(frozen=True, slots=True)
class Stack:
    """Blocks applied one after the other, from depth 0 to T in equal steps.

    Meaning: each is x ↦ block(x) with its own residual inside, or where ``residual`` is set a velocity,
    x ↦ x + (T/L) block(x).
    """

    blocks: tuple[Block, ...]
    residual: bool

    @property
    def layers(self) -> int:
        """Their number L."""
        return len(self.blocks)


def stack_of(blocks: Block | Iterable[Block], layers: int | None, residual: bool) -> Stack:
    """One block repeated ``layers`` times, or a list of blocks as it is.

    Raises: MeanFieldError for an empty list, what cannot be called, and where ``layers`` is missing or too much.
    """
    if isinstance(blocks, Iterable):
        if layers is not None:
            raise MeanFieldError(f"layers = {layers}, but a list of blocks has a length of its own: leave it out")
        listed = tuple(blocks)
    else:
        if layers is None or isinstance(layers, bool) or layers < 1:
            raise MeanFieldError(
                f"layers = {layers}: say how often the one module is applied, at least once; of a module that is a "
                "whole stack give the list of its blocks instead, such as model.layers"
            )
        listed = (blocks,) * layers
    if not listed:
        raise MeanFieldError("the list of blocks is empty: give at least one")
    for k, block in enumerate(listed):
        if not callable(block):
            raise MeanFieldError(f"block {k} is of type {type(block).__name__}, which cannot be called on tokens")
    return Stack(listed, residual)


def run_stack(
    stack: Stack,
    bridge: Bridge,
    problem: Problem,
    count: int,
    *,
    runs: int = 1,
    seed: int | None = None,
    sampling: str = "iid",
    sequence: int = 0,
    times: tuple[float, ...] | None = None,
) -> Trajectory:
    """``count`` tokens drawn from the first law of a sequence and carried by a stack, as `torch_adapter.record` says.

    Raises: MeanFieldError for blocks that change the shape, differ from call to call, or look at the places of tokens.
    """
    depth = given(problem.depth, "depth")
    grid = given(problem.tokens, "tokens").grid()
    if isinstance(runs, bool) or runs < 1:
        raise MeanFieldError(f"runs = {runs}: at least one is needed")
    T, layers = depth.T, stack.layers
    wanted = _usual_times(problem, T, layers) if times is None else times
    edges = edges_at(wanted, T, layers)
    first = problem.seed if seed is None else seed
    starts = [initial_tokens(problem, count, seed=first + k, sampling=sampling, sequence=sequence) for k in range(runs)]
    circle = grid.dim == 1 and grid.periodic[0]
    points = np.stack(
        [_carried(stack, bridge, one.points, T / layers, edges, circle, run == 0) for run, one in enumerate(starts)]
    )
    arrays = {"angles": points[..., 0]} if circle else {"tokens": wrapped(points, grid)}
    return from_arrays({**arrays, "t": np.array(wanted, dtype=float)}, "recorded", problem)


def _usual_times(problem: Problem, T: float, layers: int) -> tuple[float, ...]:
    """The ends, and those times of the output that lie between two layers."""
    inner = [t for t in problem.output.times if 0.0 < t < T and abs(t * layers / T - round(t * layers / T)) < 1e-9]
    return tuple(sorted({0.0, *inner, T}))


def _carried(
    stack: Stack, bridge: Bridge, start: FloatArray, dt: float, edges: list[int], circle: bool, look: bool
) -> FloatArray:
    """Snapshots (edges, N, d); the first run looks at every block before it is used."""
    points = np.concatenate([np.cos(start), np.sin(start)], axis=1) if circle else start
    x, kept, seen = bridge.tensor(points), [], set[int]()
    for layer in range(edges[-1] + 1):
        if layer in edges:
            now = bridge.array(x)
            kept.append(np.arctan2(now[:, 1:], now[:, :1]) if circle else now)
        if layer == edges[-1]:
            break
        block = stack.blocks[layer]
        if look and id(block) not in seen:
            _look(block, layer, bridge, x)
            seen.add(id(block))
        moved = _called(block, layer, x)
        if stack.residual:
            moved = x + dt * moved
            # tokens on the circle come back to it after each step
            moved = moved / (moved * moved).sum(-1)[..., None] ** 0.5 if circle else moved
        x = moved
    return np.stack(kept)


def _called(block: Block, layer: int, x: Any) -> Any:
    try:
        out = block(x)
    except Exception as error:
        error.add_note(f"block {layer} was called on tokens of shape {tuple(x.shape)}, (batch, N, d)")
        raise
    shape = getattr(out, "shape", None)
    if shape is None or tuple(shape) != tuple(x.shape):
        what = f"a {type(out).__name__}" if shape is None else f"the shape {tuple(shape)}"
        raise MeanFieldError(
            f"block {layer} gives {what} for tokens of shape {tuple(x.shape)}, (batch, N, d): wrap it in a module that "
            "gives the tokens alone, of the same shape"
        )
    return out


def _look(block: Block, layer: int, bridge: Bridge, x: Any) -> None:
    """Refuse a block that is random, or for which tokens are not exchangeable: neither has a law of tokens as limit."""
    few = bridge.array(x)[:TRIED]
    order = np.random.default_rng(0).permutation(len(few))
    once, again, other = (
        bridge.array(_called(block, layer, bridge.tensor(points))) for points in (few, few, few[order])
    )
    allowed = ROUNDING * bridge.precision * max(float(np.abs(once).max()), float(np.abs(few).max()))
    gap = float(np.abs(once - again).max())
    if gap > allowed:
        raise MeanFieldError(
            f"block {layer} gives other tokens at a second call, by {gap:.1e}: turn off what is random in it (dropout "
            "called as a function, noise)"
        )
    gap = float(np.abs(once[order] - other).max())
    if gap > allowed:
        raise MeanFieldError(
            f"block {layer} looks at the places of tokens: in another order they move differently, by {gap:.1e}. A law "
            "of tokens is a limit of exchangeable tokens alone: leave out positional encodings and causal masks"
        )

