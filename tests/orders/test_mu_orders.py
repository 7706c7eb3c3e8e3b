"""Orders of the token equation against exact flow maps: schemes, steppers, and face means of products in the plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from meanfield_pde.equations import depth_step, mu_fluxes
from meanfield_pde.equations.forward_backward import forward
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import STEPPERS
from meanfield_pde.equations.schemes import SCHEMES
from meanfield_pde.grid import Grid
from meanfield_pde.model.field import PrescribedField

Flow = Callable[[np.ndarray], np.ndarray]


def transport(grid: Grid, name: str, method: str, cfl: float) -> Transport:
    still = tuple(np.zeros(grid.face_shape(axis)) for axis in range(grid.dim))
    return Transport(grid, SCHEMES[name], STEPPERS[method], cfl, False, still)


def slope(sizes: list[float], errors: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


# ---- schemes on a ring with variable speed -----------------------------------------------------------------------


def sine_flow_averages(edge: np.ndarray, t: float) -> np.ndarray:
    """Cell averages of the law carried by the velocity sin x from (1 + cos(x - 1)/2)/2π, by mass between edges."""
    start = 2.0 * np.arctan(np.exp(-t) * np.tan(0.5 * edge))
    start[0], start[-1] = -np.pi, np.pi
    mass = (start + 0.5 * np.sin(start - 1.0)) / (2.0 * np.pi)
    return np.diff(mass) / np.diff(edge)


@pytest.mark.parametrize("name", SCHEMES)
def test_order_on_a_ring_with_variable_speed(name: str) -> None:
    order = SCHEMES[name].order
    sizes, errors = [], []
    for n in {1: (200, 400, 800), 2: (80, 160, 320), 3: (80, 160, 320), 5: (60, 120, 240)}[order]:
        grid = Grid((-np.pi,), (np.pi,), (n,), (True,))
        # the stepper has order 3: steps that shrink like h^(5/3) leave the order to the scheme
        cfl = 0.5 if order <= 2 else 0.5 * (60.0 / n) ** (order / 3.0 - 1.0)
        way = transport(grid, name, "ssprk3", cfl)
        field = PrescribedField((np.sin(grid.faces(0)),))
        edge = np.linspace(-np.pi, np.pi, n + 1)
        found = forward(way, [field], sine_flow_averages(edge, 0.0)[None], np.array([0.0, 1.0]), False).nodes[-1, 0]
        sizes.append(grid.spacing[0])
        errors.append(np.abs(found - sine_flow_averages(edge, 1.0)).sum() * grid.spacing[0])
    assert slope(sizes, errors) >= order - (0.25 if name == "muscl-minmod" else 0.15)


# ---- steppers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "name"), [("ssprk1", "upwind1"), ("ssprk2", "linear3"), ("ssprk3", "linear5"), ("ssprk104", "linear5")]
)
def test_order_of_the_steppers(method: str, name: str) -> None:
    n = 16
    grid = Grid((-np.pi,), (np.pi,), (n,), (True,))
    way = transport(grid, name, method, 0.8)
    v = 1.0 + 0.5 * np.sin(grid.faces(0))
    field = PrescribedField((v,))
    # the rate is linear: its matrix by columns, and the exact solution in time by the exponential
    zero = (v[None, :],)
    columns = np.eye(n)
    rate = np.stack([mu_fluxes.rate(way, e[None], zero, 0.0)[0][0] for e in columns], axis=1)
    u = 1.0 + np.exp(np.cos(grid.centers(0)))[None]
    exact = expm(rate) @ u[0]
    sizes, errors = [], []
    for layers in (16, 32, 64, 128):
        path = forward(way, [field], u, np.linspace(0.0, 1.0, layers + 1), False)
        assert all(len(part.starts) == 1 for part in path.layers)
        sizes.append(1.0 / layers)
        errors.append(np.abs(path.nodes[-1, 0] - exact).sum())
    order = STEPPERS[method].order
    assert order == int(method[-1])
    assert order - 0.15 <= slope(sizes, errors) <= order + 0.3


# ---- the plane ---------------------------------------------------------------------------------------------------


def cell_averages(grid: Grid, law: Flow) -> np.ndarray:
    """Averages over cells by four Gauss points an axis."""
    node, weight = np.polynomial.legendre.leggauss(4)
    total = np.zeros(grid.cells)
    for a, wa in zip(node, weight, strict=True):
        for b, wb in zip(node, weight, strict=True):
            shift = 0.5 * np.array([a, b]) * grid.spacing
            total += 0.25 * wa * wb * law(grid.points() + shift).reshape(grid.cells)
    return total


def shear_and_rotation(n: int) -> tuple[Grid, tuple[np.ndarray, ...], Flow, Flow, float]:
    """V = Ax with a rotation and a shear between walls; a Gaussian law stays far from them."""
    grid = Grid((-5.0, -4.0), (5.0, 4.0), (n, n), (False, False))
    a = np.array([[0.0, 0.6], [0.9, 0.0]]) - np.array([[0.0, 1.7], [0.0, 0.0]])
    assert np.trace(a) == 0.0
    v = tuple((grid.face_points(k) @ a[k]).reshape(grid.face_shape(k)) for k in (0, 1))
    end = 1.0
    back = expm(-end * a)

    def law(x: np.ndarray) -> np.ndarray:
        y = x - np.array([0.5, 0.3])
        return np.asarray(np.exp(-(y[:, 0] ** 2) / 0.6 - (y[:, 1] ** 2) / 0.9))

    return grid, v, law, lambda x: law(x @ back.T), end


def curved_shear(n: int) -> tuple[Grid, tuple[np.ndarray, ...], Flow, Flow, float]:
    """V = (cos y, 0) on a torus: the curvature of V along the face counts too."""
    grid = Grid((0.0, 0.0), (2 * np.pi, 2 * np.pi), (n, n), (True, True))
    v = (np.cos(grid.face_points(0)[:, 1]).reshape(grid.face_shape(0)), np.zeros(grid.face_shape(1)))

    def law(x: np.ndarray) -> np.ndarray:
        return np.asarray(1.0 + 0.5 * np.sin(x[:, 0]) * np.cos(x[:, 1] - 0.4))

    return grid, v, law, lambda x: law(np.stack([x[:, 0] - np.cos(x[:, 1]), x[:, 1]], axis=1)), 1.0


def plane_order(case: Callable[[int], Any], name: str, cells: tuple[int, ...]) -> float:
    sizes, errors = [], []
    for n in cells:
        grid, v, law, after, end = case(n)
        way = transport(grid, name, "ssprk3", 0.6 * (cells[0] / n) ** (2.0 / 3.0))
        path = forward(way, [PrescribedField(v)], cell_averages(grid, law)[None], np.array([0.0, end]), False)
        found = path.nodes[-1, 0]
        sizes.append(1.0 / n)
        errors.append(np.abs(found - cell_averages(grid, after)).sum() * grid.cell_volume)
    return slope(sizes, errors)


def euler_with(add_terms: Callable[..., None]) -> Callable[..., tuple[np.ndarray, int]]:
    """`mu_fluxes.euler` in numpy, with other terms along the face."""

    def euler(
        way: Transport, u: np.ndarray, start: np.ndarray, velocity: Any, dt: float, weight: float | None = None
    ) -> tuple[np.ndarray, int]:
        change = u - start
        for axis, (v, r) in enumerate(zip(velocity, mu_fluxes.reconstruct(way, u, velocity), strict=True)):
            flux = v * r
            add_terms(way.grid, axis, v, u, flux)
            if way.grid.periodic[axis]:
                out = flux - np.roll(flux, 1, axis + 1)
            else:
                out = np.diff(np.pad(flux, [(int(k == axis + 1),) * 2 for k in range(flux.ndim)]), axis=axis + 1)
            change -= dt / way.grid.spacing[axis] * out
        return (change if weight is None else start + weight * change), 0

    return euler


@pytest.mark.parametrize("name", ["linear5", "weno5z"])
@pytest.mark.parametrize(
    ("case", "cells"), [(shear_and_rotation, (48, 72, 108)), (curved_shear, (16, 24, 36))], ids=["rotation", "curved"]
)
def test_order_in_the_plane(case: Callable[[int], Any], cells: tuple[int, ...], name: str) -> None:
    assert plane_order(case, name, cells) >= 3.5


@pytest.mark.parametrize(
    ("case", "cells"), [(shear_and_rotation, (64, 96, 144)), (curved_shear, (16, 24, 36))], ids=["rotation", "curved"]
)
def test_without_the_terms_along_the_face_the_order_is_lost(
    case: Callable[[int], Any], cells: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_step, "euler", euler_with(lambda *_: None))
    assert plane_order(case, "linear5", cells) < 2.5


def on_a_torus(slopes: bool, curvature: bool) -> Callable[..., None]:
    """The terms along the face in numpy: products of slopes, curvature of V, or both."""

    def add(grid: Grid, axis: int, v: np.ndarray, u: np.ndarray, flux: np.ndarray) -> None:
        k = 2 - axis
        r = 0.5 * (u + np.roll(u, -1, axis + 1))

        def slope_along(a: np.ndarray) -> np.ndarray:
            return 0.5 * (np.roll(a, -1, k) - np.roll(a, 1, k))

        if slopes:
            flux += slope_along(v) * slope_along(r) / 12.0
        if curvature:
            flux += (np.roll(v, -1, k) - 2.0 * v + np.roll(v, 1, k)) * r / 24.0

    return add


def test_both_terms_along_the_face_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept, enough in (((True, True), True), ((True, False), False), ((False, True), False)):
        monkeypatch.setattr(depth_step, "euler", euler_with(on_a_torus(*kept)))
        order = plane_order(curved_shear, "linear5", (16, 24, 36))
        assert (order >= 3.5) if enough else (order < 2.5), kept
