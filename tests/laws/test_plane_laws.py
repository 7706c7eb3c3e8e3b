"""Coupled tokens and heads in two and three dimensions by tables of softmax means: gradient, invariants, equal bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport, seen, seen_weights
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.objective import FeatureMap, PooledRegression

TURNED = np.stack(
    [m.ravel() for m in np.meshgrid([-0.7, 0.4, 1.0], [0.3, 0.9, 1.4], np.arange(5) * 2 * np.pi / 5, indexing="ij")],
    axis=1,
)
FULL = {
    2: np.array([[-0.6, 0.5, 0.1, -0.5, 0.5, 0.7, -0.1, 0.4], [0.3, 0.0, 0.2, 0.4, -0.2, 0.3, 0.1, 0.6]]),
    3: np.array([[-0.5, 0.3, 0.0, 0.1, -0.6, 0.2, 0.0, 0.1, -0.4, 0.4, 0.3, 0.0, 0.0, 0.3, 0.2, 0.1, 0.0, 0.4]] * 2),
}
FULL[3][1, :9] *= -0.5


def tokens(
    way: str, batch: int = 2, layers: int = 2, name: str = "linear5", dim: int = 2, n: int = 16, threads: int = 1
) -> GridTokens:
    grid = Grid((-2.5,) * dim, (2.5,) * dim, (n, n + 1, n)[:dim], (False,) * dim)
    x = grid.points()
    # everywhere above the level of noise, which a difference of two sweeps may not cross
    rows = [
        np.exp(-((x - 0.5 + 0.1 * b) ** 2).sum(axis=1) / 1.1) + 0.6 * np.exp(-((x + 0.5) ** 2).sum(axis=1) / 0.9)
        for b in range(batch)
    ]
    laws = np.array(rows).reshape(batch, *grid.cells)
    laws /= grid.integral(laws).reshape(-1, *(1,) * dim)
    still = tuple(np.zeros(grid.face_shape(k)) for k in range(dim))
    features = FeatureMap(np.stack([x[:, 0], np.cos(x).sum(axis=1), (x**2).sum(axis=1)]))
    heads, family = (TURNED, "rotation") if way == "matrix" else (FULL[dim], "matrix")
    side = GridTokens(
        Transport(grid, scheme(name), stepper("ssprk3"), 0.4, False, still),
        Attention(),
        family,
        heads,
        np.linspace(0.0, 0.3, layers + 1),
        False,
        laws,
        PooledRegression(features),
        np.linspace(-1.0, 1.0, 3 * batch).reshape(batch, 3),
        threads=threads,
    )
    assert side.tables.plan.way == way
    return side


def head_laws(side: GridTokens, weights: np.ndarray) -> tuple[Measure, ...]:
    return tuple(Measure(side.head_points, row, np.zeros(side.head_points.shape[1])) for row in weights)


def head_weights(side: GridTokens) -> np.ndarray:
    weights = 1.0 + np.random.default_rng(3).random((len(side.edges) - 1, len(side.head_points)))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("way", "dim", "n"), [("matrix", 2, 16), ("keys", 2, 16), ("keys", 3, 12)])
def test_the_gradient_passes_a_taylor_test(way: str, dim: int, n: int) -> None:
    side = tokens(way, dim=dim, n=n)
    weights = head_weights(side)
    rng = np.random.default_rng(4)
    push = rng.normal(size=weights.shape) * weights
    push -= weights * push.sum(axis=1, keepdims=True)
    found = side.first_variation(head_laws(side, weights))
    slope = float((np.diff(side.edges)[:, None] * found.potential * push).sum())
    steps = (0.2, 0.1, 0.05)
    rest = [abs(side.loss(head_laws(side, weights + h * push)) - found.loss - h * slope) for h in steps]
    orders = np.log2(np.array(rest[:-1]) / rest[1:])
    assert (np.abs(orders - 2.0) < 0.1).all(), orders
    assert found.report.costate_drift is not None
    assert found.report.costate_drift <= 1e-12
    assert found.report.table_error is not None
    assert found.report.table_error <= {2: 1e-8, 3: 1e-6}[dim]


@pytest.mark.parametrize("way", ["matrix", "keys"])
def test_duality_with_differences_of_the_sweep(way: str) -> None:
    side = tokens(way)
    weights = head_laws(side, head_weights(side))
    rng = np.random.default_rng(5)
    change = rng.normal(size=side.mu0.shape) * side.mu0
    sweep = side.forward(weights)
    p_end = rng.normal(size=side.mu0.shape)
    p = side.backward(sweep, p_end).nodes[0]
    found = float((p * change).sum())
    slopes = []
    for h in (2e-4, 1e-4):
        ends = [side.forward(weights, side.mu0 + s * h * change) for s in (1, -1)]
        assert {end.table_size for end in ends} == {sweep.table_size}
        slopes.append(float((p_end * (ends[0].final - ends[1].final)).sum()) / (2 * h))
    # the flux has a kink where V changes sign, which shows as an error ∝ h
    assert found == pytest.approx((4 * slopes[1] - slopes[0]) / 3, rel=2e-7)


@pytest.mark.parametrize("way", ["matrix", "keys"])
def test_bits_do_not_depend_on_threads_nor_on_the_memory_for_the_path(way: str) -> None:
    # more laws than a block, so that blocks share the pairs of the last stages
    one = tokens(way, batch=11)
    rho = head_laws(one, head_weights(one))
    a = one.first_variation(rho)
    for other in (replace(one, threads=2), replace(one, budget=2e6)):
        b = other.first_variation(rho)
        assert a.loss == b.loss
        np.testing.assert_array_equal(a.potential, b.potential)
    assert one.keeps_stages(rho, 11, 40)
    assert not replace(one, budget=2e6).keeps_stages(rho, 11, 40)


def test_the_gradient_is_the_mean_of_those_of_its_laws() -> None:
    whole = tokens("matrix", batch=9, layers=1)
    rho = head_laws(whole, head_weights(whole))
    size = whole.forward(rho).table_size
    alone = []
    for b in range(9):
        # one law at a time, through the table of them all; its own objective knows its target
        side = replace(whole, mu0=whole.mu0[b : b + 1], targets=whole.targets[b : b + 1])
        sweep = whole._sweep(rho, [whole.mu0[b : b + 1]], size)
        alone.append(whole.backward(sweep, side.terminal(sweep.final)[1]).gradient)
    found = whole.first_variation(rho).potential * np.diff(whole.edges)[:, None]
    np.testing.assert_allclose(found, np.mean(alone, axis=0), rtol=0, atol=1e-13 * np.abs(found).max())


def test_cells_of_noise_are_not_looked_at_in_several_dimensions() -> None:
    grid = Grid((-4.0,) * 2, (4.0,) * 2, (24, 20), (False,) * 2)
    x = grid.points()
    u = np.exp(-(x**2).sum(axis=1) * 2.5).reshape(1, *grid.cells)
    u[0, 0, 0], u[0, 1, 0], u[0, -1, -1] = 1e-16, -1e-15, np.nextafter(0.0, 1.0)
    marks = seen(grid, u)
    assert marks[0, 0, 0] == marks[0, 1, 0] == marks[0, -1, -1] == 0.0
    np.testing.assert_array_equal(marks > 0, u > 1e-13 * u.max())
    weights = seen_weights(grid, u)
    # a key that the corners would rule: e^{<z,y>} there is e^{200} against e^{120} at the edge of the law
    key = np.array([26.0, 26.0])
    score = x @ key
    mean = [
        (w * np.exp(score - score.max())) @ x / (w * np.exp(score - score.max())).sum()
        for w in (weights[0], np.maximum(u[0].ravel(), 0.0))
    ]
    assert np.hypot(*mean[0]) < 3.7 < 5.0 < np.hypot(*mean[1])


def test_the_tolerance_follows_the_dimension_unless_given() -> None:
    assert tokens("keys").tables.tolerance == 1e-8
    assert tokens("keys", dim=3, n=12).tables.tolerance == 1e-6
    assert replace(tokens("keys"), tolerance=1e-5).tables.tolerance == 1e-5
