"""Log-densities of laws at the cell centres of a grid."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import ceil

import numpy as np
from scipy.special import logsumexp

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import evaluate, function_masses

IMAGES = 10_000


def gaussian_log(mean: FloatArray, covariance: FloatArray, grid: Grid) -> FloatArray:
    """log of the normal density, summed over the images of each ring; shape (size,).

    Raises: MeanFieldError if the law is so wide that a ring needs over 10 000 images.
    """
    root = np.linalg.cholesky(covariance)
    constant = -0.5 * grid.dim * np.log(2 * np.pi) - np.log(np.diag(root)).sum()
    shifts = []
    for k, ring in enumerate(grid.periodic):
        length = grid.upper[k] - grid.lower[k]
        nearest = np.floor((mean[k] - grid.lower[k]) / length) if ring else 0.0
        count = ceil(10 * np.sqrt(covariance[k, k]) / length) + 1 if ring else 0
        shifts.append([(i - nearest) * length for i in range(-count, count + 1)])
    total = int(np.prod([len(s) for s in shifts]))
    if total > IMAGES:
        raise MeanFieldError(f"the normal law is too wide for the ring ({total} images): use a uniform law")
    points = grid.points()
    out = np.full(len(points), -np.inf)
    for shift in product(*shifts):
        z = np.linalg.solve(root, (points - mean - np.array(shift)).T)
        out = np.logaddexp(out, constant - 0.5 * (z * z).sum(axis=0))
    return out


def uniform_log(lower: FloatArray, upper: FloatArray, grid: Grid) -> FloatArray:
    """log of the uniform density on a box, wrapped on rings; shape (size,), -inf outside."""
    inside = np.ones(grid.cells)
    for k in range(grid.dim):
        length = grid.upper[k] - grid.lower[k]
        distance = grid.centers(k) - lower[k]
        width = upper[k] - lower[k]
        if grid.periodic[k]:
            covers = np.floor((width - np.mod(distance, length)) / length) + 1.0
        else:
            covers = ((distance >= 0) & (distance <= width)).astype(float)
        shape = [1] * grid.dim
        shape[k] = -1
        inside = inside * (covers / width).reshape(shape)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(inside.ravel()))


def mixture_log(weights: FloatArray, parts: list[FloatArray]) -> FloatArray:
    """log of a mixture from the normalised log-densities of its components; shape (size,)."""
    used = weights > 0
    rows = [np.log(w / weights.sum()) + part for w, part, use in zip(weights, parts, used, strict=True) if use]
    return np.asarray(logsumexp(np.stack(rows), axis=0))


def function_log(function: Callable[[FloatArray], FloatArray], grid: Grid) -> FloatArray:
    """log of a user's density, normalised on the box; shape (size,), -inf where it is 0."""
    values = evaluate(function, grid.points())
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values) - np.log(function_masses(function, grid).sum()))
