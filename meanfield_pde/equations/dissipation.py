"""The slope of the free energy: how fast the law of the heads descends, and whether it rests.

dF/ds = −∫ rho |∇psi + beta ∇log rho|² along (P) (Jordan, Kinderlehrer & Otto 1998); it vanishes at the Gibbs state.
"""

from __future__ import annotations

import numpy as np
from scipy.special import exprel

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid

# an empty cell has no logarithm
LEAST = np.finfo(float).tiny


def dissipation(grid: Grid, rho: FloatArray, psi: FloatArray, beta: float) -> FloatArray:
    """∫ rho |∇psi + beta ∇log rho|² of each layer by differences at faces, exactly 0 at the sampled Gibbs state.

    Formula: Σ over faces of Λ(rho_i, rho_{i+1}) ((Δpsi + beta Δlog rho)/h)² times the cell volume, with the logarithmic
    mean Λ(a, b) = (a − b)/(log a − log b), which is finite where one of the two cells is empty.
    Shapes: rho and psi (layers, *cells); returns (layers,).
    Source: Maas (2011), eq. 1.3, for the mean.
    """
    log = np.log(np.maximum(rho, LEAST))
    total = np.zeros(len(rho))
    for axis, h in enumerate(grid.spacing):
        here = range(grid.face_count(axis))
        ahead = [(f + 1) % grid.cells[axis] for f in here]

        def across(values: FloatArray, axis: int = axis, here: range = here, ahead: list[int] = ahead) -> FloatArray:
            return np.asarray(np.take(values, ahead, axis=axis + 1) - np.take(values, here, axis=axis + 1))

        jump = across(log)
        larger = np.maximum(np.take(rho, here, axis=axis + 1), np.take(rho, ahead, axis=axis + 1))
        force = (across(psi) + beta * jump) / h
        density = larger * exprel(-np.abs(jump)) * force**2
        total += density.reshape(len(rho), -1).sum(axis=1) * grid.cell_volume
    return total
