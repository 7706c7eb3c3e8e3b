"""Two opposite tokens under one softmax head: an ordinary differential equation for where they are."""

from __future__ import annotations

from functools import lru_cache
from math import tanh
from pathlib import Path
from typing import Any

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Atoms, cell_averages
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_attentions import HEAD
from meanfield_pde.library.gaussian_tokens import gaussian_leak
from meanfield_pde.library.parameters import Parameter, at
from meanfield_pde.problem import Problem, Sequence

PARAMETERS: dict[str, Parameter] = {
    "x0": at("sequences.0.initial.points", lambda value: ((-float(value),), (float(value),)))
} | HEAD


@lru_cache(maxsize=64)
def position(x0: float, w: float, a: float, t: float) -> float:
    """x(t) of ẋ = w x tanh(a x²), integrated to relative 1e-12."""
    if t == 0.0:
        return x0
    from scipy.integrate import solve_ivp  # imported late: listing problems needs none of it

    def rate(_: float, x: FloatArray) -> list[float]:
        return [w * float(x[0]) * tanh(a * float(x[0]) ** 2)]

    found: Any = solve_ivp(rate, (0.0, t), [x0], method="DOP853", rtol=1e-12, atol=1e-14)
    return float(found.y[0, -1])


def exact(problem: Problem) -> Exact:
    """½ δ_x + ½ δ_{-x} with ẋ = w x tanh(a x²), shared between cells as atoms are.

    Meaning: atoms have no order in L1; in the Wasserstein distance first-order upwind has 1/2.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.1; m(ax) = x tanh(a x²) for two opposite atoms.
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    require(problem.attention == "softmax", problem, f"attention = '{problem.attention}'", "attention = 'softmax'")
    require(gaussian_leak(problem) == 0.0, problem, "tokens.drift.leak is set", "no leak")
    heads, entry = problem.heads, problem.sequences[0]
    alone = heads is not None and heads.family == "scalar" and len(heads.points) == 1
    require(alone, problem, "heads are not one point of the family 'scalar'", "one scalar head")
    assert heads is not None
    law = entry.initial if isinstance(entry, Sequence) and len(problem.sequences) == 1 else None
    opposite = isinstance(law, Atoms) and len(law.points) == 2 and law.points[0][0] == -law.points[1][0]
    require(opposite and not getattr(law, "weights", ()), problem, "the sequence is no pair of equal opposite atoms",
            "one sequence of atoms at -x and x")  # fmt: skip
    assert isinstance(law, Atoms)
    x0, (w, a) = abs(float(law.points[0][0])), heads.points[0]

    def observables(t: float) -> dict[str, float]:
        return {"mean_b0": 0.0, "variance_b0": position(x0, w, a, t) ** 2}

    def mu(t: float, grid: Grid) -> FloatArray:
        x = position(x0, w, a, t)
        return cell_averages(Atoms(((-x,), (x,))), grid, Path(problem.base))[0][None]

    return Exact(observables, "docs/mathematics.md 5.1, two Diracs", mu=mu, order=0)
