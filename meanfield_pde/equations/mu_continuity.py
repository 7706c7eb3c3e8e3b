"""The continuity equation of the tokens, ∂_t mu + ∇·(mu V) = D Δ mu: how it is solved, velocities, Courant numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_control import ErrorSteps, FixedSteps
from meanfield_pde.equations.lax_wendroff import ONE_STEP, LaxWendroff, largest_courant, limiter_of
from meanfield_pde.equations.runge_kutta import Stepper, courant_limit
from meanfield_pde.equations.schemes import Muscl, Reconstruction, centred_weights
from meanfield_pde.equations.team import ALONE, Team
from meanfield_pde.equations.token_noise import TokenNoise
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.increments import largest_size
from meanfield_pde.kernels.log_laplace import seen_cells
from meanfield_pde.model.field import AssembledField, PrescribedField
from meanfield_pde.splitting import Splitting

# depths at which a drift that changes with depth is looked at for its speed
SPEEDS = 17
# a run of positive cells below this share of the largest value is noise; in more dimensions, where positive noise
# percolates and runs say nothing, so is every cell below the other one
CORE = 1e-12
LEAST = 1e-13
WHOLE = Splitting((("transport", 1.0),))


@dataclass(frozen=True, slots=True)
class Transport:
    """How mu is moved on a grid: scheme, stepper, Courant number, positivity, prescribed drift, noise.

    Meaning: ``drift`` holds, per axis, the prescribed normal velocity at the faces (*face_shape) added to V, and
    ``moving`` gives what changes with depth t, in the same shapes; ``noise`` is split from the transport of every
    step, and has no Courant limit. ``control`` says how long the steps are, None from the Courant number alone.
    ``team`` shares the work of a step and changes no bit.
    Raises: MeanFieldError when the Courant number is beyond the stability limit of scheme and stepper, or an axis
    has fewer cells than the stencil.
    """

    grid: Grid
    reconstruction: Reconstruction
    stepper: Stepper | LaxWendroff
    cfl: float
    positivity: bool
    drift: tuple[FloatArray, ...]
    noise: TokenNoise | None = None
    moving: Callable[[float], tuple[FloatArray, ...]] | None = None
    control: FixedSteps | ErrorSteps | None = None
    team: Team = field(default=ALONE, repr=False, compare=False)

    def __post_init__(self) -> None:
        for axis, n in enumerate(self.grid.cells):
            if n < max(self.reconstruction.width, 3):
                raise MeanFieldError(
                    f"tokens.cells = {n} on axis {axis} is fewer than the {self.reconstruction.width} cells that the "
                    "scheme needs: take more cells or a scheme of lower order"
                )
        if self.one_step and self.positivity:
            raise MeanFieldError(
                f"depth.positivity is a property of Runge–Kutta stages: with depth.stepper = {ONE_STEP!r} take "
                "positivity = false, or stepper = 'ssprk2'"
            )
        limit = self.courant_limit()
        if limit == 0.0:
            raise MeanFieldError(
                f"this scheme of order {self.reconstruction.order} is unstable with a stepper of order "
                f"{self.stepper.order} at every step: take depth.stepper = 'ssprk3'"
            )
        if not 0.0 < self.cfl <= limit:
            why = " with positivity" if self.positivity else ""
            raise MeanFieldError(f"depth.cfl = {self.cfl:g} must be > 0 and at most {limit:.6g}{why}: lower it")

    def courant_limit(self) -> float:
        """The von Neumann limit of scheme and stepper; at most 1/2 a stage where positivity is promised."""
        if isinstance(self.stepper, LaxWendroff):
            limiter_of(self.reconstruction)
            return largest_courant(self.grid)
        if isinstance(self.reconstruction, Muscl):
            # van Leer's slope on smooth data: Fromm's scheme
            limit = courant_limit((-0.25, 1.0, 0.25), self.stepper)
        else:
            limit = courant_limit(tuple(centred_weights(min(self.reconstruction.order, 5))), self.stepper)
        return min(limit, 0.5 / self.stepper.share) if self.positivity else limit

    @property
    def one_step(self) -> bool:
        """Whether a step is one sweep an axis instead of Runge–Kutta stages."""
        return isinstance(self.stepper, LaxWendroff)

    @property
    def step_order(self) -> int:
        """The order of a step in its length: that of the stepper and, with noise, of the splitting if it is lower."""
        orders = [self.stepper.order]
        if self.one_step:
            orders.append(self.reconstruction.order)  # the donor cell is of order 1 in the step, too
        if self.noise is not None:
            orders.append(self.splitting.order)
        return min(orders)

    @property
    def runge_kutta(self) -> Stepper:
        """The stages of a step and how they are put together. Raises: MeanFieldError for a one-step scheme."""
        if isinstance(self.stepper, LaxWendroff):
            raise MeanFieldError(
                f"depth.stepper = {ONE_STEP!r} has no stages to follow: there is no costate, no gradient and no query "
                "by it; take 'ssprk2' or 'ssprk3'"
            )
        return self.stepper

    @property
    def splitting(self) -> Splitting:
        """The stages of a step; without noise there is nothing to split."""
        return WHOLE if self.noise is None else self.noise.splitting

    @property
    def longest(self) -> float:
        """The largest share of a step that one piece of transport takes: its Courant number is what counts."""
        return max(self.splitting.shares("transport"))

    def drift_at(self, t: float) -> tuple[FloatArray, ...]:
        """The prescribed velocity at depth t."""
        if self.moving is None:
            return self.drift
        return tuple(still + more for still, more in zip(self.drift, self.moving(t), strict=True))

    def drift_rate(self, start: float, end: float) -> float:
        """Largest Courant number per unit of depth of the prescribed velocity alone, at depths in [start, end]."""
        depths = [start] if self.moving is None else np.linspace(start, end, SPEEDS).tolist()
        return max(courant_rate(self, self.drift_at(t)) for t in depths)


class Stage(NamedTuple):
    """One forward Euler stage: its input, what the field made of it, and velocities per axis."""

    u: FloatArray
    moments: FloatArray
    velocity: tuple[FloatArray, ...]


def seen(grid: Grid, u: FloatArray) -> FloatArray:
    """Cells that attention looks at, 1.0 or 0.0 like u (B, *cells): those that hold mass and not noise.

    On one axis, runs of positive cells that reach 1e-12 of the largest value of their law, across the seam of a ring
    too; else cells above 1e-13 of it, the ellipsoid of 7.7 deviations of a Gaussian.
    """
    if grid.dim > 1:
        top = u.max(axis=tuple(range(1, u.ndim)), keepdims=True)
        return np.asarray(u > LEAST * np.maximum(top, 0.0), dtype=float)
    out = np.empty_like(u)
    seen_cells(u, CORE, grid.periodic[0], out)
    return out


def seen_weights(grid: Grid, u: FloatArray) -> FloatArray:
    """Masses of the seen cells, (B, n); the others are 0."""
    return np.asarray((u * seen(grid, u)).reshape(len(u), -1) * grid.cell_volume)


def face_velocity(
    transport: Transport, field: AssembledField, u: FloatArray, t: float = 0.0
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Moments of the laws and the normal velocity on the faces of each axis, drift at depth t included.

    Attention looks at the cells that `seen` names, so that noise in a tail can neither make a partition sum vanish nor
    rule the means at large keys.
    Shapes: u (B, *cells); velocities (B, *face_shape(axis)).
    """
    grid, drift = transport.grid, transport.drift_at(t)
    if isinstance(field, PrescribedField):
        moments = field.moments(u.reshape(len(u), -1))  # which it does not look at
        if field.still:
            return moments, tuple(v[None] if len(u) == 1 else np.stack([v] * len(u)) for v in drift)
    else:
        moments = field.moments(seen_weights(grid, u))
    found = field.velocity(moments)
    return moments, tuple(v.reshape(len(u), *grid.face_shape(axis)) + drift[axis] for axis, v in enumerate(found))


def largest(a: FloatArray) -> float:
    """max |a|, 0 of nothing; infinite or NaN if one of them is."""
    bits = np.int64(largest_size(np.ascontiguousarray(a).ravel().view(np.int64)))
    return float(bits.view(np.float64))


def courant_rate(transport: Transport, velocity: tuple[FloatArray, ...]) -> float:
    """sum over axes of max |V| / h, or the largest for sweeps: a step dt has Courant number dt times this."""
    rates = [largest(v) / h for v, h in zip(velocity, transport.grid.spacing, strict=True)]
    return max(rates) if transport.one_step else sum(rates)


def evaluate(transport: Transport, field: AssembledField, u: FloatArray, t: float = 0.0) -> Stage:
    """Field and velocities at u and depth t."""
    return Stage(u, *face_velocity(transport, field, u, t))
