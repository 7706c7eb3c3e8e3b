"""The one-step scheme: its fluxes written anew, orders against exact flows, conservation, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.equations.forward_backward import backward, forward
from meanfield_pde.equations.lax_wendroff import LaxWendroff, limiter_of, strang, sweep_axis
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.schemes import Muscl, scheme
from meanfield_pde.equations.team import team
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.model.field import PrescribedField
from meanfield_pde.problem import Problem
from meanfield_pde.training.assemble import assemble

LIMITERS = ("muscl-minmod", "muscl-mc", "muscl-vanleer", "muscl-vanalbada")
SHAPES = {
    "wall": Grid((-1.0,), (1.0,), (23,), (False,)),
    "ring": Grid((-1.0,), (1.0,), (23,), (True,)),
    "plane": Grid((-1.0, 0.0), (1.0, 1.0), (9, 300), (False, False)),
    "torus": Grid((-1.0, 0.0), (1.0, 1.0), (8, 11), (True, True)),
    "mixed": Grid((-1.0, 0.0), (1.0, 1.0), (300, 7), (False, True)),
    "space": Grid((0.0, 0.0, -1.0), (1.0, 2.0, 1.0), (6, 5, 7), (False, True, False)),
}


def way(grid: Grid, name: str, cfl: float = 0.9) -> Transport:
    still = tuple(np.zeros(grid.face_shape(axis)) for axis in range(grid.dim))
    return Transport(grid, scheme(name), LaxWendroff(), cfl, False, still)


def limited(name: str, a: float, b: float) -> float:
    """The limiters as they are in books."""
    if a * b <= 0.0:
        return 0.0
    sign, a, b = np.sign(a), abs(a), abs(b)
    slope = {
        "muscl-minmod": min(a, b),
        "muscl-mc": min(0.5 * (a + b), 2.0 * a, 2.0 * b),
        "muscl-vanleer": 2.0 * a * b / (a + b),
        "muscl-vanalbada": a * b * (a + b) / (a * a + b * b),
    }[name]
    return float(sign * slope)


def by_hand(u: np.ndarray, v: np.ndarray, c: float, name: str) -> np.ndarray:
    """One sweep of a line, face by face."""
    n, ring = len(u), len(v) == len(u)

    def cell(j: int) -> float:
        if ring or 0 <= j < n:
            return float(u[j % n])
        return float(2.0 * u[0] - u[1] if j < 0 else 2.0 * u[-1] - u[-2])

    def speed(f: int) -> float:
        return float(v[f % n]) if ring else (float(v[f]) if 0 <= f < n - 1 else 0.0)

    flux = np.zeros(n + 1)  # flux[j] enters cell j from the left
    for f in range(len(v)):
        s = speed(f)
        up, step = (f, 1) if s >= 0 else (f + 1, -1)
        if name == "upwind1":
            value = cell(up)
        else:
            slope = limited(name, cell(up) - cell(up - step), cell(up + step) - cell(up))
            value = cell(up) * (1.0 - 0.5 * c * (speed(up) - speed(up - 1))) + 0.5 * (1.0 - c * abs(s)) * slope
        flux[f + 1] = s * value
    if ring:
        flux[0] = flux[n]
    return np.asarray(u - c * np.diff(flux))


SMALL = [pytest.param(place, marks=pytest.mark.plain) if grid.size < 400 else place for place, grid in SHAPES.items()]


@pytest.mark.parametrize("name", ["upwind1", *LIMITERS])
@pytest.mark.parametrize("place", SMALL)
def test_a_sweep_is_the_scheme_written_face_by_face(place: str, name: str) -> None:
    grid = SHAPES[place]
    rng = np.random.default_rng(1)
    u = rng.random((2, *grid.cells))
    kind = scheme(name).limiter if name != "upwind1" else 0
    for axis in range(grid.dim):
        v = rng.normal(size=(2, *grid.face_shape(axis)))
        found = np.moveaxis(sweep_axis(grid, axis, kind, v, u, 0.2 * grid.spacing[axis]), axis + 1, -1)
        lines, speeds = np.moveaxis(u, axis + 1, -1), np.moveaxis(v, axis + 1, -1)
        for at in list(np.ndindex(lines.shape[:-1]))[:: 1 if grid.size < 400 else 7]:
            np.testing.assert_allclose(found[at], by_hand(lines[at], speeds[at], 0.2, name), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["upwind1", *LIMITERS])
def test_at_courant_number_one_a_law_moves_by_a_cell(name: str) -> None:
    grid = SHAPES["ring"]
    u = np.random.default_rng(2).random((1, 23))
    for sign in (1.0, -1.0):
        path = forward(way(grid, name, 1.0), [PrescribedField((np.full(23, sign),))], u, np.array([0.0, 1.0]), False)
        moved = len(path.layers[0].starts)
        assert moved == pytest.approx(1.0 / grid.spacing[0], abs=1)
        if moved * grid.spacing[0] == pytest.approx(1.0):
            np.testing.assert_allclose(path.nodes[-1, 0], np.roll(u[0], int(sign) * moved), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["upwind1", *LIMITERS])
@pytest.mark.parametrize("place", SHAPES)
def test_mass_is_kept_and_no_line_feels_another(place: str, name: str) -> None:
    grid = SHAPES[place]
    rng = np.random.default_rng(3)
    u = rng.random((3, *grid.cells))
    field = PrescribedField(tuple(rng.normal(size=grid.face_shape(axis)) for axis in range(grid.dim)))
    path = forward(way(grid, name), [field], u, np.array([0.0, 0.05]), False)
    assert np.abs(grid.integral(path.nodes[-1]) - grid.integral(u)).max() <= 1e-13 * grid.integral(u).max()
    alone = forward(way(grid, name), [field], u[1:2], np.array([0.0, 0.05]), False)
    np.testing.assert_array_equal(alone.nodes[-1, 0], path.nodes[-1, 1])


def order_of(sizes: list[int], errors: list[float]) -> float:
    return float(-np.polyfit(np.log(sizes), np.log(errors), 1)[0])


@pytest.mark.parametrize("name", ["upwind1", *LIMITERS])
def test_order_where_the_velocity_varies_along_its_axis(name: str) -> None:
    # carried by sin x on a ring: mass between edges is kept along characteristics
    sizes, errors = [100, 200, 400, 800], []
    for n in sizes:
        grid = Grid((-np.pi,), (np.pi,), (n,), (True,))
        edge = np.linspace(-np.pi, np.pi, n + 1)

        def law(t: float, edge: np.ndarray = edge) -> np.ndarray:
            start = 2.0 * np.arctan(np.exp(-t) * np.tan(0.5 * edge))
            start[0], start[-1] = -np.pi, np.pi
            return np.diff((start + 0.5 * np.sin(start - 1.0)) / (2.0 * np.pi)) / np.diff(edge)

        field = PrescribedField((np.sin(grid.faces(0)),))
        found = forward(way(grid, name), [field], law(0.0)[None], np.array([0.0, 1.0]), False).nodes[-1, 0]
        errors.append(np.abs(found - law(1.0)).sum() * grid.spacing[0])
    wanted = 1.0 if name == "upwind1" else 2.0
    assert order_of(sizes, errors) >= wanted - (0.25 if name == "muscl-minmod" else 0.15)


@pytest.mark.parametrize("name", ["muscl-mc", "muscl-vanleer"])
def test_order_of_a_plane_that_turns_and_is_sheared(name: str) -> None:
    # V = Ax with a growing and a shrinking direction too: each axis changes what the other carries
    a = np.array([[0.3, -1.1], [0.8, -0.3]])
    sizes, errors = [48, 96, 192], []
    for n in sizes:
        grid = Grid((-4.0, -4.0), (4.0, 4.0), (n, n), (False, False))
        v = tuple((grid.face_points(k) @ a[k]).reshape(grid.face_shape(k)) for k in (0, 1))
        end = 0.8
        rate = np.sqrt(0.88 - 0.09)
        # e^{-At} for a trace-free A with det A = rate²
        back = np.cos(rate * end) * np.eye(2) - np.sin(rate * end) / rate * a

        def law(x: np.ndarray) -> np.ndarray:
            y = x - np.array([0.6, 0.2])
            return np.asarray(np.exp(-(y[:, 0] ** 2) / 0.9 - y[:, 1] ** 2 / 0.6))

        def averages(points: np.ndarray, grid: Grid = grid) -> np.ndarray:
            node = np.sqrt(1.0 / 3.0) * 0.5
            shifts = [np.array([x, y]) * grid.spacing for x in (-node, node) for y in (-node, node)]
            return np.asarray(sum(law((grid.points() + s) @ points) for s in shifts) / 4.0).reshape(grid.cells)

        path = forward(way(grid, name), [PrescribedField(v)], averages(np.eye(2))[None], np.array([0.0, end]), False)
        errors.append(np.abs(path.nodes[-1, 0] - averages(back.T)).sum() * grid.cell_volume)
    assert order_of(sizes[1:], errors[1:]) >= 1.85


def softmax(n: int, name: str) -> Problem:
    problem, _ = library.get("softmax_gaussian")
    assert problem.tokens is not None
    assert problem.depth is not None
    depth = replace(problem.depth, scheme=name, stepper="lax-wendroff", cfl=0.9, positivity=False)
    return replace(problem, tokens=replace(problem.tokens, cells=(n,)), depth=depth)


def test_attention_is_taken_at_half_the_step() -> None:
    # by the velocity at the start of each step alone it would be of order 1
    exact = library.get("softmax_gaussian")[1]
    assert exact is not None
    assert exact.mu is not None
    sizes, errors = [128, 256, 512], []
    for n in sizes:
        ready = assemble(softmax(n, "muscl-mc"))
        assert ready.tokens is not None
        assert ready.fixed_heads is not None
        found = ready.tokens.forward(ready.fixed_heads).final
        grid = ready.tokens.transport.grid
        wanted = exact.mu(float(ready.tokens.edges[-1]), grid)
        errors.append(float(np.abs(found - wanted).sum() * grid.spacing[0]))
    assert order_of(sizes, errors) >= 1.85


@pytest.mark.parametrize(("name", "order"), [("upwind1", 1), ("muscl-vanleer", 2)])
def test_a_step_and_its_two_halves_differ_by_the_order_of_a_step(name: str, order: int) -> None:
    # by which steps are controlled; Courant number .5 on all grids
    gaps = []
    for n in (200, 400):
        grid = Grid((0.0,), (2.0 * np.pi,), (n,), (True,))
        move = way(grid, name)
        assert move.step_order == order
        u, v = 2.0 + np.sin(grid.centers(0))[None], (np.ones((1, n)),)
        dt, kind = 0.5 * grid.spacing[0], limiter_of(scheme(name))
        halves = strang(grid, kind, v, strang(grid, kind, v, u, 0.5 * dt), 0.5 * dt)
        gaps.append(np.abs(strang(grid, kind, v, u, dt) - halves).mean())
    assert np.log2(gaps[0] / gaps[1]) == pytest.approx(order + 1, abs=0.2)


def test_what_a_one_step_scheme_does_not_have_is_refused() -> None:
    grid = SHAPES["wall"]
    still = (np.zeros(22),)
    with pytest.raises(MeanFieldError, match="limits slopes"):
        Transport(grid, scheme("weno5z"), LaxWendroff(), 0.5, False, still)
    with pytest.raises(MeanFieldError, match="at most 1:"):
        way(grid, "muscl-mc", 1.01)
    with pytest.raises(MeanFieldError, match="at most 2:"):
        way(SHAPES["torus"], "muscl-mc", 2.01)
    with pytest.raises(MeanFieldError, match="positivity"):
        Transport(grid, Muscl(4), LaxWendroff(), 0.5, True, still)
    field = PrescribedField((np.ones(22),))
    path = forward(way(grid, "muscl-mc"), [field], np.ones((1, 23)), np.array([0.0, 0.1]), True)
    with pytest.raises(MeanFieldError, match="no costate"):
        backward(way(grid, "muscl-mc"), [field], path, np.ones((1, 23)))


def test_problems_that_need_a_costate_or_another_scheme_are_refused() -> None:
    problem, _ = library.get("gaussian_coupled")
    assert problem.depth is not None
    for changes, words in (
        ({"scheme": "muscl-mc"}, r"\[objective\] needs them"),
        ({"scheme": "weno5z"}, "'muscl-mc'"),
        ({"scheme": "muscl-mc", "positivity": True}, "positivity = false"),
    ):
        with pytest.raises(MeanFieldError, match=words):
            replace(problem, depth=replace(problem.depth, stepper="lax-wendroff", **changes))


def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(6)
    for cells, batch in (((300, 400), 1), ((700,), 200)):
        grid = Grid((0.0,) * len(cells), (1.0,) * len(cells), cells, (False, True)[: len(cells)])
        u = rng.random((batch, *cells))
        v = tuple(rng.normal(size=(batch, *grid.face_shape(axis))) for axis in range(grid.dim))
        one = strang(grid, 4, v, u, 1e-3)
        for threads in (2, 3):
            with team(threads) as workers:
                np.testing.assert_array_equal(strang(grid, 4, v, u, 1e-3, workers), one)


def test_a_step_is_every_axis_forth_and_back_and_one_sweep_on_a_line() -> None:
    grid = SHAPES["torus"]
    rng = np.random.default_rng(5)
    u = rng.random((1, *grid.cells))
    v = tuple(rng.normal(size=(1, *grid.face_shape(axis))) for axis in (0, 1))
    dt = 0.01
    wanted = u
    for axis in (0, 1, 1, 0):
        wanted = sweep_axis(grid, axis, 0, v[axis], wanted, 0.5 * dt)
    np.testing.assert_array_equal(strang(grid, 0, v, u, dt), wanted)
    line = SHAPES["ring"]
    one, speed = u[:, 0, :1].repeat(23, axis=1), rng.normal(size=(1, 23))
    np.testing.assert_array_equal(strang(line, 0, (speed,), one, dt), sweep_axis(line, 0, 0, speed, one, dt))


@pytest.mark.parametrize("place", ["wall", "ring", "plane", "torus"])
def test_what_is_not_finite_stays_so_and_what_is_too_small_goes(place: str) -> None:
    grid = SHAPES[place]
    u = np.ones((1, *grid.cells))
    v = tuple(np.ones((1, *grid.face_shape(axis))) for axis in range(grid.dim))
    middle = (0, *(n // 2 for n in grid.cells))
    for bad in (np.nan, np.inf):
        u[middle] = bad
        for axis in range(grid.dim):
            moved = sweep_axis(grid, axis, 4, v[axis], u, 0.1 * grid.spacing[axis])
            assert not np.isfinite(moved[middle])
    small = np.full_like(u, 1e-295)
    still = tuple(np.zeros_like(one) for one in v)
    assert (sweep_axis(grid, 0, 4, still[0], small, 0.1 * grid.spacing[0]) == 0.0).all()
