"""Laws that hold for every attention: duality, the gradient of the discrete loss, mass, sign, degree, symmetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport, seen
from meanfield_pde.equations.mu_fluxes import rate, reconstruct
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.log_laplace import box_mean_shift
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import ATTENTIONS, Attention
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.model.kernel_sums import coverage
from meanfield_pde.model.objective import FeatureMap, PooledRegression

# aggregation is no attention, and has laws of its own
ALL = [name for name in ATTENTIONS if name not in ("none", "aggregation")]
MEANS = [name for name in ALL if name not in ("linear", "unnormalised")]
WINDOW = 1.2
GRIDS = {
    "line": Grid((-3.0,), (3.0,), (48,), (False,)),
    "plane": Grid((-2.0, -2.5), (2.0, 2.5), (12, 11), (False, False)),
    "space": Grid((-2.0, -2.0, -2.2), (2.0, 2.0, 2.2), (7, 6, 7), (False, False, False)),
}
HEADS = np.array([(w, a) for w in (-0.8, 0.3, 0.9) for a in (-0.9, -0.2, 0.7)])


def turned(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Heads in the plane with a full A and a full W."""
    w, a = theta[:, 0, None, None], theta[:, 1, None, None]
    return a * np.array([[1.0, -0.4], [0.3, 0.8]]), w * np.array([[0.9, 0.5], [-0.2, 0.7]])


def laws(grid: Grid, batch: int = 2) -> np.ndarray:
    x = grid.points()
    rows = []
    for b in range(batch):
        one = ((x - 0.5 + 0.07 * b) ** 2).sum(axis=1)
        two = ((x + 0.5 - 0.05 * b) ** 2).sum(axis=1)
        rows.append(np.exp(-one / 0.35) + 0.6 * np.exp(-two / 0.5))
    u = np.array(rows).reshape(batch, *grid.cells)
    return u / grid.integral(u).reshape(-1, *(1,) * grid.dim)


def tokens(grid: Grid, attention: str, name: str, layers: int = 2, positivity: bool = False, **more: Any) -> GridTokens:
    drift = tuple(0.3 - 0.1 * grid.face_points(k)[:, k].reshape(grid.face_shape(k)) for k in range(grid.dim))
    x = grid.points()
    settings: dict[str, Any] = {"shared": True, "family": turned if grid.dim == 2 else "scalar", **more}
    return GridTokens(
        Transport(grid, scheme(name), stepper("ssprk3"), 0.5, positivity, settings.pop("drift", drift)),
        Attention(attention, WINDOW if attention == "windowed" else None),
        settings.pop("family"),
        HEADS,
        np.linspace(0.0, 0.3, layers + 1),
        settings.pop("shared"),
        settings.pop("mu0", laws(grid)),
        PooledRegression(FeatureMap(np.stack([x[:, 0], np.cos(x).sum(axis=1), (x**2).sum(axis=1)]))),
        np.linspace(-1.0, 1.0, 6).reshape(2, 3),
        threads=1,
        **settings,
    )


def head_weights(fields: int) -> np.ndarray:
    weights = 1.0 + np.random.default_rng(3).random((fields, len(HEADS)))
    return weights / weights.sum(axis=1, keepdims=True)


def head_law(side: GridTokens, weights: np.ndarray) -> tuple[Measure, ...]:
    return tuple(Measure(side.head_points, row, np.zeros(2)) for row in weights)


# ---- duality with a tangent of its own ---------------------------------------------------------------------------


def filtered(grid: Grid, mu: np.ndarray, transposed: bool = True) -> np.ndarray:
    q = mu.reshape(grid.cells)
    for k, matrix in enumerate(grid.filters()):
        q = np.moveaxis(np.tensordot(matrix, q, axes=(0 if transposed else 1, k)), 0, k)
    return q.ravel()


def samples(grid: Grid, mu: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sample weights and their change."""
    q, dq, free = filtered(grid, mu), filtered(grid, change), filtered(grid, mu) > 0.5 * mu
    return np.where(mu > 0, np.where(free, q, 0.5 * mu), 0.0), np.where(mu > 0, np.where(free, dq, 0.5 * change), 0.0)


def potential(score: np.ndarray, q: np.ndarray, dq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """χ of the doubly stochastic coupling and its change, from the linear system of both marginals."""
    phi, chi = np.zeros(len(q)), np.zeros(len(q))
    for _ in range(3000):
        phi = -np.log(np.exp(score + chi) @ q)
        before, chi = chi, -np.log(q @ np.exp(score + phi[:, None]))
        if np.abs(chi - before).max() < 1e-15:
            break
    pi = q[:, None] * np.exp(score + phi[:, None] + chi) * q
    # rows over q: functions, so that thin cells are not lost
    p, r, log = pi / q[:, None], pi.T / q[:, None], dq / q
    n = len(q)
    system = np.block([[np.eye(n), p], [r, np.eye(n)]]) + np.outer(np.r_[np.ones(n), -np.ones(n)], np.r_[q, -q])
    return chi, np.linalg.solve(system, -np.r_[p @ log, r @ log])[n:]


def tangent_of_mean(name: str, x: np.ndarray, a: np.ndarray, grid: Grid, mu: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Derivative along d of what W multiplies, (n_x, dim), from the formulas of docs/mathematics.md 2."""
    y, h = grid.points(), np.array(grid.spacing)
    keys = x @ a.T
    if name == "linear":
        return keys @ (np.einsum("n,ni,nj->ij", d, y, y) - d.sum() * np.diag(h**2 / 12))
    if name == "unnormalised":
        e = d * np.exp(keys @ y.T)
        u = 0.5 * keys * h
        shift = np.array([[box_mean_shift(z, w) for z, w in zip(row, h, strict=True)] for row in keys])
        return (e @ y - shift * e.sum(axis=1)[:, None]) / np.where(u == 0.0, 1.0, np.sinh(u) / (u + (u == 0.0))).prod(
            axis=1
        )[:, None]
    q, dq = (mu, d) if name in ("softmax", "windowed") else samples(grid, mu, d)
    score = keys @ y.T
    if name == "l2":
        score = score - 0.5 * np.einsum("ni,ij,nj->n", y, a, y)
    if name == "sinkhorn":
        on = q > 0
        chi, dchi = np.zeros_like(q), np.zeros_like(q)
        chi[on], dchi[on] = potential(y[on] @ a.T @ y[on].T, q[on], dq[on])
        score, dq = score + chi, dq + q * dchi
    k = np.exp(score - score.max(axis=1, keepdims=True))
    if name == "windowed":
        k = k * coverage(x, y, h, WINDOW)
    total = (k @ q)[:, None]
    mean = k @ (q[:, None] * y) / total
    return (k @ (dq[:, None] * y) - mean * (k @ dq)[:, None]) / total


def carried(side: GridTokens, sweep: Any, weights: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """sigma (*cells) of the first law carried through every stage of the path by the linearised equation."""
    grid, way = side.transport.grid, side.transport
    heads = head_matrices(side.family, HEADS, grid.dim)

    def slope(stage: Any, s: np.ndarray) -> np.ndarray:
        u = stage.u[:1]
        v = tuple(one[:1] for one in stage.velocity)
        # attention looks at cells that hold mass alone
        mass, change = (seen(grid, u) * one * grid.cell_volume for one in (u, s))
        mass, change = mass.ravel(), change.ravel()
        dv = []
        for axis in range(grid.dim):
            x = grid.face_points(axis)
            total = np.zeros(len(x))
            for j, a in enumerate(heads.scores):
                w = np.einsum("k,kij->ij", weights[0] * (heads.index == j), heads.values)
                total += tangent_of_mean(side.attention.name, x, a, grid, mass, change) @ w[axis]
            dv.append(total.reshape(1, *grid.face_shape(axis)))
        along = rate(way, s, v, 0.0)[0]
        return along + rate(way, u, tuple(dv), 0.0, reconstruct(way, u, v))[0]

    s = sigma[None]
    for layer in sweep.paths[0].layers:
        for stages in layer.stages:
            one = s + layer.dt * slope(stages[0], s)
            two = 0.75 * s + 0.25 * (one + layer.dt * slope(stages[1], one))
            s = s / 3 + 2 / 3 * (two + layer.dt * slope(stages[2], two))
    return s[0]


@pytest.mark.parametrize("name", ["upwind1", "linear5"])
@pytest.mark.parametrize("place", ["line", "plane"])
@pytest.mark.parametrize("attention", ALL)
def test_duality_with_a_tangent_written_anew(attention: str, place: str, name: str) -> None:
    grid = GRIDS[place]
    side = tokens(grid, attention, name, 1)
    weights = head_weights(1)
    sweep = side.forward(head_law(side, weights))
    rng = np.random.default_rng(4)
    p_end = rng.normal(size=sweep.final.shape)
    p_start = side.backward(sweep, p_end).nodes[0][0]
    sigma = side.mu0[0] * np.cos(grid.points() @ np.linspace(1.5, 2.5, grid.dim)).reshape(grid.cells)
    end = carried(side, sweep, weights, sigma)
    left, right = (p_end[0] * end).sum(), (p_start * sigma).sum()
    # tables of softmax interpolate: the velocity is not that of the formula, but near it
    most = 1e-9 if attention == "softmax" else 1e-12
    assert abs(left - right) <= most * (np.abs(p_end[0] * end).sum() + np.abs(p_start * sigma).sum())


@pytest.mark.parametrize("place", ["line", "plane", "space"])
@pytest.mark.parametrize("attention", ALL)
def test_duality_with_differences_for_weno(attention: str, place: str) -> None:
    grid = GRIDS[place]
    side = tokens(grid, attention, "weno5z", 1)
    rho = head_law(side, head_weights(1))
    sweep = side.forward(rho)
    p_end = np.random.default_rng(4).normal(size=sweep.final.shape)
    p_start = side.backward(sweep, p_end).nodes[0]
    sigma = 0.2 * side.mu0 * np.cos(grid.points() @ np.linspace(1.5, 2.5, grid.dim)).reshape(grid.cells)

    def difference(e: float) -> np.ndarray:
        plus, minus = (side._sweep(rho, [side.mu0 + s * sigma], sweep.table_size).final for s in (e, -e))
        return np.asarray((plus - minus) / (2 * e))

    # small enough that no cell crosses a corner of the sample weights
    sigma_end = (4 * difference(5e-5) - difference(1e-4)) / 3
    left, right = (p_end * sigma_end).sum(), (p_start * sigma).sum()
    assert abs(left - right) <= 2e-8 * (np.abs(p_end * sigma_end).sum() + np.abs(p_start * sigma).sum())
    assert abs(left) > 1e-4 * np.abs(p_end * sigma_end).sum()


# ---- the gradient ------------------------------------------------------------------------------------------------


def remainder_order(loss: Callable[[float], float], slope: float, steps: np.ndarray) -> float:
    at_zero = loss(0.0)
    rest = [abs(loss(e) - at_zero - e * slope) for e in steps]
    assert min(rest) > 1e-15 * abs(at_zero)
    return float(np.polyfit(np.log(steps), np.log(rest), 1)[0])


@pytest.mark.parametrize("name", ["linear5", "weno5z"])
@pytest.mark.parametrize("place", ["line", "plane"])
@pytest.mark.parametrize("attention", ALL)
def test_taylor_remainder_in_the_law_of_the_heads(attention: str, place: str, name: str) -> None:
    side = tokens(GRIDS[place], attention, name, 2, shared=False)
    weights = head_weights(2)
    change = np.random.default_rng(5).normal(size=weights.shape) * weights
    change -= weights * change.sum(axis=1, keepdims=True)
    gradient = side.first_variation(head_law(side, weights)).potential
    slope = float((np.diff(side.edges)[:, None] * gradient * change).sum())
    size = side.forward(head_law(side, weights)).table_size

    def loss(e: float) -> float:
        return side.terminal(side._sweep(head_law(side, weights + e * change), [side.mu0], size).final)[0]

    assert remainder_order(loss, slope, np.logspace(-0.5, -3.5, 5)) == pytest.approx(2.0, abs=0.07)


@pytest.mark.parametrize("name", ["linear5", "weno5z"])
@pytest.mark.parametrize("place", ["line", "plane"])
@pytest.mark.parametrize("attention", ALL)
def test_taylor_remainder_in_the_initial_law(attention: str, place: str, name: str) -> None:
    grid = GRIDS[place]
    side = tokens(grid, attention, name)
    rho = head_law(side, head_weights(1))
    sweep = side.forward(rho)
    p = side.backward(sweep, side.terminal(sweep.final)[1]).nodes[0]
    change = 0.5 * side.mu0 * np.cos(grid.points() @ np.linspace(1.0, 2.0, grid.dim)).reshape(grid.cells)
    change -= side.mu0 * grid.integral(change).reshape(-1, *(1,) * grid.dim)
    slope = float((p * change).sum() * grid.cell_volume / len(p))

    def loss(e: float) -> float:
        return side.terminal(side._sweep(rho, [side.mu0 + e * change], sweep.table_size).final)[0]

    assert remainder_order(loss, slope, np.logspace(-0.5, -3.5, 5)) == pytest.approx(2.0, abs=0.07)


# ---- mass, sign, degree ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["upwind1", "weno5z"])
@pytest.mark.parametrize("place", ["line", "plane", "space"])
@pytest.mark.parametrize("attention", ALL)
def test_mass_and_sign_are_kept_on_rough_laws(attention: str, place: str, name: str) -> None:
    grid = GRIDS[place]
    rough = np.random.default_rng(7).random((2, *grid.cells)) ** 3
    rough[rough < 0.1] = 0.0
    rough /= grid.integral(rough).reshape(-1, *(1,) * grid.dim)
    side = tokens(grid, attention, name, 2, True, mu0=rough)
    sweep = side.forward(head_law(side, head_weights(1)))
    report = side.report(sweep, None)
    assert report.mass_error is not None
    assert report.minimum is not None
    assert report.mass_error <= 1e-13
    assert report.minimum >= -1e-15
    assert np.abs(sweep.final - side.mu0).max() > 1e-2


@pytest.mark.parametrize("name", ["upwind1", "linear5", "weno5z"])
@pytest.mark.parametrize("place", ["line", "plane"])
@pytest.mark.parametrize("attention", ALL)
def test_the_pairing_of_p_and_mu_is_constant_where_attention_is_a_mean(attention: str, place: str, name: str) -> None:
    side = tokens(GRIDS[place], attention, name)
    variation = side.first_variation(head_law(side, head_weights(1)))
    if attention in MEANS:
        assert variation.report.costate_drift is not None
        assert variation.report.costate_drift <= 1e-12
        return
    # an attention that grows with mu does not keep it, so the number is no certificate and is not given
    assert variation.report.costate_drift is None
    sweep = side.forward(head_law(side, head_weights(1)))
    nodes = side.backward(sweep, side.terminal(sweep.final)[1]).nodes
    pairing = [side.transport.grid.integral(p * mu) for p, mu in zip(nodes, sweep.nodes, strict=True)]
    assert np.abs(pairing[0] - pairing[-1]).max() > 1e-3


@pytest.mark.parametrize("attention", ["linear", "unnormalised"])
def test_memory_is_bounded_by_the_velocity_of_the_initial_laws(attention: str) -> None:
    side = tokens(GRIDS["line"], attention, "linear5")
    rho = head_law(side, head_weights(1))
    steps = side.report(side.forward(rho), None).steps
    assert steps is not None
    one = 8.0 * 2 * 48
    assert replace(side, budget=1e9).keeps_stages(rho, 2, None)
    assert not replace(side, budget=3.0 * steps * one).keeps_stages(rho, 2, None)


# ---- symmetry ----------------------------------------------------------------------------------------------------


def moved(theta: np.ndarray, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, values = turned(theta)
    return matrix @ scores @ matrix.T, matrix @ values @ matrix.T


@pytest.mark.parametrize("name", ["upwind1", "linear5", "weno5z"])
@pytest.mark.parametrize("attention", ALL)
def test_axis_swap(attention: str, name: str) -> None:
    grid = GRIDS["plane"]
    other = Grid(grid.lower[::-1], grid.upper[::-1], grid.cells[::-1], grid.periodic)
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    u = laws(grid)
    u = u * (1.0 + 0.3 * np.sin(grid.points() @ np.array([1.0, 0.3])).reshape(grid.cells))
    side = tokens(grid, attention, name, mu0=u)
    turned_side = tokens(
        other, attention, name, mu0=np.ascontiguousarray(u.swapaxes(1, 2)), family=lambda theta: moved(theta, swap)
    )
    weights = head_weights(1)
    a, b = (one.forward(head_law(one, weights)).final for one in (side, turned_side))
    np.testing.assert_allclose(b.swapaxes(1, 2), a, rtol=0, atol=1e-12 * np.abs(a).max())


@pytest.mark.parametrize("name", ["upwind1", "linear5", "weno5z"])
@pytest.mark.parametrize("attention", ALL)
def test_reflection(attention: str, name: str) -> None:
    grid = GRIDS["plane"]
    still = tuple(np.zeros(grid.face_shape(k)) for k in range(2))
    side = tokens(grid, attention, name, drift=still)
    mirror = np.diag([-1.0, 1.0])
    mirrored = tokens(
        grid, attention, name, drift=still, mu0=np.ascontiguousarray(side.mu0[:, ::-1]),
        family=lambda theta: moved(theta, mirror),
    )  # fmt: skip
    weights = head_weights(1)
    a, b = (one.forward(head_law(one, weights)).final for one in (side, mirrored))
    np.testing.assert_allclose(b[:, ::-1], a, rtol=0, atol=1e-12 * np.abs(a).max())
