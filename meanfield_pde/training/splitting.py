"""Splittings of (P) as data: a table of flows and the fraction of the step each takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.model.sides import Flow, Moved


class Splitting(NamedTuple):
    """Order and stages (flow, fraction); the fractions of each flow sum to 1."""

    order: int
    stages: tuple[tuple[str, float], ...]


SPLITTINGS = {
    "gibbs": Splitting(2, (("gibbs", 1.0),)),
    "lie": Splitting(1, (("drift", 1.0), ("diffusion", 1.0))),
    "strang": Splitting(2, (("drift", 0.5), ("diffusion", 1.0), ("drift", 0.5))),
}


def splitting(name: str) -> Splitting:
    """The splitting of that name. Raises: MeanFieldError with the nearest name."""
    if name not in SPLITTINGS:
        raise MeanFieldError(f"training.splitting = {name!r} is unknown: {nearest(name, SPLITTINGS)}")
    return SPLITTINGS[name]


def check(table: Splitting, flows: Mapping[str, Flow]) -> None:
    """Refuse unknown flows, fractions that do not sum to 1.

    Raises: MeanFieldError.
    """
    totals: dict[str, float] = {}
    for name, fraction in table.stages:
        if name not in flows:
            raise MeanFieldError(
                f"the splitting uses a flow {name!r} that the heads do not have: {nearest(name, flows)}"
            )
        totals[name] = totals.get(name, 0.0) + fraction
    for name, total in totals.items():
        if not abs(total - 1.0) <= 1e-12:  # NaN fails too
            raise MeanFieldError(f"the fractions of flow {name!r} sum to {total:g}: they must sum to 1")


def apply(
    table: Splitting, flows: Mapping[str, Flow], rho: FloatArray, psi: FloatArray, ds: float, order: int
) -> Moved:
    """One step ds of all stages in their order, each flow at the given order; what limiters did is summed."""
    limited = 0.0
    for name, fraction in table.stages:
        rho, count = flows[name](rho, psi, fraction * ds, order)
        limited += count
    return Moved(rho, limited)
