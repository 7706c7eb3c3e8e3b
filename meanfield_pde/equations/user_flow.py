"""A user's own flow of the heads, checked at every step."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.splitting import HeadFlow

# how far a step of a user's flow may move the mass of a layer
MASS = 1e-10


def user_step(flow: HeadFlow, grid: Grid, points: FloatArray, rho: FloatArray, ds: float) -> FloatArray:
    """rho after a step ds of a user's flow theta, rho, ds -> rho.

    Shapes: points (K, q) and rho (layers, *cells), both copies that the function may keep or change.
    Raises: NotFiniteError naming layer and cell; MeanFieldError for another shape, rho < 0 or mass that moved.
    """
    after = np.array(flow(points.copy(), rho.copy(), ds), dtype=float, order="C")
    if after.shape != rho.shape:
        raise MeanFieldError(f"training.flow gives rho of shape {after.shape}: it must keep the shape {rho.shape}")
    if not np.isfinite(after).all():
        layer, *cell = (int(i) for i in np.argwhere(~np.isfinite(after))[0])
        raise NotFiniteError(f"training.flow gives a rho that is not finite in layer {layer}, cell {tuple(cell)}")
    if after.min() < 0.0:
        layer, *cell = (int(i) for i in np.unravel_index(int(after.argmin()), after.shape))
        raise MeanFieldError(
            f"training.flow gives rho = {after.min():g} in layer {layer}, cell {tuple(cell)}: a density must be >= 0"
        )
    change = grid.integral(after) - grid.integral(rho)
    worst = int(np.abs(change).argmax())
    if abs(change[worst]) > MASS:
        raise MeanFieldError(
            f"training.flow moves the mass of layer {worst} by {change[worst]:.1e} in a step of {ds:g}: "
            f"a flow must keep it to {MASS:.0e}"
        )
    return after
