"""Laws of token noise: exact heat, symmetry, positivity, its splitting from transport, and its share in the dual."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from meanfield_pde import library, solve
from meanfield_pde.equations.forward_backward import backward, forward, laws_at
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.equations.token_noise import TokenNoise
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import gaussian_masses
from meanfield_pde.library.gaussian_flow import blow_up, flow
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.field import PrescribedField
from meanfield_pde.model.objective import FeatureMap, PooledRegression
from meanfield_pde.splitting import TOKENS, compose, token_splitting

LINE = Grid((-3.0,), (3.0,), (64,), (False,))
PLANE = Grid((-2.0, -2.5), (2.0, 2.5), (12, 11), (False, False))
HEADS = np.array([(w, a) for w in (-0.8, 0.3, 0.9) for a in (-1.1, -0.2, 0.7, 1.3)])
TABLES = {
    "halves outside": (("transport", 0.5), ("noise", 1.0), ("transport", 0.5)),
    "four parts": (("noise", 0.25), ("transport", 0.5), ("noise", 0.5), ("transport", 0.5), ("noise", 0.25)),
    "not symmetric": (("noise", 0.2), ("transport", 0.625), ("noise", 0.8), ("transport", 0.375)),
    "of order one": (("transport", 0.7), ("noise", 1.0), ("transport", 0.3)),
}
EVERY = {**{name: table.stages for name, table in TOKENS.items()}, **TABLES}
SPLIT = pytest.mark.parametrize("splitting", EVERY)
BOTH = pytest.mark.parametrize("positive", [False, True], ids=["spectral", "positive"])


def gaussian(grid: Grid, m: float, s: float) -> np.ndarray:
    return np.asarray(gaussian_masses(np.array([m]), np.array([[s]]), grid)[None] / grid.cell_volume)


# ---- the heat step alone -----------------------------------------------------------------------------------------


@BOTH
def test_free_diffusion_adds_2_d_t_to_the_variance(positive: bool) -> None:
    # dx = sqrt(2 D) dB, the convention of beta, and not sigma²/2
    grid = Grid((-8.0,), (8.0,), (160,), (False,))
    x, h = grid.centers(0), grid.spacing[0]
    after = TokenNoise(grid, 0.3, positive=positive).heat(gaussian(grid, 0.2, 0.3), 0.7)[0] * h
    assert after.sum() == pytest.approx(1.0, abs=1e-14)
    assert after @ x == pytest.approx(0.2, abs=1e-12)
    # cell averages have the variance of the law and h²/12
    assert after @ (x - 0.2) ** 2 - h * h / 12 == pytest.approx(0.3 + 2 * 0.3 * 0.7, abs=1e-10)
    if not positive:
        np.testing.assert_allclose(after, gaussian(grid, 0.2, 0.72)[0] * h, rtol=0, atol=1e-13)


@BOTH
@pytest.mark.parametrize("n", [20, 21])
def test_a_spike_at_the_seam_spreads_to_both_sides_alike(positive: bool, n: int) -> None:
    grid = Grid((0.0,), (1.0,), (n,), (True,))
    spike = np.zeros((1, n))
    spike[0, 0] = n
    for splitting in EVERY:
        still = Transport(
            grid, scheme("upwind1"), stepper("ssprk1"), 0.5, False, (np.zeros(n),),
            TokenNoise(grid, 1e-3, token_splitting(EVERY[splitting]), positive),
        )  # fmt: skip
        after = forward(still, [PrescribedField((np.zeros(n),))], spike, np.array([0.0, 1.0]), False).nodes[-1, 0]
        np.testing.assert_allclose(after[1:], after[:0:-1], rtol=0, atol=1e-14 * n)
        assert after[1] > 0.1
        assert after.sum() == pytest.approx(n, rel=1e-14)


@BOTH
@pytest.mark.parametrize("ring", [False, True])
def test_modes_decay_at_the_rate_of_their_symbol(positive: bool, ring: bool) -> None:
    grid = Grid((0.0, 0.0), (1.0, 2.0), (16, 13), (ring, False))
    x, y = grid.centers(0), grid.centers(1)
    kx, ky = (2 * np.pi if ring else np.pi), 3 * np.pi / 2.0
    mode = np.cos(kx * x)[:, None] * np.cos(ky * y)[None]
    symbol = [k * k if not positive else 2 / h**2 * (1 - np.cos(k * h))
              for k, h in zip((kx, ky), grid.spacing, strict=True)]  # fmt: skip
    after = TokenNoise(grid, 0.05, positive=positive).heat(1.0 + mode[None], 0.4)[0]
    np.testing.assert_allclose(after, 1.0 + np.exp(-0.05 * 0.4 * sum(symbol)) * mode, rtol=0, atol=1e-13)


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("r", [1e-3, 0.4, 7.0, 400.0, 1e7])
def test_the_positive_step_is_the_exponential_of_the_three_point_laplacian(ring: bool, r: float) -> None:
    n = 12
    grid = Grid((0.0,), (float(n),), (n,), (ring,))
    laplacian = -2.0 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    if ring:
        laplacian[0, -1] = laplacian[-1, 0] = 1.0
    else:
        laplacian[0, 0] = laplacian[-1, -1] = -1.0
    matrix = TokenNoise(grid, 1.0, positive=True).heat(np.eye(n), r)
    np.testing.assert_allclose(matrix, expm(r * laplacian) if r < 1e6 else np.full((n, n), 1 / n), rtol=0, atol=3e-12)
    assert matrix.min() >= 0.0
    assert np.abs(matrix.sum(axis=1) - 1.0).max() <= 1e-14


def test_positive_noise_keeps_rough_laws_positive_and_their_mass() -> None:
    rng = np.random.default_rng(0)
    u = rng.random((2, *PLANE.cells)) ** 4
    u[u < 0.3] = 0.0
    u /= PLANE.integral(u)[:, None, None]
    v = tuple(rng.normal(size=PLANE.face_shape(k)) for k in range(2))
    still = tuple(np.zeros_like(w) for w in v)
    way = Transport(
        PLANE, scheme("linear5"), stepper("ssprk3"), 0.5, True, still, TokenNoise(PLANE, 0.01, positive=True)
    )
    path = forward(way, [PrescribedField(v)], u, np.linspace(0.0, 1.0, 4), False)
    assert path.nodes.min() >= 0.0
    assert np.abs(PLANE.integral(path.nodes) - 1.0).max() <= 1e-13
    assert path.limited
    # the spectral step does not promise it
    assert TokenNoise(PLANE, 0.01).heat(u, 0.05).min() < -1e-4


def test_a_law_has_the_same_bits_in_any_batch() -> None:
    u = np.random.default_rng(1).random((5, *PLANE.cells))
    for positive in (False, True):
        noise = TokenNoise(PLANE, 0.1, positive=positive)
        np.testing.assert_array_equal(noise.heat(u, 0.3)[3:4], noise.heat(u[3:4], 0.3))
        np.testing.assert_array_equal(noise.heat(u, 0.0), u)


def test_noise_that_is_none_is_refused() -> None:
    for value in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(MeanFieldError, match=r"tokens\.noise"):
            TokenNoise(LINE, value)


# ---- exact laws under noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kappa", "leak", "noise"),
    [(0.35, 0.6, 0.1), (0.6, 0.2, 0.3), (-0.8, 0.4, 0.5), (0.0, 0.9, 0.2), (0.0, 0.0, 0.2), (0.5, -0.3, 0.1),
     (0.45, 0.6, 0.2), (-0.5, 0.0, 0.4)],
)  # fmt: skip
def test_the_closure_with_noise_solves_its_equations(kappa: float, leak: float, noise: float) -> None:
    def rate(_: float, y: np.ndarray) -> np.ndarray:
        m, s = y
        return np.array([(0.3 + kappa * s - leak) * m, 2 * kappa * s**2 - 2 * leak * s + 2 * noise])

    for end in (0.0, 0.3, 0.8):
        found = solve_ivp(rate, (0, end), [0.5, 0.4], method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
        np.testing.assert_allclose(flow(0.5, 0.4, 0.3, kappa, leak, end, noise), found, rtol=1e-10)
    depth = blow_up(0.4, kappa, leak, noise)
    if np.isfinite(depth):
        assert flow(0.5, 0.4, 0.3, kappa, leak, depth - 1e-6, noise)[1] > 1e4
        with pytest.raises(MeanFieldError, match="blows up"):
            flow(0.5, 0.4, 0.3, kappa, leak, depth + 1e-6, noise)
    else:
        assert kappa <= 0.0 or (leak > 0.0 and leak**2 >= 4 * kappa * noise)


def test_leak_and_noise_are_an_ornstein_uhlenbeck_process() -> None:
    leak, D, m0, s0 = 0.9, 0.2, 0.5, 0.4
    problem, _ = library.get("noisy_softmax", w=0.0, a=0.0, leak=leak, noise=D, m0=m0, s0=s0, cells=128, cfl=0.2)
    solution = solve(replace(problem, reference=None, heads=None, attention=None))
    grid = problem.tokens.grid()
    x, h = grid.centers(0), grid.spacing[0]
    for t, law in zip(solution.depth_t, solution.mu[:, 0], strict=True):
        mean = law @ x * h
        assert mean == pytest.approx(m0 * np.exp(-leak * t), abs=2e-6)
        variance = D / leak + (s0 - D / leak) * np.exp(-2 * leak * t)
        assert law @ (x - mean) ** 2 * h - h * h / 12 == pytest.approx(variance, abs=2e-5)


@SPLIT
def test_order_of_the_splitting_in_the_depth_step(splitting: str) -> None:
    grid = Grid((-5.0,), (5.0,), (200,), (False,))
    order = {"lie": 1, "of order one": 1}.get(splitting, 2)
    assert token_splitting(EVERY[splitting]).order == order
    leak, D, end = 0.9, 0.3, 1.0
    errors = []
    steps = np.array([8, 16, 32])
    u, exact = gaussian(grid, 0.5, 0.4), gaussian(grid, *flow(0.5, 0.4, 0.0, 0.0, leak, end, D))
    way = Transport(grid, scheme("linear5"), stepper("ssprk3"), 1.0, False, (-leak * grid.faces(0),))
    field = PrescribedField((np.zeros(grid.face_shape(0)),))
    for count in steps:

        def moved(law: np.ndarray, dt: float, layers: int = 1 + 128 // int(count)) -> np.ndarray:
            # layers make the steps of transport short, blocks of them are what is split
            return forward(way, [field], law, np.linspace(0.0, dt, layers), False).nodes[-1]

        flows = {"transport": moved, "noise": TokenNoise(grid, D).heat}
        law = u
        for _ in range(count):
            law = compose(EVERY[splitting], flows, law, end / count)
        errors.append(np.abs(law - exact).sum() * grid.cell_volume)
    assert -np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(order, abs=0.12)


@SPLIT
def test_order_of_the_loop_with_attention_and_noise(splitting: str) -> None:
    order = token_splitting(EVERY[splitting]).order
    errors, cells = [], (48, 96, 192)
    for n in cells:
        table = EVERY[splitting]
        problem, exact = library.get("noisy_softmax", cells=n, cfl=0.8, noise_splitting=table, scheme="linear5")
        assert exact is not None
        solution = solve(problem)
        grid = problem.tokens.grid()
        errors.append(float(grid.integral(np.abs(solution.mu[-1] - exact.mu(1.0, grid)))[0]))
    found = -np.polyfit(np.log(cells), np.log(errors), 1)[0]
    assert found >= order - 0.1
    assert order == 2 or found <= 1.3


@SPLIT
def test_each_piece_of_transport_knows_its_depth(splitting: str) -> None:
    # a velocity that is the same everywhere commutes with heat: nothing is lost by splitting, but a piece at the
    # depth of another would leave an error of order 1
    errors = []
    for n in (32, 64):
        grid = Grid((0.0,), (1.0,), (n,), (True,))
        noise = TokenNoise(grid, 0.01, token_splitting(EVERY[splitting]))
        way = Transport(
            grid, scheme("linear5"), stepper("ssprk3"), 0.8, False, (np.zeros(n),), noise,
            lambda t, n=n: (np.full(n, 1.0 + 3.0 * t**2),),
        )  # fmt: skip
        field = PrescribedField((np.zeros(n),))
        edges, k = grid.edges(0), 2 * np.pi
        u = 1.0 + 0.5 * np.diff(np.sin(k * edges)) / k * n
        after = forward(way, [field], u[None], np.linspace(0.0, 0.5, 3), False).nodes[-1, 0]
        # carried by 0.5 + 0.5³ and damped by e^{−D k² t}
        exact = 1.0 + 0.5 * np.exp(-0.005 * k * k) * np.diff(np.sin(k * (edges - 0.625))) / k * n
        errors.append(np.abs(after - exact).mean())
    assert np.log2(errors[0] / errors[1]) >= 2.8
    assert errors[-1] <= 2e-5


# ---- the dual ----------------------------------------------------------------------------------------------------


def noisy(grid: Grid, name: str, splitting: str, positive: bool = False) -> Transport:
    drift = tuple(0.3 - 0.1 * grid.face_points(k)[:, k].reshape(grid.face_shape(k)) for k in range(grid.dim))
    noise = TokenNoise(grid, 0.15, token_splitting(EVERY[splitting]), positive)
    return Transport(grid, scheme(name), stepper("ssprk3"), 0.4, False, drift, noise)


@BOTH
@SPLIT
@pytest.mark.parametrize("name", ["upwind1", "linear3", "linear5"])
def test_duality_with_noise(name: str, splitting: str, positive: bool) -> None:
    for grid in (LINE, PLANE, Grid((0.0, 0.0), (1.0, 2.0), (7, 8), (False, True))):
        rng = np.random.default_rng(2)
        field = PrescribedField(tuple(rng.normal(size=grid.face_shape(k)) for k in range(grid.dim)))
        way, edges = noisy(grid, name, splitting, positive), np.linspace(0.0, 0.1, 4)
        path = forward(way, [field], 1.0 + rng.random((2, *grid.cells)), edges, True)
        sigma = forward(way, [field], rng.normal(size=(2, *grid.cells)), edges, False)
        p = backward(way, [field], path, rng.normal(size=path.nodes[-1].shape)).nodes
        products = [(q * s).sum() for q, s in zip(p, sigma.nodes, strict=True)]
        scale = max(np.abs(q * s).sum() for q, s in zip(p, sigma.nodes, strict=True))
        assert max(products) - min(products) <= 1e-13 * scale


def side_of(grid: Grid, name: str, splitting: str, layers: int, **more: Any) -> GridTokens:
    x = grid.points()
    u = np.stack([np.exp(-((x - c) ** 2).sum(axis=1) / 0.35) for c in (0.5, -0.3)]).reshape(2, *grid.cells)
    u /= grid.integral(u).reshape(-1, *(1,) * grid.dim)
    loss = PooledRegression(FeatureMap(np.stack([x[:, 0], np.cos(x).sum(axis=1), (x**2).sum(axis=1)])))
    settings: dict[str, Any] = {"threads": 1, **more}
    return GridTokens(
        noisy(grid, name, splitting), Attention(), "scalar", HEADS, np.linspace(0.0, 0.4, layers + 1), True, u, loss,
        np.linspace(-1.0, 1.0, 6).reshape(2, 3), **settings,
    )  # fmt: skip


@pytest.mark.parametrize("splitting", ["strang", "lie", "not symmetric"])
@pytest.mark.parametrize(("grid", "name"), [(LINE, "weno5z"), (PLANE, "linear3")], ids=["line", "plane"])
def test_gradient_invariant_and_bits_with_noise(grid: Grid, name: str, splitting: str) -> None:
    side = side_of(grid, name, splitting, 3)
    weights = 1.0 + np.random.default_rng(3).random(len(HEADS))
    weights /= weights.sum()

    def rho(w: np.ndarray) -> tuple[Measure, ...]:
        return (Measure(side.head_points, w, np.zeros(2)),)

    found = side.first_variation(rho(weights))
    assert found.report.costate_drift is not None
    assert found.report.costate_drift <= 1e-12
    assert found.report.dual is True
    change = np.random.default_rng(5).normal(size=len(HEADS)) * weights
    change -= weights * change.sum()
    size = side.forward(rho(weights)).table_size

    def loss(e: float) -> float:
        return side.terminal(side._sweep(rho(weights + e * change), [side.mu0], size).final)[0]

    # small enough for the same number of depth steps
    steps = np.logspace(-1.5, -4.5, 7) if grid.dim == 1 else np.logspace(-2.0, -4.0, 5)
    rest = [abs(loss(e) - loss(0.0) - e * found.potential[0] @ change) for e in steps]
    assert np.polyfit(np.log(steps), np.log(rest), 1)[0] == pytest.approx(2.0, abs=0.05)
    # recomputed stages, and steps of output, change no bit
    redone = replace(side, budget=40 * 8.0 * 2 * grid.size)
    assert side.keeps_stages(rho(weights), 2, 64)
    assert not redone.keeps_stages(rho(weights), 2, 64)
    again = redone.first_variation(rho(weights))
    assert again.loss == found.loss
    np.testing.assert_array_equal(again.potential, found.potential)
    sweep = side.forward(rho(weights))
    path = sweep.paths[0]
    middle = float(path.edges[1]) + path.layers[1].dt
    start = path.layers[1].starts[1] if len(path.layers[1].starts) > 1 else path.nodes[2]
    found_there = laws_at(side.transport, sweep.fields, path, np.array([middle]))[0]
    np.testing.assert_allclose(found_there, start, rtol=0, atol=1e-14 * start.max())
