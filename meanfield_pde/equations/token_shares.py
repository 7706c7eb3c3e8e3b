"""Shares of the sequences of a token side, each small enough to be carried by a worker of its own, and their sum.

How sequences are divided depends on their number alone, and shares are added in their order, so neither who carries a
share nor how many carry shares changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.grid_tokens import BLOCK, GridTokens
from meanfield_pde.equations.means_tables import MeansTables
from meanfield_pde.equations.token_report import met_weights
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Reach
from meanfield_pde.model.sides import TokenReport

# blocks a share at least: a share builds its own table rows, which must not take longer than what it carries
LEAST = 4
# shares at most, and so workers of use
MOST = 8


class Heads(NamedTuple):
    """The law of the heads as it is sent: weights (K,) a layer and the widths of a cell; workers know the points."""

    weights: tuple[FloatArray, ...]
    widths: FloatArray


class Share(NamedTuple):
    """What the sequences of a share give: their number, the error of their table, mean loss and gradient.

    Meaning: ``loss`` is None where the error was beyond the tolerance, so that a larger table is needed first.
    """

    sequences: int
    table_error: float | None
    loss: float | None
    gradient: FloatArray | None
    report: TokenReport | None


def slices(count: int) -> tuple[slice, ...]:
    """The sequences of each share, whole blocks each."""
    size = BLOCK * max(LEAST, ceil(ceil(count / BLOCK) / MOST))
    return tuple(slice(start, min(start + size, count)) for start in range(0, count, size))


def share_of(tokens: GridTokens, part: slice) -> GridTokens:
    """The token side of some of the sequences alone, with the plan of tables that holds for all of them."""
    queries = tokens.queries
    if queries is not None:
        queries = replace(queries, **{name: getattr(queries, name)[part] for name in ("points", "targets", "shares")})
    laws = tokens.mu0[part]
    side = replace(
        tokens,
        mu0=laws,
        targets=None if tokens.targets is None else tokens.targets[part],
        queries=queries,
        threads=1,
        budget=tokens.budget * len(laws) / len(tokens.mu0),
    )
    # which kind of table is cheapest depends on the number of laws, so that of all of them is taken
    object.__setattr__(side, "tables", MeansTables(side.lattice, tokens.tables.plan, tokens.tables.tolerance))
    return side


def evaluate(side: GridTokens, heads: Heads, size: int | None, first: int, gradient: bool = True) -> Share:
    """Loss and gradient of the sequences of a share, of which ``first`` is the number of the first.

    Raises: MeanFieldError as `GridTokens.first_variation`, naming the sequences.
    """
    try:
        sweep = side._sweep(_law(side, heads), _starts(side), size)
        error = sweep.table_error
        if error is not None and size != side.tables.sizes[-1] and not error <= side.tables.tolerance:
            return Share(len(side.mu0), error, None, None, None)
        loss, p_end = side.value(sweep)
        if not gradient:
            return Share(len(side.mu0), error, loss, None, None)
        costate = side.backward(sweep, p_end)
        return Share(len(side.mu0), error, loss, costate.gradient, side.report(sweep, costate))
    except MeanFieldError as fault:
        if first:
            raise type(fault)(f"{fault} (sequences counted from number {first} on)") from None
        raise


def met(side: GridTokens, heads: Heads, size: int) -> FloatArray:
    """The masses that the sequences of a share met on their way, by which a larger table is chosen."""
    return met_weights(side.transport, side._sweep(_law(side, heads), _starts(side), size))


def error_at(side: GridTokens, weights: FloatArray, reach: Reach, size: int) -> float:
    """The error of a table of that size for masses."""
    return side.tables.error(size, reach, weights)


def _law(side: GridTokens, heads: Heads) -> tuple[Measure, ...]:
    return tuple(Measure(side.head_points, weights, heads.widths) for weights in heads.weights)


def _starts(side: GridTokens) -> list[FloatArray]:
    return [side.mu0[i : i + BLOCK] for i in range(0, len(side.mu0), BLOCK)]


def summed(shares: Sequence[Share]) -> tuple[float, FloatArray | None]:
    """Mean loss and gradient over all sequences, added in the order of the shares."""
    total = sum(share.sequences for share in shares)
    loss, gradient = 0.0, None
    for share in shares:
        assert share.loss is not None
        part = share.sequences / total
        loss += part * share.loss
        if share.gradient is not None:
            own = part * share.gradient
            gradient = own if gradient is None else gradient + own
    return loss, gradient


def joined(reports: Sequence[TokenReport]) -> TokenReport:
    """The report of all sequences: the worst of every share."""

    def worst(name: str) -> float | None:
        values = [getattr(report, name) for report in reports]
        # NaN must not be lost in a maximum
        return None if any(value is None for value in values) else float(np.max(values))

    first = reports[0]
    limited = None if first.limited is None else sum(report.limited or 0 for report in reports)
    steps, size = worst("steps"), first.table_size
    return TokenReport(
        mass_error=worst("mass_error"),
        minimum=float(np.min([np.nan if report.minimum is None else report.minimum for report in reports])),
        undershoot=worst("undershoot"),
        peak_mass=worst("peak_mass"),
        outside_mass=first.outside_mass,
        courant=worst("courant"),
        table_error=worst("table_error"),
        table_size=size,
        costate_drift=worst("costate_drift"),
        wall_mass=worst("wall_mass"),
        limited=limited,
        dual=None if first.dual is None else all(report.dual for report in reports),
        steps=None if steps is None else int(steps),
    )
