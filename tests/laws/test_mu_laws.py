"""Laws of the token equation: mass, positivity, symmetry, walls, limits of the step, outputs, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from meanfield_pde.equations.forward_backward import forward, laws_at
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport, face_velocity
from meanfield_pde.equations.runge_kutta import STEPPERS, stepper
from meanfield_pde.equations.schemes import SCHEMES, scheme
from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.model.softmax_direct import DirectField

GRIDS = {
    "wall": Grid((-1.0,), (1.0,), (24,), (False,)),
    "ring": Grid((-1.0,), (1.0,), (24,), (True,)),
    "walls": Grid((-1.0, 0.0), (1.0, 1.0), (12, 9), (False, False)),
    "mixed": Grid((-1.0, 0.0), (1.0, 1.0), (9, 12), (False, True)),
    "torus": Grid((0.0, 0.0), (1.0, 2.0), (8, 11), (True, True)),
    "box": Grid((0.0, 0.0, -1.0), (1.0, 2.0, 1.0), (6, 5, 7), (False, True, False)),
    "cube": Grid((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (5, 6, 7), (False, False, False)),
}
STABLE = [(name, method) for name in SCHEMES for method in STEPPERS if method != "ssprk1" or SCHEMES[name].order == 1]


@dataclass(frozen=True)
class Prescribed:
    """A field that does what it is told: fixed face velocities, or those of a function of the masses."""

    given: tuple[np.ndarray, ...]
    factor: Callable[[np.ndarray], np.ndarray] | None = None

    def moments(self, weights: np.ndarray) -> np.ndarray:
        return weights

    def velocity(self, moments: np.ndarray) -> tuple[np.ndarray, ...]:
        scale = np.ones(len(moments)) if self.factor is None else self.factor(moments)
        return tuple(scale[:, None] * v.ravel()[None] for v in self.given)

    def to_mu(self, cotangents: Any, moments: np.ndarray) -> np.ndarray:
        return np.zeros_like(moments)

    def to_rho(self, cotangents: Any, moments: np.ndarray) -> np.ndarray:
        return np.zeros(1)


def transport(
    grid: Grid, name: str, method: str = "ssprk3", cfl: float | None = None, positivity: bool = False
) -> Transport:
    """cfl None: the largest that is allowed."""
    still = tuple(np.zeros(grid.face_shape(axis)) for axis in range(grid.dim))
    if cfl is None:
        cfl = Transport(grid, scheme(name), stepper(method), 1e-3, positivity, still).courant_limit()
    return Transport(grid, scheme(name), stepper(method), cfl, positivity, still)


def normalised(grid: Grid, u: np.ndarray) -> np.ndarray:
    return u / grid.integral(u).reshape(-1, *(1,) * grid.dim)


def rough(grid: Grid, rng: np.random.Generator, batch: int = 2) -> np.ndarray:
    u = rng.random((batch, *grid.cells)) ** 4
    u[u < 0.2] = 0.0
    u.reshape(batch, -1)[:, 5] += 1.0
    return normalised(grid, u)


def noise(grid: Grid, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return tuple(rng.normal(size=grid.face_shape(axis)) for axis in range(grid.dim))


def step_length(way: Transport, v: tuple[np.ndarray, ...]) -> float:
    """The length of one step at the Courant number of ``way``."""
    return way.cfl / sum(float(np.abs(x).max()) / h for x, h in zip(v, way.grid.spacing, strict=True))


def run(way: Transport, field: Any, u: np.ndarray, end: float) -> np.ndarray:
    return forward(way, [field], u, np.array([0.0, end]), False).nodes[-1]


# ---- mass and positivity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", GRIDS)
@pytest.mark.parametrize(("name", "method"), STABLE)
def test_mass_and_positivity_together_on_rough_data(name: str, method: str, place: str) -> None:
    grid = GRIDS[place]
    rng = np.random.default_rng(1)
    u, v = rough(grid, rng), noise(grid, rng)
    way = transport(grid, name, method, positivity=True)
    # every stage of a step is a forward Euler step of this share of its length
    shares = {"ssprk104": 1.0 / 6.0}
    assert way.cfl == min(way.courant_limit(), 0.5 / shares.get(method, 1.0))
    for count in range(1, 10):
        u = run(way, Prescribed(v), u, step_length(way, v))
        assert np.abs(grid.integral(u) - 1.0).max() <= 1e-13
        assert u.min() >= -1e-15, count
    free = transport(grid, name, method)
    u = rough(grid, rng)
    u = run(free, Prescribed(v), u, 5 * step_length(free, v))
    # without positivity a law may swing, and rounding is that of the size of what is summed
    assert (np.abs(grid.integral(u) - 1.0) <= 1e-13 * grid.integral(np.abs(u))).all()


@settings(deadline=None, max_examples=80)
@given(
    place=st.sampled_from(list(GRIDS)),
    which=st.sampled_from(STABLE),
    share=st.floats(0.05, 1.0),
    floor=st.sampled_from([0.0, 1e-320, 1e-300, 1e-12]),
    height=st.sampled_from([1.0, 1e8]),
    seed=st.integers(0, 2**31),
)
def test_one_step_keeps_mass_and_sign(
    place: str, which: tuple[str, str], share: float, floor: float, height: float, seed: int
) -> None:
    grid, rng = GRIDS[place], np.random.default_rng(seed)
    u = rough(grid, rng) + floor
    u.reshape(2, -1)[0, 3] += height
    u, v = normalised(grid, u), noise(grid, rng)
    way = transport(grid, *which, positivity=True)
    after = run(way, Prescribed(v), u, share * step_length(way, v))
    assert np.abs(grid.integral(after) - 1.0).max() <= 1e-13
    assert after.min() >= -1e-15


@pytest.mark.parametrize("name", SCHEMES)
def test_rotation_of_rough_data(name: str) -> None:
    grid = Grid((-1.0, -1.0), (1.0, 1.0), (20, 20), (False, False))
    x, y = grid.face_points(0), grid.face_points(1)
    v = (-x[:, 1].reshape(grid.face_shape(0)), y[:, 0].reshape(grid.face_shape(1)))
    u = rough(grid, np.random.default_rng(2))
    after = run(transport(grid, name, positivity=True), Prescribed(v), u, 1.0)
    assert np.abs(grid.integral(after) - 1.0).max() <= 1e-13
    assert after.min() >= -1e-15


@pytest.mark.parametrize("direction", [3.0, -3.0])
@pytest.mark.parametrize("cells", [24, 400])
@pytest.mark.parametrize("name", SCHEMES)
def test_drift_into_the_wall_loses_nothing(name: str, cells: int, direction: float) -> None:
    grid = Grid((0.0,), (1.0,), (cells,), (False,))
    x = grid.centers(0) if direction > 0 else grid.centers(0)[::-1]
    u = normalised(grid, np.exp(-((x - 0.4) ** 2) / 0.02)[None])
    field = Prescribed((np.full(cells - 1, direction),))
    for positivity in (False, True):
        after = run(transport(grid, name, cfl=0.5, positivity=positivity), field, u, 0.5)
        assert np.abs(grid.integral(after) - 1.0).max() <= 1e-12
        # everything ends in the cell at the wall; an unlimited scheme overshoots there, but by a bounded share
        assert np.abs(after).max() <= 1.5 / grid.spacing[0]


@pytest.mark.parametrize("name", SCHEMES)
def test_the_wall_that_a_law_leaves_stays_quiet(name: str) -> None:
    # the law crosses the box many times over in units of cells; what is left at the other wall must not grow
    grid = Grid((0.0,), (1.0,), (600,), (False,))
    u = normalised(grid, np.where(np.arange(600) % 7 < 3, 1.0, 0.2)[None])
    after = run(transport(grid, name, cfl=0.5), Prescribed((np.full(599, 1.0),)), u, 2.0)
    assert np.abs(after[0, :300]).max() <= 1e-3
    assert np.abs(grid.integral(after) - 1.0).max() <= 1e-12


def attention(grid: Grid) -> DirectField:
    theta = np.array([[0.9, 1.5], [-0.6, 0.8], [0.4, -2.0]])
    targets = tuple(Target(grid.face_points(axis), axis) for axis in range(grid.dim))
    return DirectField(
        head_matrices("scalar", theta, grid.dim),
        np.array([0.5, 0.3, 0.2]),
        targets,
        grid.points(),
        np.array(grid.spacing),
    )


@pytest.mark.parametrize("place", ["wall", "walls", "cube"])
@pytest.mark.parametrize("name", ["upwind1", "linear5", "weno5z", "muscl-mc"])
def test_attention_keeps_mass_and_sign(name: str, place: str) -> None:
    grid = GRIDS[place]
    u = rough(grid, np.random.default_rng(3))
    after = run(transport(grid, name, positivity=True), attention(grid), u, 0.2)
    assert np.abs(grid.integral(after) - 1.0).max() <= 1e-13
    assert after.min() >= -1e-15
    after = run(transport(grid, name, cfl=0.5), attention(grid), u, 0.2)
    assert np.abs(grid.integral(after) - 1.0).max() <= 1e-13


def test_the_velocity_of_a_gaussian_is_that_of_the_whole_law() -> None:
    # w(m + a s x) exactly; keys of up to four deviations need the tail out to e^{-35}, which must not be cut off
    grid = Grid((-8.0,), (8.0,), (512,), (False,))
    mean, variance = 0.5, 0.4
    # tail-accurate masses: the upper tail by reflection
    edge = (grid.edges(0) - mean) / np.sqrt(variance)
    left, right = edge[:-1], edge[1:]
    u = np.where(left > 0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))[None] / grid.spacing[0]
    x = grid.faces(0)
    for a in (0.8, 2.0, -3.0):
        heads = head_matrices("scalar", np.array([[0.7, a]]), 1)
        target = (Target(grid.face_points(0), 0),)
        field = DirectField(heads, np.ones(1), target, grid.points(), np.array(grid.spacing))
        v = face_velocity(transport(grid, "linear5"), field, u)[1][0][0]
        bulk = np.abs(a * x) * np.sqrt(variance) <= 4.0
        np.testing.assert_allclose(v[bulk], 0.7 * (mean + a * variance * x[bulk]), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "method"), [("upwind1", "ssprk1"), ("linear3", "ssprk2"), ("weno5z", "ssprk3")])
def test_positivity_holds_while_the_velocity_grows_inside_a_layer(name: str, method: str) -> None:
    # both faces of the middle cell carry the largest speed outward, and it grows by a fifth after the first step
    grid = Grid((-1.0,), (1.0,), (41,), (False,))
    x = grid.faces(0)
    v = np.where(np.abs(x) < 0.3, np.sign(x), 0.2 * np.sign(x))
    u = np.zeros((1, 41))
    u[0, 20] = 1.0
    u = normalised(grid, u)
    field = Prescribed((v,), lambda m: np.where(m.max(axis=1) < 0.5, 1.19, 1.0))
    way = transport(grid, name, method, 0.5, positivity=True)
    for steps in (0.5 * (1 + 9e-10), 5 * 0.46, 10 * 0.46):
        path = forward(way, [field], u, np.array([0.0, steps * grid.spacing[0]]), False)
        assert path.courant <= 0.5
        for state in (*path.layers[0].starts, path.nodes[-1]):
            assert state.min() >= -1e-15
            assert np.abs(grid.integral(state) - 1.0).max() <= 1e-13


# ---- symmetry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("name", SCHEMES)
def test_axis_swap(name: str, positivity: bool) -> None:
    rng = np.random.default_rng(4)
    grid = Grid((0.0, -1.0), (1.0, 2.0), (9, 12), (False, True))
    turned = Grid((-1.0, 0.0), (2.0, 1.0), (12, 9), (True, False))
    u, (vx, vy) = rough(grid, rng), noise(grid, rng)
    a = run(transport(grid, name, cfl=0.4, positivity=positivity), Prescribed((vx, vy)), u, 0.1)
    swapped = np.ascontiguousarray(u.swapaxes(1, 2))
    b = run(transport(turned, name, cfl=0.4, positivity=positivity), Prescribed((vy.T, vx.T)), swapped, 0.1)
    np.testing.assert_allclose(b.swapaxes(1, 2), a, rtol=0, atol=1e-13 * np.abs(a).max())


@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("name", SCHEMES)
def test_reflection(name: str, positivity: bool) -> None:
    rng = np.random.default_rng(5)
    grid = GRIDS["walls"]
    u, (vx, vy) = rough(grid, rng), noise(grid, rng)
    way = transport(grid, name, cfl=0.4, positivity=positivity)
    a = run(way, Prescribed((vx, vy)), u, 0.1)
    b = run(way, Prescribed((-vx[::-1], vy[::-1])), np.ascontiguousarray(u[:, ::-1]), 0.1)
    np.testing.assert_allclose(b[:, ::-1], a, rtol=0, atol=1e-13 * np.abs(a).max())


@pytest.mark.parametrize("name", SCHEMES)
def test_reflection_where_the_velocity_vanishes_on_faces(name: str) -> None:
    # a rotation whose axis is a row of cell centres: no wind may be preferred where there is none
    grid = Grid((-1.0, -1.0), (1.0, 1.0), (9, 9), (False, False))
    u = rough(grid, np.random.default_rng(6))
    x, y = grid.face_points(0), grid.face_points(1)
    vx, vy = -x[:, 1].reshape(grid.face_shape(0)), y[:, 0].reshape(grid.face_shape(1))
    vx[np.abs(vx) < 1e-12] = 0.0
    vy[np.abs(vy) < 1e-12] = 0.0
    assert (vx == 0.0).any()
    way = transport(grid, name, cfl=0.4)
    a = run(way, Prescribed((vx, vy)), u, 0.1)
    b = run(way, Prescribed((-vx[::-1], vy[::-1])), np.ascontiguousarray(u[:, ::-1]), 0.1)
    np.testing.assert_allclose(b[:, ::-1], a, rtol=0, atol=1e-13 * np.abs(a).max())


@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("name", SCHEMES)
def test_shift_along_a_ring(name: str, positivity: bool) -> None:
    rng = np.random.default_rng(7)
    grid = GRIDS["torus"]
    u, (vx, vy) = rough(grid, rng), noise(grid, rng)
    way = transport(grid, name, cfl=0.4, positivity=positivity)
    a = run(way, Prescribed((vx, vy)), u, 0.1)
    for shift in ((3, 0), (0, 5), (7, 10)):
        field = Prescribed((np.roll(vx, shift, (0, 1)), np.roll(vy, shift, (0, 1))))
        b = run(way, field, np.roll(u, shift, (1, 2)), 0.1)
        np.testing.assert_allclose(b, np.roll(a, shift, (1, 2)), rtol=0, atol=1e-13 * np.abs(a).max())


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("drift", [1.0, -1.0])
def test_a_spike_in_the_first_cell_of_a_ring_is_like_any_other(name: str, drift: float) -> None:
    grid = GRIDS["ring"]
    u = np.zeros((1, 24))
    u[0, 0] = 1.0
    u = normalised(grid, u)
    field = Prescribed((np.full(24, drift),))
    a = run(transport(grid, name, cfl=0.4), field, u, 0.3)
    b = run(transport(grid, name, cfl=0.4), field, np.roll(u, 11, 1), 0.3)
    np.testing.assert_array_equal(np.roll(a, 11, 1), b)
    # and without a prescribed direction: 1 to the right and 1 to the left by the same amount
    two = Prescribed((np.r_[np.ones(12), -np.ones(12)],))
    c = run(transport(grid, name, cfl=0.4), two, u, 0.3)[0]
    np.testing.assert_allclose(c[1:], c[1:][::-1], rtol=0, atol=1e-13 * np.abs(c).max())


@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_constant_stays_constant_where_the_flow_has_no_divergence(name: str, positivity: bool) -> None:
    torus, mixed, box = GRIDS["torus"], GRIDS["mixed"], GRIDS["box"]
    cases = [
        (torus, tuple(np.sin(3 + 2 * torus.face_points(k)[:, 1 - k]).reshape(torus.face_shape(k)) for k in (0, 1))),
        (mixed, (np.zeros(mixed.face_shape(0)), np.exp(mixed.face_points(1)[:, 0]).reshape(mixed.face_shape(1)))),
        (
            box,
            (
                np.zeros(box.face_shape(0)),
                np.cos(box.face_points(1) @ [3.0, 0.0, 5.0]).reshape(box.face_shape(1)),
                np.zeros(box.face_shape(2)),
            ),
        ),
    ]
    for grid, v in cases:
        u = normalised(grid, np.ones((1, *grid.cells)))
        after = run(transport(grid, name, positivity=positivity), Prescribed(v), u, 1.0)
        np.testing.assert_allclose(after, u, rtol=1e-13)


# ---- steps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["ring", "walls", "cube"])
@pytest.mark.parametrize(("name", "method"), STABLE)
def test_courant_numbers_beyond_the_limit_are_refused(name: str, method: str, place: str) -> None:
    grid = GRIDS[place]
    for positivity in (False, True):
        limit = transport(grid, name, method, 1e-3, positivity).courant_limit()
        transport(grid, name, method, limit, positivity)
        for factor in (1.01, 2.0, 40.0):
            with pytest.raises(MeanFieldError, match=f"at most {limit:.6g}".replace(".", r"\.")):
                transport(grid, name, method, factor * limit, positivity)
    for bad in (0.0, -0.1, np.nan, np.inf):
        with pytest.raises(MeanFieldError, match="cfl"):
            transport(grid, name, method, bad)


@pytest.mark.parametrize("name", [name for name in SCHEMES if SCHEMES[name].order > 1])
def test_forward_euler_is_refused_above_order_one(name: str) -> None:
    with pytest.raises(MeanFieldError, match="ssprk3"):
        transport(GRIDS["ring"], name, "ssprk1", 0.1)


@pytest.mark.parametrize(("name", "method"), STABLE)
def test_the_limit_is_sharp(name: str, method: str) -> None:
    # the known limits of linear theory, and: at the limit noise does not grow, well beyond it does
    known = {("upwind1", "ssprk1"): 1.0, ("upwind1", "ssprk3"): 1.2564, ("linear3", "ssprk3"): 1.625}
    known["upwind1", "ssprk104"] = 6.0
    grid = Grid((0.0,), (1.0,), (48,), (True,))
    way = transport(grid, name, method)
    if (name, method) in known:
        assert way.cfl == pytest.approx(known[name, method], abs=2e-3)
    rng = np.random.default_rng(8)
    u = 1.0 + 1e-3 * rng.normal(size=(1, 48))
    after = run(way, Prescribed((np.ones(48),)), u, 400 * way.cfl / 48)
    assert np.abs(after - 1.0).max() <= 2.0 * np.abs(u - 1.0).max()


@pytest.mark.parametrize("name", SCHEMES)
def test_too_few_cells_for_the_stencil_are_refused(name: str) -> None:
    width = SCHEMES[name].width
    if width <= 3:
        transport(Grid((0.0,), (1.0,), (3,), (True,)), name)
        return
    with pytest.raises(MeanFieldError, match=r"tokens\.cells = 4"):
        transport(Grid((0.0, 0.0), (1.0, 1.0), (8, 4), (False, False)), name, cfl=0.5)
    grid = Grid((0.0, 0.0), (1.0, 1.0), (5, 5), (False, True))
    rng = np.random.default_rng(9)
    after = run(transport(grid, name), Prescribed(noise(grid, rng)), rough(grid, rng), 0.1)
    assert np.abs(grid.integral(after) - 1.0).max() <= 1e-13


@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("end", [0.0, 1e-300, 1e-17])
def test_no_depth_gives_the_initial_law_back(end: float, positivity: bool) -> None:
    grid = GRIDS["walls"]
    rng = np.random.default_rng(10)
    u, field = rough(grid, rng), Prescribed(noise(grid, rng))
    way = transport(grid, "weno5z", positivity=positivity)
    path = forward(way, [field], u, np.array([0.0, end]), True)
    np.testing.assert_allclose(path.nodes[-1], u, rtol=0, atol=1e-14)
    if end > 0:
        np.testing.assert_array_equal(laws_at(way, [field], path, np.array([0.0]))[0], u)


def test_still_tokens_stay() -> None:
    grid = GRIDS["walls"]
    u = rough(grid, np.random.default_rng(11))
    still = Prescribed(tuple(np.zeros(grid.face_shape(axis)) for axis in range(2)))
    np.testing.assert_allclose(run(transport(grid, "weno5z", positivity=True), still, u, 1.0), u, rtol=4e-16)


def test_a_velocity_that_grows_inside_a_layer_gets_smaller_steps() -> None:
    grid = GRIDS["ring"]
    u = np.zeros((1, 24))
    u[0, 0] = 1.0
    u = normalised(grid, u)
    # three times faster as soon as the spike has spread
    field = Prescribed((np.full(24, 1.0),), lambda m: np.where(m.max(axis=1) < 0.5, 3.0, 1.0))
    way = transport(grid, "linear3", cfl=0.5)
    path = forward(way, [field], u, np.array([0.0, 1.0]), False)
    steps = len(path.layers[0].starts)
    assert path.courant <= 0.55
    assert path.layers[0].dt * steps == pytest.approx(1.0, rel=1e-14)
    assert steps >= 3.0 * 12 / 0.5 / 1.1
    assert np.abs(grid.integral(path.nodes[-1]) - 1.0).max() <= 1e-13
    # a layer that does not need it is not punished: integer number of steps per layer
    calm = forward(way, [Prescribed((np.ones(24),))], u, np.array([0.0, 0.25, 1.0]), False)
    assert [len(part.starts) for part in calm.layers] == [6, 18]


# ---- outputs and what is not finite ------------------------------------------------------------------------------


def test_laws_at_requested_depths_leave_the_path_alone() -> None:
    grid = GRIDS["wall"]
    u = rough(grid, np.random.default_rng(12))
    field = Prescribed((np.full(23, 0.8),))
    way = transport(grid, "weno5z", cfl=0.4)
    edges = np.linspace(0.0, 1.0, 4)
    path = forward(way, [field], u, edges, True)
    kept = [part.starts[0].copy() for part in path.layers], path.nodes.copy()
    times = np.array([0.0, 0.1, 1 / 3, 0.3, 1.0 - 2**-53, 1.0, edges[2]])
    laws = laws_at(way, [field], path, times)
    np.testing.assert_array_equal(path.nodes, kept[1])
    for part, start in zip(path.layers, kept[0], strict=True):
        np.testing.assert_array_equal(part.starts[0], start)
    np.testing.assert_array_equal(laws[0], u)
    np.testing.assert_array_equal(laws[5], path.nodes[-1])
    np.testing.assert_array_equal(laws[2], path.nodes[1])
    np.testing.assert_array_equal(laws[6], path.nodes[2])
    np.testing.assert_allclose(laws[4], path.nodes[-1], rtol=0, atol=1e-12)
    assert np.abs(grid.integral(laws) - 1.0).max() <= 1e-13
    # one at a time or together: the same bits
    for k, t in enumerate(times):
        np.testing.assert_array_equal(laws_at(way, [field], path, np.array([t]))[0], laws[k])
    # and the law at the depth asked for: a forward solve that ends there
    alone = forward(way, [field], u, np.array([0.0, 0.1]), False).nodes[-1]
    assert np.abs(laws[1] - alone).max() <= 2e-2 * np.abs(alone).max()


@pytest.mark.parametrize("t", [-0.1, 1.0 + 1e-9, 2.0, np.nan])
def test_laws_beyond_the_depth_are_refused(t: float) -> None:
    grid = GRIDS["wall"]
    u, field = rough(grid, np.random.default_rng(13)), Prescribed((np.full(23, 0.8),))
    way = transport(grid, "upwind1", cfl=0.4)
    path = forward(way, [field], u, np.array([0.0, 0.5, 1.0]), False)
    with pytest.raises(MeanFieldError, match=r"\[0, 1\]"):
        laws_at(way, [field], path, np.array([t]))


def tokens(mu0: np.ndarray, points: np.ndarray) -> GridTokens:
    grid = GRIDS["wall"]
    way = transport(grid, "weno5z", cfl=0.5)
    return GridTokens(way, Attention(), "scalar", points, np.array([0.0, 0.5, 1.0]), True, mu0, None, None, threads=1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_number_stops_the_sweep_and_is_located(bad: float) -> None:
    rng = np.random.default_rng(14)
    mu0 = rough(GRIDS["wall"], rng, 12)
    points = np.array([[0.5, 1.0], [0.2, -0.7]])
    law = Measure.particles(points)
    good = tokens(mu0, law.points).forward((law,))
    assert np.isfinite(good.final).all()
    broken = mu0.copy()
    broken[10, 7] = bad
    with pytest.raises(NotFiniteError, match=r"depth 0, sequence 10, cell \(7,\)"):
        tokens(broken, law.points).forward((law,))


def test_a_bad_number_in_rho_is_an_error_with_a_place() -> None:
    weights = np.array([0.5, np.nan])
    with pytest.raises(MeanFieldError, match="finite"):
        Measure.particles(np.array([[0.5, 1.0], [0.2, -0.7]]), weights)
    # past the guard of the measure it still ends within the first stage
    grid = GRIDS["walls"]
    field = attention(grid)
    poisoned = DirectField(field.heads, np.array([0.5, np.nan, 0.2]), field.targets, field.points, field.widths)
    with pytest.raises(NotFiniteError, match="V is not finite at depth 0"):
        run(transport(grid, "linear3"), poisoned, rough(grid, np.random.default_rng(15)), 0.2)


def test_a_velocity_that_turns_bad_on_the_way_is_an_error_and_no_endless_loop() -> None:
    grid = GRIDS["ring"]
    u = np.zeros((1, 24))
    u[0, 0] = 1.0
    u = normalised(grid, u)
    for bad in (np.nan, np.inf):
        field = Prescribed((np.ones(24),), lambda m, bad=bad: np.where(m.max(axis=1) < 0.5, bad, 1.0))
        with pytest.raises(NotFiniteError, match="layer 0"):
            run(transport(grid, "linear3"), field, u, 1.0)


def test_a_velocity_that_runs_away_is_refused_before_its_steps_are_taken() -> None:
    grid = GRIDS["wall"]
    way = transport(grid, "upwind1")
    fast = Prescribed((np.full(grid.face_shape(0), 1e6),))
    with pytest.raises(NotConvergedError, match=r"layer 0 .* needs 9.6e\+06 steps, more than 1e\+06"):
        run(way, fast, normalised(grid, np.ones((1, 24))), 1.0)
