"""Laws of prescribed velocities: exact face means, depths of the stages, the dual, equal bits, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import solve
from meanfield_pde.drift_flows import FLOWS, WITH_PERIOD, of_function, of_stream, prescribed
from meanfield_pde.equations.forward_backward import backward, forward, laws_at
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.mu_fluxes import rate
from meanfield_pde.equations.runge_kutta import STEPPERS, Stepper, stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, VonMises
from meanfield_pde.model.field import PrescribedField
from meanfield_pde.problem import Depth, Drift, Problem, Sequence, Tokens
from meanfield_pde.problem_file import dump_problem

PLANE = Grid((0.0, -1.0), (1.0, 1.0), (13, 16), (False, False))
RING = Grid((0.0,), (2.0 * np.pi,), (24,), (True,))
GAUSS = np.polynomial.legendre.leggauss(12)


def face_mean(grid: Grid, axis: int, function: Any) -> np.ndarray:
    """Mean over every face of a function of (x, y), by quadrature along it."""
    other = 1 - axis
    x = grid.face_points(axis)
    out = np.zeros(len(x))
    for node, weight in zip(*GAUSS, strict=True):
        at = x.copy()
        at[:, other] += 0.5 * grid.spacing[other] * node
        out += 0.5 * weight * function(at[:, 0], at[:, 1])
    return out.reshape(grid.face_shape(axis))


def taken(grid: Grid, axis: int, v: np.ndarray) -> np.ndarray:
    """v + δ²v/24 along the face, the mean that the flux works with (at walls the δ² of the inner neighbour)."""
    moved = np.moveaxis(v, 1 - axis, -1)
    second = np.diff(moved, 2, axis=-1)
    second = np.concatenate([second[..., :1], second, second[..., -1:]], axis=-1)
    return np.moveaxis(moved + second / 24.0, -1, 1 - axis)


def test_deformation_and_rotation_have_the_face_means_of_their_formulas() -> None:
    xi, eta = (lambda x: x), (lambda y: 0.5 * (y + 1.0))  # the box is [0, 1] x [-1, 1]
    still, moving = prescribed(PLANE, flow="deformation", period=3.0)
    assert moving is not None
    assert all(not v.any() for v in still)
    for t, factor in ((0.0, 1.0), (1.0, 0.5), (3.0, -1.0)):
        vx, vy = moving(t)
        u = face_mean(PLANE, 0, lambda x, y: np.sin(np.pi * xi(x)) ** 2 * np.sin(2 * np.pi * eta(y)))
        v = face_mean(PLANE, 1, lambda x, y: -2.0 * np.sin(np.pi * eta(y)) ** 2 * np.sin(2 * np.pi * xi(x)))
        np.testing.assert_allclose(taken(PLANE, 0, vx), factor * u, rtol=0, atol=1e-13)
        np.testing.assert_allclose(taken(PLANE, 1, vy), factor * v, rtol=0, atol=1e-13)
    (wx, wy), nothing = prescribed(PLANE, flow="rotation", period=4.0)
    assert nothing is None
    np.testing.assert_allclose(wx, -np.pi / 2 * PLANE.face_points(0)[:, 1].reshape(wx.shape), rtol=0, atol=1e-13)
    np.testing.assert_allclose(wy, np.pi / 2 * (PLANE.face_points(1)[:, 0] - 0.5).reshape(wy.shape), rtol=0, atol=1e-13)


def test_sine_leak_and_constant_add_up() -> None:
    (v,), _ = prescribed(Grid((-np.pi,), (np.pi,), (16,), (True,)), constant=(0.3,), flow="sine")
    x = -np.pi + 2 * np.pi / 16 * np.arange(1, 17)
    np.testing.assert_allclose(v, 0.3 + np.sin(x), rtol=0, atol=1e-15)
    (v,), _ = prescribed(Grid((0.0,), (3.0,), (12,), (True,)), flow="sine")
    np.testing.assert_allclose(v, 3 / (2 * np.pi) * np.sin(2 * np.pi * np.arange(1, 13) * 0.25 / 3), atol=1e-15)
    (v,), _ = prescribed(Grid((1.0,), (4.0,), (12,), (False,)), flow="logistic")
    np.testing.assert_allclose(v, np.arange(1, 12) * np.arange(11, 0, -1) / 48, atol=1e-15)
    (v,), _ = prescribed(Grid((0.0,), (3.0,), (12,), (False,)), leak=0.5, constant=(1.0,))
    np.testing.assert_allclose(v, 1.0 - 0.5 * 0.25 * np.arange(1, 12), rtol=1e-15)


def test_a_flow_with_a_stream_function_keeps_a_uniform_law() -> None:
    rng = np.random.default_rng(0)
    stream = np.zeros((PLANE.cells[0] + 1, PLANE.cells[1] + 1))
    stream[1:-1, 1:-1] = rng.normal(size=(PLANE.cells[0] - 1, PLANE.cells[1] - 1))
    one = np.ones((1, *PLANE.cells))
    for flow in (of_stream(PLANE, stream), prescribed(PLANE, flow="deformation")[1](0.2)):
        way = Transport(PLANE, scheme("weno5z"), stepper("ssprk3"), 0.5, False, flow)
        v = tuple(w[None] for w in flow)
        slope = rate(way, one, v, 0.1, tuple(np.ones_like(w) for w in v))[0]
        assert np.abs(slope).max() <= 1e-12 * max(np.abs(w).max() for w in flow) / min(PLANE.spacing)


def test_stages_are_evaluated_at_their_depths() -> None:
    assert STEPPERS["ssprk1"].nodes == (0.0,)
    assert STEPPERS["ssprk2"].nodes == (0.0, 1.0)
    assert STEPPERS["ssprk3"].nodes == (0.0, 1.0, 0.5)
    # the c of Ketcheson (2008), SSPRK(10,4), in sixths
    ten = 6.0 * np.array(STEPPERS["ssprk104"].nodes)
    np.testing.assert_allclose(ten, [0, 1, 2, 3, 4, 2, 3, 4, 5, 6], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("rows", "share", "words"),
    [
        ((), 1.0, "needs rows"),
        (((0.0, 1.0),), 1.5, "share"),
        (((0.0, 1.0), (0.5, 0.5)), 1.0, r"row 1 of a stepper has 2 weights: row i has i \+ 2"),
    ],
)
def test_rows_of_the_wrong_length_are_refused(
    rows: tuple[tuple[float, ...], ...], share: float, words: str
) -> None:
    with pytest.raises(MeanFieldError, match=words):
        Stepper(1, rows, share)


@pytest.mark.parametrize(("method", "order"), [("ssprk2", 2.0), ("ssprk3", 3.0), ("ssprk104", 4.0)])
def test_order_in_the_depth_step_of_a_velocity_that_changes(method: str, order: float) -> None:
    # for V(t) > 0 linear3 multiplies the first mode of a ring by exp of its symbol times ∫V: the rest is the stepper's
    n, h = RING.cells[0], RING.spacing[0]

    def moving(t: float) -> tuple[np.ndarray, ...]:
        return (np.full(n, 0.3 + 0.25 * np.sin(5.0 * t)),)

    way = Transport(RING, scheme("linear3"), stepper(method), 0.5, False, (np.zeros(n),), moving=moving)
    z = np.exp(1j * h)
    symbol = -(1.0 - 1.0 / z) * (-1.0 / 6.0 / z + 5.0 / 6.0 + z / 3.0) / h
    travelled = 0.3 * 2.0 + 0.05 * (1.0 - np.cos(10.0))
    mode = np.exp(1j * RING.centers(0))
    exact = 1.0 + 0.5 * (mode * np.exp(symbol * travelled)).real
    errors, counts = [], np.array([10, 20, 40])
    for count in counts:
        path = forward(
            way, [PrescribedField((np.zeros(n),))], 1.0 + 0.5 * mode.real[None], np.linspace(0.0, 2.0, count + 1), False
        )
        assert sum(len(part.starts) for part in path.layers) == count
        errors.append(np.abs(path.nodes[-1, 0] - exact).max())
    assert -np.polyfit(np.log(counts), np.log(errors), 1)[0] == pytest.approx(order, abs=0.2)


def test_a_velocity_that_starts_at_rest_gets_steps_short_enough() -> None:
    n = RING.cells[0]

    def moving(t: float) -> tuple[np.ndarray, ...]:
        return (np.full(n, 3.0 * np.sin(2.0 * np.pi * t)),)

    way = Transport(RING, scheme("upwind1"), stepper("ssprk3"), 0.5, False, (np.zeros(n),), moving=moving)
    u = 1.0 + 0.5 * np.sin(RING.centers(0))[None]
    path = forward(way, [PrescribedField((np.zeros(n),))], u, np.array([0.0, 1.0]), False)
    assert len(path.layers[0].starts) >= 3.0 / RING.spacing[0] / 0.5 / 1.01
    assert path.courant <= 0.5 * 1.1


@pytest.mark.parametrize("name", ["upwind1", "linear3", "linear5"])
def test_duality_bits_and_output_with_a_moving_velocity(name: str) -> None:
    rng = np.random.default_rng(2)
    still, moving = prescribed(PLANE, flow="deformation", period=0.4)
    field = PrescribedField(tuple(rng.normal(size=PLANE.face_shape(k)) for k in range(2)))
    way = Transport(PLANE, scheme(name), stepper("ssprk3"), 0.4, False, still, moving=moving)
    edges = np.linspace(0.0, 0.3, 4)
    path = forward(way, [field], 1.0 + rng.random((2, *PLANE.cells)), edges, True)
    sigma = forward(way, [field], rng.normal(size=(2, *PLANE.cells)), edges, False)
    p_end = rng.normal(size=path.nodes[-1].shape)
    p = backward(way, [field], path, p_end).nodes
    products = [(q * s).sum() for q, s in zip(p, sigma.nodes, strict=True)]
    scale = max(np.abs(q * s).sum() for q, s in zip(p, sigma.nodes, strict=True))
    assert max(products) - min(products) <= 1e-13 * scale
    # the velocity at depth 0 all the way gives another answer
    frozen = replace(way, drift=moving(0.0), moving=None)
    assert np.abs(forward(frozen, [field], path.nodes[0], edges, False).nodes[-1] - path.nodes[-1]).max() > 1e-3
    again = replace_stages(path)
    np.testing.assert_array_equal(backward(way, [field], again, p_end).nodes, p)
    part = path.layers[1]
    k = len(part.starts) - 1
    inside = float(edges[1]) + (k + 0.5) * part.dt
    halved = laws_at(way, [field], path, np.array([inside]))[0]
    # half a step from where the step begins, at its own depths
    start = float(edges[1]) + k * part.dt
    there = forward(
        replace(way, cfl=way.courant_limit()), [field], part.starts[k], np.array([start, inside]), False
    ).nodes[-1]
    np.testing.assert_allclose(halved, there, rtol=0, atol=1e-14 * np.abs(there).max())


def replace_stages(path: Any) -> Any:
    """The path without its stages, which have to be recomputed."""
    return path._replace(layers=[part._replace(stages=None) for part in path.layers])


def test_a_velocity_that_stays_is_not_made_again() -> None:
    drift = (np.ones(RING.cells[0]),)
    way = Transport(RING, scheme("upwind1"), stepper("ssprk1"), 0.5, False, drift)
    assert way.drift_at(0.3) is drift
    calls: list[float] = []

    def moving(t: float) -> tuple[np.ndarray, ...]:
        calls.append(t)
        return (np.ones(RING.cells[0]),)

    way = replace(way, moving=moving)
    np.testing.assert_array_equal(way.drift_at(0.3)[0], 2.0)
    assert calls == [0.3]


def test_a_function_of_position_and_depth_is_a_drift() -> None:
    law = VonMises(0.5, 2.0)
    given = Drift(flow=lambda x, t: np.cos(t) * np.ones_like(x))
    tokens = Tokens((-np.pi,), (np.pi,), (64,), (True,), given)
    problem = Problem("tokens", tokens=tokens, depth=Depth(T=1.3), sequences=(Sequence(law),))
    solution = solve(problem)
    grid = tokens.grid()
    shifted = VonMises(0.5 + np.sin(1.3), 2.0)
    from meanfield_pde.laws import cell_averages

    assert grid.integral(np.abs(solution.mu[-1, 0] - cell_averages(shifted, grid)[0])) <= 6e-5
    with pytest.raises(MeanFieldError, match="Python function and cannot be written"):
        dump_problem(problem)
    with pytest.raises(MeanFieldError, match=r"velocities of shape \(24,\) at positions \(24, 1\)"):
        of_function(RING, lambda x, t: x[:, 0], 0.0)
    with pytest.raises(MeanFieldError, match=r"not finite at depth 0\.5"):
        of_function(RING, lambda x, t: np.full_like(x, np.nan), 0.5)


@pytest.mark.parametrize(
    ("periodic", "drift", "message"),
    [
        ((True,), Drift(flow="sin"), r"tokens\.drift\.flow = 'sin' is not known; did you mean 'sine'"),
        ((False,), Drift(flow="sine"), "lives on a ring"),
        ((True,), Drift(flow="logistic"), "lives between two walls"),
        ((False, False), Drift(flow="logistic"), "lives between two walls"),
        ((True,), Drift(flow="rotation"), "lives in a plane between walls"),
        ((False, True), Drift(flow="deformation"), "lives in a plane between walls"),
        ((False, False), Drift(flow="sine"), "lives on a ring"),
        ((True,), Drift(flow="sine", period=2.0), r"tokens\.drift\.period is for flow = 'rotation' or 'deformation'"),
        ((True,), Drift(period=2.0), r"tokens\.drift\.period is for flow"),
        ((False, False), Drift(flow="rotation", period=0.0), r"tokens\.drift\.period = 0 must be finite and > 0"),
        ((False,), Drift(float("nan")), r"tokens\.drift\.leak = nan"),
    ],
)
def test_flows_that_do_not_fit_are_refused(periodic: tuple[bool, ...], drift: Drift, message: str) -> None:
    dim = len(periodic)
    tokens = Tokens((-1.0,) * dim, (1.0,) * dim, (16,) * dim, periodic, drift)
    cov = tuple(tuple(0.01 * (i == j) for j in range(dim)) for i in range(dim))
    with pytest.raises(MeanFieldError, match=message):
        Problem("tokens", tokens=tokens, depth=Depth(), sequences=(Sequence(Gaussian((0.0,) * dim, cov)),))
    if isinstance(drift.flow, str) and drift.period is None:
        with pytest.raises(MeanFieldError, match=message):
            prescribed(tokens.grid(), flow=drift.flow)
    assert set(WITH_PERIOD) < set(FLOWS)
