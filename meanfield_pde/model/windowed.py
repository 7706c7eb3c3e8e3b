"""Windowed attention: softmax over the tokens within a Euclidean distance, v = W ∫_{|x-y|<=r} y e^{<Ax,y>} dmu / ∫ ...

Where there is no mass within the window of x the velocity is 0. The edge of the window makes it of order 2 in h.
"""

from __future__ import annotations

from dataclasses import replace

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.field import AssembledField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import PairSums
from meanfield_pde.model.lattice import Lattice


def windowed_field(
    heads: HeadMatrices,
    weights: FloatArray,
    targets: tuple[Target, ...],
    lattice: Lattice,
    window: float,
    like: AssembledField | None,
) -> AssembledField:
    """The assembled field by sums over all pairs, each cell counted by the part of it that the window covers.

    Meaning: ``like`` is a field of the same heads at the same targets whose kernels are taken over, or None.
    Raises: MeanFieldError for a window narrower than a cell.
    """
    if isinstance(like, PairSums) and like.heads is heads:
        return replace(like, weights=weights)
    widest = float(lattice.widths.max())
    if window < widest:
        raise MeanFieldError(
            f"window = {window:g} is narrower than a token cell of width {widest:g}: take a wider window or more cells"
        )
    return PairSums(heads, weights, targets, lattice, window=window)
