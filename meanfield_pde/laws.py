"""Probability laws as data: what a problem says about its tokens and heads, put onto a grid."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import ClassVar

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import function_masses, gaussian_masses, uniform_masses
from meanfield_pde.law_classics import ClassicLaw, check_classic, classic_masses
from meanfield_pde.law_deposit import atom_masses
from meanfield_pde.law_points import function_log, gaussian_log, mixture_log, uniform_log
from meanfield_pde.law_rings import (
    Harmonic,
    RingLaw,
    VonMises,
    WrappedCauchy,
    check_ring_law,
    parts_of,
    ring_log,
    ring_masses,
)
from meanfield_pde.sample_files import read_samples

__all__ = [
    "Atoms",
    "Density",
    "Gaussian",
    "Harmonic",
    "Law",
    "Matrix",
    "Mixture",
    "RingLaw",
    "Samples",
    "Uniform",
    "Vector",
    "VonMises",
    "WrappedCauchy",
    "cell_averages",
    "check_law",
    "check_weights",
    "head_samples",
    "normalised",
]

Vector = tuple[float, ...]
Matrix = tuple[tuple[float, ...], ...]
OUTSIDE_ALLOWED = 1e-6
# a head law that samples move by more cells, or of which one cell holds more, is not resolved by its grid
MOVED, PEAK = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Normal law; ``covariance`` (d, d), in one dimension ((variance,),). Wrapped on a ring."""

    law: ClassVar[str] = "gaussian"
    mean: Vector
    covariance: Matrix


@dataclass(frozen=True, slots=True)
class Mixture:
    """Laws in proportion to ``weights``, one per component."""

    law: ClassVar[str] = "mixture"
    weights: Vector
    components: tuple[Law, ...]


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform law on a box."""

    law: ClassVar[str] = "uniform"
    lower: Vector
    upper: Vector


@dataclass(frozen=True, slots=True)
class Atoms:
    """Point masses in proportion to ``weights``, or equal ones."""

    law: ClassVar[str] = "atoms"
    points: Matrix
    weights: Vector = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """Equally weighted samples of a file; Gaussian kernels of deviation ``bandwidth``, or cell deposit."""

    law: ClassVar[str] = "samples"
    file: str
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class Density:
    """A density given as a Python function of points (n, d) -> (n,), normalised on the box."""

    law: ClassVar[str] = "density"
    function: Callable[[FloatArray], FloatArray]


Law = Gaussian | Mixture | Uniform | Atoms | VonMises | WrappedCauchy | Harmonic | Samples | Density | ClassicLaw


def cell_averages(law: Law, grid: Grid, base: Path = Path(".")) -> tuple[FloatArray, float]:
    """Cell averages of a law, and the mass it has outside the box.

    (1/|C|) ∫_C law, exact for normal and uniform laws, by Gauss-Legendre otherwise; atoms are shared
    linearly between neighbouring centres, which keeps mass and mean. Sample files are relative to ``base``.
    Shapes: density (*cells) with sum * cell_volume = 1.
    Raises: MeanFieldError if over 1e-6 of the mass is outside the box or the law does not fit the grid.
    """
    check_law(law, grid.dim)
    masses = _masses(law, grid, base)
    return normalised(masses, grid, law.law, beyond_centres=_has_atoms(law))


def head_samples(law: Law, grid: Grid) -> FloatArray:
    """Samples of a law's density at the cell centres, scaled so that sum * cell_volume = 1.

    Shapes: (*cells).
    Raises: MeanFieldError for laws without a density, or with over 1e-6 of their mass outside the box.
    """
    check_law(law, grid.dim)
    logarithm = _log_density(law, grid).reshape(grid.cells)
    exact, _ = normalised(_masses(law, grid, Path(".")), grid, law.law)  # refuses mass outside the box
    top = logarithm.max()
    if not np.isfinite(top):
        raise MeanFieldError(f"the {law.law} law has no density at any cell centre: refine the grid or widen the law")
    density = np.exp(logarithm - top)
    density /= density.sum() * grid.cell_volume
    centres = grid.points() / np.array(grid.spacing)
    moved = float(np.abs((density - exact).ravel() @ centres).max() * grid.cell_volume)
    peak = float(exact.max() * grid.cell_volume)
    if moved > MOVED or peak > PEAK:
        warnings.warn(
            f"the {law.law} law of the heads is too narrow for cells of width {grid.spacing}: one cell holds "
            f"{peak:.0%} of it and samples at the centres move its mean by {moved:.2g} cells; take more heads.cells",
            stacklevel=2,
        )
    return np.asarray(density)


def normalised(masses: FloatArray, grid: Grid, name: str, beyond_centres: bool = False) -> tuple[FloatArray, float]:
    """Density of cell masses that sum to nearly 1, and the mass that lies outside.

    Raises: MeanFieldError if more than 1e-6 is outside.
    """
    total = float(masses.sum())
    outside = max(0.0, 1.0 - total)
    if not outside <= OUTSIDE_ALLOWED:
        box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(grid.lower, grid.upper, strict=True))
        edge = " (atoms within half a cell of a wall count as outside)" if beyond_centres else ""
        raise MeanFieldError(
            f"the {name} law has {outside:.3g} of its mass outside the box {box}{edge}; "
            f"at most {OUTSIDE_ALLOWED:g} is allowed: widen the box or narrow the law"
        )
    return masses / (total * grid.cell_volume), outside


def check_law(law: Law, dim: int, where: str = "") -> None:
    """Refuse a law whose numbers are unusable or whose dimension is not ``dim``; ``where`` is its key path."""
    key = f"{where}." if where else f"{law.law} law: "
    if isinstance(law, Gaussian):
        _check_dimension(len(law.mean), dim, f"{key}mean")
        _check_covariance(law, dim, key)
    elif isinstance(law, Uniform):
        _check_dimension(len(law.lower), dim, f"{key}lower")
        _check_dimension(len(law.upper), dim, f"{key}upper")
        _check_finite((*law.lower, *law.upper), f"{key}lower, upper")
        if not all(a < b for a, b in zip(law.lower, law.upper, strict=True)):
            raise MeanFieldError(f"{key}lower = {law.lower} must be below upper = {law.upper} on every axis")
    elif isinstance(law, RingLaw):
        for name, values in parts_of(law).items():
            _check_dimension(len(values), dim, f"{key}{name}")
            _check_finite(tuple(values.tolist()), f"{key}{name}")
        check_ring_law(law, key)
    elif isinstance(law, Atoms):
        if not law.points:
            raise MeanFieldError(f"{key}points is empty: give at least one point")
        for k, point in enumerate(law.points):
            _check_dimension(len(point), dim, f"{key}points[{k}]")
            _check_finite(point, f"{key}points[{k}]")
        if law.weights:
            check_weights(law.weights, len(law.points), f"{key}weights")
    elif isinstance(law, Mixture):
        check_weights(law.weights, len(law.components), f"{key}weights")
        for k, component in enumerate(law.components):
            check_law(component, dim, f"{key}components[{k}]")
    elif isinstance(law, ClassicLaw):
        check_classic(law, dim, key)
    elif isinstance(law, Samples) and law.bandwidth is not None and not 0 < law.bandwidth < inf:
        raise MeanFieldError(f"{key}bandwidth = {law.bandwidth} must be positive; leave it out for cell deposit")


def check_weights(weights: Vector, count: int, where: str) -> None:
    """Refuse weights that are not ``count`` finite numbers >= 0 with a positive sum."""
    if len(weights) != count or count == 0:
        raise MeanFieldError(f"{where} has {len(weights)} entries for {count} of what they weigh: give one each")
    _check_finite(weights, where)
    if min(weights) < 0 or not 0 < sum(weights) < inf:
        raise MeanFieldError(f"{where} = {weights} must be >= 0, one of them positive, and their sum finite")


def _check_dimension(given: int, dim: int, where: str) -> None:
    if given != dim:
        raise MeanFieldError(f"{where} has dimension {given}, but the box it lives in has dimension {dim}")


def _check_finite(values: Vector, where: str) -> None:
    if not all(isfinite(value) for value in values):
        raise MeanFieldError(f"{where} = {values} must be finite")


def _check_covariance(law: Gaussian, dim: int, key: str) -> None:
    _check_finite(law.mean, f"{key}mean")
    rows = law.covariance
    if len(rows) != dim or any(len(row) != dim for row in rows):
        raise MeanFieldError(f"{key}covariance = {rows} must be {dim} rows of {dim} numbers, as many as the mean has")
    _check_finite(sum(rows, ()), f"{key}covariance")
    matrix = np.array(rows, dtype=float)
    if not np.array_equal(matrix, matrix.T) or not np.linalg.eigvalsh(matrix)[0] > 0:
        raise MeanFieldError(f"{key}covariance = {rows} must be symmetric and positive definite")


def _has_atoms(law: Law) -> bool:
    if isinstance(law, Mixture):
        return any(_has_atoms(component) for component in law.components)
    return isinstance(law, Atoms) or (isinstance(law, Samples) and law.bandwidth is None)


def _masses(law: Law, grid: Grid, base: Path) -> FloatArray:
    if isinstance(law, Gaussian):
        return gaussian_masses(np.array(law.mean, float), np.array(law.covariance, float), grid)
    if isinstance(law, Uniform):
        return uniform_masses(np.array(law.lower, float), np.array(law.upper, float), grid)
    if isinstance(law, RingLaw):
        return ring_masses(law, grid)
    if isinstance(law, Atoms):
        weights = np.array(law.weights or [1.0] * len(law.points), float)
        return atom_masses(np.array(law.points, float), weights / weights.sum(), grid)
    if isinstance(law, Samples):
        points = read_samples(base / law.file)
        if points.shape[1] != grid.dim:
            raise MeanFieldError(
                f"{base / law.file} has samples of dimension {points.shape[1]}, but the grid has dimension {grid.dim}"
            )
        return atom_masses(points, np.full(len(points), 1.0 / len(points)), grid, law.bandwidth)
    if isinstance(law, ClassicLaw):
        return classic_masses(law, grid)
    if isinstance(law, Mixture):
        share = np.array(law.weights, float) / sum(law.weights)
        parts = [w * _masses(c, grid, base) for w, c in zip(share, law.components, strict=True)]
        return np.asarray(np.sum(parts, axis=0))
    masses = function_masses(law.function, grid)
    if not masses.sum() > 0:
        raise MeanFieldError("the density is 0 everywhere on the box: nothing to normalise")
    return np.asarray(masses / masses.sum())


def _log_density(law: Law, grid: Grid) -> FloatArray:
    """log of a normalised density at the cell centres, shape (size,); -inf where it vanishes."""
    if isinstance(law, Gaussian):
        return gaussian_log(np.array(law.mean, float), np.array(law.covariance, float), grid)
    if isinstance(law, Uniform):
        return uniform_log(np.array(law.lower, float), np.array(law.upper, float), grid)
    if isinstance(law, RingLaw):
        return ring_log(law, grid)
    if isinstance(law, Mixture):
        return mixture_log(np.array(law.weights, float), [_log_density(c, grid) for c in law.components])
    if isinstance(law, Density):
        return function_log(law.function, grid)
    raise MeanFieldError(
        f"the {law.law} law has no density to sample for the heads: "
        "allowed: gaussian, mixture, uniform, von-mises, wrapped-cauchy, harmonic, density (Python)"
    )
