"""Laws of the head equation: mass, positivity, Gibbs state, symmetry, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads, fokker_planck_step
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.grid import Grid

GRIDS = {
    "wall": Grid((-1.0,), (1.0,), (24,), (False,)),
    "ring": Grid((-1.0,), (1.0,), (24,), (True,)),
    "walls": Grid((-1.0, 0.0), (1.0, 1.0), (12, 9), (False, False)),
    "mixed": Grid((-1.0, 0.0), (1.0, 1.0), (12, 19), (False, True)),
    "torus": Grid((0.0, 0.0), (1.0, 2.0), (8, 11), (True, True)),
    "box": Grid((0.0, 0.0, -1.0), (1.0, 2.0, 1.0), (6, 5, 7), (False, True, False)),
}


def _normalised(grid: Grid, rho: np.ndarray) -> np.ndarray:
    return rho / (rho.sum(axis=tuple(range(1, rho.ndim)), keepdims=True) * grid.cell_volume)


def _rough(grid: Grid, layers: int, rng: np.random.Generator) -> np.ndarray:
    rho = rng.random((layers, *grid.cells)) ** 8
    rho[rho < 0.2] = 0.0
    rho.reshape(layers, -1)[:, 3] += 0.1
    return _normalised(grid, rho)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", GRIDS)
def test_mass_and_positivity_for_any_step(name: str, order: int, layers: int) -> None:
    grid = GRIDS[name]
    rng = np.random.default_rng(5)
    for beta in (0.0, 1e-3, 0.05, 1.0):
        rho = _rough(grid, layers, rng)
        for ds in 10.0 ** rng.uniform(0, 8, 50):
            rho = fokker_planck_step(grid, rho, rng.normal(size=rho.shape), beta, ds, order).rho
            assert rho.min() >= 0.0
        assert np.abs(grid.integral(rho) - 1.0).max() <= 1e-13


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(list(GRIDS)),
    order=st.sampled_from([1, 2]),
    beta=st.sampled_from([0.0, 1e-6, 1e-2, 1.0, 1e3]),
    log_ds=st.floats(-6, 12),
    height=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    seed=st.integers(0, 2**31),
)
def test_one_step_keeps_mass_and_sign(
    name: str, order: int, beta: float, log_ds: float, height: float, seed: int
) -> None:
    grid = GRIDS[name]
    rng = np.random.default_rng(seed)
    rho = _rough(grid, 2, rng)
    before = grid.integral(rho)
    new = fokker_planck_step(grid, rho, height * rng.normal(size=rho.shape), beta, 10.0**log_ds, order).rho
    assert new.min() >= 0.0
    np.testing.assert_allclose(grid.integral(new), before, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("ds", [1e-2, 1.0, 1e6, 1e12])
def test_gibbs_state_stays(name: str, order: int, ds: float) -> None:
    grid = GRIDS[name]
    side = FokkerPlanckHeads(grid, beta=0.05, layer_lengths=(0.5, 0.5))
    psi = 0.2 * np.random.default_rng(6).normal(size=(2, *grid.cells)).cumsum(axis=-1)
    gibbs = side.gibbs_state(psi)
    new = side.step(gibbs, psi, ds, order).rho
    assert np.abs(new - gibbs).max() <= 5e-14 * gibbs.max()
    assert np.abs(grid.integral(new) - 1.0).max() <= 1e-14


@pytest.mark.parametrize("order", [1, 2])
def test_gibbs_state_of_a_random_walk_on_a_ring_at_huge_steps(order: int) -> None:
    grid = Grid((0.0,), (1.0,), (96,), (True,))
    psi = np.random.default_rng(7).normal(size=(1, 96)).cumsum(axis=1)
    side = FokkerPlanckHeads(grid, beta=1.0)
    gibbs = side.gibbs_state(psi)
    # a generic start also arrives there in one step; the plain LU of the same matrix is wrong by 8e-4
    for start in (gibbs, np.ones((1, 96))):
        new = side.step(start, psi, 1e12, order).rho
        assert np.abs(new - gibbs).max() <= 5e-11 * gibbs.max()
    assert np.abs(side.step(gibbs, psi, 1e12, order).rho - gibbs).max() <= 5e-14 * gibbs.max()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("ds", [0.01, 100.0])
@pytest.mark.parametrize("potential", [lambda x: np.abs(x) ** 3, lambda x: x**4 / 4 - x**2 / 2])
def test_gibbs_state_of_kinked_and_double_wells_over_many_steps(potential, ds: float, order: int) -> None:
    grid = Grid((-3.0,), (3.0,), (64,), (False,))
    side = FokkerPlanckHeads(grid, beta=0.1)
    psi = potential(grid.centers(0))[None]
    gibbs = side.gibbs_state(psi)
    rho = side.flows["gibbs"](gibbs, psi, ds, order).rho
    assert np.abs(rho - gibbs).max() <= 1e-13 * gibbs.max()
    for _ in range(3000):
        rho = side.flows["gibbs"](rho, psi, ds, order).rho
    assert np.abs(rho - gibbs).max() <= 3e-13 * gibbs.max()
    assert side.report(rho).mass_error[0] <= 1e-14


def test_the_layers_do_not_mix() -> None:
    grid = GRIDS["mixed"]
    rng = np.random.default_rng(8)
    rho, psi = _rough(grid, 3, rng), rng.normal(size=(3, *grid.cells))
    together = fokker_planck_step(grid, rho, psi, 0.05, 0.1, 1).rho
    for layer in range(3):
        alone = fokker_planck_step(grid, rho[layer, None], psi[layer, None], 0.05, 0.1, 1).rho
        np.testing.assert_allclose(together[layer], alone[0], rtol=1e-13)


def test_the_limiter_leaves_other_layers_alone() -> None:
    grid = GRIDS["mixed"]
    psi = np.random.default_rng(12).normal(size=(2, *grid.cells))
    rho = np.ones((2, *grid.cells))
    rho[1, 4:] = 0.0
    together = fokker_planck_step(grid, rho, psi, 1.0, 1e-3, 2)
    alone = fokker_planck_step(grid, rho[:1], psi[:1], 1.0, 1e-3, 2)
    assert together.limited > 0
    assert alone.limited == 0
    np.testing.assert_array_equal(together.rho[0], alone.rho[0])


@pytest.mark.parametrize("flow", ["drift", "diffusion", "gibbs"])
@pytest.mark.parametrize("order", [1, 2])
def test_spike_on_a_ring_spreads_evenly(flow: str, order: int) -> None:
    grid = Grid((0.0,), (1.0,), (12,), (True,))
    side = FokkerPlanckHeads(grid, beta=0.1)
    rho = np.zeros((1, 12))
    rho[0, 0] = 12.0
    new = side.flows[flow](rho, np.zeros((1, 12)), 0.05, order).rho[0]
    np.testing.assert_allclose(new[1:], new[:0:-1], rtol=1e-13)
    assert (new[1] > 0.1) == (flow != "drift")


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("shift", [1, 5, 17])
def test_shift_on_a_ring_commutes(shift: int, order: int) -> None:
    grid = GRIDS["ring"]
    rng = np.random.default_rng(9)
    rho, psi = _rough(grid, 1, rng), rng.normal(size=(1, 24))
    moved = fokker_planck_step(grid, np.roll(rho, shift, 1), np.roll(psi, shift, 1), 0.3, 0.01, order).rho
    straight = fokker_planck_step(grid, rho, psi, 0.3, 0.01, order).rho
    assert np.abs(moved - np.roll(straight, shift, 1)).max() <= 1e-13 * straight.max()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["walls", "mixed", "torus"])
def test_reflection_and_axis_swap_commute(name: str, order: int) -> None:
    grid = GRIDS[name]
    rng = np.random.default_rng(10)
    rho, psi = _rough(grid, 1, rng), rng.normal(size=(1, *grid.cells))
    straight = fokker_planck_step(grid, rho, psi, 0.1, 0.01, order).rho
    for axis in (1, 2):
        mirrored = fokker_planck_step(grid, np.flip(rho, axis), np.flip(psi, axis), 0.1, 0.01, order).rho
        assert np.abs(np.flip(mirrored, axis) - straight).max() <= 1e-13 * straight.max()
    turned = Grid(grid.lower[::-1], grid.upper[::-1], grid.cells[::-1], grid.periodic[::-1])
    rho_t, psi_t = rho.swapaxes(1, 2), psi.swapaxes(1, 2)
    swapped = fokker_planck_step(turned, rho_t, psi_t, 0.1, 0.01, order, axes=(1, 0)).rho.swapaxes(1, 2)
    assert np.abs(swapped - straight).max() <= 1e-13 * straight.max()
    # and the order of the sweeps does matter
    other = fokker_planck_step(turned, rho_t, psi_t, 0.1, 0.01, order).rho.swapaxes(1, 2)
    assert np.abs(other - straight).max() > 1e-6 * straight.max()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("beta", [0.0, 1e-3])
def test_strong_drift_into_a_wall_keeps_mass_and_sign(beta: float, order: int) -> None:
    grid = Grid((0.0,), (1.0,), (20,), (False,))
    rho = np.ones((1, 20))
    for _ in range(100):
        rho = fokker_planck_step(grid, rho, -grid.centers(0)[None], beta, 0.01, order).rho
        assert rho.min() >= 0.0
    assert abs(grid.integral(rho)[0] - 1.0) <= 1e-12
    assert rho[0, -1] > 10.0


def test_mass_does_not_drift_over_a_thousand_steps() -> None:
    grid = Grid((-4.0, -4.0), (4.0, 4.0), (48, 48), (False, False))
    side = FokkerPlanckHeads(grid, beta=0.05, weight_decay=0.5)
    square = ((side.points - [0.2, 0.3]) ** 2).sum(axis=1)
    rho = _normalised(grid, np.exp(-square / 0.08).reshape(1, 48, 48))
    psi = side.potential(np.zeros((1, grid.size)))
    for _ in range(1000):
        rho = side.flows["gibbs"](rho, psi, 0.05, 2).rho
    assert abs(math.fsum(rho.ravel()) * grid.cell_volume - 1.0) <= 1e-14


@pytest.mark.parametrize("flow", ["drift", "diffusion", "gibbs"])
@pytest.mark.parametrize("order", [1, 2])
def test_a_step_of_no_length_and_the_inputs_stay(flow: str, order: int) -> None:
    grid = GRIDS["walls"]
    rng = np.random.default_rng(11)
    rho, psi = _rough(grid, 1, rng), rng.normal(size=(1, *grid.cells))
    kept = rho.copy(), psi.copy()
    side = FokkerPlanckHeads(grid, beta=0.05)
    still = side.flows[flow](rho, psi, 0.0, order).rho
    np.testing.assert_array_equal(still, rho)
    assert not np.shares_memory(still, rho)
    side.flows[flow](rho, psi, 0.3, order)
    np.testing.assert_array_equal(rho, kept[0])
    np.testing.assert_array_equal(psi, kept[1])


def test_measure_potential_and_free_energy() -> None:
    grid = Grid((0.0, -1.0), (2.0, 1.0), (10, 10), (False, False))
    side = FokkerPlanckHeads(grid, beta=0.2, weight_decay=0.6, layer_lengths=(0.25, 0.75))
    rho = np.zeros((2, 10, 10))
    rho[0, :5] = 0.5  # uniform on half the box: entropy -log 2, no 0 log 0
    rho[1] = 0.25
    first, second = side.measure(rho)
    assert first.points is second.points
    assert first.points is side.measure(rho)[0].points
    assert first.mass == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(first.mean(), [0.5, 0.0], atol=1e-14)
    np.testing.assert_array_equal(first.widths, [0.0, 0.0])
    # midpoint second moments of a uniform law on m cells of width h: (m² - 1) h²/12 about the mean
    square = [0.25 + 24 * 0.04 / 12 + 99 * 0.04 / 12, 1.0 + 2 * 99 * 0.04 / 12]
    expected = [0.3 * square[k] + 0.2 * math.log(d) for k, d in enumerate((0.5, 0.25))]
    assert side.regularisation(rho) == pytest.approx(0.25 * expected[0] + 0.75 * expected[1], rel=1e-13)
    flat = np.arange(200.0).reshape(2, 100)
    psi = side.potential(flat)
    assert psi.shape == (2, 10, 10)
    np.testing.assert_array_equal(psi, side.potential(flat.reshape(2, 10, 10)))
    assert psi[1, 3, 4] == pytest.approx(134.0 + 0.3 * (0.7**2 + 0.1**2), rel=1e-14)
    report = side.report(rho)
    assert report.minimum == 0.0
    assert report.mass_error.max() <= 1e-14
    np.testing.assert_allclose(report.wall_mass, [18 / 50, 36 / 100])


def test_refusals_name_what_is_wrong() -> None:
    grid = GRIDS["walls"]
    rho, psi = np.full((2, 12, 9), 0.5), np.zeros((2, 12, 9))
    for beta in (-0.1, math.nan, math.inf):
        with pytest.raises(MeanFieldError, match="beta"):
            FokkerPlanckHeads(grid, beta=beta)
    with pytest.raises(MeanFieldError, match="weight_decay"):
        FokkerPlanckHeads(grid, beta=1.0, weight_decay=-1.0)
    with pytest.raises(MeanFieldError, match="layer_lengths"):
        FokkerPlanckHeads(grid, beta=1.0, layer_lengths=(0.5, 0.0))
    side = FokkerPlanckHeads(grid, beta=1.0)
    for bad in (math.nan, math.inf):
        broken = rho.copy()
        broken[1, 4, 7] = bad
        for name, args in {"rho": (broken, psi), "psi": (rho, broken)}.items():
            with pytest.raises(NotFiniteError, match=rf"{name} = .* layer 1, cell \(4, 7\)"):
                side.flows["gibbs"](*args, 0.1, 2)
    broken = rho.copy()
    broken[0, 2, 3] = -1e-30
    with pytest.raises(MeanFieldError, match=r"layer 0, cell \(2, 3\)"):
        side.step(broken, psi, 0.1)
    for ds in (-0.1, math.nan):
        with pytest.raises(MeanFieldError, match="ds"):
            side.step(rho, psi, ds)
    with pytest.raises(MeanFieldError, match="order"):
        side.step(rho, psi, 0.1, 3)
    with pytest.raises(MeanFieldError, match="shape"):
        side.step(rho, psi[:1], 0.1)
    with pytest.raises(MeanFieldError, match="shape"):
        side.step(rho[:, 1:], psi[:, 1:], 0.1)
    with pytest.raises(MeanFieldError, match="axes"):
        fokker_planck_step(grid, rho, psi, 1.0, 0.1, 1, axes=(0, 0))
    with pytest.raises(MeanFieldError, match="first variation"):
        side.potential(np.zeros((2, 5)))
    with pytest.raises(MeanFieldError, match="layer"):
        side.regularisation(rho)
    with pytest.raises(MeanFieldError, match="Gibbs"):
        FokkerPlanckHeads(grid, beta=0.0).gibbs_state(psi)
