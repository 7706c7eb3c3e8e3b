"""Weighted samples in the form that distances use: checked, sorted, cumulated."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError


def weighted(points: FloatArray, weights: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Points (n, d), from (n,) or (n, d), and their weights scaled to sum 1; equal ones if None.

    Raises: MeanFieldError for empty samples, what is not finite, and weights that are negative or do not fit.
    """
    points = np.asarray(points, dtype=float)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise MeanFieldError(f"a sample of shape {points.shape} must be (n,) or (n, d), not empty, and finite")
    if weights is None:
        return points, np.full(len(points), 1.0 / len(points))
    weights = np.asarray(weights, dtype=float)
    if weights.shape != points.shape[:1] or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise MeanFieldError(
            f"weights of shape {weights.shape} for {len(points)} points must be one each, ≥ 0, finite and not all 0"
        )
    return points, weights / weights.sum()


def on_axis(points: FloatArray, weights: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """The sorted points (n,) of a sample in one dimension and its cumulative weights (n + 1,), from 0 to 1.

    Raises: MeanFieldError as `weighted`, and for more dimensions.
    """
    given, share = weighted(points, weights)
    if given.shape[1] != 1:
        raise MeanFieldError(f"a sample of dimension {given.shape[1]} is compared with a law on one axis: give (n,)")
    order = np.argsort(given[:, 0], kind="stable")
    total = np.concatenate([[0.0], np.cumsum(share[order])])
    total[-1] = 1.0
    return given[order, 0], np.minimum(total, 1.0)
