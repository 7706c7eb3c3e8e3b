"""What a sweep back through depth says about each head."""

from __future__ import annotations

from typing import NamedTuple

from meanfield_pde.arrays import FloatArray


class HeadCotangents(NamedTuple):
    """Derivatives of the loss by the weight of each head, and of that again by its A and W.

    Shapes: weight (K,), the first variation at the head; scores and values (K, d, d) its derivatives by A and W.
    """

    weight: FloatArray
    scores: FloatArray
    values: FloatArray
