"""L2 attention and mean shift: softmax whose scores are minus half the squared distance in the metric of A.

v(x, theta; mu) = W ∫ y k(x, y) mu(dy)/∫ k(x, y) mu(dy), k = e^{<Ax,y> - <Ay,y>/2}. For A = a I the kernel is
e^{-a |x - y|²/2} up to a factor of x that cancels; mean shift is W = I with the drift -x.
Source: Kim, Papamakarios & Mnih (2021), eq. 4, for the score; Cheng (1995) for mean shift.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.field import AssembledField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import PairSums
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.separable import SeparableField, separable


def l2_field(
    heads: HeadMatrices, weights: FloatArray, targets: tuple[Target, ...], lattice: Lattice, like: AssembledField | None
) -> AssembledField:
    """The assembled field: axis by axis for diagonal A, else by sums over all pairs; on the lattice's sample weights.

    Meaning: ``like`` is a field of the same heads at the same targets whose kernels are taken over, or None.
    Raises: MeanFieldError for a kernel narrower than the cells.
    """
    if isinstance(like, SeparableField | PairSums) and like.heads is heads:
        return replace(like, weights=weights)
    _refuse_narrow(heads, lattice)
    if separable(heads, targets):
        return SeparableField("l2", heads, weights, targets, lattice)
    y = lattice.points
    tilt = -0.5 * np.einsum("ni,aij,nj->an", y, heads.scores, y, optimize=True)
    return PairSums(heads, weights, targets, lattice, sampled=True, tilt=tilt)


def _refuse_narrow(heads: HeadMatrices, lattice: Lattice) -> None:
    """A kernel of width 1/√a < h is not resolved by samples at the cells."""
    h = lattice.widths
    scaled = 0.5 * (heads.scores + heads.scores.transpose(0, 2, 1)) * (h[:, None] * h[None, :])
    largest = float(np.abs(np.linalg.eigvalsh(scaled)).max())
    if largest > 1.0:
        raise MeanFieldError(
            f"attention = 'l2': the narrowest kernel e^(-a|x-y|²/2) has the width 1/√a = {largest**-0.5:.3g} cells, "
            "at least 1 can be summed: take more token cells, or a smaller box of heads"
        )
