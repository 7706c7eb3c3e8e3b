"""Uniform laws on a line drawn together by the interaction |x|: they shrink at constant speed and collapse."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import uniform_masses
from meanfield_pde.law_deposit import atom_masses
from meanfield_pde.laws import Uniform
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_tokens import head_moments
from meanfield_pde.library.parameters import Parameter, at
from meanfield_pde.library.transport import UNCLAIMED
from meanfield_pde.problem import Problem, Sequence

PARAMETERS: dict[str, Parameter] = {"w": at("heads.points.0.0")}


def exact(problem: Problem) -> Exact:
    """Uniform laws of half width r about c under V(x) = −w ∫ sign(x − y) mu(dy).

    Formula: uniform on |x − c| < r − w t, a Dirac at c from t = r/w on.
    Raises: MeanFieldError unless the sequences are uniform, w > 0, and nothing else moves the tokens.
    Source: docs/mathematics.md 5.5, aggregation; Carrillo et al. (2011).
    """
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    attention = problem.attention
    require(attention == "aggregation", problem, f"attention = '{attention}'", "attention = 'aggregation'")
    assert problem.tokens is not None
    assert problem.heads is not None
    tokens, laws = problem.tokens, []
    free = tokens.noise == 0.0 and tokens.drift == type(tokens.drift)()
    require(free, problem, "tokens.drift or tokens.noise is set", "attention alone")
    for k, entry in enumerate(problem.sequences):
        uniform = isinstance(entry, Sequence) and isinstance(entry.initial, Uniform)
        require(uniform, problem, f"sequences[{k}] is not a uniform law", "uniform sequences")
        assert isinstance(entry, Sequence)
        assert isinstance(entry.initial, Uniform)
        if entry.role == "train":
            laws.append((entry.initial.lower[0], entry.initial.upper[0]))
    w = head_moments(problem, problem.heads)[0]
    require(w > 0.0, problem, f"E[w] = {w:g}", "E[w] > 0, which draws tokens together")

    def at_depth(t: float) -> list[tuple[float, float]]:
        """Middle and half width of each law."""
        return [(0.5 * (a + b), max(0.0, 0.5 * (b - a) - w * t)) for a, b in laws]

    def observables(t: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for b, (c, r) in enumerate(at_depth(t)):
            out |= {f"mean_b{b}": c, f"variance_b{b}": r * r / 3.0}
        return out

    def mu(t: float, grid: Grid) -> FloatArray:
        masses = []
        for c, r in at_depth(t):
            if r > 0.0:
                masses.append(uniform_masses(np.array([c - r]), np.array([c + r]), grid))
            else:
                masses.append(atom_masses(np.array([[c]]), np.ones(1), grid))
        return np.stack(masses) / grid.cell_volume

    return Exact(observables, "docs/mathematics.md 5.5, aggregation", mu=mu, order=UNCLAIMED)
