"""Steps in depth: given ones, ones that keep to a tolerance, faults, landing, memory, the dual of the steps taken."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from meanfield_pde import library, solve
from meanfield_pde.equations.depth_control import ErrorSteps, FixedSteps, landing, next_pace
from meanfield_pde.equations.depth_step import step
from meanfield_pde.equations.forward_backward import Path, backward, forward, laws_at
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.equations.token_noise import TokenNoise
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.field import PrescribedField
from meanfield_pde.model.objective import FeatureMap, PooledRegression
from meanfield_pde.problem import Drift, Output, Problem
from meanfield_pde.splitting import TOKENS
from meanfield_pde.training.assemble import assemble

LINE = Grid((-3.0,), (3.0,), (48,), (False,))
RING = Grid((0.0,), (1.0,), (32,), (True,))
HEADS = np.array([(w, a) for w in (-0.8, 0.3, 0.9) for a in (-1.1, -0.2, 0.7, 1.3)])


def carrying(grid: Grid, control: Any, speed: float = 1.0, **more: Any) -> Transport:
    drift = tuple(np.full(grid.face_shape(k), speed) for k in range(grid.dim))
    settings = {"reconstruction": scheme("linear3"), "stepper": stepper("ssprk3"), "cfl": 0.5, "positivity": False}
    return Transport(**{**settings, "grid": grid, "drift": drift, "control": control, **more})


def still(grid: Grid) -> PrescribedField:
    return PrescribedField(tuple(np.zeros(grid.face_shape(k)) for k in range(grid.dim)))


def bump(grid: Grid, batch: int = 1) -> np.ndarray:
    x = (grid.points() - np.array(grid.lower)) / (np.array(grid.upper) - np.array(grid.lower))
    u = np.stack([np.exp(-((x - 0.4 - 0.05 * b) ** 2).sum(axis=1) / 0.02) for b in range(batch)])
    u = u.reshape(batch, *grid.cells)
    return u / grid.integral(u).reshape(-1, *(1,) * grid.dim)


# ---- given steps -------------------------------------------------------------------------------------------------


def test_given_steps_are_the_least_number_that_is_short_enough() -> None:
    for dt, counts in ((0.01, [30, 30]), (0.3, [1, 1]), (0.011, [28, 28]), (7.0, [1, 1])):
        way = carrying(RING, FixedSteps(dt), 0.01)
        path = forward(way, [still(RING)], bump(RING), np.linspace(0.0, 0.6, 3), False)
        assert [len(part.starts) for part in path.layers] == counts
        for part in path.layers:
            assert len(set(part.lengths)) == 1
            assert part.dt <= min(dt, 0.3) * (1 + 1e-9)
            assert sum(part.lengths) == pytest.approx(0.3, rel=1e-14)


@pytest.mark.parametrize("grid", [
    RING, Grid((0.0, 0.0), (1.0, 2.0), (16, 12), (True, True)),
    Grid((0.0, 0.0, 0.0), (1.0, 2.0, 3.0), (8, 8, 8), (True, True, True)),
], ids=["1", "2", "3"])  # fmt: skip
@pytest.mark.parametrize("times", [1.01, 2.0, 40.0])
def test_given_steps_beyond_the_limit_are_refused_with_it(grid: Grid, times: float) -> None:
    limit = carrying(grid, None).courant_limit()
    rate = sum(1.5 / h for h in grid.spacing)
    way = carrying(grid, FixedSteps(times * limit / rate), 1.5, cfl=limit)
    message = rf"depth\.dt = .* breaks CFL {limit:g} on axis 0 \(max\|V\| = 1\.5, h = {grid.spacing[0]:.3g}\)"
    depth = np.array([0.0, 99.99 * limit / rate])
    with pytest.raises(MeanFieldError, match=message) as refused:
        forward(way, [still(grid)], bump(grid), depth, False)
    wanted = float(str(refused.value).split("take dt <= ")[1])
    assert 0.99 * limit / rate <= wanted <= limit / rate
    # what it says to take is taken, and is stable
    path = forward(replace(way, control=FixedSteps(wanted)), [still(grid)], bump(grid), depth, False)
    assert np.abs(path.nodes[-1]).max() <= 1.01 * bump(grid).max()


def test_given_steps_have_the_order_of_the_stepper() -> None:
    errors = []
    steps = (8, 16, 32)
    grid = Grid((-4.0,), (4.0,), (32,), (False,))
    x = grid.faces(0)
    for count in steps:
        way = carrying(grid, FixedSteps(0.5 / count), drift=(-0.2 * x,), reconstruction=scheme("upwind1"))
        end = forward(way, [still(grid)], bump(grid), np.array([0.0, 0.5]), False).nodes[-1, 0]
        # the limit dt → 0 by the matrix of first-order upwind, written anew
        flux = np.where((-0.2 * x)[:, None] >= 0.0, np.eye(32)[:-1], np.eye(32)[1:]) * (-0.2 * x)[:, None]
        rate = (np.vstack([np.zeros(32), flux]) - np.vstack([flux, np.zeros(32)])) / grid.spacing[0]
        errors.append(np.abs(end - expm(0.5 * rate) @ bump(grid)[0]).sum())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(3.0, abs=0.1)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(3.0, abs=0.1)


# ---- steps that keep to a tolerance --------------------------------------------------------------------------------


def near_uniform(**depth: Any) -> Problem:
    """Tokens on the circle with a small mode and no drift: V is tiny and the mode grows by e^{8 · 0.664} = 203."""
    problem, _ = library.get("circle_modes", T=8.0, amplitude=1e-6, cells=64)
    tokens = replace(problem.tokens, drift=Drift())
    return replace(problem, tokens=tokens, depth=replace(problem.depth, **depth))


def test_a_slow_growth_is_followed_to_the_tolerance() -> None:
    exact = library.exact_of(near_uniform())
    assert exact is not None
    assert exact.mu is not None
    grid = near_uniform().tokens.grid()
    right = exact.mu(8.0, grid)
    grown = float(grid.integral(np.abs(right - 1.0 / (2.0 * np.pi)))[0])
    with pytest.warns(UserWarning, match='in steps of 8, since V is small.* depth.control = "error"'):
        coarse = solve(near_uniform())
    assert grid.integral(np.abs(coarse.mu[-1] - right))[0] > 0.5 * grown
    errors, tolerances = [], (1e-6, 1e-7, 1e-8, 1e-9)
    for tolerance in tolerances:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            solution = solve(near_uniform(control="error", tolerance=tolerance))
        errors.append(float(grid.integral(np.abs(solution.mu[-1] - right))[0]))
        # what a step errs grows on with the mode, by 203 at most
        assert errors[-1] <= 203 * tolerance
    # proportional to the tolerance
    assert np.polyfit(np.log(tolerances), np.log(errors), 1)[0] == pytest.approx(1.0, abs=0.12)
    assert errors[-1] <= 3e-4 * grown


def test_noise_split_from_attention_errs_by_the_tolerance_at_most() -> None:
    for tolerance in (1e-4, 1e-6):
        problem, exact = library.get("noisy_softmax", cells=192, scheme="linear5", layers=2)
        assert exact is not None
        assert exact.mu is not None
        problem = replace(problem, depth=replace(problem.depth, control="error", tolerance=tolerance))
        solution, grid = solve(problem), problem.tokens.grid()
        error = float(grid.integral(np.abs(solution.mu[-1] - exact.mu(problem.depth.T, grid)))[0])
        assert error <= tolerance + 2e-6  # that of the scheme in space


@pytest.mark.parametrize("noise", [None, "strang", "lie"])
def test_steps_land_on_the_layers_without_slivers(noise: str | None) -> None:
    heat = None if noise is None else TokenNoise(LINE, 0.05, TOKENS[noise])

    def moving(t: float) -> tuple[np.ndarray, ...]:
        return (1.0 + 4.0 * np.sin(7.0 * t) * np.exp(-LINE.faces(0) ** 2),)

    # splitting errs by order 1 with "lie": its steps are those of a tolerance that is not so small
    way = carrying(LINE, ErrorSteps(1e-3 if noise == "lie" else 1e-5), noise=heat, moving=moving)
    edges = np.array([0.0, 0.1, 0.13, 0.7])
    path = forward(way, [still(LINE)], bump(LINE, 2), edges, True)
    assert sum(len(part.starts) for part in path.layers) > 40
    for part, length in zip(path.layers, np.diff(edges), strict=True):
        ends = [*part.offsets[1:], float(length)]
        assert part.offsets[0] == 0.0
        np.testing.assert_allclose(np.add(part.offsets, part.lengths), ends, rtol=0, atol=1e-15)
        assert min(part.lengths) >= 0.1 * max(part.lengths[-4:])
        assert part.lengths[-1] >= 0.45 * part.lengths[-3] if len(part.lengths) > 3 else True
    assert path.courant <= 0.5 * 1.1
    # a law between two layers is that of the path, and one in the middle of a step is close to a path without control
    asked = float(edges[2]) + 0.5 * (path.layers[2].offsets[2] + path.layers[2].offsets[3])
    found = laws_at(way, [still(LINE)], path, np.array([0.0, 0.13, asked, 0.7]))
    for got, node in ((found[0], 0), (found[1], 2), (found[3], 3)):
        np.testing.assert_array_equal(got, path.nodes[node])
    fine = replace(way, control=FixedSteps(2e-4))
    other = forward(fine, [still(LINE)], bump(LINE, 2), np.array([0.0, asked]), False).nodes[-1]
    assert LINE.integral(np.abs(found[2] - other)).max() <= 2.0 * way.control.tolerance


def test_the_pace_follows_the_error() -> None:
    # at half the error it may have a step of order 2 grows, at ten times it is cut, and no growth is beyond 5
    assert next_pace(0.1, 0.25, 0.25, 2, True).dt > 0.1
    assert next_pace(0.1, 0.0, 0.5, 2, True).dt == 0.5
    assert next_pace(0.1, 1e-12, 1e-12, 3, True).dt == 0.5
    assert 0.02 <= next_pace(0.1, 10.0, 0.3, 2, False).dt <= 0.05
    for ratio in (np.nan, np.inf):
        cut = next_pace(0.1, ratio, 0.3, 3, False)
        assert cut.dt == pytest.approx(0.02)
        assert cut.ratio == 0.3
    # after an error that rose the PI controller is more careful than after one that fell
    assert next_pace(0.1, 0.5, 0.1, 3, True).dt < next_pace(0.1, 0.5, 0.9, 3, True).dt
    assert [landing(w, 1.0) for w in (0.3, 0.6, 0.999, 1.0, 7.0)] == [0.3, 0.5, 0.5, 1.0, 1.0]


# ---- faults ------------------------------------------------------------------------------------------------------


@dataclass
class Failing:
    """A field at rest that gives NaN at some of its calls."""

    grid: Grid
    bad: Any
    calls: list[int] = field(default_factory=list)

    def moments(self, weights: np.ndarray) -> np.ndarray:
        return np.zeros((len(weights), 1))

    def velocity(self, moments: np.ndarray) -> tuple[np.ndarray, ...]:
        self.calls.append(len(self.calls))
        v = np.zeros((len(moments), *self.grid.face_shape(0)))
        if self.bad(self.calls[-1]):
            v[-1, 7] = np.nan
        return (v,)


def test_a_velocity_that_is_nan_once_is_a_rejected_trial() -> None:
    u, edges = bump(LINE, 2), np.array([0.0, 0.6])
    way = carrying(LINE, ErrorSteps(1e-3), 0.4)
    calm = forward(way, [still(LINE)], u, edges, False)
    assert calm.rejected == 0
    for call in (0, 1, 4, 8, 15):
        path = forward(way, [Failing(LINE, lambda k, call=call: k == call)], u, edges, False)
        assert path.rejected == 1
        assert np.isfinite(path.nodes).all()
        assert LINE.integral(np.abs(path.nodes[-1] - calm.nodes[-1])).max() <= 1e-3


def test_a_velocity_that_stays_nan_ends_the_run_with_field_face_step_and_depth() -> None:
    way = carrying(LINE, ErrorSteps(1e-6), 0.4)
    message = (
        r"fell to a step of .*e-\d+ at depth 0\.\d+ \(layer 1\): V is not finite at depth 0\.\d+ \(layer 1\), "
        r"sequence 12, face \(7,\) of axis 0"
    )
    depth = np.array([0.0, 0.1, 0.4])
    with pytest.raises(NotFiniteError, match=message):
        forward(way, [still(LINE), Failing(LINE, lambda k: k > 20)], bump(LINE, 3), depth, False, 10)
    # with equal steps the first one ends it
    with pytest.raises(NotFiniteError, match=r"V is not finite at depth"):
        forward(replace(way, control=None), [Failing(LINE, lambda k: k > 2)], bump(LINE), depth, False)


def test_a_velocity_that_is_not_continuous_ends_at_the_smallest_step() -> None:
    rng = np.random.default_rng(0)
    way = carrying(LINE, ErrorSteps(1e-6), moving=lambda t: (rng.normal(size=LINE.face_shape(0)),))
    with pytest.raises(NotConvergedError, match=r"fell to a step of .* \(layer 0\): raise depth\.tolerance"):
        forward(way, [still(LINE)], bump(LINE), np.array([0.0, 1e3]), False)


def test_no_depth_is_no_step() -> None:
    for control in (None, FixedSteps(0.1), ErrorSteps(1e-6)):
        path = forward(carrying(LINE, control), [still(LINE)], bump(LINE), np.array([0.2, 0.2]), False)
        np.testing.assert_array_equal(path.nodes[-1], bump(LINE))


# ---- memory ------------------------------------------------------------------------------------------------------


def test_a_path_that_grows_beyond_the_budget_is_refused_while_it_grows() -> None:
    u, edges = bump(LINE, 2), np.array([0.0, 1.0, 3.0])
    way = carrying(LINE, ErrorSteps(1e-6), 0.7)
    path = forward(way, [still(LINE)], u, edges, True)
    steps, size = sum(len(part.starts) for part in path.layers), u.nbytes
    assert all(part.stages is not None for part in path.layers)
    # enough for the steps and not for their stages: those are dropped, also of layers that are behind, and made again
    dropped = forward(way, [still(LINE)], u, edges, True, 0, (steps + 3) * size)
    assert all(part.stages is None for part in dropped.layers)
    np.testing.assert_array_equal(dropped.nodes, path.nodes)
    p = np.random.default_rng(0).normal(size=u.shape)
    ways = (backward(way, [still(LINE)], one, p) for one in (path, dropped))
    for a, b in zip(*ways, strict=True):
        np.testing.assert_array_equal(a, b)
    message = rf"grown to .* \({steps - 1} steps of 768\) at depth 2\.\d* of 3, over the budget .* depth\.tolerance"
    with pytest.raises(MeanFieldError, match=message):
        forward(way, [still(LINE)], u, edges, True, 0, (steps - 1.5) * size)


def test_the_memory_of_a_path_that_grows_stays_in_its_budget() -> None:
    grid = Grid((-3.0,), (3.0,), (768,), (False,))
    way, u, budget = carrying(grid, ErrorSteps(1e-9), 0.7, cfl=0.8), bump(grid, 4), 5e6
    forward(way, [still(grid)], u, np.array([0.0, 0.01]), True)
    tracemalloc.start()
    try:
        with pytest.raises(MeanFieldError, match="over the budget of 5e\\+06"):
            forward(way, [still(grid)], u, np.linspace(0.0, 6.0, 3), True, 0, budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # beside it a trial and the one before: stages hold three arrays, a step three stages, a trial three steps
    assert 0.9 * budget <= peak <= budget + 70 * u.nbytes


def test_a_hundred_thousand_given_steps_are_counted_before_the_first() -> None:
    # 1e5 steps of 256 cells would be 205 MB
    problem, _ = library.get("softmax_gaussian", cells=256, layers=1)
    depth = replace(problem.depth, control="fixed", dt=problem.depth.T / 1e5)
    with pytest.raises(MeanFieldError, match=r"2\.05e\+08 bytes \(1e\+05 steps of .*over the budget"):
        assemble(replace(problem, depth=depth), memory=4e7)


# ---- the dual of the very steps ------------------------------------------------------------------------------------


def side_of(control: Any, noise: bool, **more: Any) -> GridTokens:
    x = LINE.points()
    u = bump(LINE, 3)
    loss = PooledRegression(FeatureMap(np.stack([x[:, 0], np.cos(x[:, 0]), x[:, 0] ** 2])))
    way = carrying(LINE, control, 0.2, reconstruction=scheme("linear5"),
                   noise=TokenNoise(LINE, 0.1) if noise else None)  # fmt: skip
    return GridTokens(
        way, Attention(), "scalar", HEADS, np.linspace(0.0, 0.6, 4), True, u, loss,
        np.linspace(-1.0, 1.0, 9).reshape(3, 3), **{"threads": 1, **more},
    )  # fmt: skip


def replayed(side: GridTokens, path: Path, weights: np.ndarray, size: int | None) -> float:
    """The loss when other heads carry mu over the very steps of a path."""
    (carried,) = side.assemble((Measure(side.head_points, weights, np.zeros(2)),), size)
    u = path.nodes[0]
    for part, begin in zip(path.layers, path.edges, strict=False):
        for offset, length in zip(part.offsets, part.lengths, strict=True):
            u = step(side.transport, carried, u, float(begin) + offset, length)[0]
    return side.terminal(u)[0]


@pytest.mark.parametrize("noise", [False, True])
def test_the_gradient_is_that_of_the_steps_that_were_taken(noise: bool) -> None:
    side = side_of(ErrorSteps(1e-8 if not noise else 1e-6), noise)
    rng = np.random.default_rng(3)
    weights = 1.0 + rng.random(len(HEADS))
    weights /= weights.sum()
    rho = (Measure(side.head_points, weights, np.zeros(2)),)
    found = side.first_variation(rho)
    assert found.report.dual is True
    assert found.report.costate_drift is not None
    assert found.report.costate_drift <= 1e-12
    sweep = side.forward(rho)
    assert len({round(length, 12) for part in sweep.paths[0].layers for length in part.lengths}) > 3
    change = rng.normal(size=len(HEADS)) * weights
    change -= weights * change.sum()
    slope = float(found.potential[0] @ change)
    steps = np.logspace(-1.5, -4.5, 7)
    at = [replayed(side, sweep.paths[0], weights + e * change, sweep.table_size) for e in (0.0, *steps)]
    assert at[0] == found.loss
    rest = [abs(loss - at[0] - e * slope) for e, loss in zip(steps, at[1:], strict=True)]
    assert np.polyfit(np.log(steps), np.log(rest), 1)[0] == pytest.approx(2.0, abs=0.05)
    # sweeps have no history, and threads change nothing
    for other in (side, replace(side, threads=2)):
        again = other.first_variation(rho)
        assert again.loss == found.loss
        np.testing.assert_array_equal(again.potential, found.potential)


def test_the_gradient_of_gaussians_is_met_to_the_tolerance() -> None:
    problem, exact = library.get("gaussian_layerwise", layers=2, cells=160, head_cells=(24, 24), scheme="linear5")
    assert exact is not None
    assert exact.first_variation is not None
    for tolerance in (1e-3, 1e-6):
        ready = assemble(replace(problem, depth=replace(problem.depth, control="error", tolerance=tolerance)))
        assert ready.training is not None
        assert ready.head_grid is not None
        found = ready.training.moment(ready.state).variation.potential.reshape(2, 24, 24)
        wanted = exact.first_variation(0.0, ready.head_grid)
        rho = ready.state.rho * ready.head_grid.cell_volume
        # up to a constant in each layer, where the heads are
        off = found - wanted
        off -= (off * rho).sum(axis=(1, 2), keepdims=True)
        assert (np.abs(off) * rho).sum() <= 1e-4 * (np.abs(wanted) * rho).sum() + tolerance


def test_what_does_not_belong_together_is_refused() -> None:
    problem, _ = library.get("softmax_gaussian")
    for changes, message in (
        ({"control": "fixd"}, "depth.control = 'fixd' is not known; did you mean 'fixed'"),
        ({"control": "fixed"}, "depth.dt is missing"),
        ({"dt": 0.1}, "depth.dt = 0.1 is for depth.control = 'fixed', not 'cfl'"),
        ({"control": "fixed", "dt": 0.0}, "depth.dt = 0 must be finite and > 0"),
        ({"control": "fixed", "dt": 1e-12}, "more than 1e\\+07 steps"),
        ({"control": "error", "tolerance": 0.0}, "depth.tolerance = 0 must be finite and > 0"),
    ):
        with pytest.raises(MeanFieldError, match=message):
            replace(problem, depth=replace(problem.depth, **changes))


@pytest.mark.parametrize("depth", [{"control": "fixed", "dt": dt} for dt in (0.1, 1 / 6, 1 / 3, 7e-3)]
                         + [{"control": "error", "tolerance": 1e-5}], ids=str)  # fmt: skip
def test_depths_asked_for_are_met_bit_for_bit_and_change_nothing(depth: dict[str, Any]) -> None:
    problem, _ = library.get("softmax_gaussian", cells=48, w=0.2, layers=1, T=1.0)
    problem = replace(problem, depth=replace(problem.depth, cfl=1.4, scheme="linear3", **depth))
    plain = solve(problem)
    for spacing in (0.1, 0.3, 1 / 3):
        asked = tuple(k * spacing for k in range(round(1.0 / spacing) + 1) if k * spacing <= 1.0)
        solution = solve(replace(problem, output=Output(asked, snapshots=2)))
        found = solution.depth_t.tolist()
        assert found == sorted({0.0, 1.0, *asked})
        np.testing.assert_array_equal(solution.mu[-1], plain.mu[-1])
        np.testing.assert_array_equal(solution.mu[0], plain.mu[0])
        assert solution.certificates["depth_steps"] == plain.certificates["depth_steps"]
