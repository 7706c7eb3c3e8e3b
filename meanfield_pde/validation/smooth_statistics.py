"""Integrals of smooth functions against samples and cell averages: moments, waves, characteristic functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.validation.weighted import weighted

# waves on rings up to this mode
MODES = 3


@dataclass(frozen=True, slots=True)
class Statistic:
    """T(mu) = ∫ f dmu for a smooth f: points (n, d) -> (n,). Its variation δT/δmu is f itself."""

    name: str
    function: Callable[[FloatArray], FloatArray]


def moment(*axes: int) -> Statistic:
    """The product of the coordinates of these axes, counted from 0: moment(0) is a mean, moment(0, 1) mixed."""

    def function(points: FloatArray) -> FloatArray:
        return np.asarray(points[:, list(axes)].prod(axis=1))

    return Statistic(" ".join(f"x{axis + 1}" for axis in axes), function)


def cosine(frequency: tuple[float, ...]) -> Statistic:
    """cos⟨ξ, x⟩, the real part of the characteristic function at ξ."""
    xi = np.array(frequency)
    return Statistic(f"cos({_spell(frequency)})", lambda points: np.cos(points @ xi))


def sine(frequency: tuple[float, ...]) -> Statistic:
    """sin⟨ξ, x⟩, the imaginary part of the characteristic function at ξ."""
    xi = np.array(frequency)
    return Statistic(f"sin({_spell(frequency)})", lambda points: np.sin(points @ xi))


def of_sample(statistic: Statistic, points: FloatArray, weights: FloatArray | None = None) -> float:
    """Σ w_i f(x_i)/Σ w_i. Shapes: points (n,) or (n, d), weights (n,)."""
    given, share = weighted(points, weights)
    return float(share @ statistic.function(given))


def of_grid(statistic: Statistic, density: FloatArray, grid: Grid) -> float:
    """∫ f dmu for cell averages: Σ masses · (inverse box filter of f), of order 6 between walls, spectral on rings.

    Shapes: density (*cells). Source: docs/mathematics.md, 3.1.
    """
    values = grid.deconvolve(statistic.function(grid.points()).reshape(grid.cells))
    return float(grid.integral(density * values) / grid.integral(density))


def characteristic_of_sample(
    points: FloatArray, frequency: tuple[float, ...], weights: FloatArray | None = None
) -> tuple[float, float]:
    """Real and imaginary part of Σ w_i e^{i⟨ξ, x_i⟩}, with weights that sum to 1."""
    return of_sample(cosine(frequency), points, weights), of_sample(sine(frequency), points, weights)


def characteristic_of_grid(density: FloatArray, grid: Grid, frequency: tuple[float, ...]) -> tuple[float, float]:
    """Real and imaginary part of ∫ e^{i⟨ξ, x⟩} dmu = Σ_j m_j e^{i⟨ξ, x_j⟩}/Π_k sinc(ξ_k h_k/2), of spectral accuracy.

    Shapes: density (*cells), frequency (d,).
    Raises: MeanFieldError for |ξ_k| h_k > π, which the grid does not resolve, and where e^{i⟨ξ, x⟩} jumps on a ring.
    Source: docs/mathematics.md, 3.1.
    """
    xi, h = np.array(frequency, dtype=float), np.array(grid.spacing)
    if xi.shape != (grid.dim,) or not (np.abs(xi) * h <= np.pi).all():
        raise MeanFieldError(f"frequency {frequency} must have {grid.dim} entries of at most π/spacing = {np.pi / h}")
    turns = xi * (np.array(grid.upper) - np.array(grid.lower)) / (2 * np.pi)
    if any(ring and abs(k - round(k)) > 1e-9 for ring, k in zip(grid.periodic, turns, strict=True)):
        raise MeanFieldError(f"frequency {frequency} must be a whole multiple of 2π/length on rings, not {turns} of it")
    phase = grid.points() @ xi
    share = density.ravel() / density.sum() / np.prod(np.sinc(xi * h / (2 * np.pi)))
    return float(share @ np.cos(phase)), float(share @ np.sin(phase))


def standard_statistics(density: FloatArray, grid: Grid) -> tuple[Statistic, ...]:
    """Smooth statistics that suit a law: waves on rings; between walls means, second moments and waves at 1/deviation.

    Meaning: on a ring axis cos and sin of modes 1, 2, 3. Moments need a line and are taken between the other axes.
    """
    out: list[Statistic] = []
    lines = [axis for axis, ring in enumerate(grid.periodic) if not ring]
    out += [moment(axis) for axis in lines]
    out += [moment(*pair) for pair in combinations_with_replacement(lines, 2)]
    for axis in range(grid.dim):
        if grid.periodic[axis]:
            unit = 2 * np.pi / (grid.upper[axis] - grid.lower[axis])
            frequencies = [k * unit for k in range(1, MODES + 1)]
        else:
            mean = of_grid(moment(axis), density, grid)
            variance = of_grid(moment(axis, axis), density, grid) - mean**2
            frequencies = [1.0 / np.sqrt(max(variance, grid.spacing[axis] ** 2))]
        for xi in frequencies:
            row = tuple(float(xi) if k == axis else 0.0 for k in range(grid.dim))
            out += [cosine(row), sine(row)]
    return tuple(out)


def _spell(frequency: tuple[float, ...]) -> str:
    terms = [f"{value:.4g} x{axis + 1}" for axis, value in enumerate(frequency) if value]
    return " + ".join(terms) or "0"
