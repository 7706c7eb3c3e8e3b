"""The attentions by name, and what carries each of them on given token cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.aggregation import AggregationField
from meanfield_pde.model.field import AssembledField, PrescribedField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.separable import SeparableField, separable
from meanfield_pde.model.softmax_direct import DirectField
from meanfield_pde.model.softmax_table import SIZES, SoftmaxTable, TabulatedField

ATTENTIONS = ("softmax", "linear", "l2", "unnormalised", "windowed", "sinkhorn", "aggregation", "none")
# their kernels have no inverse box filter in closed form
SAMPLED = ("l2", "windowed", "sinkhorn")
Reach = tuple[float, ...]
"""Largest |(A x)_k| of each axis k: the box of keys that a table covers."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How a head acts, v(x, theta; mu): one of `ATTENTIONS`; ``window`` is the radius r of windowed softmax."""

    name: str = "softmax"
    window: float | None = None

    def uses_samples(self, circle: bool) -> bool:
        """Whether the box filter is inverted by the filters of the lattice and not in closed form."""
        return circle or self.name in SAMPLED


def table_sizes(
    attention: Attention, lattice: Lattice, targets: tuple[Target, ...], heads: HeadMatrices, laws: int
) -> tuple[int, ...]:
    """The sizes a table of means may have, ascending; () where nothing is tabulated.

    Meaning: ``laws`` counts the token laws that one assembled field is applied to.
    """
    if attention.name == "softmax" and not lattice.circle and len(lattice.axes) == 1:
        return SIZES
    return ()


def make_table(lattice: Lattice, reach: Reach, size: int) -> SoftmaxTable:
    """The table of softmax means for keys up to ``reach``."""
    return SoftmaxTable.build(lattice.axes[0], float(lattice.widths[0]), reach[0], size)


def assemble_field(
    attention: Attention,
    lattice: Lattice,
    targets: tuple[Target, ...],
    heads: HeadMatrices,
    weights: FloatArray,
    table: SoftmaxTable | None,
) -> AssembledField:
    """The velocity at fixed targets for heads of given weights (K,).

    Raises: MeanFieldError for an attention that is not defined for such tokens.
    """
    if attention.name == "none":
        return PrescribedField(tuple(np.zeros(len(target.points)) for target in targets))
    if attention.name == "aggregation":
        return AggregationField(heads, weights, targets, lattice)
    if attention.name == "softmax" and not lattice.circle:
        if table is not None:
            return TabulatedField.assemble(table, heads, weights, targets)
        if separable(heads, targets):
            return SeparableField("softmax", heads, weights, targets, lattice)
        return DirectField(heads, weights, targets, lattice.points, lattice.widths)
    raise MeanFieldError(f"attention = '{attention.name}' is not covered yet for tokens like these")
