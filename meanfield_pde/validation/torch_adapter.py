"""A PyTorch attention stack on tokens of a problem, recorded as a trajectory. PyTorch is imported when it is called."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Problem
from meanfield_pde.validation.stacks import Block, Stack, run_stack, stack_of
from meanfield_pde.validation.trajectory import Trajectory

REMEDY = 'install the extra: pip install "meanfield-pde[torch]"'


def record(
    blocks: Block | Iterable[Block],
    problem: Problem,
    tokens: int,
    *,
    residual: bool = False,
    layers: int | None = None,
    runs: int = 1,
    seed: int | None = None,
    sampling: str = "iid",
    sequence: int = 0,
    times: tuple[float, ...] | None = None,
) -> Trajectory:
    """Draw ``tokens`` tokens from the first law of a problem, run a stack of blocks on them, record the snapshots.

    Formula: x_{k+1} = block_k(x_k), or with ``residual`` x_{k+1} = x_k + (T/L) block_k(x_k); x_k is at depth k T/L.
    Shapes: every block is called on (1, N, d) and gives (1, N, d).
    Meaning: ``blocks`` is an nn.ModuleList, an nn.Sequential or a list, one block a layer, or one module that is
    applied ``layers`` times. Tokens are of the type and on the device of the
    first parameter, in double precision if there is none. On the circle blocks see points (cos φ, sin φ), d = 2, angles
    are recorded, and with ``residual`` tokens come back to the circle after each step. The ``runs`` are independent,
    drawn with the seeds seed, seed + 1, …; ``times`` are depths between layers, by default 0, T and those of the
    problem's output that are. Modules are put into eval mode and back, and no gradients are kept.
    Raises: MeanFieldError without PyTorch, for blocks that are random, change the shape or look at the places of
    tokens, and as `reading.read_trajectory`.
    Warns: where dropout is switched off.
    """
    try:
        import torch
    except ImportError:
        raise MeanFieldError(f"recording a stack needs PyTorch, which is not there: {REMEDY}") from None
    stack = stack_of(blocks, layers, residual)
    modules = _modules(stack)
    with _in_eval_mode(modules), torch.no_grad():
        bridge = _Tensors(torch, *_type_and_device(torch, stack))
        return run_stack(
            stack, bridge, problem, tokens, runs=runs, seed=seed, sampling=sampling, sequence=sequence, times=times
        )


@dataclass(frozen=True, slots=True)
class _Tensors:
    """PyTorch's tensors of one type on one device."""

    torch: Any
    dtype: Any
    device: Any

    @property
    def precision(self) -> float:
        return float(self.torch.finfo(self.dtype).eps)

    def tensor(self, points: FloatArray) -> Any:
        return self.torch.as_tensor(points[None], dtype=self.dtype, device=self.device)

    def array(self, tensor: Any) -> FloatArray:
        return np.array(tensor[0].detach().to("cpu", self.torch.float64).numpy(), dtype=np.float64)


def _modules(stack: Stack) -> list[Any]:
    """All modules in a stack, once each."""
    found = {id(m): m for block in stack.blocks for m in getattr(block, "modules", lambda: ())()}
    for module in found.values():
        if getattr(module, "batch_first", True) is False:
            raise MeanFieldError(
                f"{type(module).__name__} takes tokens as (N, batch, d): build it with batch_first=True, or each token "
                "would be a sequence of its own"
            )
    return list(found.values())


def _type_and_device(torch: Any, stack: Stack) -> tuple[Any, Any]:
    for block in stack.blocks:
        parts = (getattr(block, name, lambda: ())() for name in ("parameters", "buffers"))
        for value in chain(*parts):
            if value.is_floating_point():
                return value.dtype, value.device
    return torch.float64, "cpu"


@contextmanager
def _in_eval_mode(modules: list[Any]) -> Iterator[None]:
    """Every module with ``training`` off, and afterwards as it was."""
    before = [(module, module.training) for module in modules]
    dropping = {type(m).__name__ for m, training in before if training and _drops(m)}
    if dropping:
        warnings.warn(
            f"dropout ({', '.join(sorted(dropping))}) is off while tokens are recorded: what is compared is the "
            "network without it",
            stacklevel=4,
        )
    try:
        for module, _ in before:
            module.training = False
        yield
    finally:
        for module, training in before:
            module.training = training


def _drops(module: Any) -> bool:
    rate = getattr(module, "p", 0.0) if "Dropout" in type(module).__name__ else getattr(module, "dropout", 0.0)
    return isinstance(rate, float) and rate > 0.0
