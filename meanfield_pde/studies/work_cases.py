"""The cases of a work–precision study: a scheme on a grid with a step, made ready so that the solve alone is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.lax_wendroff import ONE_STEP, stepper_of
from meanfield_pde.equations.schemes import SCHEMES, Reconstruction
from meanfield_pde.equations.token_report import Sweep
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.model.sides import FirstVariation
from meanfield_pde.problem import Problem, given
from meanfield_pde.problem_depth import LIMITED
from meanfield_pde.studies.order_runs import Law, scaled
from meanfield_pde.studies.own_fluxes import HEAD_SCHEMES, OwnFlux, with_flux
from meanfield_pde.studies.space_orders import takes
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.assembled import Assembled
from meanfield_pde.training.grid_side import transport

CELLS = {1: (64, 128, 256, 512), 2: (32, 64, 128), 3: (12, 24)}
# beside the step of the problem itself
FACTORS = (0.5, 1.0, 2.0)
FINEST = {"mu": "weno5z", "gradient": "weno5z", "rho": "scharfetter-gummel-2"}
LEAST_COURANT = 1e-6
# what a problem says in the place of a scheme of the user's, which takes over once all is put together
STAND_IN = "upwind1"


class Case(NamedTuple):
    """A scheme, its stepper (none for heads), cells of the first axis, and the step: a Courant number, or ds."""

    scheme: str
    stepper: str | None
    cells: int
    step: float


class Solved(NamedTuple):
    """What a solve gives, and what it kept: mass drift, least value, largest rise of the free energy, steps taken."""

    law: Law
    mass_drift: float
    minimum: float
    energy_rise: float | None
    steps: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A case made ready: ``run`` solves, ``read`` looks at what it gave; ``updates`` are cells times laws a step."""

    run: Callable[[], object]
    read: Callable[[object], Solved]
    updates: int


def flow_of(problem: Problem) -> str:
    """What is compared: final token laws `mu`, the `gradient` δL/δrho at s = 0, or the final law `rho` of heads."""
    return {"tokens": "mu", "training": "gradient"}.get(problem.kind, "rho")


def cases_of(
    problem: Problem,
    cells: Sequence[int] | None = None,
    schemes: Sequence[str] | None = None,
    steppers: Sequence[str] | None = None,
    own: Mapping[str, Reconstruction] | None = None,
    fluxes: Sequence[str] = (),
) -> list[Case]:
    """All cases, those of the coarsest grid first; steps beyond the limit of a scheme are left out.

    Meaning: ``schemes`` are names of built-in ones (all), ``own`` and ``fluxes`` the user's, which come besides.
    Raises: MeanFieldError for unknown schemes or steppers, those that do not go together, or cells that do not grow.
    """
    if problem.sides:
        raise MeanFieldError("bench is for grids: take particles.sides = []")
    flow = flow_of(problem)
    known = tuple(HEAD_SCHEMES) if flow == "rho" else tuple(one for one, s in SCHEMES.items() if takes(flow, s))
    chosen = known if schemes is None else tuple(schemes)
    for name in chosen:
        if name not in known:
            raise MeanFieldError(f"scheme {name!r} has no case of the flow '{flow}': {nearest(name, known)}")
    for name, one in (own or {}).items():
        if not takes(flow, one):
            raise MeanFieldError(f"scheme {name!r} has no case of the flow '{flow}', which needs cells, a dual")
    chosen += tuple(own or ())
    if flow == "rho":
        if steppers:
            raise MeanFieldError("heads have no stepper: leave --stepper out")
        chosen += tuple(fluxes)
        box, ds = given(problem.heads, "heads").cells, given(problem.training, "training").ds
        return [Case(name, None, n, f * ds) for n in _grids(cells, len(box)) for name in chosen for f in FACTORS]
    tokens, depth = given(problem.tokens, "tokens"), given(problem.depth, "depth")
    methods = tuple(steppers) if steppers else (depth.stepper,)
    out = []
    for n in _grids(cells, len(tokens.cells)):
        for name in chosen:
            for method in methods if steppers else (*methods, *_one_step(problem, name)):
                stepper_of(method)  # an unknown name is refused before any work
                limit = _limit(problem, name if own is None else own.get(name, name), method)
                out += [Case(name, method, n, f * depth.cfl) for f in FACTORS if f * depth.cfl <= limit]
    if not out:
        raise MeanFieldError(
            f"no case is left: {', '.join(chosen)} do not go with {', '.join(methods)} at depth.cfl = {depth.cfl:g} or "
            "half of it; choose others"
        )
    return out


def _grids(cells: Sequence[int] | None, dim: int) -> tuple[int, ...]:
    grids = CELLS[dim] if cells is None else tuple(cells)
    if not grids or any(a >= b for a, b in pairwise(grids)) or min(grids) < 3:
        raise MeanFieldError(f"cells = {grids} must be growing numbers of cells, such as 64,128,256")
    return grids


def _one_step(problem: Problem, scheme: str) -> tuple[str, ...]:
    """The one-step scheme beside the stepper of the problem, where it has what it takes."""
    depth = given(problem.depth, "depth")
    followed = problem.objective is not None or any(getattr(one, "queries", ()) for one in problem.sequences)
    fits = scheme in LIMITED and not followed and not depth.positivity
    return (ONE_STEP,) if fits and depth.stepper != ONE_STEP else ()


def _limit(problem: Problem, scheme: str | Reconstruction, stepper: str) -> float:
    """The largest Courant number, 0 for a pair that is unstable at every step or does not go together."""
    name = scheme if isinstance(scheme, str) else STAND_IN
    depth = replace(given(problem.depth, "depth"), scheme=name, cfl=LEAST_COURANT, control="cfl", dt=None)
    try:
        pair = transport(given(problem.tokens, "tokens"), replace(depth, stepper=stepper))
        return (pair if isinstance(scheme, str) else replace(pair, reconstruction=scheme)).courant_limit()
    except MeanFieldError:
        return 0.0


def at_case(problem: Problem, case: Case) -> Problem:
    """The problem of a case."""
    if case.stepper is None:
        keys, heads = given(problem.training, "training"), given(problem.heads, "heads")
        order = HEAD_SCHEMES.get(case.scheme, 2)  # a flux of the user's goes with the step of order 2
        training = replace(keys, ds=case.step, order=order, splitting="gibbs", control="fixed")
        box = replace(heads, cells=scaled(heads.cells, case.cells))
        return replace(problem, heads=box, training=training, output=replace(problem.output, times=()))
    tokens, depth = given(problem.tokens, "tokens"), given(problem.depth, "depth")
    name = case.scheme if case.scheme in SCHEMES else STAND_IN
    changed = replace(depth, scheme=name, stepper=case.stepper, cfl=case.step, control="cfl", dt=None)
    return replace(problem, tokens=replace(tokens, cells=scaled(tokens.cells, case.cells)), depth=changed)


def ready(
    problem: Problem,
    case: Case,
    threads: int = 1,
    own: Mapping[str, Reconstruction] | None = None,
    fluxes: Mapping[str, OwnFlux] | None = None,
) -> Ready:
    """Everything that comes before the solve. Raises: MeanFieldError for a case that cannot be made."""
    made = assemble(at_case(problem, case), threads)
    flow = flow_of(problem)
    if flow == "rho":
        flux = None if fluxes is None else fluxes.get(case.scheme)
        return _of_heads(made if flux is None else with_flux(made, flux))
    tokens = given(made.tokens, "tokens")
    if own is not None and case.scheme in own:
        tokens = replace(tokens, transport=replace(tokens.transport, reconstruction=own[case.scheme]))
    return _of_tokens(tokens, made) if flow == "mu" else _of_gradient(tokens, made)


def _of_tokens(tokens: GridTokens, made: Assembled) -> Ready:
    heads = given(made.fixed_heads, "heads")
    grid = tokens.transport.grid

    def read(sweep: object) -> Solved:
        assert isinstance(sweep, Sweep)
        report = tokens.report(sweep, None)
        law = Law(sweep.final, grid, np.full(grid.cells, grid.cell_volume))
        return Solved(law, _drift(grid, sweep.final, tokens.mu0), float(sweep.nodes.min()), None, report.steps or 0)

    return Ready(lambda: tokens.forward(heads), read, tokens.mu0.size)


def _of_gradient(tokens: GridTokens, made: Assembled) -> Ready:
    rho, side, grid = given(made.state, "training").rho, given(made.heads, "heads"), given(made.head_grid, "heads")

    def read(variation: object) -> Solved:
        assert isinstance(variation, FirstVariation)
        report = variation.report
        law = Law(variation.potential.reshape(rho.shape), grid, rho * grid.cell_volume)
        return Solved(law, report.mass_error or 0.0, report.minimum or 0.0, None, report.steps or 0)

    return Ready(lambda: tokens.first_variation(side.measure(rho)), read, tokens.mu0.size)


def _of_heads(made: Assembled) -> Ready:
    training, first = given(made.training, "training"), given(made.state, "training")
    grid = given(made.head_grid, "heads")
    end = given(made.problem.training, "training").s_end

    def read(moments: object) -> Solved:
        assert isinstance(moments, list)
        last = moments[-1].state
        energies = np.array([moment.free_energy for moment in moments])
        law = Law(last.rho, grid, np.full(grid.cells, grid.cell_volume))
        least = min(float(moment.state.rho.min()) for moment in moments)
        rise = float(np.diff(energies).max(initial=0.0))
        return Solved(law, _drift(grid, last.rho, first.rho), least, rise, last.step - first.step)

    return Ready(lambda: list(training.run(first, end)), read, first.rho.size)


def _drift(grid: Grid, after: FloatArray, before: FloatArray) -> float:
    """Largest change of the mass of a law, over that mass."""
    mass = grid.integral(before)
    return float((np.abs(grid.integral(after) - mass) / mass).max())
