"""Every kernel on tiny grids against plain numpy, cheap enough to run uncompiled too (NUMBA_DISABLE_JIT=1).

`make test` runs this file once without compilation, which is how the lines of the kernels are covered.
"""

from __future__ import annotations

import numpy as np
import pytest

from meanfield_pde.equations.mu_continuity import Stage, Transport
from meanfield_pde.equations.mu_fluxes import rate
from meanfield_pde.equations.p_transport import dual_of, rate_transpose
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads, fokker_planck_step
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import SCHEMES, DualReconstruction, scheme
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.circle import circle_sums, circle_sums_transpose
from meanfield_pde.kernels.log_laplace import box_mean_slope, seen_cells
from meanfield_pde.kernels.ring_moments import ring_means, ring_moments
from meanfield_pde.kernels.scharfetter_gummel import bernoulli
from meanfield_pde.kernels.token_means import chebyshev_values, token_means
from meanfield_pde.kernels.token_tables import ring_values, tensor_sums, tensor_values
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices, head_matrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.softmax_direct import DirectField
from meanfield_pde.model.softmax_keys import KeyField
from meanfield_pde.model.softmax_matrix import MatrixField
from meanfield_pde.model.softmax_table import SoftmaxTable, TabulatedField, table_reach
from meanfield_pde.model.tensor_table import TensorTable

pytestmark = pytest.mark.plain
RNG = np.random.default_rng(1)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = START


def transport(name: str, periodic: tuple[bool, ...], positivity: bool = False) -> Transport:
    dim = len(periodic)
    grid = Grid((0.0,) * dim, (1.0,) * dim, (7, 6)[:dim], periodic)
    still = tuple(np.zeros(grid.face_shape(axis)) for axis in range(dim))
    return Transport(grid, scheme(name), stepper("ssprk3"), 0.4, positivity, still)


def velocities(grid: Grid) -> tuple[np.ndarray, ...]:
    return tuple(RNG.standard_normal((2, *grid.face_shape(axis))) for axis in range(grid.dim))


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("periodic", [(False,), (True,), (False, True)])
def test_the_rate_moves_mass_and_makes_none(name: str, periodic: tuple[bool, ...]) -> None:
    t = transport(name, periodic)
    u = RNG.uniform(0.1, 2.0, (2, *t.grid.cells))
    v = velocities(t.grid)
    change, _ = rate(t, u, v, 0.0)
    assert np.abs(change).max() > 0.1
    assert np.abs(t.grid.integral(change)).max() < 1e-13


@pytest.mark.parametrize("name", [n for n, s in SCHEMES.items() if isinstance(s, DualReconstruction)])
@pytest.mark.parametrize("periodic", [(False,), (True,), (False, True)])
def test_the_transposed_rate_is_its_derivative(name: str, periodic: tuple[bool, ...]) -> None:
    t = transport(name, periodic)
    u = RNG.uniform(1.0, 2.0, (2, *t.grid.cells))
    v = velocities(t.grid)
    stage = Stage(u, np.empty(0), v)
    q, du = RNG.standard_normal(u.shape), RNG.standard_normal(u.shape)
    dv = velocities(t.grid)
    in_mu, in_v = rate_transpose(t, dual_of(t), stage, q)

    def value(e: float) -> float:
        moved = tuple(a + e * b for a, b in zip(v, dv, strict=True))
        return float((q * rate(t, u + e * du, moved, 0.0)[0]).sum())

    found = float((in_mu * du).sum() + sum((a * b).sum() for a, b in zip(in_v, dv, strict=True)))
    e = 1e-5
    assert found == pytest.approx((value(e) - value(-e)) / (2 * e), rel=2e-6, abs=1e-6)


@pytest.mark.parametrize("periodic", [(False,), (True,)])
def test_limited_fluxes_leave_nothing_negative(periodic: tuple[bool, ...]) -> None:
    t = transport("linear5", periodic, positivity=True)
    u = np.zeros((2, *t.grid.cells))
    u[:, 3] = 7.0
    v = tuple(np.clip(a, -1.0, 1.0) for a in velocities(t.grid))
    dt = 0.4 * t.grid.spacing[0]
    change, limited = rate(t, u, v, dt)
    assert limited > 0
    assert (u + dt * change).min() >= 0.0
    assert np.abs(t.grid.integral(change)).max() < 1e-13


def brute_means(points: np.ndarray, w: np.ndarray, widths: np.ndarray, keys: np.ndarray) -> np.ndarray:
    score = keys @ points.T
    e = np.exp(score - score[:, w > 0].max(axis=1, keepdims=True)) * np.maximum(w, 0)
    u = keys * widths / 2
    shift = widths / 2 * (1 / np.tanh(u) - 1 / u)
    return e @ points / e.sum(axis=1, keepdims=True) - shift


@pytest.mark.parametrize("dim", [1, 2])
def test_direct_attention_and_its_transposes(dim: int) -> None:
    points, widths = RNG.standard_normal((70, dim)), np.full(dim, 0.3)
    w = RNG.uniform(0.0, 1.0, (1, 70))
    w[0, ::5] = 0.0
    theta = np.array([[0.7, 0.9], [-0.4, 0.9], [0.5, -1.3]])
    rho = np.array([0.2, 0.5, 0.3])
    target = Target(RNG.standard_normal((4, dim)), dim - 1)
    field = DirectField(head_matrices("scalar", theta, dim), rho, (target,), points, widths)
    (v,) = field.velocity(w)
    brute = sum(
        r * wv * brute_means(points, w[0], widths, a * target.points)[:, dim - 1]
        for (wv, a), r in zip(theta, rho, strict=True)
    )
    np.testing.assert_allclose(v[0], brute, rtol=1e-12)
    g = RNG.standard_normal((1, 4))
    to_rho = field.to_rho((g,), w)
    assert rho @ to_rho == pytest.approx(float((g * v).sum()), rel=1e-12)
    dw = RNG.standard_normal((1, 70)) * (w > 0)
    e = 1e-6
    slope = (g * (field.velocity(w + e * dw)[0] - field.velocity(w - e * dw)[0])).sum() / (2 * e)
    assert (field.to_mu((g,), w) * dw).sum() == pytest.approx(slope, rel=1e-6)
    (moved,), tokens = field.to_points((g,), w)
    dx, dy = RNG.standard_normal(target.points.shape), RNG.standard_normal(points.shape)

    def at(s: float) -> float:
        there = Target(target.points + s * dx, dim - 1)
        other = DirectField(field.heads, rho, (there,), points + s * dy, widths)
        return float((g * other.velocity(w)[0]).sum())

    assert (moved[0] * dx).sum() + (tokens[0] * dy).sum() == pytest.approx((at(e) - at(-e)) / (2 * e), rel=1e-6)
    assert box_mean_slope(0.1, 0.3) == pytest.approx(0.3**2 / 12, rel=1e-3)


@pytest.mark.parametrize("far", [False, True])
def test_the_table_and_its_transposes(far: bool) -> None:
    # far: all mass at one end of a long box, where the shifted sums of the other end underflow
    n = 40
    points = np.linspace(-20.0, 20.0, n)
    w = np.exp(-((points[None] - (16.0 if far else 1.0)) ** 2) / 8.0)
    w[w < 1e-30] = 0.0
    theta = np.array([[0.7, 2.2 if far else 0.05], [0.3, -0.04]])
    heads = head_matrices("scalar", theta, 1)
    targets = (Target(np.linspace(-18.0, 18.0, 9)[:, None], 0),)
    table = SoftmaxTable.build(points, points[1] - points[0], table_reach(heads, targets), 256 if far else 48)
    rho = np.array([0.4, 0.6])
    field = TabulatedField.assemble(table, heads, rho, targets)
    m = field.moments(w)
    assert (m[:, 1] == 0.0).any() == far
    (v,) = field.velocity(m)
    # 256 nodes do not resolve the far case, which is here for its sums alone; the error must say so
    assert (table.error(w, m) < 1e-10) != far
    at_nodes = brute_means(points[:, None], w[0], np.array([table.width]), table.nodes[:, None])[:, 0]
    np.testing.assert_allclose(m[0, 0], at_nodes, rtol=1e-10)
    g = RNG.standard_normal(v.shape)
    assert rho @ field.to_rho((g,), m) == pytest.approx(float((g * v).sum()), rel=1e-11)
    dw = RNG.standard_normal(w.shape) * w
    e = 1e-6
    up, down = (field.velocity(field.moments(w + s * dw))[0] for s in (e, -e))
    assert (field.to_mu((g,), m) * dw).sum() == pytest.approx((g * (up - down)).sum() / (2 * e), rel=1e-5, abs=1e-9)


def test_seen_cells_stop_where_a_tail_turns_to_noise() -> None:
    u = np.array([[1e-15, -1e-15, 1e-14, 0.5, 1.0, 1e-14, 1e-40, 0.0, 1e-15, 0.0, 0.2]])
    out = np.empty_like(u)
    seen_cells(u, 1e-12, False, out)
    np.testing.assert_array_equal(out[0], [0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1])


def test_seen_cells_go_on_across_the_seam_of_a_ring() -> None:
    first = [1e-14, 1e-15, 0.0, 1e-14, 0.0, 0.3, 1.0, 1e-14]
    u = np.array([first, [0.3, 1e-14, -1e-20, 1e-14, 1e-14, 0.0, 1e-15, 1e-14]])
    out = np.empty_like(u)
    seen_cells(u, 1e-12, True, out)
    np.testing.assert_array_equal(out, [[1, 1, 0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0, 1, 1]])
    seen_cells(u, 1e-12, False, out)
    np.testing.assert_array_equal(out, [[0, 0, 0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize("lines", [1, 4])
def test_sums_around_a_ring_and_their_transpose(lines: int) -> None:
    n, heads = 5, 2
    rows = RNG.uniform(0.1, 1.0, (3, heads, lines, 2 * n))
    starts, w = np.array([0, 3, 5, 2]), RNG.uniform(0.1, 1.0, n)
    out = np.empty((3, heads, 4))
    circle_sums(rows, starts, w, out)
    pieces = np.stack([rows[:, :, f % lines, s : s + n] for f, s in enumerate(starts)], axis=2)
    np.testing.assert_allclose(out, pieces @ w, rtol=1e-14)
    g, into = RNG.standard_normal(out.shape), np.ones(n)
    circle_sums_transpose(rows, starts, g, into)
    np.testing.assert_allclose(into, 1.0 + np.einsum("caf,cafj->j", g, pieces), rtol=1e-13)


@pytest.mark.parametrize("periodic", [(False,), (True,), (False, True)])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_fokker_planck_keeps_mass_sign_and_gibbs(periodic: tuple[bool, ...], beta: float) -> None:
    dim = len(periodic)
    heads = FokkerPlanckHeads(Grid((0.0,) * dim, (1.0,) * dim, (9, 8)[:dim], periodic), beta)
    psi = RNG.uniform(0.0, 1.0, (2, *heads.grid.cells))
    rho = np.zeros_like(psi)
    rho[(slice(None), *(3,) * dim)] = 1.0 / heads.grid.cell_volume
    limited = 0
    for order in (1, 2):
        for ds in (1e-3, 0.3, 1e6):
            step = fokker_planck_step(heads.grid, rho, psi, beta, ds, order)
            assert step.rho.min() >= 0.0
            assert heads.report(step.rho).mass_error.max() < 1e-14
            limited += step.limited
            if beta:
                gibbs = heads.gibbs_state(psi)
                moved = fokker_planck_step(heads.grid, gibbs, psi, beta, ds, order).rho
                assert np.abs(moved - gibbs).max() <= 5e-14 * gibbs.max()
    assert limited > 0


def test_bernoulli() -> None:
    z = np.array([0.0, 1e-9, -1e-9, 1.0, -1.0, 40.0, 800.0, -800.0, np.inf, -np.inf])
    known = [1.0, 1 - 5e-10, 1 + 5e-10, 1 / np.expm1(1.0), -1 / np.expm1(-1.0), 40 / np.expm1(40.0), 0, 800, 0, np.inf]
    np.testing.assert_allclose(bernoulli(z), known, rtol=1e-14)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("far", [False, True])
def test_tensor_tables_matrix_and_keys(dim: int, far: bool) -> None:
    # far: all mass at one corner of a large box, where the shifted sums of the other corners underflow
    half = 20.0 if far else 1.0
    axes = tuple(half * np.linspace(-1.0, 1.0, n) for n in (5, 4, 4)[:dim])
    cells = Lattice(axes, np.full(dim, 0.3))
    w = RNG.uniform(0.5, 1.0, (2, len(cells.points)))
    w[0, ::4] = 0.0
    if far:
        w[:, (cells.points < 12.0).any(axis=1)] = 0.0
    scores = (2.0 if far else 0.4) * RNG.standard_normal((2, dim, dim))
    heads = HeadMatrices(scores, np.array([0, 1, 1]), RNG.standard_normal((3, dim, dim)))
    rho = np.array([0.2, 0.5, 0.3])
    targets = tuple(Target(0.9 * half * RNG.uniform(-1.0, 1.0, (5, dim)), c) for c in range(dim))
    reach = table_reach(heads, targets)
    g = tuple(RNG.standard_normal((2, 5)) for _ in targets)
    for kind, size, build in (
        (TensorTable.chebyshev, 6, MatrixField.assemble), (TensorTable.uniform, 8, KeyField.assemble)
    ):  # fmt: skip
        table = kind(cells, reach, size)
        m = table.moments(w)
        assert (m[:, dim] == 0.0).any() == far
        for b in range(2):
            held = w[b] > 0.0
            wanted = brute_means(cells.points[held], w[b, held], cells.widths, table.keys.T + 1e-9)
            np.testing.assert_allclose(m[b, :dim].T, wanted, rtol=0, atol=1e-6 * half)
        assert table.error(w, m) > 0.0
        field = build(table, heads, rho, targets)
        v = field.velocity(m)
        paired = float(sum((a * b).sum() for a, b in zip(g, v, strict=True)))
        assert rho @ field.to_rho(g, m) == pytest.approx(paired, rel=1e-11)
        dw = RNG.standard_normal(w.shape) * w
        e = 1e-6
        up, down = (field.velocity(table.moments(w + s * dw)) for s in (e, -e))
        slope = sum(float((a * (b - c)).sum()) for a, b, c in zip(g, up, down, strict=True)) / (2 * e)
        scale = sum(float(np.abs(a).sum()) for a in g) * half
        assert (field.to_mu(g, m) * dw).sum() == pytest.approx(slope, rel=1e-5, abs=1e-6 * scale)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("tilted", [False, True])
def test_token_means(dim: int, tilted: bool) -> None:
    y = RNG.standard_normal((7, dim))
    w = RNG.uniform(0.5, 1.0, 7)
    w[2] = 0.0
    tilt = RNG.standard_normal(7) if tilted else np.empty(0)
    keys = RNG.standard_normal((19, dim))
    means, log_z = np.empty((19, dim)), np.empty(19)
    for far in (False, True):
        if far:  # the point without weight sets the bound of the scores: every sum underflows and is redone
            y[2], keys = 50.0, np.abs(keys) + 20.0
        token_means(keys, np.ascontiguousarray(y.T), w, tilt, means, log_z)
        score = keys @ y.T + (tilt if tilted else 0.0)
        top = np.where(w > 0.0, score, -np.inf).max(axis=1, keepdims=True)
        e = np.where(w > 0.0, w, 0.0) * np.exp(np.minimum(score - top, 0.0))
        np.testing.assert_allclose(means, e @ y / e.sum(axis=1, keepdims=True), rtol=1e-11)
        np.testing.assert_allclose(log_z, top[:, 0] + np.log(e.sum(axis=1)), rtol=1e-12)


def test_chebyshev_values() -> None:
    c, angle, out = RNG.standard_normal(5), RNG.uniform(0.0, np.pi, 9), np.empty(9)
    chebyshev_values(c, np.cos(angle), out)
    np.testing.assert_allclose(out, np.cos(np.outer(angle, np.arange(5))) @ c, rtol=0, atol=1e-13)


def test_tensor_sums_and_values() -> None:
    y, w, nodes = RNG.standard_normal((2, 7)), RNG.uniform(0.5, 1.0, 7), RNG.standard_normal((2, 4))
    sums = np.empty((2, 4, 2, 3))
    tensor_sums(nodes, y, w, sums)
    e = w * np.exp(nodes[0][:, None, None] * y[0] + nodes[1][None, :, None] * y[1])
    total, *first = sums.transpose(3, 0, 2, 1).reshape(3, 4, 4)
    np.testing.assert_allclose(np.array(first) / total, np.stack([e @ y[0], e @ y[1]]) / e.sum(axis=2), rtol=1e-11)
    c, angle, out = RNG.standard_normal((2, 4, 4)), RNG.uniform(0.0, np.pi, (9, 2)), np.empty((9, 2))
    tensor_values(c, np.cos(angle), out)
    one, two = np.cos(angle[:, :1] * np.arange(4)), np.cos(angle[:, 1:] * np.arange(4))
    np.testing.assert_allclose(out, np.einsum("ni,cik,nk->nc", one, c, two), rtol=0, atol=1e-13)


def test_ring_values() -> None:
    c, angle, out = RNG.standard_normal((2, 5, 2)), RNG.uniform(-np.pi, np.pi, 9), np.empty((9, 2))
    ring_values(c[0], c[1], np.stack([np.cos(angle), np.sin(angle)], axis=1), out)
    wanted = (np.exp(1j * np.outer(angle, np.arange(5))) @ (c[0] + 1j * c[1])).real
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-13)


def test_ring_moments_and_means() -> None:
    psi, w, moments = RNG.uniform(-np.pi, np.pi, 7), RNG.uniform(0.5, 1.0, 7), np.empty((2, 20))
    y, keys, means = np.stack([np.cos(psi), np.sin(psi)], axis=1), RNG.standard_normal((5, 2)), np.empty((5, 2))
    ring_moments(y, w, moments)
    turned = np.exp(-1j * np.outer(np.arange(20), psi)) @ w
    np.testing.assert_allclose(moments, [turned.real, turned.imag], rtol=0, atol=1e-13)
    ring_means(keys, moments, means)
    e = w * np.exp(keys @ y.T)
    np.testing.assert_allclose(means, e @ y / e.sum(axis=1, keepdims=True), rtol=0, atol=1e-12)
