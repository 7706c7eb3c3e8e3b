"""The two limits as protocols: what the scheduler asks of tokens and of heads, whichever corner they stand in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from meanfield_pde.arrays import FloatArray
from meanfield_pde.measure import Measure


class Moved(NamedTuple):
    """What a flow gives: rho after it, and the L1 distance that keeping it positive moved it by."""

    rho: FloatArray
    limited: float


Flow = Callable[[FloatArray, FloatArray, float, int], Moved]
"""(rho, what drives it, ds, order) -> rho and limiter activity: state in, state out."""


@dataclass(frozen=True, slots=True)
class TokenReport:
    """What a sweep in depth measured; None means not measured.

    Meaning: ``mass_error`` max |∫mu - 1|, ``minimum`` least mu, ``undershoot`` largest -min/max of mu,
    ``peak_mass`` largest mass in one cell,
    ``outside_mass`` largest mass of an initial law outside the box, ``courant`` largest Courant number used,
    ``table_error`` largest relative error of the softmax table against direct sums at sampled keys,
    ``table_size`` its nodes, ``costate_drift`` max over depth of |∫p dmu - ∫p_T dmu_T|, ``wall_mass`` largest mass
    in the cells at a wall, ``limited`` faces limited for positivity, ``dual`` whether p is the dual of the very
    steps taken, ``steps`` steps in depth.
    """

    mass_error: float | None = None
    minimum: float | None = None
    undershoot: float | None = None
    peak_mass: float | None = None
    outside_mass: float | None = None
    courant: float | None = None
    table_error: float | None = None
    table_size: int | None = None
    costate_drift: float | None = None
    wall_mass: float | None = None
    limited: int | None = None
    dual: bool | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class FirstVariation:
    """The loss at a law of heads and its first variation.

    Shapes: potential (layers, K), δL/δrho at every head; of the layer alone when heads are layerwise;
    gradient (layers, K, q) its derivative by theta there, for heads that are points and move; None where they do not.
    """

    loss: float
    potential: FloatArray
    report: TokenReport
    gradient: FloatArray | None = None


class TokenSide(Protocol):
    """Everything that depends on the heads through the loss: tokens in any number, or a given potential."""

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss and δL/δrho for one measure of heads a layer (one in all when they are shared)."""
        ...

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The loss alone."""
        ...


class HeadSide(Protocol):
    """How the law of the heads moves."""

    def flows_at(self, step: int) -> Mapping[str, Flow]:
        """The parts of (P) by name, as they act in the step after ``step`` of them."""
        ...

    def measure(self, rho: FloatArray) -> tuple[Measure, ...]:
        """One measure of heads a layer."""
        ...

    def driving(self, variation: FirstVariation) -> FloatArray:
        """What the flows take, in the shape of rho: psi = δL/δrho + weight_decay |theta|²/2, or ∇δL/δrho at points."""
        ...

    def regularisation(self, rho: FloatArray) -> float | None:
        """Free energy minus loss: weight decay and entropy; None where there is no entropy."""
        ...

    def slope(self, rho: FloatArray, psi: FloatArray) -> float:
        """‖∇psi + beta ∇log rho‖ in L2(rho), layers weighed by their lengths: the root of −dF/ds; NaN if not known."""
        ...

    def distance(self, a: FloatArray, b: FloatArray) -> float:
        """How far two laws are apart, for step control (L1, the worst layer); NaN if not known."""
        ...

    def energy_change(self, a: FloatArray, b: FloatArray, psi: FloatArray) -> float:
        """Free energy of b less that of a to first order in their difference."""
        ...
