"""Rows of an order table: solves over a row of resolutions on some threads, and the orders fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.studies.order_fits import MOST_BELOW, MOST_BELOW_WALLS, fitted, richardson
from meanfield_pde.studies.order_norms import INTERIOR, WALLS, distances
from meanfield_pde.studies.order_runs import Law

Solve = Callable[[int], Law]


@dataclass(frozen=True, slots=True)
class Series:
    """One method of a table: how it is solved at each of ``sizes``, and what is declared of it by norm.

    Meaning: ``sizes`` are ``unit``, cells or steps. Errors are those to ``known``, the exact values on a grid, or else
    to the solution of twice the size as ``refined`` gives it on the coarser one. ``judged`` finest sizes are fitted
    once more; ``width`` is how far a wall reaches in cells; ``below`` how far a fitted order may miss. ``own`` is a
    method of the user's, which may end in values that are not finite. Without ``smooth_at_walls`` no order is declared
    of a law that has mass there.
    """

    kind: str
    flow: str
    name: str
    unit: str
    sizes: tuple[int, ...]
    solve: Solve
    known: Callable[[Grid], FloatArray] | None
    refined: Callable[[Law], FloatArray]
    declared: Callable[[str], int]
    judged: int
    width: int = 1
    below: float = MOST_BELOW
    own: bool = False
    smooth_at_walls: bool = True


def same(law: Law) -> FloatArray:
    """The values as they are, for solutions on one grid."""
    return law.values


def measured(
    table: Sequence[Series], threads: int, progress: Callable[[str], None] | None = None
) -> list[dict[str, Any]]:
    """One row a series and norm; each solve is alone on its thread, so that no digit depends on their number."""
    # the longest first, so that no thread is left with one at the end
    jobs = sorted(((s, n) for s in range(len(table)) for n in table[s].sizes), key=lambda job: -job[1])
    laws: dict[tuple[int, int], Law] = {}
    seconds = [0.0] * len(table)

    def one(job: tuple[int, int]) -> tuple[Law | None, float]:
        series, n = table[job[0]], job[1]
        if progress is not None:
            progress(f"{series.flow} {series.name}: {n} {series.unit}")
        start = perf_counter()
        try:
            law = series.solve(n)
        except NotFiniteError:
            if not series.own:
                raise
            law = None
        return law, perf_counter() - start

    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for job, (law, spent) in zip(jobs, pool.map(one, jobs), strict=True):
            seconds[job[0]] += spent
            if law is not None:
                laws[job] = law
    rows = []
    for s, series in enumerate(table):
        rows += _rows(series, {n: laws[s, n] for n in series.sizes if (s, n) in laws}, seconds[s])
    return rows


def _rows(series: Series, laws: dict[int, Law], seconds: float) -> list[dict[str, Any]]:
    alone = series.known is None
    sizes = series.sizes[:-1] if alone else series.sizes
    errors: dict[str, list[float]] = {}
    found: list[dict[str, float]] = []
    for k, n in enumerate(sizes):
        if n not in laws or (alone and 2 * n not in laws):
            continue
        law = laws[n]
        reference = series.refined(laws[2 * n]) if series.known is None else series.known(law.grid)
        found.append(distances(series.flow, law, reference, series.width))
        for norm, error in found[-1].items():
            errors.setdefault(norm, [np.nan] * len(sizes))[k] = error
    # a law that has mass at the walls on some grids only is not told apart there
    errors = {norm: row for norm, row in errors.items() if all(norm in one for one in found)}
    if not errors:
        errors["L1"] = [np.nan] * len(sizes)
    rows = []
    settled = series.smooth_at_walls or WALLS not in errors
    if series.kind != "space":
        # what is wrong at a wall shows in h
        errors = {norm: row for norm, row in errors.items() if norm not in (WALLS, INTERIOR)}
    for norm, row_errors in errors.items():
        row: dict[str, Any] = {"kind": series.kind, "flow": series.flow, "scheme": series.name, "norm": norm}
        below = MOST_BELOW_WALLS if norm == WALLS else series.below
        declared = series.declared(norm) if settled else 0
        row |= fitted(sizes, row_errors, declared, series.judged, below)
        row |= {"unit": series.unit, "seconds": seconds, "reference": "self" if alone else "exact"}
        if alone:
            row |= {"finest": 2 * sizes[-1], "error_estimate": richardson(row_errors, row["orders"])}
        rows.append(row)
    return rows
