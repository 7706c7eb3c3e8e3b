"""A token side without transport: predictions linear in rho under a convex loss, so that L is convex in rho."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, TokenReport

BUDGET = 2e9  # bytes of the kernel


@dataclass(frozen=True, slots=True, eq=False)
class ShallowModel:
    """L(rho) = Σ_r q_r ℓ(f_r, y_r) with f = ∫ K(theta) rho(dtheta), and δL/δrho = Σ_r q_r ℓ'(f_r, y_r) K_r.

    Formula: ``loss`` "squared" ℓ = ½ (f − y)²; "logistic" ℓ = log(1 + e^f) − y f with y in [0, 1].
    Shapes: ``kernel`` (rows, K), ``weights`` q and ``targets`` y (rows,).
    Meaning: a row is a place where the prediction is compared: a token of a sequence, or a sample. ``outside_mass`` is
    that of the token laws, None without them.
    Raises: MeanFieldError when shapes do not fit or something is not finite.
    Source: Mei, Montanari and Nguyen 2018, eqs. 4 to 6 (squared loss).
    """

    kernel: FloatArray
    weights: FloatArray
    targets: FloatArray
    loss_name: str = "squared"
    outside_mass: float | None = None

    def __post_init__(self) -> None:
        rows = self.kernel.shape[:1]
        if self.kernel.ndim != 2 or self.weights.shape != rows or self.targets.shape != rows:
            raise MeanFieldError(
                f"kernel {self.kernel.shape}, weights {self.weights.shape} and targets {self.targets.shape} do not "
                "fit: give (rows, heads), (rows,) and (rows,)"
            )
        for name, values in (("kernel", self.kernel), ("weights", self.weights), ("targets", self.targets)):
            if not np.isfinite(values).all():
                raise MeanFieldError(f"the {name} of a shallow model must be finite: check its data and the head box")

    def predictions(self, law: Measure) -> FloatArray:
        """f (rows,) of one law of heads."""
        return np.asarray(self.kernel @ law.weights)

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss and δL/δrho of one law."""
        (law,) = rho
        prediction = self.predictions(law)
        value, slope = pointwise(self.loss_name, prediction, self.targets)
        loss = float(self.weights @ value)
        if not np.isfinite(loss):
            raise NotFiniteError(f"the loss of the shallow model is {loss}: its predictions left the floating range")
        potential = (self.weights * slope) @ self.kernel
        return FirstVariation(loss, potential[None], TokenReport(outside_mass=self.outside_mass))

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The loss alone."""
        (law,) = rho
        return float(self.weights @ pointwise(self.loss_name, self.predictions(law), self.targets)[0])


def pointwise(name: str, prediction: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A loss and its derivative by the prediction, entry by entry."""
    if name == "squared":
        residual = prediction - target
        return 0.5 * residual**2, residual
    return np.logaddexp(0.0, prediction) - target * prediction, expit(prediction) - target


def check_memory(rows: int, heads: int, budget: float = BUDGET) -> None:
    """Refuse a kernel that does not fit, before it is made. Raises: MeanFieldError with both numbers."""
    needed = 8.0 * rows * heads
    if needed > budget:
        raise MeanFieldError(
            f"the kernel of {rows} rows times {heads} heads needs {needed:.3g} bytes, over the budget of {budget:.3g}: "
            "take fewer heads.cells, fewer samples or fewer tokens.cells"
        )
