"""The attentions by name, and what carries each of them on given token cells."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.aggregation import AggregationField
from meanfield_pde.model.circle import circle_field
from meanfield_pde.model.field import AssembledField, MeansTable, PrescribedField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import BLOCK, KEPT
from meanfield_pde.model.l2 import l2_field
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.linear import LinearField
from meanfield_pde.model.perceptron import PerceptronField, Perceptrons
from meanfield_pde.model.separable import SeparableField, separable
from meanfield_pde.model.sinkhorn import SinkhornField
from meanfield_pde.model.softmax_cost import TablePlan, line_plan, table_plan
from meanfield_pde.model.softmax_direct import DirectField
from meanfield_pde.model.softmax_keys import KeyField
from meanfield_pde.model.softmax_matrix import MatrixField
from meanfield_pde.model.softmax_table import SIZES, SoftmaxTable, TabulatedField
from meanfield_pde.model.tensor_table import TensorTable
from meanfield_pde.model.unnormalised import unnormalised_field
from meanfield_pde.model.windowed import windowed_field

ATTENTIONS = ("softmax", "linear", "l2", "unnormalised", "windowed", "sinkhorn", "aggregation", "none")
# their kernels have no inverse box filter in closed form
SAMPLED = ("l2", "sinkhorn")
# not of degree 0 in mu: they are no means, so nothing keeps them in the box, and ∫ p dmu is not constant in depth
SCALED = ("linear", "unnormalised", "aggregation")
Reach = tuple[float, ...]
"""Largest |(A x)_k| of each axis k: the box of keys that a table covers."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How a head acts, v(x, theta; mu): one of `ATTENTIONS`; ``window`` is the radius r of windowed softmax."""

    name: str = "softmax"
    window: float | None = None

    def uses_samples(self, circle: bool) -> bool:
        """Whether the box filter is inverted by the filters of the lattice and not in closed form."""
        return not circle and self.name in SAMPLED

    @property
    def is_mean(self) -> bool:
        """Whether v is W times a mean of tokens, so of degree 0 in mu and bounded by the box."""
        return self.name not in SCALED


def plan_means(
    attention: Attention,
    lattice: Lattice,
    targets: tuple[Target, ...],
    heads: HeadMatrices | Perceptrons,
    laws: int,
    fields: int,
    tolerance: float,
) -> TablePlan:
    """How softmax means are taken, and the sizes that a table of them may have, () where nothing is tabulated.

    Meaning: ``laws`` counts the token laws that one of the ``fields`` assembled fields is applied to; ``tolerance``
    is the relative error of the means.
    """
    if attention.name != "softmax" or lattice.circle or isinstance(heads, Perceptrons):
        return TablePlan("direct")
    if len(lattice.axes) == 1:
        return line_plan(lattice, targets, SIZES, fields)
    return table_plan(lattice, targets, heads, laws, fields, tolerance)


def kernel_bytes(attention: Attention, lattice: Lattice, targets: tuple[Target, ...], scores: int) -> float:
    """The most bytes that kernels over pairs of points and cells take at once, for so many score matrices.

    Meaning: they are kept up to `KEPT`, and made again in blocks beyond; those of Sinkhorn are whole, a few at a time.
    """
    cells, points = len(lattice.points), sum(len(t.points) for t in targets)
    if attention.name == "sinkhorn":
        return 8.0 * (4.0 * cells * cells + BLOCK)
    if attention.name in ("softmax", "unnormalised", "l2", "windowed"):
        return min(8.0 * scores * cells * points, KEPT) + 24.0 * BLOCK
    return 0.0


def make_table(way: str, lattice: Lattice, reach: Reach, size: int) -> MeansTable:
    """The table of softmax means for keys up to ``reach``, of ``size`` nodes an axis."""
    if way == "line":
        return SoftmaxTable.build(lattice.axes[0], float(lattice.widths[0]), reach[0], size)
    return (TensorTable.chebyshev if way == "matrix" else TensorTable.uniform)(lattice, reach, size)


def assemble_field(
    attention: Attention,
    lattice: Lattice,
    targets: tuple[Target, ...],
    heads: HeadMatrices | Perceptrons,
    weights: FloatArray,
    table: MeansTable | None,
    like: AssembledField | None = None,
) -> AssembledField:
    """The velocity at fixed targets for heads of given weights (K,).

    Meaning: ``like`` is the field of other weights of the same heads at the same targets, whose kernels may be shared.
    Raises: MeanFieldError for an attention that is not defined for such tokens.
    """
    if isinstance(heads, Perceptrons):
        return PerceptronField(heads, weights, targets, lattice.circle)
    if attention.name == "none":
        return PrescribedField(tuple(np.zeros(len(target.points)) for target in targets))
    if attention.name == "aggregation":
        return AggregationField(heads, weights, targets, lattice)
    if lattice.circle and attention.name in ("softmax", "unnormalised"):
        return circle_field(heads, weights, targets, lattice, attention.name == "softmax", like)
    if lattice.circle:
        raise MeanFieldError(f"attention = '{attention.name}' is not covered on the circle: take 'softmax'")
    if attention.name == "softmax":
        if isinstance(table, SoftmaxTable):
            return TabulatedField.assemble(table, heads, weights, targets)
        if isinstance(table, TensorTable):
            by = KeyField if table.coefficients is None else MatrixField
            return by.assemble(table, heads, weights, targets)
        if isinstance(like, SeparableField) and like.heads is heads:
            return replace(like, weights=weights)
        if separable(heads, targets):
            return SeparableField("softmax", heads, weights, targets, lattice)
        return DirectField(heads, weights, targets, lattice.points, lattice.widths)
    if attention.name == "linear":
        return LinearField(heads, weights, targets, lattice)
    if attention.name == "l2":
        return l2_field(heads, weights, targets, lattice, like)
    if attention.name == "unnormalised":
        return unnormalised_field(heads, weights, targets, lattice, like)
    if attention.name == "windowed" and attention.window is not None:
        return windowed_field(heads, weights, targets, lattice, attention.window, like)
    if attention.name == "sinkhorn":
        return SinkhornField(heads, weights, targets, lattice)
    raise MeanFieldError(f"attention = '{attention.name}' is not covered yet for tokens like these")
