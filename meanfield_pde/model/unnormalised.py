"""Unnormalised attention: v(x, theta; mu) = W ∫ y e^{<Ax,y>} mu(dy), linear in mu."""

from __future__ import annotations

from dataclasses import replace

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.field import AssembledField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import PairSums
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.separable import SeparableField, refuse_overflow, separable


def unnormalised_field(
    heads: HeadMatrices, weights: FloatArray, targets: tuple[Target, ...], lattice: Lattice, like: AssembledField | None
) -> AssembledField:
    """The assembled field: axis by axis for diagonal A, else by sums over all pairs; the box filter removed exactly.

    Meaning: ``like`` is a field of the same heads at the same targets whose kernels are taken over, or None.
    Raises: MeanFieldError when e^{<Ax,y>} is beyond what can be summed.
    """
    if isinstance(like, SeparableField | PairSums) and like.heads is heads:
        return replace(like, weights=weights)
    refuse_overflow(heads, targets, lattice)
    if separable(heads, targets):
        return SeparableField("unnormalised", heads, weights, targets, lattice)
    return PairSums(heads, weights, targets, lattice, normalised=False)
