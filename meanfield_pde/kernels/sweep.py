"""Axes of an array on a grid in view: the only place that reshapes."""

from __future__ import annotations

from math import prod

import numpy as np

from meanfield_pde.arrays import FloatArray


def sweep(a: FloatArray, axis: int, dim: int) -> FloatArray:
    """View of ``a`` (..., *cells) with grid axis ``axis`` in the middle.

    Shapes: ``a`` (..., n_0, ..., n_{dim-1}) → (outer, n_axis, inner), outer over the leading axes and
    the grid axes before ``axis``, inner over those behind it. Writes reach ``a``.
    Raises: ValueError when ``a`` is not contiguous (a silent copy would lose writes).
    """
    position = a.ndim - dim + axis
    shape = (prod(a.shape[:position]), a.shape[position], prod(a.shape[position + 1 :]))
    return np.reshape(a, shape, copy=False)


def flat(a: FloatArray) -> FloatArray:
    """All numbers in one row."""
    return np.reshape(a, -1, copy=False)


def rows(a: FloatArray, axis: int, dim: int) -> FloatArray:
    """The same with the axis and those behind it in one row: (outer, n inner)."""
    position = a.ndim - dim + axis
    return np.reshape(a, (prod(a.shape[:position]), prod(a.shape[position:])), copy=False)
