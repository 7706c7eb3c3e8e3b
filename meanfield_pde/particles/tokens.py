"""N tokens under finitely many heads: ẋ_i = V(x_i; mu^N), layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import pi

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.drift_flows import DriftFunction
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadFunction, HeadMatrices
from meanfield_pde.model.perceptron import Perceptrons, heads_at
from meanfield_pde.particles.circle_table import circle_velocity
from meanfield_pde.particles.integrators import METHODS, back_step, check_integrator
from meanfield_pde.particles.plane_table import plane_velocity
from meanfield_pde.particles.sampling import wrapped
from meanfield_pde.particles.table import line_velocity
from meanfield_pde.particles.velocity import attention_velocity, check_attention, perceptron_velocity
from meanfield_pde.problem_particles import RENORMALISED

WAYS = ("auto", "direct", "table")
CIRCLE = Grid((-pi,), (pi,), (3,), (True,))
"""A box for tokens on the unit circle, given by their angles."""
# tokens from which on `auto` takes the table: it costs about 64 keys and a check
FEW = 200
TOLERANCE = 1e-10
Field = Callable[[FloatArray, FloatArray, int, FloatArray], tuple[FloatArray, float]]
"""Points (n, d), masses (n,), part of the depth, points at the first stage of the layer -> V (n, d), table error."""


@dataclass(frozen=True, slots=True)
class ParticleTokens:
    """The model that moves N tokens: heads, attention and a prescribed drift.

    Formula: ẋ_i = Σ_k rho_k v(x_i, theta_k; mu^N) + drift(x_i, t), mu^N = Σ_j w_j δ_{x_j}; on the circle
    φ̇_i = <x_i^⊥, V(x_i)> + drift, x = (cos φ, sin φ).
    Meaning: ``heads`` is one measure for all depths, or one for each of some equal parts of the depth, () for drift
    alone; ``box`` says which axes are rings (its walls are not felt), one ring is the unit circle. ``way``: `direct`
    sums, `table` for softmax on a line, in the plane and on the circle (there for unnormalised, too), with an error
    within ``tolerance`` at 13 samples in each stage, or `auto`: the table where there is one, direct for few tokens
    and where it does not reach its tolerance or does not pay.
    Raises: MeanFieldError for what particles do not have.
    """

    attention: str
    family: str | HeadFunction
    heads: tuple[Measure, ...]
    dim: int = 1
    box: Grid | None = None
    drift: DriftFunction | None = None
    way: str = "auto"
    tolerance: float = TOLERANCE
    made: tuple[HeadMatrices | Perceptrons, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_attention(self.attention, self.circle)
        if self.way not in WAYS:
            raise MeanFieldError(f"way = {self.way!r} is not known; {nearest(str(self.way), WAYS)}")
        if self.box is not None and self.box.dim != self.dim:
            raise MeanFieldError(f"tokens in dimension {self.dim} do not fit a box with {self.box.dim} axes")
        if self.box is not None and any(self.box.periodic) and not self.circle and self.attention != "none":
            raise MeanFieldError("attention on rings is that of tokens on the unit circle: one ring, or walls")
        if self.way == "table" and not self.has_table:
            raise MeanFieldError(
                "way = 'table' is for softmax attention on a line, in the plane or on the circle (there also "
                f"unnormalised), not for attention = {self.attention!r} in dimension {self.dim}: take way = 'direct'"
            )
        made = tuple(heads_at(self.family, law.points, 2 if self.circle else self.dim) for law in self.heads)
        for one in made:
            if isinstance(one, Perceptrons) != (self.attention == "none"):
                raise MeanFieldError(f"heads of family {self.family!r} do not act by attention = {self.attention!r}")
        object.__setattr__(self, "made", made)

    @property
    def circle(self) -> bool:
        """Whether tokens are angles of points on the unit circle."""
        return self.box is not None and self.box.dim == 1 and self.box.periodic[0]

    @property
    def has_table(self) -> bool:
        """Whether there is a table for this attention and space."""
        return (self.attention == "softmax" and self.dim <= 2) or (self.circle and self.attention == "unnormalised")

    def field(self, points: FloatArray, masses: FloatArray, part: int, at: FloatArray) -> tuple[FloatArray, float]:
        """V of the heads in one ``part`` of the depth at ``at`` (m, d) for tokens (n, d), and the error of the table.

        Meaning: on the circle positions and velocities are those in the plane, d = 2.
        """
        if not self.heads:
            return np.zeros(at.shape), 0.0
        made, rho = self.made[part], self.heads[part].weights
        if isinstance(made, Perceptrons):
            return perceptron_velocity(made, rho, at, at.shape[1]), 0.0
        if self.has_table and (self.way == "table" or (self.way == "auto" and len(points) >= FEW)):
            cheaper = self.way == "auto"
            if self.circle:
                kind, tolerance = self.attention, self.tolerance
                found, error = circle_velocity(kind, made, rho, points, masses, at, tolerance, cheaper)
            elif self.dim == 2:
                found, error = plane_velocity(made, rho, points, masses, at, self.tolerance, cheaper)
            else:
                found, error = line_velocity(made, rho, points, masses, at, self.tolerance)
            if error <= self.tolerance:
                return found, error
            if self.way == "table":
                raise NotConvergedError(
                    f"the table of softmax means has the error {error:.1e} at its largest size, over tolerance = "
                    f"{self.tolerance:.1e}: take way = 'direct', or a larger tolerance"
                )
        return attention_velocity(self.attention, made, rho, points, masses, at), 0.0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Tokens at depths ``t`` (m,): ``x`` (m, n, d) with ``weights`` (n,); on the circle x are angles in its box.

    Meaning: ``table_error`` is the largest error of a table of softmax means in any stage, None if there was none.
    """

    t: FloatArray
    x: FloatArray
    weights: FloatArray
    table_error: float | None

    def at(self, index: int) -> Measure:
        """The tokens at one of the depths as a measure."""
        return Measure.particles(self.x[index], self.weights)


def carry(
    tokens: ParticleTokens,
    start: Measure,
    T: float,
    layers: int,
    integrator: str = "euler",
    times: tuple[float, ...] | None = None,
    field: Field | None = None,
) -> Trajectory:
    """Tokens carried from depth 0 to T through equal layers of one step each; `euler` is the residual network.

    Meaning: ``integrator`` is `euler`, `midpoint` or `heun` (order 2), `rk4`, or on the circle `renormalised`
    (x + dt (the part of V along the circle), over its length) and `renormalised-whole` (x + dt V, over its length), of
    order 1. ``times`` are layer edges, by default 0 and T. Tokens of weight 0 are carried along and not attended to.
    ``field`` takes the place of the velocity of the heads (`alternatives`); the drift is added to either.
    Raises: MeanFieldError for times between layers or tokens that do not fit, NotFiniteError when tokens run away.
    """
    check_integrator(integrator, tokens.circle)
    _check_start(tokens, start)
    if isinstance(layers, bool) or layers < 1 or not (np.isfinite(T) and T >= 0.0):
        raise MeanFieldError(f"T = {T}, layers = {layers}: take a finite T >= 0 and at least one layer")
    if tokens.heads and layers % len(tokens.heads):
        raise MeanFieldError(f"{layers} layers do not share {len(tokens.heads)} head laws evenly: take a multiple")
    wanted = ((0.0, T) if T > 0.0 else (0.0,)) if times is None else times
    edges = edges_at(wanted, T, layers)
    masses = start.weights
    walk = _Walk(tokens, masses, field)
    x, kept = start.points.copy(), {}
    # the sums of BLAS depend on the number of its threads
    with threadpool_limits(limits=1, user_api="blas"):
        for layer in range(edges[-1] + 1):
            if layer in edges:
                kept[layer] = x if tokens.box is None else wrapped(x, tokens.box)
            if layer == edges[-1]:
                break
            walk.part = layer * len(tokens.heads) // layers
            # from the edges themselves, so that steps do not add up rounding
            before, after = T * layer / layers, T * (layer + 1) / layers
            x = walk.step(integrator, x, before, after - before)
            if not np.isfinite(x).all():
                raise NotFiniteError(f"tokens are not finite after layer {layer + 1} of {layers}, depth {after:g}")
    return Trajectory(np.array(wanted, dtype=float), np.stack([kept[e] for e in edges]), masses, walk.error)


class _Walk:
    """The rate of the tokens, with the part of the depth it is in and the largest table error seen so far."""

    def __init__(self, tokens: ParticleTokens, masses: FloatArray, field: Field | None) -> None:
        self.tokens, self.masses, self.part, self.field = tokens, masses, 0, field
        self.first: FloatArray | None = None
        self.error: float | None = 0.0 if tokens.has_table and tokens.way != "direct" and tokens.heads else None

    def _field(self, points: FloatArray) -> FloatArray:
        self.first = points if self.first is None else self.first
        if self.field is None:
            found, error = self.tokens.field(points, self.masses, self.part, points)
        else:
            found, error = self.field(points, self.masses, self.part, self.first)
        if self.error is not None:
            self.error = max(self.error, error)
        return found

    def _drift(self, x: FloatArray, t: float) -> FloatArray:
        if self.tokens.drift is None:
            return np.zeros(x.shape)
        given = np.asarray(self.tokens.drift(x, t), dtype=float)
        if given.shape != x.shape:
            raise MeanFieldError(f"the drift gives velocities of shape {given.shape} at positions {x.shape}")
        return given

    def in_plane(self, angles: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
        """The velocity at points of the circle, along it (drift included) and outward, (n,) each."""
        c, s = np.cos(angles[:, 0]), np.sin(angles[:, 0])
        v = self._field(np.stack([c, s], axis=1))
        return c * v[:, 1] - s * v[:, 0] + self._drift(angles, t)[:, 0], c * v[:, 0] + s * v[:, 1]

    def rate(self, x: FloatArray, t: float) -> FloatArray:
        """ẋ, (n, d)."""
        return self.in_plane(x, t)[0][:, None] if self.tokens.circle else self._field(x) + self._drift(x, t)

    def step(self, integrator: str, x: FloatArray, t: float, dt: float) -> FloatArray:
        """One layer."""
        self.first = None
        if integrator not in RENORMALISED:
            return METHODS[integrator].step(self.rate, x, t, dt)
        along, outward = self.in_plane(x, t)
        whole = integrator == "renormalised-whole"
        return back_step(x, along[:, None], outward[:, None] if whole else np.zeros(x.shape), dt)


def _check_start(tokens: ParticleTokens, start: Measure) -> None:
    if start.dim != tokens.dim:
        raise MeanFieldError(f"tokens of dimension {start.dim} are given where the model has {tokens.dim}")
    if start.widths.any():
        raise MeanFieldError("the measure has cells of positive width: particles have none, take Measure.particles")
    if not len(start.weights) or start.weights.min() < 0.0 or not start.mass > 0.0:
        raise MeanFieldError("the weights of tokens must be >= 0 with a positive sum")


def edges_at(times: tuple[float, ...], T: float, layers: int) -> list[int]:
    """The layer edge of each time. Raises: MeanFieldError for times between layers, beyond T or out of order."""
    out: list[int] = []
    if not times:
        raise MeanFieldError("times is empty: ask for at least one layer edge")
    for time in times:
        place = time * layers / T if T > 0.0 else 0.0
        edge = round(place) if np.isfinite(place) else -1
        if not (0 <= edge <= layers and abs(place - edge) <= 1e-9 * layers and 0.0 <= time <= T):
            raise MeanFieldError(
                f"time {time:g} is no edge of the {layers} layers of length {T / layers:g} up to T = {T:g}: "
                "ask for multiples of that length"
            )
        if out and edge <= out[-1]:
            raise MeanFieldError(f"times = {list(times)} must increase")
        out.append(edge)
    return out
