"""Orders in h: every scheme on finer and finer cells, with steps refined so that only the error in h is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.schemes import SCHEMES, DualReconstruction, Reconstruction
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Heads, Problem, Tokens, given
from meanfield_pde.studies import order_runs as runs
from meanfield_pde.studies.order_fits import MOST_BELOW, MOST_BELOW_CLIPPING
from meanfield_pde.studies.order_series import Series, same
from meanfield_pde.studies.own_fluxes import HEAD_SCHEMES, OwnFlux
from meanfield_pde.studies.own_schemes import order_at_extrema

CELLS = {1: (64, 128, 256, 512), 2: (44, 88, 176), 3: (16, 24, 32)}
CARRIED_CELLS = (24, 48, 96)  # a prescribed velocity in the plane: a turn of it takes many steps
COUPLED_CELLS = (32, 64, 128, 256)  # Sinkhorn attention solves for a coupling of all pairs of cells at every stage
# beyond those on a line the gradient of a smooth problem meets rounding
GRADIENT_CELLS = {1: (48, 96, 192, 384), 2: (16, 24, 36), 3: (8, 12, 16)}
# finest grids fitted once more: an order is a claim for h → 0, and a coarse grid may not resolve the law; the last two
# where cells are dear, in more than one dimension
JUDGED = {1: 3, 2: 2, 3: 2}

Field = Callable[[float, Grid], FloatArray]


class Reference(Protocol):
    """What is asked of an exact solution; None is not known."""

    @property
    def mu(self) -> Field | None:
        """Cell averages of the token laws at a depth, (B, *cells)."""
        ...

    @property
    def p(self) -> Field | None:
        """Samples of the costate at a depth, (B, *cells)."""
        ...

    @property
    def rho(self) -> Field | None:
        """Values of the heads' law at a time, (layers, *cells)."""
        ...

    @property
    def first_variation(self) -> Field | None:
        """Samples of δL/δrho at a time, (layers, *cells)."""
        ...

    @property
    def limit(self) -> bool:
        """Whether it is the law at rest alone."""
        ...

    @property
    def order(self) -> int | None:
        """The highest order that can be seen; None for that of the scheme."""
        ...


def space_series(
    problem: Problem,
    exact: Reference | None,
    cells: Sequence[int] | None,
    schemes: Iterable[str] | None,
    own: Mapping[str, Reconstruction],
    fluxes: Mapping[str, OwnFlux],
) -> list[Series]:
    """A series for every scheme, or flux of heads, that the flow of the problem takes, the user's last.

    Raises: MeanFieldError for unknown schemes, or cells that cannot be compared.
    """
    flow, known = flow_of(problem, exact)
    grids = _cells(problem, cells, doubling=known is None)
    dim = len(grid_box(problem).cells)
    most = None if exact is None else exact.order
    choices = _choices(flow)
    chosen = list(choices) if schemes is None else list(schemes)
    for one in chosen:
        if one not in choices:
            raise MeanFieldError(f"scheme {one!r} has no order of the flow '{flow}': {nearest(one, choices)}")
    if flow == "rho":
        out = [_head_series(problem, one, known, grids, dim, most) for one in chosen]
        return out + [_head_series(problem, one, known, grids, dim, most, flux) for one, flux in fluxes.items()]
    methods = [runs.Method(one, SCHEMES[one]) for one in chosen]
    methods += [runs.Method(one, scheme) for one, scheme in own.items() if takes(flow, scheme)]
    return [_token_series(problem, flow, one, known, grids, dim, most, one.name in own) for one in methods]


def takes(flow: str, scheme: Reconstruction) -> bool:
    """Whether a scheme has an order of a flow: those with a dual alone carry costates and gradients, none rho."""
    return flow == "mu" or (flow != "rho" and isinstance(scheme, DualReconstruction))


def _choices(flow: str) -> tuple[str, ...]:
    return tuple(HEAD_SCHEMES) if flow == "rho" else tuple(one for one, s in SCHEMES.items() if takes(flow, s))


def _token_series(
    problem: Problem,
    flow: str,
    method: runs.Method,
    known: Callable[[Grid], FloatArray] | None,
    grids: tuple[int, ...],
    dim: int,
    most: int | None,
    own: bool,
) -> Series:
    solve = {"mu": runs.token_law, "costate": runs.costate, "gradient": runs.gradient}[flow]

    def refined(law: runs.Law) -> FloatArray:
        if flow == "mu":
            return runs.averaged(law.values, law.grid.dim)
        # a gradient is on the same cells of the heads
        return same(law) if flow == "gradient" else runs.sampled(law.values, law.grid)

    def declared(norm: str) -> int:
        promised = _declared(flow, method.scheme, norm, dim)
        return promised if most is None else min(promised, most)

    return Series(
        "space", flow, method.name, "cells", grids, lambda n: solve(problem, method, n, grids[0]), known, refined,
        declared, JUDGED[dim], method.scheme.width,
        MOST_BELOW_CLIPPING if method.name == "muscl-minmod" else MOST_BELOW, own,
    )  # fmt: skip


def _head_series(
    problem: Problem,
    name: str,
    known: Callable[[Grid], FloatArray] | None,
    grids: tuple[int, ...],
    dim: int,
    most: int | None,
    flux: OwnFlux | None = None,
) -> Series:
    training = given(problem.training, "training")
    # on the way: at rest the scheme is exact and shows no order
    end = training.s_end if known is not None else min(training.s_end, 10.0 * training.ds)
    # without noise a law may contract to atoms, where none is promised
    declared = 0 if training.beta == 0 else min(2 if flux is None else flux.order, 2 if most is None else most)
    steps = 2 if flux is not None else HEAD_SCHEMES[name]
    return Series(
        "space", "rho", name, "cells", grids, lambda n: runs.head_law(problem, steps, n, grids[0], end, flux),
        known, lambda law: runs.sampled(law.values, law.grid), lambda norm: declared, JUDGED[dim],
        own=flux is not None,
    )  # fmt: skip


def flow_of(problem: Problem, exact: Reference | None) -> tuple[str, Callable[[Grid], FloatArray] | None]:
    """The flow a kind of problem measures, and its exact values on a grid if they are known."""
    field: Field | None
    if problem.kind == "tokens" and exact is not None and exact.p is not None:
        flow, field, end = "costate", exact.p, 0.0
    elif problem.kind == "tokens":
        flow, field = "mu", None if exact is None else exact.mu
        end = problem.depth.T if problem.depth is not None else 0.0
    elif problem.kind == "training":
        flow, field, end = "gradient", None if exact is None else exact.first_variation, 0.0
    else:
        flow, field = "rho", None if exact is None or exact.limit else exact.rho
        end = problem.training.s_end if problem.training is not None else 0.0
    if field is None:
        return flow, None
    known = field
    return flow, lambda grid: known(end, grid)


def _declared(flow: str, scheme: Reconstruction, norm: str, dim: int) -> int:
    if flow == "costate":
        # the reported p is the box filter of the raw one to order 4
        return min(scheme.order, 4)
    if dim > 1:
        # the face mean of a product is taken to order 4 (McCorquodale and Colella 2011)
        return min(_declared(flow, scheme, norm, 1), 4)
    # a TVD limiter is of order 1 at extrema, which is all that the largest error sees
    return order_at_extrema(scheme) if norm == "Linf" else scheme.order


def grid_box(problem: Problem) -> Tokens | Heads:
    """The box whose cells are varied: that of the tokens, or of the heads where there are none."""
    return given(problem.heads, "heads") if problem.tokens is None or problem.depth is None else problem.tokens


def _cells(problem: Problem, cells: Sequence[int] | None, doubling: bool) -> tuple[int, ...]:
    box = grid_box(problem)
    usual = (GRADIENT_CELLS if problem.kind == "training" else CELLS)[len(box.cells)]
    if problem.attention == "sinkhorn" and len(box.cells) == 1:
        usual = COUPLED_CELLS
    if problem.attention is None and len(box.cells) == 2 and problem.tokens is not None:
        usual = CARRIED_CELLS
    if doubling:
        # as many differences as there would be errors
        usual = (*usual, 2 * usual[-1])
    grids = usual if cells is None else tuple(cells)
    least = 3 if doubling else 2
    if len(grids) < least or any(a >= b for a, b in pairwise(grids)) or min(grids) < 3:
        raise MeanFieldError(f"cells = {grids} must be at least {least} growing numbers of cells, such as 64,128,256")
    if doubling and any(2 * a != b for a, b in pairwise(grids)):
        raise MeanFieldError(
            f"cells = {grids} cannot be compared without an exact solution: each must be twice the one before"
        )
    return grids
