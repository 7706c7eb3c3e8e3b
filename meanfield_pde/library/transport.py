"""Classics of transport alone: a ring of variable speed, a line between walls, waves, a plane that turns or swirls."""

from __future__ import annotations

from math import cosh, exp, sinh

import numpy as np
from scipy.special import i0e

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import axis_nodes
from meanfield_pde.law_classics import JiangShu, SinePower, classic_masses
from meanfield_pde.laws import Law, Uniform, VonMises, cell_averages
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.parameters import Parameter, at
from meanfield_pde.problem import Problem, Sequence, Tokens

RING_PARAMETERS: dict[str, Parameter] = {
    "mean": at("sequences.0.initial.mean"),
    "concentration": at("sequences.0.initial.concentration"),
}
WAVE_PARAMETERS: dict[str, Parameter] = {"speed": at("tokens.drift.constant.0")}
PLANE_PARAMETERS: dict[str, Parameter] = {"period": at("tokens.drift.period")}
# no order is claimed where the law has jumps, at the zeros of sin^4, and of a filament on coarse grids
UNCLAIMED = 0


def ring_exact(problem: Problem) -> Exact:
    """Tokens on a ring under the velocity sin x.

    Formula: rho(t, x) = rho0(2 atan(e^{−t} tan(x/2)))/(cosh t + sinh t cos x), lengths in units of the ring's over 2π.
    Raises: MeanFieldError unless the drift is the flow "sine" alone and the laws are von Mises.
    Source: docs/mathematics.md 5.5; characteristics of LeVeque, Finite Volume Methods (2002), section 9.
    """
    tokens, laws = _moved(problem)
    drift = tokens.drift
    require(drift.flow == "sine" and not any(drift.constant), problem, "the drift is another", "flow = 'sine' alone")
    for law in laws:
        require(isinstance(law, VonMises), problem, f"a sequence has law = '{law.law}'", "von-mises sequences")

    def mu(t: float, grid: Grid) -> FloatArray:
        nodes, weight = axis_nodes(grid, 0, 4)
        wave = 2.0 * np.pi / (grid.upper[0] - grid.lower[0])
        x = wave * nodes
        start = 2.0 * np.arctan2(exp(-t) * np.sin(0.5 * x), np.cos(0.5 * x))
        out = []
        for law in laws:
            assert isinstance(law, VonMises)
            k, m = float(np.ravel(law.concentration)[0]), wave * float(np.ravel(law.mean)[0])
            density = np.exp(-2.0 * k * np.sin(0.5 * (start - m)) ** 2) * wave / (2.0 * np.pi * i0e(k))
            density /= cosh(t) + sinh(t) * np.cos(x)
            out.append((weight * density).reshape(grid.cells[0], -1).sum(axis=1) / grid.cell_volume)
        return np.stack(out)

    return Exact(lambda t: {}, "docs/mathematics.md 5.5, variable speed", mu=mu)


def walls_exact(problem: Problem) -> Exact:
    """Tokens on a line between two walls under the logistic velocity, from the uniform law of the whole box.

    Formula: the mass left of x is e^{−t} ξ/(1 − ξ + e^{−t} ξ), ξ in [0, 1] along the box.
    Raises: MeanFieldError unless the drift is the flow "logistic" alone and the laws are uniform on the box.
    Source: docs/mathematics.md 5.5, logistic.
    """
    tokens, laws = _moved(problem)
    drift = tokens.drift
    alone = drift.flow == "logistic" and drift.leak == 0.0 and not any(drift.constant)
    require(alone, problem, "the drift is another", "flow = 'logistic' alone")
    for law in laws:
        whole = isinstance(law, Uniform) and (law.lower, law.upper) == (tokens.lower, tokens.upper)
        require(whole, problem, f"a sequence has law = '{law.law}'", "uniform laws on the whole box")

    def mu(t: float, grid: Grid) -> FloatArray:
        along = np.linspace(0.0, 1.0, grid.cells[0] + 1)
        began = exp(-t) * along / (1.0 - along + exp(-t) * along)
        return np.tile(np.diff(began) / grid.cell_volume, (len(laws), 1))

    return Exact(lambda t: {}, "docs/mathematics.md 5.5, logistic", mu=mu)


def wave_exact(problem: Problem) -> Exact:
    """A wave carried around a ring at constant speed: the initial law moved by speed · t.

    Raises: MeanFieldError unless the drift is constant and the laws are classical waves on a ring.
    Source: Jiang and Shu (1996), section 5.
    """
    tokens, laws = _moved(problem)
    drift = tokens.drift
    require(drift.flow is None and drift.leak == 0.0, problem, "the drift is not constant", "a constant drift")
    require(any(tokens.periodic), problem, "tokens.periodic is not set", "a ring")
    for law in laws:
        known = isinstance(law, JiangShu | SinePower)
        require(known, problem, f"a sequence has law = '{law.law}'", "jiang-shu or sine-power sequences")
    speed = drift.constant[0] if drift.constant else 0.0

    def mu(t: float, grid: Grid) -> FloatArray:
        waves = [classic_masses(law, grid, speed * t) for law in laws if isinstance(law, JiangShu | SinePower)]
        return np.stack(waves) / grid.cell_volume

    return Exact(lambda t: {}, "docs/mathematics.md 5.5, waves", mu=mu, order=UNCLAIMED)


def plane_exact(problem: Problem) -> Exact:
    """Tokens in a plane that turns once around, or swirls and comes back: the initial law after every period.

    Raises: MeanFieldError unless the drift is the flow "rotation" or "deformation" and depth ends after full periods.
    Source: Zalesak (1979), section V; LeVeque (1996), section 9.
    """
    tokens, laws = _moved(problem)
    drift = tokens.drift
    returns = drift.flow in ("rotation", "deformation") and drift.leak == 0.0 and not any(drift.constant)
    require(returns, problem, "the drift is another", "flow = 'rotation' or 'deformation' alone")
    assert problem.depth is not None
    period = drift.period or 1.0
    turns = problem.depth.T / period
    whole = turns == round(turns)
    require(whole, problem, f"depth.T = {problem.depth.T:g} is no multiple of the period {period:g}", "full periods")

    def mu(t: float, grid: Grid) -> FloatArray:
        if t / period != round(t / period):
            raise MeanFieldError(f"the law at depth {t:g} is not known: ask at multiples of the period {period:g}")
        return np.stack([cell_averages(law, grid)[0] for law in laws])

    return Exact(lambda t: {}, "docs/mathematics.md 5.5, planes", mu=mu, order=UNCLAIMED)


def _moved(problem: Problem) -> tuple[Tokens, list[Law]]:
    """Tokens and laws of a problem of transport alone. Raises: MeanFieldError for another."""
    require(problem.kind == "tokens", problem, f"kind = '{problem.kind}'", "kind = 'tokens'")
    require(problem.attention is None, problem, f"attention = '{problem.attention}'", "no attention")
    assert problem.tokens is not None
    require(problem.tokens.noise == 0.0, problem, f"tokens.noise = {problem.tokens.noise:g}", "no token noise")
    laws = [entry.initial for entry in problem.sequences if isinstance(entry, Sequence) and entry.role == "train"]
    require(bool(laws), problem, "no sequence of one law has role 'train'", "one that has")
    return problem.tokens, laws
