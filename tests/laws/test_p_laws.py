"""Laws of the costate: duality with the steps taken, the gradient of the discrete loss, invariants, equal bits."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde.equations import grid_tokens
from meanfield_pde.equations.forward_backward import backward, forward
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.field import PrescribedField
from meanfield_pde.model.objective import FeatureMap, PooledRegression, Potential

LINEAR = ("upwind1", "linear3", "linear5")
LINE = Grid((-3.0,), (3.0,), (64,), (False,))
PLANE = Grid((-2.0, -2.5), (2.0, 2.5), (12, 11), (False, False))
HEADS = np.array([(w, a) for w in (-0.8, 0.3, 0.9) for a in (-1.1, -0.2, 0.7, 1.3)])


def transport(grid: Grid, name: str, method: str = "ssprk3", cfl: float = 0.5, positivity: bool = False) -> Transport:
    drift = tuple(0.3 - 0.1 * grid.face_points(k)[:, k].reshape(grid.face_shape(k)) for k in range(grid.dim))
    return Transport(grid, scheme(name), stepper(method), cfl, positivity, drift)


def laws(grid: Grid, batch: int) -> np.ndarray:
    """Smooth positive laws, each with two bumps."""
    x = grid.points()
    rows = []
    for b in range(batch):
        one = ((x - 0.6 + 0.07 * b) ** 2).sum(axis=1)
        two = ((x + 0.5 - 0.05 * b) ** 2).sum(axis=1)
        rows.append(np.exp(-one / 0.35) + 0.6 * np.exp(-two / 0.5))
    u = np.array(rows).reshape(batch, *grid.cells)
    return u / grid.integral(u).reshape(-1, *(1,) * grid.dim)


def loss_of(grid: Grid) -> PooledRegression:
    x = grid.points()
    return PooledRegression(FeatureMap(np.stack([x[:, 0], np.cos(x).sum(axis=1), (x**2).sum(axis=1)])))


def tokens(grid: Grid, name: str, layers: int, shared: bool, batch: int = 2, **more: Any) -> GridTokens:
    targets = np.linspace(-1.0, 1.0, 3 * batch).reshape(batch, 3)
    settings: dict[str, Any] = {"threads": 1, **more}
    return GridTokens(
        transport(grid, name, positivity=settings.pop("positivity", False)),
        Attention(),
        "scalar",
        HEADS,
        np.linspace(0.0, 0.4, layers + 1),
        shared,
        laws(grid, batch),
        loss_of(grid),
        targets,
        **settings,
    )


def head_law(side: GridTokens, weights: np.ndarray) -> tuple[Measure, ...]:
    """One measure a layer over the heads of ``side``; weights (fields, K)."""
    return tuple(Measure(side.head_points, row, np.zeros(2)) for row in weights)


def head_weights(fields: int) -> np.ndarray:
    weights = 1.0 + np.random.default_rng(3).random((fields, len(HEADS)))
    return weights / weights.sum(axis=1, keepdims=True)


# ---- duality -----------------------------------------------------------------------------------------------------


def tangent(name: str, ring: bool, n: int, v: np.ndarray) -> np.ndarray:
    """The matrix -D (V ⊙ R) times the cell width, from the weights of Shu (1998) and the walls' own one-sided ones."""
    width = {"upwind1": 1, "linear3": 3, "linear5": 5}[name]
    half = width // 2
    out = np.zeros((n, n))
    for f, speed in enumerate(v):
        up, step = (f, 1) if speed >= 0 else (f + 1, -1)
        inside = [k for k in range(-half - 4, half + 5) if ring or 0 <= up + step * k < n]
        start = min(max(-half, inside[0]), inside[-1] - width + 1)
        offsets = np.arange(start, start + width)
        # a polynomial with these cell averages, evaluated at the face
        moments = [[((o + 0.5) ** (m + 1) - (o - 0.5) ** (m + 1)) / (m + 1) for o in offsets] for m in range(width)]
        weight = np.linalg.solve(np.array(moments), 0.5 ** np.arange(width))
        for o, w in zip(offsets, weight, strict=True):
            cell = (up + step * o) % n
            out[f, cell] -= speed * w
            out[(f + 1) % n, cell] += speed * w
    return out


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("name", ["upwind1", "linear3"])
def test_duality_with_a_tangent_coded_anew(name: str, ring: bool) -> None:
    n = 20
    grid = Grid((0.0,), (2.0,), (n,), (ring,))
    rng = np.random.default_rng(1)
    v = rng.normal(size=n if ring else n - 1)
    way = Transport(grid, scheme(name), stepper("ssprk3"), 0.4, False, (np.zeros_like(v),))
    u = 1.0 + rng.random((1, n))
    path = forward(way, [PrescribedField((v,))], u, np.array([0.0, 0.3]), True)
    dt = path.layers[0].dt
    # ssprk3 applied to a linear rate is its Taylor polynomial
    rate = dt * tangent(name, ring, n, v) / grid.spacing[0]
    one = np.eye(n) + rate + rate @ rate / 2 + rate @ rate @ rate / 6
    whole = np.linalg.matrix_power(one, len(path.layers[0].starts))
    np.testing.assert_allclose(path.nodes[-1, 0], whole @ u[0], rtol=1e-12)
    p_end = rng.normal(size=(1, n))
    p = backward(way, [PrescribedField((v,))], path, p_end).nodes[0, 0]
    np.testing.assert_allclose(p, whole.T @ p_end[0], rtol=0, atol=1e-13 * np.abs(p).max() * 10)
    sigma = rng.normal(size=n)
    after = whole @ sigma
    assert abs(p_end[0] @ after - p @ sigma) <= 1e-13 * (np.abs(p_end[0] * after).sum() + np.abs(p * sigma).sum())


@pytest.mark.parametrize(
    ("name", "method"),
    [("upwind1", "ssprk1"), *((name, method) for name in LINEAR for method in ("ssprk2", "ssprk3", "ssprk104"))],
)
@pytest.mark.parametrize(
    "grid",
    [
        Grid((-1.0,), (1.0,), (17,), (False,)),
        Grid((-1.0,), (1.0,), (17,), (True,)),
        Grid((0.0, 0.0), (1.0, 2.0), (7, 8), (False, True)),
        Grid((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (5, 6, 7), (False, True, False)),
    ],
    ids=["wall", "ring", "plane", "space"],
)
def test_duality_for_prescribed_velocities(grid: Grid, name: str, method: str) -> None:
    # with V given the linear schemes are linear, so a perturbation is carried by the forward solver itself
    rng = np.random.default_rng(2)
    field = PrescribedField(tuple(rng.normal(size=grid.face_shape(k)) for k in range(grid.dim)))
    cfl = 0.05 if (name, method) == ("linear5", "ssprk2") else 0.4
    way = transport(grid, name, method, cfl)
    edges = np.linspace(0.0, 0.1, 4)
    path = forward(way, [field], 1.0 + rng.random((2, *grid.cells)), edges, True)
    sigma = forward(way, [field], rng.normal(size=(2, *grid.cells)), edges, False)
    p = backward(way, [field], path, rng.normal(size=path.nodes[-1].shape)).nodes
    products = [(q * s).sum() for q, s in zip(p, sigma.nodes, strict=True)]
    scale = max(np.abs(q * s).sum() for q, s in zip(p, sigma.nodes, strict=True))
    assert max(products) - min(products) <= 1e-13 * scale


@pytest.mark.parametrize("name", [*LINEAR, "weno5z"])
@pytest.mark.parametrize("grid", [LINE, PLANE], ids=["line", "plane"])
def test_duality_with_attention(grid: Grid, name: str) -> None:
    side = tokens(grid, name, 3 if grid.dim == 1 else 2, True)
    rho = head_law(side, head_weights(1))
    sweep = side.forward(rho)
    rng = np.random.default_rng(4)
    p_end = rng.normal(size=sweep.final.shape)
    p_start = side.backward(sweep, p_end).nodes[0]
    # a smooth relative perturbation without mass
    shape = 0.2 * np.cos(grid.points() @ np.linspace(1.5, 2.5, grid.dim)).reshape(grid.cells)
    sigma = side.mu0 * shape
    sigma -= side.mu0 * grid.integral(sigma).reshape(-1, *(1,) * grid.dim)

    def difference(e: float) -> np.ndarray:
        plus, minus = (side._sweep(rho, [side.mu0 + s * sigma], sweep.table_size) for s in (e, -e))
        assert [len(x.starts) for x in plus.paths[0].layers] == [len(x.starts) for x in minus.paths[0].layers]
        return np.asarray((plus.final - minus.final) / (2 * e))

    coarse, fine = difference(4e-4), difference(2e-4)
    sigma_end = (4 * fine - coarse) / 3
    finer = difference(1e-4)
    sigma_end = (16 * (4 * finer - fine) / 3 - sigma_end) / 15
    left, right = (p_end * sigma_end).sum(), (p_start * sigma).sum()
    assert abs(left - right) <= 1e-8 * (np.abs(p_end * sigma_end).sum() + np.abs(p_start * sigma).sum())
    # and the nonlocal part is there: without it the two differ
    assert abs(left) > 1e-4 * np.abs(p_end * sigma_end).sum()


# ---- the gradient ------------------------------------------------------------------------------------------------


def remainder_order(loss: Any, slope: float, steps: np.ndarray) -> float:
    at_zero = loss(0.0)
    rest = [abs(loss(e) - at_zero - e * slope) for e in steps]
    assert min(rest) > 1e-15 * abs(at_zero)
    return float(np.polyfit(np.log(steps), np.log(rest), 1)[0])


CASES = [(LINE, name, shared) for name in ("linear3", "linear5", "weno5z") for shared in (True, False)]
CASES += [(PLANE, "linear3", False), (PLANE, "weno5z", True)]


@pytest.mark.parametrize(("grid", "name", "shared"), CASES)
def test_taylor_remainder_in_the_law_of_the_heads(grid: Grid, name: str, shared: bool) -> None:
    layers = 6 if grid.dim == 1 else 3
    side = tokens(grid, name, layers, shared)
    weights = head_weights(1 if shared else layers)
    rng = np.random.default_rng(5)
    change = rng.normal(size=weights.shape) * weights
    change -= weights * change.sum(axis=1, keepdims=True)
    lengths = np.ones(1) if shared else np.diff(side.edges)
    gradient = side.first_variation(head_law(side, weights)).potential
    slope = float((lengths[:, None] * gradient * change).sum())
    size = side.forward(head_law(side, weights)).table_size

    def loss(e: float) -> float:
        sweep = side._sweep(head_law(side, weights + e * change), [side.mu0], size)
        return side.terminal(sweep.final)[0]

    order = remainder_order(loss, slope, np.logspace(-1, -5, 9) * (1.0 if grid.dim == 1 else 3.0))
    assert order == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize(("grid", "name", "shared"), CASES)
def test_taylor_remainder_in_the_initial_law(grid: Grid, name: str, shared: bool) -> None:
    layers = 6 if grid.dim == 1 else 3
    side = tokens(grid, name, layers, shared)
    rho = head_law(side, head_weights(1 if shared else layers))
    sweep = side.forward(rho)
    p = side.backward(sweep, side.terminal(sweep.final)[1]).nodes[0]
    wave = np.cos(grid.points() @ np.linspace(1.0, 2.0, grid.dim)).reshape(grid.cells)
    change = side.mu0 * wave
    change -= side.mu0 * grid.integral(change).reshape(-1, *(1,) * grid.dim)
    # p is that of each sequence's own loss, the loss is their mean
    slope = float((p * change).sum() * grid.cell_volume / len(p))

    def loss(e: float) -> float:
        return side.terminal(side._sweep(rho, [side.mu0 + e * change], sweep.table_size).final)[0]

    order = remainder_order(loss, slope, np.logspace(-0.5, -4.5, 9))
    assert order == pytest.approx(2.0, abs=0.05)


def test_a_potential_alone_reaches_p_at_the_end() -> None:
    side = replace(tokens(LINE, "linear5", 3, True), objective=Potential(np.sin(LINE.centers(0))), targets=None)
    sweep = side.forward(head_law(side, head_weights(1)))
    loss, p_end = side.terminal(sweep.final)
    costate = side.backward(sweep, p_end)
    np.testing.assert_array_equal(costate.nodes[-1], np.tile(np.sin(LINE.centers(0)), (2, 1)))
    assert loss == pytest.approx(float((p_end * sweep.final).sum() * LINE.cell_volume / 2), rel=1e-14)


@pytest.mark.parametrize("name", [*LINEAR, "weno5z"])
@pytest.mark.parametrize("grid", [LINE, PLANE], ids=["line", "plane"])
def test_the_pairing_of_p_and_mu_is_constant_in_depth(grid: Grid, name: str) -> None:
    # softmax is of degree 0 in mu, so the step is of degree 1 and <p, mu> is kept (Euler)
    side = tokens(grid, name, 4, True)
    report = side.first_variation(head_law(side, head_weights(1))).report
    assert report.costate_drift is not None
    assert report.costate_drift <= 1e-12
    assert report.dual is True


@pytest.mark.parametrize("name", ["linear3", "weno5z"])
def test_layerwise_gradients_sum_to_the_shared_one(name: str) -> None:
    # layers of unequal length, so that a forgotten length shows
    edges = np.array([0.0, 0.05, 0.2, 0.4])
    weights = head_weights(1)
    one = replace(tokens(LINE, name, 3, True), edges=edges)
    many = replace(tokens(LINE, name, 3, False), edges=edges)
    shared = one.first_variation(head_law(one, weights))
    layered = many.first_variation(head_law(many, np.repeat(weights, 3, axis=0)))
    assert layered.loss == shared.loss
    assert layered.potential.shape == (3, len(HEADS))
    total = np.diff(edges) @ layered.potential
    np.testing.assert_allclose(total, shared.potential[0], rtol=0, atol=1e-13 * np.abs(total).max())
    assert np.abs(layered.potential[0] - layered.potential[2]).max() > 1e-3 * np.abs(total).max()


# ---- equal bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [2e9, 2e5])
def test_the_gradient_at_a_second_control_and_back(budget: float) -> None:
    side = tokens(LINE, "weno5z", 6, True, budget=budget)
    first = head_weights(1)
    assert side.keeps_stages(head_law(side, first), 2, 64) is (budget > 1e6)
    second = np.roll(first, 3, axis=1)
    a = side.first_variation(head_law(side, first))
    b = side.first_variation(head_law(side, second))
    c = side.first_variation(head_law(side, first))
    assert a.loss == c.loss
    np.testing.assert_array_equal(a.potential, c.potential)
    assert np.abs(a.potential - b.potential).max() > 1e-3 * np.abs(a.potential).max()


def test_heads_at_other_points_in_between_leave_no_trace() -> None:
    side = tokens(LINE, "linear5", 4, True)
    rho = head_law(side, head_weights(1))
    a = side.first_variation(rho)
    side.first_variation((Measure(1.7 * HEADS, head_weights(1)[0], np.zeros(2)),))
    b = side.first_variation(rho)
    assert a.loss == b.loss
    np.testing.assert_array_equal(a.potential, b.potential)


@pytest.mark.parametrize("grid", [LINE, PLANE], ids=["line", "plane"])
def test_recomputed_stages_give_the_bits_of_stored_ones(grid: Grid) -> None:
    one = 8.0 * 2 * grid.size
    kept = tokens(grid, "weno5z", 4, False)
    redone = replace(kept, budget=40 * one)
    rho = head_law(kept, head_weights(4))
    assert kept.keeps_stages(rho, 2, 64)
    assert not redone.keeps_stages(rho, 2, 64)
    a, b = kept.first_variation(rho), redone.first_variation(rho)
    assert a.loss == b.loss
    np.testing.assert_array_equal(a.potential, b.potential)
    with pytest.raises(MeanFieldError, match="over the budget"):
        replace(kept, budget=one).first_variation(rho)


def test_a_small_budget_is_kept_to_on_the_way_back() -> None:
    grid = Grid((-3.0,), (3.0,), (256,), (False,))
    layers = 300
    side = replace(tokens(grid, "linear3", 1, True, batch=1), edges=np.linspace(0.0, 0.4, layers + 1), tolerance=1e-3)
    path = 8.0 * 256 * layers
    side = replace(side, budget=2.0 * path)
    rho = head_law(side, head_weights(1))
    assert not side.keeps_stages(rho, 1, 64)
    side.first_variation(rho)  # compiles, and builds the table
    tracemalloc.start()
    sweep = side.forward(rho)
    assert sum(len(part.starts) for part in sweep.paths[0].layers) == layers
    side.backward(sweep, side.terminal(sweep.final)[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # mu and p at the layer edges come on top of the path
    assert peak <= side.budget + 2.0 * path


def test_one_and_two_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    # threads even where they do not pay
    monkeypatch.setattr(grid_tokens, "THREADS_PAY", 0)
    side = tokens(LINE, "weno5z", 3, False, batch=20)
    rho = head_law(side, head_weights(3))
    one = side.first_variation(rho)
    for threads in (2, 3):
        more = replace(side, threads=threads).first_variation(rho)
        assert more.loss == one.loss
        np.testing.assert_array_equal(more.potential, one.potential)
        assert more.report == one.report


def test_a_sequence_feels_the_rest_of_its_block_by_the_time_error_alone() -> None:
    side = tokens(LINE, "linear5", 4, True, batch=8)
    rho = head_law(side, head_weights(1))
    together = side.forward(rho).final
    alone = side.forward(rho, side.mu0[2:3]).final
    np.testing.assert_allclose(together[2], alone[0], rtol=0, atol=1e-6)


# ---- what is not dual says so ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["muscl-minmod", "muscl-mc", "muscl-vanleer", "muscl-vanalbada"])
def test_limiters_are_consistent_and_say_they_are_not_dual(name: str) -> None:
    found = tokens(LINE, name, 4, True)
    good = tokens(LINE, "linear5", 4, True)
    rho = head_law(found, head_weights(1))
    variation, reference = found.first_variation(rho), good.first_variation(rho)
    assert variation.report.dual is False
    scale = np.abs(reference.potential - reference.potential.mean()).max()
    assert np.abs(variation.potential - reference.potential).max() <= 0.05 * scale


def test_limited_steps_say_they_are_not_dual() -> None:
    rough = np.where(np.abs(LINE.centers(0)) < 0.7, 1.0, 0.0)[None] / 1.4
    side = replace(
        tokens(LINE, "linear5", 4, True, batch=1, positivity=True), mu0=rough / LINE.integral(rough)[:, None]
    )
    report = side.first_variation(head_law(side, head_weights(1))).report
    assert report.limited
    assert report.dual is False
    smooth = tokens(LINE, "linear5", 4, True, batch=1, positivity=True)
    report = smooth.first_variation(head_law(smooth, head_weights(1))).report
    assert report.dual is (report.limited == 0)
    without = replace(smooth, objective=None)
    assert without.report(without.forward(head_law(without, head_weights(1))), None).dual is None
    with pytest.raises(MeanFieldError, match="objective"):
        without.loss(head_law(without, head_weights(1)))
