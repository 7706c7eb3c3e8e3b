"""One solve of a problem on n cells for each flow, with steps refined so that only the error in h is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.schemes import SCHEMES, Reconstruction, scheme
from meanfield_pde.equations.token_report import Sweep
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Problem
from meanfield_pde.splitting import token_splitting
from meanfield_pde.studies.own_fluxes import OwnFlux, with_flux
from meanfield_pde.training.assemble import assemble

# at the coarsest grid; the gradient is so accurate on smooth data that a usual step would be seen first
COURANT_LAW, COURANT_GRADIENT = 0.25, 0.05
TABLE = {1: 1e-11, 2: 1e-9, 3: 1e-7}  # tolerance of the softmax table by dimension, below every error that is fitted
SEVERAL = 4  # the order of any scheme in more than one dimension
STEPPER = "ssprk3"
TIME_ORDER = 3


class Method(NamedTuple):
    """A reconstruction under its name in a table."""

    name: str
    scheme: Reconstruction


class Law(NamedTuple):
    """What a solve gives: ``values`` (B or layers, *cells) on ``grid``, and the ``weight`` errors are measured with."""

    values: FloatArray
    grid: Grid
    weight: FloatArray


def scaled(cells: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Cells in the same proportions with n on the first axis."""
    return tuple(max(3, round(c * n / cells[0])) for c in cells)


def refined_depth(problem: Problem, method: Method | str, n: int, coarsest: int, courant: float) -> Problem:
    """The problem with n token cells and a depth step whose error falls at least as fast as that of the scheme in h.

    Formula: Courant number ∝ h^{max(0, r/q − 1)} for a scheme of order r, at most 4 in more than one dimension, and
    steps of order q, 3 or with token noise that of its splitting, so that dt^q ∝ h^r or smaller.
    """
    assert problem.tokens is not None
    assert problem.depth is not None
    own = method_of(method).scheme.order
    order = own if len(problem.tokens.cells) == 1 else min(own, SEVERAL)
    steps = TIME_ORDER if problem.tokens.noise == 0.0 else token_splitting(problem.depth.splitting).order
    power = max(0.0, order / steps - 1.0)
    cfl = min(problem.depth.cfl, courant) * (coarsest / n) ** power
    return replace(
        problem,
        tokens=replace(problem.tokens, cells=scaled(problem.tokens.cells, n)),
        depth=replace(problem.depth, scheme=_spelled(method), stepper=STEPPER, cfl=cfl, control="cfl", dt=None),
    )


def method_of(given: Method | str) -> Method:
    """A built-in scheme by its name, or the method that is given."""
    return given if isinstance(given, Method) else Method(given, scheme(given))


def _spelled(given: Method | str) -> str:
    """The name a problem can say; a scheme of the user's takes the place of the first one once all is put together."""
    name, own = method_of(given)
    return name if SCHEMES.get(name) is own else next(iter(SCHEMES))


def _with_scheme(tokens: GridTokens, method: Method | str) -> GridTokens:
    """The token side with the scheme itself and a table below every error that is fitted, on one thread."""
    transport = replace(tokens.transport, reconstruction=method_of(method).scheme)
    return replace(tokens, transport=transport, tolerance=TABLE[transport.grid.dim], threads=1)


def token_law(problem: Problem, method: Method | str, n: int, coarsest: int) -> Law:
    """Final token laws (B, *cells) under given heads."""
    tokens, sweep = _swept(problem, method, n, coarsest)
    grid = tokens.transport.grid
    return Law(sweep.final, grid, np.full(grid.cells, grid.cell_volume))


def _swept(problem: Problem, method: Method | str, n: int, coarsest: int) -> tuple[GridTokens, Sweep]:
    ready = assemble(refined_depth(problem, method, n, coarsest, COURANT_LAW))
    assert ready.tokens is not None
    assert ready.fixed_heads is not None
    tokens = _with_scheme(ready.tokens, method)
    return tokens, tokens.forward(ready.fixed_heads)


def costate(problem: Problem, method: Method | str, n: int, coarsest: int) -> Law:
    """The reported costate at depth 0 under given heads, (B, *cells), weighted with the masses of the first laws."""
    tokens, sweep = _swept(problem, method, n, coarsest)
    grid = tokens.transport.grid
    found = tokens.backward(sweep, tokens.terminal(sweep.final)[1]).nodes[0]
    return Law(grid.refilter(found), grid, tokens.mu0 * grid.cell_volume)


def gradient(problem: Problem, method: Method | str, n: int, coarsest: int) -> Law:
    """δL/δrho (layers, *head_cells) at s = 0 by the dual of the scheme, with the weights of L1(rho)."""
    ready = assemble(refined_depth(problem, method, n, coarsest, COURANT_GRADIENT))
    assert ready.tokens is not None
    assert ready.heads is not None
    assert ready.head_grid is not None
    assert ready.state is not None
    rho, grid = ready.state.rho, ready.head_grid
    tokens = _with_scheme(ready.tokens, method)
    found = tokens.first_variation(ready.heads.measure(rho)).potential
    return Law(found.reshape(rho.shape), grid, rho * grid.cell_volume)


def head_law(problem: Problem, order: int, n: int, coarsest: int, end: float, flux: OwnFlux | None = None) -> Law:
    """rho (1, *cells) at s = end in a given potential; ds ∝ h² with backward Euler, ∝ h with the step of order 2.

    By a ``flux`` of the user's if there is one.
    """
    assert problem.heads is not None
    assert problem.training is not None
    ds = problem.training.ds * (coarsest / n) ** (2 if order == 1 else 1)
    training = replace(problem.training, ds=ds, s_end=end, order=order, splitting="gibbs", control="fixed")
    heads = replace(problem.heads, cells=scaled(problem.heads.cells, n))
    output = replace(problem.output, times=())
    ready = assemble(replace(problem, heads=heads, training=training, output=output))
    ready = ready if flux is None else with_flux(ready, flux)
    assert ready.training is not None
    assert ready.state is not None
    assert ready.head_grid is not None
    rho = ready.state.rho
    for moment in ready.training.run(ready.state, end):
        rho = moment.state.rho
    return Law(rho, ready.head_grid, np.full(ready.head_grid.cells, ready.head_grid.cell_volume))


def centred(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Values less their weighted mean, one a leading index: psi is defined up to a constant."""
    axes = tuple(range(1, values.ndim))
    mean = (values * weight).sum(axis=axes, keepdims=True) / weight.sum(axis=axes, keepdims=True)
    return np.asarray(values - mean)


def averaged(fine: FloatArray, dim: int) -> FloatArray:
    """Cell averages on half as many cells per axis."""
    out = fine
    for axis in range(out.ndim - dim, out.ndim):
        u = np.moveaxis(out, axis, -1)
        out = np.moveaxis(0.5 * (u[..., ::2] + u[..., 1::2]), -1, axis)
    return out


def sampled(fine: FloatArray, grid: Grid) -> FloatArray:
    """Samples at the centres of half as many cells per axis, by cubic interpolation between those of ``grid``."""
    out = fine
    for axis in range(grid.dim):
        position = out.ndim - grid.dim + axis
        u = np.moveaxis(out, position, -1)
        behind, ahead = np.roll(u, 1, -1)[..., ::2], np.roll(u, -1, -1)[..., 1::2]
        new = (9.0 * (u[..., ::2] + u[..., 1::2]) - behind - ahead) / 16.0
        if not grid.periodic[axis]:
            ends = np.array([5.0, 15.0, -5.0, 1.0]) / 16.0
            new[..., 0], new[..., -1] = u[..., :4] @ ends, u[..., :-5:-1] @ ends
        out = np.moveaxis(new, -1, position)
    return out
