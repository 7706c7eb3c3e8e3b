"""Laws that live on rings alone, a product over the axes: von Mises, wrapped Cauchy, a single harmonic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import ceil
from typing import ClassVar

import numpy as np
from scipy.special import i0e

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import PANELS, axis_nodes

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class VonMises:
    """Density exp(k cos(2 pi (x - mean)/L))/(L I0(k)) on a ring of length L; one mean and k per axis."""

    law: ClassVar[str] = "von-mises"
    mean: float | Vector
    concentration: float | Vector


@dataclass(frozen=True, slots=True)
class WrappedCauchy:
    """Poisson kernel (1 - r²)/(L (1 + r² - 2 r cos(2 pi (x - mean)/L))) on a ring; one mean and 0 <= r < 1 per axis.

    Meaning: ``resultant`` r is the length of the mean of e^{2 pi i x/L}.
    """

    law: ClassVar[str] = "wrapped-cauchy"
    mean: float | Vector
    resultant: float | Vector


@dataclass(frozen=True, slots=True)
class Harmonic:
    """Density (1 + amplitude cos(mode 2 pi (x - mean)/L))/L on a ring; one of each per axis, |amplitude| <= 1."""

    law: ClassVar[str] = "harmonic"
    mean: float | Vector
    amplitude: float | Vector
    mode: int | tuple[int, ...] = 1


RingLaw = VonMises | WrappedCauchy | Harmonic


def parts_of(law: RingLaw) -> dict[str, FloatArray]:
    """The numbers of a law by key, one entry an axis each."""
    if isinstance(law, VonMises):
        values = {"mean": law.mean, "concentration": law.concentration}
    elif isinstance(law, WrappedCauchy):
        values = {"mean": law.mean, "resultant": law.resultant}
    else:
        values = {"mean": law.mean, "amplitude": law.amplitude, "mode": law.mode}
    return {key: np.atleast_1d(np.array(value, dtype=float)) for key, value in values.items()}


def check_ring_law(law: RingLaw, key: str) -> None:
    """Refuse numbers that make no density; their count and finiteness are checked by the caller."""
    parts = parts_of(law)
    if isinstance(law, VonMises) and not (parts["concentration"] >= 0).all():
        raise MeanFieldError(f"{key}concentration = {law.concentration} must be >= 0")
    if isinstance(law, WrappedCauchy) and not ((parts["resultant"] >= 0) & (parts["resultant"] < 1)).all():
        raise MeanFieldError(f"{key}resultant = {law.resultant} must be >= 0 and < 1")
    if isinstance(law, Harmonic):
        if not (np.abs(parts["amplitude"]) <= 1).all():
            raise MeanFieldError(f"{key}amplitude = {law.amplitude} must be between -1 and 1, so that mu >= 0")
        if not (parts["mode"] >= 1).all():
            raise MeanFieldError(f"{key}mode = {law.mode} must be at least 1")


def check_ring(law: RingLaw, grid: Grid) -> None:
    """Refuse walls. Raises: MeanFieldError naming the remedy."""
    if not all(grid.periodic):
        raise MeanFieldError(
            f"a {law.law} law lives on rings: set periodic = true on every axis, or use a gaussian"
        )


def ring_masses(law: RingLaw, grid: Grid) -> FloatArray:
    """Masses in the cells, (*cells): closed forms, von Mises by Gauss-Legendre.

    Formula: wrapped Cauchy by the Möbius map of the disk to itself, which turns its law into the uniform one:
    mass = (1/π) atan2((1 − r²) sin(h/2), (1 + r²) cos(h/2) − 2r cos(φ − m)) for a cell of angle h at φ.
    """
    check_ring(law, grid)
    rows = parts_of(law)
    parts = []
    for axis in range(grid.dim):
        own = {key: float(values[axis]) for key, values in rows.items()}
        turn = 2.0 * np.pi / (grid.upper[axis] - grid.lower[axis])
        if isinstance(law, VonMises):
            parts.append(_von_mises(own["mean"], own["concentration"], grid, axis))
            continue
        angle, half = turn * (grid.centers(axis) - own["mean"]), 0.5 * turn * grid.spacing[axis]
        if isinstance(law, WrappedCauchy):
            r = own["resultant"]
            across = (1.0 - r) * (1.0 + r) * np.sin(half)
            # 1 + r² − 2 r cos is written as (1 − r)² + 4 r sin², which keeps its digits at the peak
            along = (1.0 - r) ** 2 + 4.0 * r * np.sin(0.5 * angle) ** 2 - 2.0 * (1.0 + r * r) * np.sin(0.5 * half) ** 2
            parts.append(np.arctan2(across, along) / np.pi)
        else:
            k = own["mode"]
            wave = own["amplitude"] * np.sinc(k * half / np.pi) * np.cos(k * angle)
            parts.append((1.0 + wave) * half / np.pi)
    return np.asarray(reduce(np.multiply.outer, parts))


def _von_mises(mean: float, k: float, grid: Grid, axis: int) -> FloatArray:
    length = grid.upper[axis] - grid.lower[axis]
    wanted = 2 * np.pi / grid.cells[axis] * max(1.0, np.sqrt(k))
    if wanted > PANELS:
        raise MeanFieldError(
            f"concentration = {k:g} makes a law 1/sqrt(concentration) wide, under 1/{PANELS} of one of the "
            f"{grid.cells[axis]} cells of axis {axis}: take more cells or a smaller concentration"
        )
    panels = ceil(wanted)
    x, weight = axis_nodes(grid, axis, panels)
    value = np.exp(-2 * k * np.sin(np.pi * (x - mean) / length) ** 2) / (length * i0e(k))
    return np.asarray((weight * value).reshape(grid.cells[axis], -1).sum(axis=1))


def ring_log(law: RingLaw, grid: Grid) -> FloatArray:
    """log of the density at the cell centres, (size,); -inf where it vanishes."""
    check_ring(law, grid)
    points, rows = grid.points(), parts_of(law)
    out = np.zeros(len(points))
    for axis in range(grid.dim):
        own = {key: float(values[axis]) for key, values in rows.items()}
        length = grid.upper[axis] - grid.lower[axis]
        half = np.pi * (points[:, axis] - own["mean"]) / length
        if isinstance(law, VonMises):
            out += -2 * own["concentration"] * np.sin(half) ** 2 - np.log(length * i0e(own["concentration"]))
        elif isinstance(law, WrappedCauchy):
            r = own["resultant"]
            out += np.log((1 - r) * (1 + r) / length) - np.log((1 - r) ** 2 + 4 * r * np.sin(half) ** 2)
        else:
            with np.errstate(divide="ignore"):
                wave = own["amplitude"] * np.cos(2 * own["mode"] * half)
                out += np.log(np.maximum(1 + wave, 0.0) / length)
    return out
