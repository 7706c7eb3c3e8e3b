"""The law mu_t on a grid at the times of a trajectory, the sweep that led there, and how well the grid resolves it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import Path
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.token_report import Sweep
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Problem, Sequence, given
from meanfield_pde.training.assemble import assemble
from meanfield_pde.validation.observables import Observables, predicted

# what half the cells change, over this, is the error that is left: second order at least
HALVING = 3.0
LEAST_CELLS = 10


@dataclass(frozen=True, slots=True)
class LimitLaw:
    """mu at ``times`` (m,) on its grid, and the sweep in depth it comes from with the ``places`` of the times in it."""

    grid: Grid
    times: FloatArray
    places: tuple[int, ...]
    tokens: GridTokens
    sweep: Sweep

    @property
    def path(self) -> Path:
        """The path of the one law in depth."""
        return self.sweep.paths[0]

    @property
    def densities(self) -> FloatArray:
        """The cell averages (m, *cells) at the times."""
        return np.asarray(self.path.nodes[list(self.places), 0])


def limit_law(problem: Problem, times: FloatArray) -> LimitLaw:
    """Solve a problem of tokens alone with one sequence, with layer edges at the ``times`` (m,) from 0 on.

    Raises: MeanFieldError for a problem of another kind, or of several sequences.
    """
    check_one_law(problem)
    depth = given(problem.depth, "depth")
    ready = assemble(replace(problem, depth=replace(depth, layers=1, shared=True), particles=None))
    edges = np.unique(np.concatenate([[0.0], np.minimum(times, depth.T), [depth.T]]))
    if len(edges) < 2:
        edges = np.array([0.0, 0.0])
    tokens = replace(given(ready.tokens, "tokens"), edges=edges)
    sweep = tokens.forward(given(ready.fixed_heads, "heads"))
    places = tuple(int(np.abs(edges - time).argmin()) for time in times)
    return LimitLaw(given(ready.token_grid, "tokens"), times, places, tokens, sweep)


def check_one_law(problem: Problem) -> None:
    """Refuse what is no single law of tokens carried by given heads."""
    if problem.kind != "tokens":
        raise MeanFieldError(f"kind = '{problem.kind}': tokens are compared with a problem of kind = 'tokens'")
    if len(problem.sequences) != 1 or not isinstance(problem.sequences[0], Sequence):
        raise MeanFieldError(
            f"the problem has {len(problem.sequences)} sequences, or a file of them: leave the one that was recorded"
        )


def grid_error(problem: Problem, law: LimitLaw, observed: Observables) -> FloatArray | None:
    """The error (k,) of the smooth statistics on the grid: what half the cells change them by, over 3.

    Meaning: right for a second-order scheme, too large for better ones; None where half the cells are fewer than 10.
    Source: Richardson 1911.
    """
    tokens = given(problem.tokens, "tokens")
    half = tuple(n // 2 for n in tokens.cells)
    if min(half) < LEAST_CELLS:
        return None
    coarse = limit_law(replace(problem, tokens=replace(tokens, cells=half)), law.times)
    fine = predicted(observed, law.densities, law.grid)
    return np.asarray(np.abs(fine - predicted(observed, coarse.densities, coarse.grid)) / HALVING)
