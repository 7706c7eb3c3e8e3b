"""Distances of a solution to a reference on the same cells, the worst sequence or layer, by the name of the norm."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import BoolArray, FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.studies.order_runs import Law, centred

WALLS, INTERIOR = "L1 walls", "L1 interior"
SEEN = 1e-3  # mean density at the walls, as a share of that of the box, from which on it is told apart


def distances(flow: str, law: Law, reference: FloatArray, width: int) -> dict[str, float]:
    """Errors by norm.

    Meaning: "gradient" in L1(rho) less the mean, relative; "costate" in L1(mu); "mu" and "rho" in L1, Linf and on a
    line W1. Where a law has mass at walls (.001 of its mean density or more), also the mean error over the cells within
    ``width`` of a wall, "L1 walls", and over the others, "L1 interior": per volume, so that both fall like the error of
    a cell.
    Shapes: reference like law.values, (B or layers, *cells).
    """
    values, grid, weight = law
    axes = tuple(range(1, values.ndim))
    if flow == "gradient":
        error, size = (centred(v, weight) for v in (values - reference, reference))
        share = (np.abs(error) * weight).sum(axis=axes) / (np.abs(size) * weight).sum(axis=axes)
        return {"relative L1(rho)": float(share.max())}
    gap = np.abs(values - reference)
    l1 = float((gap * weight).sum(axis=axes).max())
    if flow == "costate":
        return {"L1(mu)": l1}
    out = {"L1": l1, "Linf": float(gap.max())}
    if grid.dim == 1 and not grid.periodic[0]:
        # on a line the Wasserstein distance is the area between the distribution functions
        below = np.abs(np.cumsum((values - reference) * weight, axis=-1))
        out["W1"] = float((below.sum(axis=-1) * grid.spacing[0]).max())
    near = near_walls(grid, width)
    if near.any() and not near.all() and np.abs(reference[:, near]).mean() >= SEEN * np.abs(reference).mean():
        out[INTERIOR] = float(gap[:, ~near].mean(axis=1).max())
        out[WALLS] = float(gap[:, near].mean(axis=1).max())
    return out


def near_walls(grid: Grid, width: int) -> BoolArray:
    """Cells that have a wall less than ``width`` cells away, (*cells)."""
    near = np.zeros(grid.cells, dtype=bool)
    for axis, (n, ring) in enumerate(zip(grid.cells, grid.periodic, strict=True)):
        if not ring:
            row = np.minimum(np.arange(n), np.arange(n)[::-1]) < width
            near |= row.reshape([-1 if k == axis else 1 for k in range(grid.dim)])
    return near
