"""Laws of query tokens: exact paths, the flow map, duality and gradient with their loss, equal bits, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library, solve
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.query_tokens import Queries
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.equations.token_noise import TokenNoise
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Mixture
from meanfield_pde.library.gaussian_flow import flow
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.model.objective import FeatureMap, PooledRegression
from meanfield_pde.model.query_field import QueryField
from meanfield_pde.output.file_schema import read_result, write_result
from meanfield_pde.problem import Depth, Drift, Heads, Objective, Problem, QueryTerm, Sequence, SequenceFile, Tokens
from meanfield_pde.splitting import token_splitting

LINE = Grid((-3.0,), (3.0,), (64,), (False,))
PLANE = Grid((-2.0, -2.5), (2.0, 2.5), (12, 11), (False, False))
HEADS = np.array([(w, a) for w in (-0.8, 0.3, 0.9) for a in (-1.1, -0.2, 0.7, 1.3)])

# ---- the velocity at scattered points ----------------------------------------------------------------------------


def test_transposes_of_the_velocity_at_scattered_points() -> None:
    rng = np.random.default_rng(0)
    y, masses, x = rng.normal(size=(9, 2)), rng.random(9), rng.normal(size=(4, 2))
    theta = rng.normal(size=(3, 8))
    heads, weights = head_matrices("matrix", theta, 2), np.array([0.2, 0.5, 0.3])
    field = QueryField(heads, weights, y, np.zeros(2), np.array([0.1, -0.4]), 0.3)

    def plain(x: np.ndarray, masses: np.ndarray, weights: np.ndarray) -> np.ndarray:
        out = np.array([0.1, -0.4]) - 0.3 * x
        for row, weight in zip(theta, weights, strict=True):
            W, A = row[:4].reshape(2, 2), row[4:].reshape(2, 2)
            share = np.exp(x @ A.T @ y.T) * masses
            out = out + weight * (share @ y / share.sum(axis=1, keepdims=True)) @ W.T
        return np.asarray(out)

    np.testing.assert_allclose(field.velocity(x, masses), plain(x, masses, weights), rtol=1e-13)
    g, e = rng.normal(size=(4, 2)), 1e-6
    to_x, to_mass, to_rho = field.transposed(x, masses, g)

    def slope(f: Any) -> float:
        return float((g * (f(e) - f(-e))).sum() / (2 * e))

    for q in range(4):
        for k in range(2):
            one = np.zeros_like(x)
            one[q, k] = 1.0
            assert to_x[q, k] == pytest.approx(slope(lambda s, one=one: plain(x + s * one, masses, weights)), abs=1e-8)
    for j in range(9):
        one = np.eye(9)[j]
        assert to_mass[j] == pytest.approx(slope(lambda s, one=one: plain(x, masses + s * one, weights)), abs=1e-8)
    for k in range(3):
        one = np.eye(3)[k]
        assert to_rho[k] == pytest.approx(slope(lambda s, one=one: plain(x, masses, weights + s * one)), abs=1e-8)


# ---- exact paths -------------------------------------------------------------------------------------------------


def with_queries(problem: Problem, queries: tuple[tuple[float, ...], ...]) -> Problem:
    return replace(problem, sequences=tuple(replace(s, queries=queries) for s in problem.sequences))


def test_queries_among_gaussian_tokens_follow_the_affine_flow() -> None:
    # (x - m)' = (κ s - ℓ)(x - m) and s' = 2(κ s - ℓ)s, so x(t) = m(t) + (x0 - m0) √(s/s0)
    m0, s0, w, a, leak = 0.5, 0.4, 0.7, 0.8, 0.9
    start, errors, cells = np.array([-1.2, 0.5, 1.7]), [], (48, 96, 192)
    for n in cells:
        problem, _ = library.get("softmax_leak", m0=m0, s0=s0, w=w, a=a, leak=leak, cells=n)
        solution = solve(with_queries(problem, tuple((float(x),) for x in start)))
        assert solution.queries.shape == (2, 1, 3, 1)
        np.testing.assert_array_equal(solution.queries[0, 0, :, 0], start)
        m, s = flow(m0, s0, w, w * a, leak, 1.0)
        errors.append(np.abs(solution.queries[-1, 0, :, 0] - (m + (start - m0) * np.sqrt(s / s0))).max())
    assert -np.polyfit(np.log(cells), np.log(errors), 1)[0] >= 2.85
    assert errors[-1] <= 3e-7


def test_queries_are_carried_by_the_steps_of_the_control() -> None:
    m0, s0, w, a, leak = 0.5, 0.4, 0.7, 0.8, 0.9
    start, counts = np.array([-1.2, 0.5, 1.7]), []
    for tolerance in (1e-3, 1e-9):
        problem, _ = library.get("softmax_leak", m0=m0, s0=s0, w=w, a=a, leak=leak, cells=192, layers=2)
        depth = replace(problem.depth, control="error", tolerance=tolerance)
        solution = solve(with_queries(replace(problem, depth=depth), tuple((float(x),) for x in start)))
        m, s = flow(m0, s0, w, w * a, leak, 1.0)
        exact = m + (start - m0) * np.sqrt(s / s0)
        assert np.abs(solution.queries[-1, 0, :, 0] - exact).max() <= 3e-7
        counts.append(solution.certificates["depth_steps"])
    assert counts[1] > 2 * counts[0]


def test_in_the_plane_queries_follow_the_flow_of_the_covariance() -> None:
    # W = w I, A = a I, no mean: x(T) = (I - 2 κ T Σ0)^{-1/2} x0
    S = np.array([[0.3, 0.1], [0.1, 0.2]])
    law = Gaussian((0.0, 0.0), ((0.3, 0.1), (0.1, 0.2)))
    start = ((0.7, 0.0), (-0.3, 1.1))
    problem = Problem(
        "tokens",
        attention="softmax",
        tokens=Tokens((-4.0, -4.0), (4.0, 4.0), (40, 40)),
        heads=Heads("scalar", points=((0.8, 0.5),)),
        depth=Depth(T=0.5),
        sequences=(Sequence(law, queries=start), Sequence(law, queries=start[:1])),
    )
    solution = solve(problem)
    value, vector = np.linalg.eigh(S)
    flow_map = (vector / np.sqrt(1.0 - 2.0 * 0.4 * 0.5 * value)) @ vector.T
    np.testing.assert_allclose(solution.queries[-1, 0], np.array(start) @ flow_map, atol=2e-5)
    np.testing.assert_array_equal(solution.queries[-1, 1, 0], solution.queries[-1, 0, 0])
    assert np.isnan(solution.queries[:, 1, 1]).all()


def test_a_query_keeps_the_mass_to_its_left(tmp_path: Any) -> None:
    # the flow map on a line: what is left of a token stays left of it, for any law and any heads
    law = Mixture((0.4, 0.6), (Gaussian((-1.0,), ((0.2,),)), Gaussian((0.9,), ((0.3,),))))
    start = ((-1.3,), (0.1,), (1.0,))
    tokens = Tokens((-6.0,), (6.0,), (192,), drift=Drift(0.3, (0.2,)))
    problem = Problem(
        "tokens", attention="softmax", tokens=tokens, heads=Heads("scalar", points=((0.6, 0.5), (-0.4, 1.0))),
        depth=Depth(T=0.8, layers=2), sequences=(Sequence(law, queries=start),),
    )  # fmt: skip
    solution = solve(problem)
    grid = tokens.grid()
    from scipy.interpolate import CubicSpline

    below = [CubicSpline(grid.edges(0), np.concatenate([[0.0], np.cumsum(u[0])]) * grid.spacing[0])
             for u in (solution.mu[0], solution.mu[-1])]  # fmt: skip
    for q, (x0,) in enumerate(start):
        end = solution.queries[-1, 0, q, 0]
        assert abs(end - x0) > 0.02
        assert below[1](end) == pytest.approx(float(below[0](x0)), abs=5e-6)
    # the file of a result keeps them
    write_result(tmp_path / "r.h5", solution)
    np.testing.assert_array_equal(read_result(tmp_path / "r.h5").queries, solution.queries)


def test_queries_on_the_tokens_of_two_clumps_follow_them() -> None:
    # narrow clumps of equal mass at ±1 move like two tokens: x' = w x tanh(a x²)
    from scipy.integrate import solve_ivp

    law = Mixture((0.5, 0.5), (Gaussian((-1.0,), ((1e-3,),)), Gaussian((1.0,), ((1e-3,),))))
    problem = Problem(
        "tokens", attention="softmax", tokens=Tokens((-2.5,), (2.5,), (400,)), depth=Depth(T=0.8),
        heads=Heads("scalar", points=((0.7, 0.8),)), sequences=(Sequence(law, queries=((-1.0,), (1.0,))),),
    )  # fmt: skip
    found = solve(problem).queries[-1, 0, :, 0]
    exact = solve_ivp(lambda _, x: 0.7 * x * np.tanh(0.8 * x * x), (0.0, 0.8), [1.0], rtol=1e-10).y[0, -1]
    np.testing.assert_allclose(found, [-exact, exact], atol=3e-3)
    assert exact > 1.4


# ---- duality and the gradient ------------------------------------------------------------------------------------


def side_of(
    grid: Grid, name: str, layers: int, shared: bool, alone: bool, noise: TokenNoise | None = None, **more: Any
) -> GridTokens:
    x = grid.points()
    u = np.stack([np.exp(-((x - c) ** 2).sum(axis=1) / 0.35) + 0.4 * np.exp(-((x + c) ** 2).sum(axis=1) / 0.5)
                  for c in (0.5, -0.3)]).reshape(2, *grid.cells)  # fmt: skip
    u /= grid.integral(u).reshape(-1, *(1,) * grid.dim)
    drift = tuple(0.3 - 0.1 * grid.face_points(k)[:, k].reshape(grid.face_shape(k)) for k in range(grid.dim))
    way = Transport(grid, scheme(name), stepper("ssprk3"), 0.4, False, drift, noise)
    loss = None if alone else PooledRegression(FeatureMap(np.stack([x[:, 0], (x**2).sum(axis=1)])))
    rng = np.random.default_rng(8)
    shares = np.array([[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    queries = Queries(
        rng.normal(size=(2, 3, grid.dim)) * 0.7, rng.normal(size=(2, 3)), shares, grid.dim - 1, 1.7,
        (0.3,) * grid.dim, 0.1,
    )  # fmt: skip
    return GridTokens(
        way, Attention(), "scalar", HEADS, np.linspace(0.0, 0.4, layers + 1), shared, u, loss,
        None if alone else np.linspace(-1.0, 1.0, 4).reshape(2, 2), queries=queries, **{"threads": 1, **more},
    )  # fmt: skip


def rho(side: GridTokens, weights: np.ndarray) -> tuple[Measure, ...]:
    return tuple(Measure(side.head_points, row, np.zeros(2)) for row in weights)


CASES = [(LINE, "weno5z", 4, True), (LINE, "linear5", 3, False), (PLANE, "linear3", 2, True)]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "and-law"])
@pytest.mark.parametrize(("grid", "name", "layers", "shared"), CASES, ids=["line", "layerwise", "plane"])
def test_gradients_with_queries_pass_taylor(grid: Grid, name: str, layers: int, shared: bool, alone: bool) -> None:
    passes_taylor(side_of(grid, name, layers, shared, alone), layers, shared)


def test_gradients_with_queries_under_noise_in_pieces_pass_taylor() -> None:
    # two pieces of transport a step, of unequal lengths: queries move in both, and λ comes back through both
    table = token_splitting((("noise", 0.2), ("transport", 0.625), ("noise", 0.8), ("transport", 0.375)))
    for alone in (True, False):
        passes_taylor(side_of(LINE, "linear5", 3, True, alone, TokenNoise(LINE, 0.1, table)), 3, True)


def test_gradients_with_queries_by_a_stepper_that_recalls_a_stage_pass_taylor() -> None:
    for alone in (True, False):
        side = side_of(LINE, "weno5z", 3, True, alone)
        passes_taylor(replace(side, transport=replace(side.transport, stepper=stepper("ssprk104"))), 3, True)


def passes_taylor(side: GridTokens, layers: int, shared: bool) -> None:
    grid = side.transport.grid
    fields = 1 if shared else layers
    rng = np.random.default_rng(5)
    weights = 1.0 + rng.random((fields, len(HEADS)))
    weights /= weights.sum(axis=1, keepdims=True)
    found = side.first_variation(rho(side, weights))
    assert found.report.costate_drift is not None
    assert found.report.costate_drift <= 1e-12
    change = rng.normal(size=weights.shape) * weights
    change -= weights * change.sum(axis=1, keepdims=True)
    lengths = np.ones(1) if shared else np.diff(side.edges)
    by_heads = float((lengths[:, None] * found.potential * change).sum())
    sweep = side.forward(rho(side, weights))
    costate = side.backward(sweep, side.value(sweep)[1])
    wave = side.mu0 * np.cos(grid.points() @ np.linspace(1.0, 2.0, grid.dim)).reshape(grid.cells)
    wave -= side.mu0 * grid.integral(wave).reshape(-1, *(1,) * grid.dim)
    by_law = float((costate.nodes[0] * wave).sum() * grid.cell_volume / 2)

    def loss(heads: float, law: float) -> float:
        moved = [side.mu0 + law * wave]
        return side.value(side._sweep(rho(side, weights + heads * change), moved, sweep.table_size))[0]

    steps = np.logspace(-1.5, -4.5, 7) if grid.dim == 1 else np.logspace(-2.0, -4.0, 5)
    for slope, way in ((by_heads, lambda e: loss(e, 0.0)), (by_law, lambda e: loss(0.0, e))):
        rest = [abs(way(e) - loss(0.0, 0.0) - e * slope) for e in steps]
        assert np.polyfit(np.log(steps), np.log(rest), 1)[0] == pytest.approx(2.0, abs=0.07)
        assert abs(slope) > 1e-4


def test_the_costate_of_queries_is_the_derivative_in_where_they_start() -> None:
    side = side_of(LINE, "linear5", 3, True, True)
    weights = np.full((1, len(HEADS)), 1.0 / len(HEADS))
    sweep = side.forward(rho(side, weights))
    from meanfield_pde.equations.forward_backward import carry_back
    from meanfield_pde.equations.query_tokens import query_costates

    assert side.queries is not None
    (way,) = query_costates(side.transport, side.queries, sweep.paths, sweep.queries)
    carry_back(side.transport, sweep.fields, sweep.paths[0], np.zeros_like(sweep.final), way.back)

    def loss(points: np.ndarray) -> float:
        moved = replace(side, queries=replace(side.queries, points=points))
        return moved.value(moved._sweep(rho(side, weights), [side.mu0], sweep.table_size))[0]

    e = 1e-5
    for b, q in ((0, 0), (0, 1), (0, 2), (1, 2)):
        one = np.zeros_like(side.queries.points)
        one[b, q, 0] = e
        slope = (loss(side.queries.points + one) - loss(side.queries.points - one)) / (2 * e)
        assert way.costate[b, q, 0] / 2 == pytest.approx(slope, abs=1e-9)
    assert way.costate[0, 2, 0] == 0.0  # a row that is filled up


def test_bits_with_queries_do_not_depend_on_storage_or_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from meanfield_pde.equations import grid_tokens

    monkeypatch.setattr(grid_tokens, "THREADS_PAY", 0)
    monkeypatch.setattr(grid_tokens, "BLOCK", 1)
    side = side_of(LINE, "weno5z", 4, False, False)
    weights = np.full((4, len(HEADS)), 1.0 / len(HEADS))
    one = side.first_variation(rho(side, weights))
    redone, threaded = replace(side, budget=40 * 8.0 * 2 * LINE.size), replace(side, threads=2)
    assert not redone.keeps_stages(rho(side, weights), 2, 64)
    for other in (redone, threaded):
        again = other.first_variation(rho(side, weights))
        assert again.loss == one.loss
        np.testing.assert_array_equal(again.potential, one.potential)
    without = replace(side, queries=None).first_variation(rho(side, weights))
    assert np.abs(without.potential - one.potential).max() > 1e-3 * np.abs(one.potential).max()
    # other laws than their own have no queries
    assert side.forward(rho(side, weights), side.mu0[:1]).queries == ()


# ---- refusals ----------------------------------------------------------------------------------------------------

ONE = Sequence(Gaussian((0.5,), ((0.4,),)), queries=((0.3,),), query_targets=(1.0,))
GIVEN = Problem(
    "tokens",
    attention="softmax",
    tokens=Tokens((-5.0,), (6.0,), (64,)),
    heads=Heads("scalar", points=((0.3, 0.4),)),
    depth=Depth(),
    sequences=(ONE,),
    objective=Objective("query-regression", query=QueryTerm()),
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": Objective("query-regression")}, r"needs objective\.query, such as query = \{ axis = 0 \}"),
        ({"objective": Objective("query-regression", query=QueryTerm(1))}, r"query\.axis = 1 does not exist"),
        ({"objective": Objective("query-regression", query=QueryTerm(0, 0.0))}, r"query\.weight = 0 must be"),
        ({"objective": Objective("query-regression", bias=(1.0,), query=QueryTerm())}, "has no use for features"),
        ({"objective": None}, r"sequences\[0\]\.query_targets has no use without objective\.query"),
        ({"sequences": (Sequence(ONE.initial),)}, r"sequences\[0\]\.queries is missing"),
        ({"sequences": (replace(ONE, target=0.3),)}, r"target = 0\.3 has no use with objective\.kind = 'query-regr"),
        ({"sequences": (replace(ONE, query_targets=()),)}, r"query_targets = \(\) must have 1 entries"),
        ({"sequences": (replace(ONE, queries=((7.0,),)),)}, r"queries\[0\] = \(7\.0,\) is outside the box"),
        ({"sequences": (replace(ONE, queries=((0.0, 1.0),)),)}, r"queries\[0\] = .* must have 1 entries"),
        ({"sequences": (ONE, SequenceFile("a.npz"))}, "a file has no queries"),
        ({"attention": "linear"}, "queries are carried by 'softmax' alone"),
        ({"tokens": Tokens((-5.0,), (6.0,), (64,), noise=0.1)}, r"tokens\.noise = 0\.1: a query follows V"),
        ({"tokens": Tokens((-5.0,), (6.0,), (64,), drift=Drift(flow=lambda x, t: x))}, r"tokens\.drift\.flow"),
    ],
)
def test_queries_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        replace(GIVEN, **changes)


def test_a_loss_of_queries_alone_is_solved_and_predicted() -> None:
    solution = solve(GIVEN)
    end = solution.queries[-1, 0, 0, 0]
    assert solution.history["loss"][0] == pytest.approx(0.5 * (end - 1.0) ** 2, rel=1e-14)
    # p at the end is 0, but on the way tokens matter to the query
    assert not solution.p[-1].any()
    assert np.abs(solution.p[0]).max() > 1e-3
    other = Sequence(ONE.initial, queries=((0.3,), (-0.2,)))
    found = solution.predict([other]).outputs["queries"]
    assert found.shape == (1, 2, 1)
    assert found[0, 0, 0] == pytest.approx(end, rel=1e-12)
