"""Classical initial laws of transport tests on the box of the tokens, by exact integrals where there are any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, isfinite, log, sqrt
from typing import ClassVar

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import NODES, axis_nodes

PANELS = 8  # parts of a cell on which the height of the slotted disk is integrated


@dataclass(frozen=True, slots=True)
class JiangShu:
    """The composite wave of Jiang and Shu (1996): Gaussian, square, triangle and half ellipse on one axis."""

    law: ClassVar[str] = "jiang-shu"


@dataclass(frozen=True, slots=True)
class SinePower:
    """Density in proportion to sin^power(2πξ) on one axis, ξ in [0, 1] along it; an even ``power``."""

    law: ClassVar[str] = "sine-power"
    power: int = 4


@dataclass(frozen=True, slots=True)
class SlottedDisk:
    """Uniform on Zalesak's disk (1979): a disk with a slot ``width`` wide from below up to ``top`` above its centre."""

    law: ClassVar[str] = "slotted-disk"
    center: tuple[float, ...] = (0.5, 0.75)
    radius: float = 0.15
    width: float = 0.05
    top: float = 0.1


ClassicLaw = JiangShu | SinePower | SlottedDisk


def check_classic(law: ClassicLaw, dim: int, key: str) -> None:
    """Refuse a classical law on another number of axes than its own, or with numbers that make no law."""
    axes = 2 if isinstance(law, SlottedDisk) else 1
    if dim != axes:
        raise MeanFieldError(f"{key}law = '{law.law}' has dimension {axes}, but the box it lives in has {dim}")
    if isinstance(law, SinePower) and (isinstance(law.power, bool) or law.power < 2 or law.power % 2):
        raise MeanFieldError(f"{key}power = {law.power} must be an even integer of at least 2")
    if isinstance(law, SlottedDisk):
        if len(law.center) != 2 or not all(isfinite(c) for c in law.center):
            raise MeanFieldError(f"{key}center = {law.center} must be 2 finite numbers")
        r = law.radius
        if not (0.0 < r < np.inf and 0.0 <= law.width < 2.0 * r and -r < law.top < r):
            raise MeanFieldError(
                f"{key}radius = {r}, width = {law.width}, top = {law.top} make no slotted disk: radius must be > 0, "
                "width in [0, 2 radius) and top, above the centre, in (-radius, radius)"
            )


def classic_masses(law: ClassicLaw, grid: Grid, shift: float = 0.0) -> FloatArray:
    """Masses of a classical law in the cells, (*cells), moved around a ring by ``shift`` (not the disk).

    Raises: MeanFieldError for a disk that leaves the box.
    """
    length = grid.upper[0] - grid.lower[0]
    if isinstance(law, JiangShu):
        turns, part = np.divmod((grid.edges(0) - grid.lower[0] - shift) / length, 1.0)
        whole = jiang_shu_integral(np.array([1.0]))[0]
        masses = np.diff(turns * whole + jiang_shu_integral(2.0 * part - 1.0))
        return np.asarray(masses / masses.sum())
    if isinstance(law, SinePower):
        nodes, weight = axis_nodes(grid, 0, law.power)
        xi = (nodes - grid.lower[0] - shift) / length
        masses = (weight * np.sin(2.0 * np.pi * xi) ** law.power).reshape(grid.cells[0], -1).sum(axis=1)
        return np.asarray(masses / masses.sum())
    return _disk_masses(law, grid)


def jiang_shu_integral(x: FloatArray) -> FloatArray:
    """∫ from −1 to x of the composite wave on [−1, 1], in closed form.

    Source: Jiang and Shu (1996), section 5: β = log 2/(36 δ²), δ = .005, z = −.7, a = .5, α = 10.
    """
    delta, z, a, alpha = 0.005, -0.7, 0.5, 10.0
    root = sqrt(log(2.0) / (36.0 * delta**2))
    bell = 0.5 * sqrt(np.pi) / root
    out = np.zeros(len(x))

    def add(low: float, high: float, primitive: Callable[[float], float], centre: float, share: float) -> None:
        inside = np.clip(x, low, high)
        out[:] += share * np.array([primitive(v - centre) - primitive(low - centre) for v in inside.tolist()])

    def bump(v: float) -> float:
        return bell * erf(root * v)

    def ellipse(v: float) -> float:
        v = min(max(alpha * v, -1.0), 1.0)
        return 0.5 * (v * sqrt(1.0 - v * v) + float(np.arcsin(v))) / alpha

    for shift, share in ((-delta, 1.0 / 6.0), (delta, 1.0 / 6.0), (0.0, 4.0 / 6.0)):
        add(-0.8, -0.6, bump, z + shift, share)
        add(0.4, 0.6, ellipse, a + shift, share)
    add(-0.4, -0.2, lambda v: v, 0.0, 1.0)
    add(0.0, 0.1, lambda v: v + 5.0 * v * v, 0.1, 1.0)
    add(0.1, 0.2, lambda v: v - 5.0 * v * v, 0.1, 1.0)
    return out


def _disk_masses(law: SlottedDisk, grid: Grid) -> FloatArray:
    """Exact heights of the disk over each x, integrated in x by Gauss-Legendre between its corners."""
    (cx, cy), r, half = law.center, law.radius, 0.5 * law.width
    for k, c in enumerate(law.center):
        if c - r < grid.lower[k] or c + r > grid.upper[k]:
            raise MeanFieldError(
                f"the slotted disk of radius {r:g} about {law.center} reaches beyond [{grid.lower[k]:g}, "
                f"{grid.upper[k]:g}] on axis {k}: move it, or widen the box"
            )
    corners = np.array([cx - r, cx - half, cx + half, cx + r])
    fine = np.linspace(grid.lower[0], grid.upper[0], PANELS * grid.cells[0] + 1)
    ends = np.unique(np.concatenate([fine, corners[(corners > grid.lower[0]) & (corners < grid.upper[0])]]))
    unit, weight = np.polynomial.legendre.leggauss(NODES)
    middle, reach = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
    x, w = (middle[:, None] + reach[:, None] * unit).ravel(), (reach[:, None] * weight).ravel()
    chord = np.sqrt(np.maximum(r * r - (x - cx) ** 2, 0.0))
    bottom = np.where(np.abs(x - cx) < half, np.clip(law.top, -chord, chord), -chord)
    edges = grid.edges(1)[None] - cy
    heights = np.diff(np.clip(edges, bottom[:, None], chord[:, None]), axis=1) * w[:, None]
    cell = np.minimum(((x - grid.lower[0]) / grid.spacing[0]).astype(int), grid.cells[0] - 1)
    out = np.zeros(grid.cells)
    np.add.at(out, cell, heights)
    return np.asarray(out / out.sum())
