"""A finite measure as points and weights: grid cells with masses, tokens, or heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError


@dataclass(frozen=True, slots=True)
class Measure:
    """Points with weights, and the widths of the cells they stand for.

    Shapes: ``points`` (n, d), ``weights`` (n,), ``widths`` (d,).
    Meaning: ``weights`` are masses (not densities); ``widths`` are the sides of the box each
    mass is spread over, 0 for particles. Functionals of a measure with widths are applied to the
    inverse box filter of their integrand.
    Raises: MeanFieldError if shapes disagree or anything is not finite.
    """

    points: FloatArray
    weights: FloatArray
    widths: FloatArray

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.weights.shape != self.points.shape[:1]:
            raise MeanFieldError(
                f"points {self.points.shape} and weights {self.weights.shape} do not fit: "
                "give points (n, d) and weights (n,)"
            )
        if self.widths.shape != self.points.shape[1:]:
            raise MeanFieldError(f"widths {self.widths.shape} must be ({self.points.shape[1]},), one per axis")
        if not (np.isfinite(self.points).all() and np.isfinite(self.weights).all()):
            raise MeanFieldError("a measure needs finite points and weights; remove NaN and inf first")

    @classmethod
    def particles(cls, points: FloatArray, weights: FloatArray | None = None) -> Measure:
        """A measure of atoms at points (n, d); equal weights 1/n unless given. Raises: MeanFieldError."""
        points = np.asarray(points, dtype=float)
        if points.ndim != 2:
            raise MeanFieldError(f"points have shape {points.shape}: give (n, d), one row a particle")
        if weights is None:
            weights = np.full(len(points), 1.0 / max(len(points), 1))
        return cls(points, np.asarray(weights, dtype=float), np.zeros(points.shape[1]))

    @property
    def dim(self) -> int:
        """Dimension d of the space."""
        return int(self.points.shape[1])

    @property
    def mass(self) -> float:
        """Total mass."""
        return float(self.weights.sum())

    def mean(self) -> FloatArray:
        """Mean, shape (d,)."""
        return np.asarray(self.weights @ self.points / self.mass)

    def covariance(self) -> FloatArray:
        """Covariance, shape (d, d); the spread h²/12 that cells of width h add to it is taken off.

        Source: docs/mathematics.md, 3.1; the inverse box filter of x² is x² - h²/12.
        """
        centred = self.points - self.mean()
        moment = (self.weights[:, None] * centred).T @ centred / self.mass
        return np.asarray(moment - np.diag(self.widths**2) / 12.0)

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """``count`` i.i.d. draws, uniform inside cells of positive width; shape (count, d)."""
        if self.weights.min() < 0:
            raise MeanFieldError(f"cannot sample: the least weight is {self.weights.min():g}; weights must be >= 0")
        chosen = rng.choice(len(self.weights), size=count, p=self.weights / self.weights.sum())
        jitter = rng.uniform(-0.5, 0.5, size=(count, self.dim)) * self.widths
        return np.asarray(self.points[chosen] + jitter)
