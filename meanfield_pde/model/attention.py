"""The attentions by name, and what carries each of them on given token cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.field import AssembledField, PrescribedField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.l2 import l2_field
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.linear import LinearField
from meanfield_pde.model.separable import SeparableField, separable
from meanfield_pde.model.sinkhorn import SinkhornField
from meanfield_pde.model.softmax_direct import DirectField
from meanfield_pde.model.softmax_table import SIZES, SoftmaxTable, TabulatedField
from meanfield_pde.model.unnormalised import unnormalised_field
from meanfield_pde.model.windowed import windowed_field

ATTENTIONS = ("softmax", "linear", "l2", "unnormalised", "windowed", "sinkhorn", "none")
# their kernels have no inverse box filter in closed form
SAMPLED = ("l2", "sinkhorn")
# not of degree 0 in mu: they are no means, so nothing keeps them in the box, and ∫ p dmu is not constant in depth
SCALED = ("linear", "unnormalised")
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

    @property
    def is_mean(self) -> bool:
        """Whether v is W times a mean of tokens, so of degree 0 in mu and bounded by the box."""
        return self.name not in SCALED


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
    like: AssembledField | None = None,
) -> AssembledField:
    """The velocity at fixed targets for heads of given weights (K,).

    Meaning: ``like`` is the field of other weights of the same heads at the same targets, whose kernels may be shared.
    Raises: MeanFieldError for an attention that is not defined for such tokens.
    """
    if attention.name == "none":
        return PrescribedField(tuple(np.zeros(len(target.points)) for target in targets))
    if attention.name == "softmax" and not lattice.circle:
        if table is not None:
            return TabulatedField.assemble(table, heads, weights, targets)
        if separable(heads, targets):
            return SeparableField("softmax", heads, weights, targets, lattice)
        return DirectField(heads, weights, targets, lattice.points, lattice.widths)
    if attention.name == "linear":
        return LinearField(heads, weights, targets, lattice)
    if attention.name == "l2":
        return l2_field(heads, weights, targets, lattice, like)
    if attention.name == "unnormalised" and not lattice.circle:
        return unnormalised_field(heads, weights, targets, lattice, like)
    if attention.name == "windowed" and attention.window is not None:
        return windowed_field(heads, weights, targets, lattice, attention.window, like)
    if attention.name == "sinkhorn":
        return SinkhornField(heads, weights, targets, lattice)
    raise MeanFieldError(f"attention = '{attention.name}' is not covered yet for tokens like these")
