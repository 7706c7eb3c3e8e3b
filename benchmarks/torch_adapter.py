"""Attention stacks of PyTorch recorded by the adapter beside our own residual network on the same tokens.

The heads of a problem become a module of `scaled_dot_product_attention`, one block a layer; the largest difference to
`run_tokens` by Euler steps (on the circle with steps back) is printed, and the seconds of both. Needs the extra torch.
Run: python benchmarks/torch_adapter.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from meanfield_pde import library
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.particles.of_problem import run_tokens
from meanfield_pde.problem import Problem
from meanfield_pde.validation.torch_adapter import record

TOKENS, LAYERS = 600, 60


class Attention(nn.Module):
    """The velocity Σ_k W_k softmax(⟨A_k x_i, x_j⟩) x_j/H, or the residual block x + dt velocity."""

    def __init__(self, scores: np.ndarray, values: np.ndarray, dt: float | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.as_tensor(scores, dtype=dtype))
        self.values = nn.Parameter(torch.as_tensor(values, dtype=dtype))
        self.dt = dt

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries = torch.einsum("hij,bnj->bhni", self.scores, x)
        tokens = x[:, None].expand_as(queries)
        means = nn.functional.scaled_dot_product_attention(queries, tokens, tokens, scale=1.0)
        velocity = torch.einsum("hij,bhnj->bni", self.values, means) / len(self.values)
        return velocity if self.dt is None else x + self.dt * velocity


class OnCircle(nn.Module):
    """x + dt (the part of a velocity along the circle), over its length."""

    def __init__(self, field: nn.Module, dt: float) -> None:
        super().__init__()
        self.field, self.dt = field, dt

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = self.field(x)
        return nn.functional.normalize(x + self.dt * (v - (v * x).sum(-1, keepdim=True) * x), dim=-1)


def module_of(problem: Problem, dt: float | None, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The heads of a problem as one layer."""
    assert problem.heads is not None
    assert problem.tokens is not None
    circle = problem.tokens.periodic == (True,)
    theta = np.array(problem.heads.points)
    made = head_matrices(str(problem.heads.family), theta, 2 if circle else len(problem.tokens.cells))
    # heads with one score matrix are gathered there: one head at a time is plain
    ones = [head_matrices(str(problem.heads.family), row[None], made.scores.shape[1]) for row in theta]
    scores = np.concatenate([one.scores for one in ones])
    values = np.concatenate([one.mean_values(np.ones(1)) for one in ones])
    field = Attention(scores, values, None if circle else dt, dtype)
    return OnCircle(field, dt) if circle and dt is not None else field


def compare(name: str) -> dict[str, Any]:
    """Largest difference of the two codes, as a list of blocks, as one velocity, and in single precision."""
    problem, _ = library.get(name)
    assert problem.depth is not None
    dt, circle = problem.depth.T / LAYERS, name == "torch_circle"
    began = time.perf_counter()
    ours = run_tokens(problem, TOKENS, LAYERS, "renormalised" if circle else "euler", seed=3, tolerance=1e-13).x
    middle = time.perf_counter()
    blocks = nn.ModuleList([module_of(problem, dt) for _ in range(LAYERS)])
    ends = (0.0, problem.depth.T)
    theirs = record(blocks, problem, TOKENS, seed=3, times=ends)
    seconds = (middle - began, time.perf_counter() - middle)
    found: dict[str, Any] = {"difference": apart(ours, theirs.points[0], circle)}
    velocity = record(module_of(problem, None), problem, TOKENS, residual=True, layers=LAYERS, seed=3, times=ends)
    whole = ours
    if circle:
        whole = run_tokens(problem, TOKENS, LAYERS, "renormalised-whole", seed=3).x
    found["as a velocity"] = apart(whole, velocity.points[0], circle)
    single = nn.ModuleList([module_of(problem, dt, torch.float32)] * LAYERS)
    found["in float32"] = apart(ours, record(single, problem, TOKENS, seed=3, times=ends).points[0], circle)
    return found | {"our seconds": seconds[0], "torch seconds": seconds[1]}


def apart(first: np.ndarray, second: np.ndarray, circle: bool) -> float:
    gap = np.abs(first - second)
    return float((np.minimum(gap, 2 * np.pi - gap) if circle else gap).max())


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, {TOKENS} tokens, {LAYERS} layers")
    for name in ("torch_gauss1", "torch_line", "torch_plane", "torch_circle"):
        print(f"{name:13s} " + "  ".join(f"{key} {value:.2g}" for key, value in compare(name).items()))
