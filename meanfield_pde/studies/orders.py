"""Orders of the schemes, measured on a problem: against its exact solution, or against itself on finer cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.schemes import SCHEMES, DualReconstruction, Muscl, scheme
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Heads, Problem, Tokens, given
from meanfield_pde.studies import order_runs as runs

CELLS = {1: (64, 128, 256, 512), 2: (44, 88, 176), 3: (16, 24, 32)}
CARRIED_CELLS = (24, 48, 96)  # a prescribed velocity in the plane: a turn of it takes many steps
COUPLED_CELLS = (32, 64, 128, 256)  # Sinkhorn attention solves for a coupling of all pairs of cells at every stage
# beyond those on a line the gradient of a smooth problem meets rounding
GRADIENT_CELLS = {1: (48, 96, 192, 384), 2: (16, 24, 36), 3: (8, 12, 16)}
HEAD_SCHEMES = {"scharfetter-gummel-1": 1, "scharfetter-gummel-2": 2}  # name -> order in ds
MOST_BELOW = 0.15  # a fitted order this far below the declared one is still that order
MOST_BELOW_CLIPPING = 0.25  # minmod clips extrema
# finest grids fitted once more: an order is a claim for h → 0, and a coarse grid may not resolve the law; the last two
# where cells are dear, in more than one dimension
JUDGED = {1: 3, 2: 2, 3: 2}
FLOOR = 1e-13  # errors below are rounding and say nothing of an order

Field = Callable[[float, Grid], FloatArray]
Solve = Callable[[int], runs.Law]


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


def orders(
    problem: Problem,
    exact: Reference | None = None,
    *,
    name: str = "",
    progress: Callable[[str], None] | None = None,
    cells: Sequence[int] | None = None,
    schemes: Iterable[str] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Errors over a row of grids and the orders fitted to them, one row a scheme and norm: ``{"rows": [...]}``.

    Meaning: tokens alone give the flow ``mu`` (final law, every scheme), or where the exact costate is known
    ``costate`` (reported p at depth 0, every scheme with a dual); training gives ``gradient`` (δL/δrho at
    s = 0, relative L1(rho), every scheme with a dual), Fokker-Planck gives ``rho`` (backward Euler with ds ∝ h² and
    the step of order 2 with ds ∝ h). Depth steps are refined with h. The worst sequence or layer counts. Without an
    exact solution (or with that of the state at rest, where the scheme is exact) each grid is compared with the next
    one of twice its cells, and ``error_estimate`` is that of the finest grid by Richardson extrapolation. ``fitted``
    is the least-squares slope over all grids, ``fitted_finest`` over the three finest (two in several dimensions), and
    ``short`` says that both miss ``declared``.
    Raises: MeanFieldError for unknown schemes, or cells that cannot be compared.
    """
    if problem.sides:
        raise MeanFieldError("orders are those of schemes on grids: take particles.sides = []")
    flow, known = _flow(problem, exact)
    grids = _cells(problem, cells, doubling=known is None)
    choices = _schemes(flow)
    chosen = list(choices) if schemes is None else list(schemes)
    for one in chosen:
        if one not in choices:
            raise MeanFieldError(f"scheme {one!r} has no order of the flow '{flow}': {nearest(one, choices)}")
    rows: list[dict[str, Any]] = []
    with threadpool_limits(limits=1, user_api="blas"):
        for one in chosen:
            start = perf_counter()
            laws = {}
            for n in grids:
                if progress is not None:
                    progress(f"{flow} {one}: {n} cells")
                laws[n] = _solver(problem, flow, one, grids[0], known is None)(n)
            found = _compared(laws, flow, known)
            seconds = perf_counter() - start
            used = grids if known is not None else grids[:-1]
            for norm, errors in found.items():
                row = {"problem": name or problem.title, "flow": flow, "scheme": one, "norm": norm}
                dim = len(grid_box(problem).cells)
                declared = _declared(flow, one, norm, dim)
                if flow == "rho" and given(problem.training, "training").beta == 0:
                    declared = 0  # without noise a law may contract to atoms, where none is promised
                if exact is not None and exact.order is not None:
                    declared = min(declared, exact.order)
                rows.append(row | _fitted(used, errors, declared, JUDGED[dim], one, known is None, seconds))
    return {"rows": rows}


def _flow(problem: Problem, exact: Reference | None) -> tuple[str, Callable[[Grid], FloatArray] | None]:
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


def _schemes(flow: str) -> tuple[str, ...]:
    if flow == "rho":
        return tuple(HEAD_SCHEMES)
    return tuple(one for one, s in SCHEMES.items() if flow == "mu" or isinstance(s, DualReconstruction))


def _declared(flow: str, name: str, norm: str, dim: int) -> int:
    if flow == "rho":
        return 2
    if flow == "costate":
        # the reported p is the box filter of the raw one to order 4
        return min(scheme(name).order, 4)
    if dim > 1:
        # the face mean of a product is taken to order 4 (McCorquodale and Colella 2011)
        return min(_declared(flow, name, norm, 1), 4)
    # a TVD limiter is of order 1 at extrema, which is all that the largest error sees
    return 1 if norm == "Linf" and isinstance(scheme(name), Muscl) else scheme(name).order


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


def _solver(problem: Problem, flow: str, name: str, coarsest: int, alone: bool) -> Solve:
    if flow == "mu":
        return lambda n: runs.token_law(problem, name, n, coarsest)
    if flow == "costate":
        return lambda n: runs.costate(problem, name, n, coarsest)
    if flow == "gradient":
        return lambda n: runs.gradient(problem, name, n, coarsest)
    assert problem.training is not None
    end = problem.training.s_end
    if alone:
        # on the way: at rest the scheme is exact and shows no order
        end = min(end, 10.0 * problem.training.ds)
    return lambda n: runs.head_law(problem, HEAD_SCHEMES[name], n, coarsest, end)


def _compared(
    laws: dict[int, runs.Law], flow: str, known: Callable[[Grid], FloatArray] | None
) -> dict[str, list[float]]:
    """Errors of each grid by norm, the worst sequence or layer."""
    grids = list(laws)
    out: dict[str, list[float]] = {}
    for n in grids if known is not None else grids[:-1]:
        values, grid, weight = laws[n]
        if known is not None:
            reference = known(grid)
        elif flow == "mu":
            reference = runs.averaged(laws[2 * n].values, grid.dim)
        elif flow == "gradient":
            reference = laws[2 * n].values  # on the same cells of the heads
        else:
            reference = runs.sampled(laws[2 * n].values, laws[2 * n].grid)
        axes = tuple(range(1, values.ndim))
        if flow == "gradient":
            error, size = (runs.centred(v, weight) for v in (values - reference, reference))
            share = (np.abs(error) * weight).sum(axis=axes) / (np.abs(size) * weight).sum(axis=axes)
            out.setdefault("relative L1(rho)", []).append(float(share.max()))
        elif flow == "costate":
            gap = (np.abs(values - reference) * weight).sum(axis=axes)
            out.setdefault("L1(mu)", []).append(float(gap.max()))
        else:
            gap = np.abs(values - reference)
            out.setdefault("L1", []).append(float((gap * weight).sum(axis=axes).max()))
            out.setdefault("Linf", []).append(float(gap.max()))
            if grid.dim == 1 and not grid.periodic[0]:
                # on a line the Wasserstein distance is the area between the distribution functions
                below = np.abs(np.cumsum((values - reference) * weight, axis=-1))
                out.setdefault("W1", []).append(float((below.sum(axis=-1) * grid.spacing[0]).max()))
    return out


def _fitted(
    grids: tuple[int, ...], errors: list[float], declared: int, judged: int, name: str, alone: bool, seconds: float
) -> dict[str, Any]:
    n, e = np.array(grids, dtype=float), np.array(errors)
    seen = e > FLOOR
    pairs = [
        float(np.log(e[i] / e[i + 1]) / np.log(n[i + 1] / n[i])) if seen[i] and seen[i + 1] else None
        for i in range(len(e) - 1)
    ]
    fitted = _slope(n[seen], e[seen])
    finest = _slope(n[-judged:][seen[-judged:]], e[-judged:][seen[-judged:]])
    below = MOST_BELOW_CLIPPING if name == "muscl-minmod" else MOST_BELOW
    row: dict[str, Any] = {
        "n": list(grids),
        "errors": errors,
        "orders": pairs,
        "fitted": fitted,
        "fitted_finest": finest,
        "declared": declared,
        "short": declared > 0 and fitted is not None and max(fitted, finest or fitted) < declared - below,
        "seconds": seconds,
        "reference": "self" if alone else "exact",
    }
    if alone:
        last = next((p for p in reversed(pairs) if p is not None), None)
        # e(2h) − e(h) is the last difference, so e(h) is that over 2^p − 1
        row["finest"] = 2 * grids[-1]
        row["error_estimate"] = errors[-1] / (2.0**last - 1.0) if last is not None and last > 0.0 else None
    return row


def _slope(n: FloatArray, errors: FloatArray) -> float | None:
    return float(-np.polyfit(np.log(n), np.log(errors), 1)[0]) if len(n) > 1 else None
