"""The loop in training time: splittings, orders, requested times, control by energy, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import exprel

from meanfield_pde.equations.given_potential import GivenPotential
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation
from meanfield_pde.splitting import Splitting, head_splitting
from meanfield_pde.training.scheduler import Training
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stepsize import ErrorControl, Fixed

GRID = Grid((-2.0,), (2.0,), (24,), (False,))
X = GRID.centers(0)
BETA, KAPPA = 0.4, 0.6
TABLES = {
    "halves outside": (("diffusion", 0.5), ("drift", 1.0), ("diffusion", 0.5)),
    "not symmetric": (("drift", 0.25), ("diffusion", 2 / 3), ("drift", 0.75), ("diffusion", 1 / 3)),
    "of order one": (("diffusion", 0.3), ("drift", 1.0), ("diffusion", 0.7)),
    "gibbs in parts": (("gibbs", 0.3), ("gibbs", 0.7)),
}
WELL = X**4 / 4 - X**2 / 2 + 0.3 * X


def start(grid: Grid = GRID) -> np.ndarray:
    rho = np.exp(-((grid.centers(0) - 0.4) ** 2) / 0.5)[None]
    return rho / grid.integral(rho)[:, None]


def state(ds: float, s: float = 0.0, step: int = 0) -> TrainingState:
    return TrainingState(s, step, ds, start())


def training(name: str = "gibbs", order: int = 2, control: Any = None, tokens: Any = None) -> Training:
    heads = FokkerPlanckHeads(GRID, BETA)
    side = GivenPotential(WELL, KAPPA) if tokens is None else tokens
    table = head_splitting(TABLES.get(name, name))
    return Training(side, heads, table, order, Fixed(0.1) if control is None else control)


def last(moments: list[Moment]) -> np.ndarray:
    return moments[-1].state.rho[0]


@dataclass
class Faulty:
    """A token side whose potential is spoilt at some calls."""

    spoil: Callable[[int, np.ndarray], np.ndarray]
    calls: int = 0

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        self.calls += 1
        found = GivenPotential(WELL, KAPPA).first_variation(rho)
        return replace(found, potential=self.spoil(self.calls, found.potential))

    def loss(self, rho: tuple[Measure, ...]) -> float:
        return GivenPotential(WELL, KAPPA).loss(rho)


# ---- splittings --------------------------------------------------------------------------------------------------


def test_splittings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MeanFieldError, match=r"order = 2 needs .* take splitting = 'strang' or 'gibbs'"):
        training("lie", 2)
    with pytest.raises(MeanFieldError, match="flow 'user' that is not there"):
        Training(GivenPotential(WELL, 0.0), FokkerPlanckHeads(GRID, BETA), Splitting((("user", 1.0),)), 1, Fixed(0.1))


# ---- orders ------------------------------------------------------------------------------------------------------


def semidiscrete(name: str, end: float) -> np.ndarray:
    """The limit ds → 0: the flux formulas written anew and integrated by an outside solver."""
    h = GRID.spacing[0]

    def rate(_: float, rho: np.ndarray) -> np.ndarray:
        mass, mean = h * rho.sum(), h * rho @ X
        psi = WELL + 0.5 * KAPPA * (mass * X**2 - 2.0 * mean * X + h * rho @ X**2)
        step = np.diff(psi)
        if name.startswith("gibbs"):
            z = step / BETA
            flux = BETA / h * (rho[:-1] / exprel(z) - rho[1:] / exprel(-z))
        else:
            flux = (rho[:-1] * np.maximum(-step, 0.0) - rho[1:] * np.maximum(step, 0.0)) / h
            flux -= BETA / h * np.diff(rho)
        return np.asarray(-np.diff(flux, prepend=0.0, append=0.0) / h)

    solution = solve_ivp(rate, (0.0, end), start()[0], method="Radau", rtol=1e-10, atol=1e-12)
    return np.asarray(solution.y[:, -1])


@pytest.mark.parametrize(
    ("name", "order"),
    [*((name, 1) for name in ("lie", "strang", "gibbs", "of order one")), *((name, 2) for name in ("strang", "gibbs")),
     *((name, 2) for name in ("halves outside", "not symmetric", "gibbs in parts"))],
)  # fmt: skip
def test_order_in_ds(name: str, order: int) -> None:
    exact = semidiscrete(name, 0.4)
    sizes, errors = [0.02, 0.01, 0.005], []
    for ds in sizes:
        moments = list(training(name, order, Fixed(ds)).run(state(ds), 0.4))
        assert moments[-1].state.step == round(0.4 / ds)
        assert moments[-1].state.s == 0.4
        errors.append(np.abs(last(moments) - exact).sum() * GRID.spacing[0])
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope >= order - 0.15
    assert slope <= order + 0.4


@pytest.mark.parametrize("n", [24, 25])
@pytest.mark.parametrize("name", ["lie", "strang", "gibbs", *TABLES])
def test_a_spike_at_the_seam_of_a_ring_spreads_to_both_sides_alike(name: str, n: int) -> None:
    ring = Grid((0.0,), (1.0,), (n,), (True,))
    rho = np.zeros((1, n))
    rho[0, 0] = n
    heads = FokkerPlanckHeads(ring, 1e-2)
    order = 1 if head_splitting(TABLES.get(name, name)).order == 1 else 2
    run = Training(GivenPotential(np.zeros(n), 0.0), heads, head_splitting(TABLES.get(name, name)), order, Fixed(0.05))
    after = last(list(run.run(TrainingState(0.0, 0, 0.05, rho), 0.2)))
    np.testing.assert_allclose(after[1:], after[:0:-1], rtol=0, atol=1e-14 * n)
    assert after[1] > 0.1
    assert after.sum() == pytest.approx(n, rel=1e-14)


# ---- requested times ---------------------------------------------------------------------------------------------


def grid_times(spacing: float) -> tuple[float, ...]:
    return tuple(k * spacing for k in range(round(1.0 / spacing) + 1) if k * spacing <= 1.0)


@pytest.mark.parametrize("spacing", [0.1, 0.3, 1 / 3])
@pytest.mark.parametrize("ds", [0.1, 1 / 6, 1 / 3, 7e-3])
def test_requested_times_are_met_bit_for_bit(ds: float, spacing: float) -> None:
    asked = grid_times(spacing)
    plain = list(training("gibbs", 1, Fixed(ds)).run(state(ds), 1.0))
    moments = list(training("gibbs", 1, Fixed(ds)).run(state(ds), 1.0, asked))
    found = [m.state.s for m in moments]
    assert found == sorted(set(found))
    assert set(asked) <= set(found)
    assert found[0] == 0.0
    assert found[-1] == 1.0
    # nothing but steps and what was asked for
    assert {m.state.s for m in moments if m.side} <= {*asked, 1.0}
    steps = [m for m in moments if not m.side]
    assert [m.state.step for m in steps] == list(range(len(steps)))
    assert all(abs(m.state.s - m.state.step * ds) <= 1e-9 * ds for m in steps)
    # and the states are those of a run without outputs
    for a, b in zip((m for m in plain if not m.side), steps, strict=True):
        np.testing.assert_array_equal(a.state.rho, b.state.rho)


@pytest.mark.parametrize("control", [Fixed(0.1), ErrorControl(0.05, 1e-3)])
def test_asking_for_more_changes_no_state_and_no_other_output(control: Any) -> None:
    runs = [
        list(training("gibbs", 2, control).run(state(control.ds), 1.0, times))
        for times in ((), (0.35,), (0.3, 0.35, 0.35000000001, 0.9999), (0.1, 0.2, 0.3, 0.35, 0.4))
    ]
    for moments in runs[1:]:
        plain, steps = ([m.state for m in r if not m.side] for r in (runs[0], moments))
        assert [(m.step, m.ds, m.rejected, m.energy_rise) for m in plain] == [
            (m.step, m.ds, m.rejected, m.energy_rise) for m in steps
        ]
        for a, b in zip(plain, steps, strict=True):
            np.testing.assert_array_equal(a.rho, b.rho)
    # what is asked for at .35 does not depend on what else is asked for
    outputs = [next(m.state.rho for m in moments if m.state.s == 0.35) for moments in runs[1:]]
    for rho in outputs[1:]:
        np.testing.assert_array_equal(rho, outputs[0])


def test_times_outside_are_left_out_and_no_time_gives_the_state_back() -> None:
    moments = list(training().run(state(0.1), 0.3, (-1.0, 0.0, 0.15, 0.7)))
    assert [m.state.s for m in moments] == pytest.approx([0.0, 0.1, 0.15, 0.2, 0.3], abs=1e-15)
    for end in (0.0, -1.0):
        (only,) = training().run(state(0.1), end)
        np.testing.assert_array_equal(only.state.rho, start())
        assert not only.side
        assert only.state.s == 0.0
    later = TrainingState(0.3, 3, 0.1, start())
    (only,) = training().run(later, 0.3)
    assert only.state == later


def test_times_a_hair_apart_are_all_there() -> None:
    asked = (0.2, 0.3 - 2e-11, 0.3 - 1e-11, 0.3, 3 * 0.1)
    moments = list(training().run(state(0.1), 0.5, asked))
    assert set(asked) <= {m.state.s for m in moments}
    near = [m.state.rho for m in moments if abs(m.state.s - 0.3) < 1e-9]
    assert len(near) == 4
    for rho in near:
        np.testing.assert_allclose(rho, near[0], rtol=1e-9)


def test_one_huge_step_and_one_tiny_end() -> None:
    moments = list(training("gibbs", 2, Fixed(50.0)).run(state(50.0), 1e-3))
    assert [m.state.s for m in moments] == [0.0, 1e-3]
    assert moments[-1].side
    exact = semidiscrete("gibbs", 1e-3)
    assert np.abs(last(moments) - exact).max() <= 1e-5


def test_a_run_goes_on_from_any_of_its_states() -> None:
    for control in (Fixed(0.07), ErrorControl(0.05, 1e-3)):
        whole = [m for m in training("gibbs", 2, control).run(state(control.ds), 1.0) if not m.side]
        for k in (1, 4):
            rest = [m for m in training("gibbs", 2, control).run(whole[k].state, 1.0) if not m.side]
            for a, b in zip(whole[k:], rest, strict=True):
                np.testing.assert_array_equal(a.state.rho, b.state.rho)
                assert (a.state.s, a.state.step, a.state.ds, a.free_energy) == (
                    b.state.s,
                    b.state.step,
                    b.state.ds,
                    b.free_energy,
                )


# ---- control by energy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "order"), [("gibbs", 2), ("gibbs", 1), ("strang", 2), ("lie", 1)])
def test_energy_never_rises_beyond_its_estimate(name: str, order: int) -> None:
    control = ErrorControl(0.5, 1e-3)
    moments = list(training(name, order, control).run(state(0.5), 2.0))
    energies = np.array([m.free_energy for m in moments if not m.side])
    # to first order in an error of 1e-3 the energy is off by at most that times the largest slope, of order 1
    assert (np.diff(energies) <= 1e-2).all()
    assert moments[-1].state.energy_rise == pytest.approx(max(0.0, np.diff(energies).max()), abs=1e-15)
    if name == "gibbs":
        assert np.diff(energies).max() <= 1e-10
    assert np.abs(last(moments) - semidiscrete("gibbs" if name == "gibbs" else name, 2.0)).sum() < 0.3


def test_steps_grow_towards_the_stationary_state_and_the_tolerance_counts() -> None:
    counts = []
    for tolerance in (1e-2, 1e-3, 1e-4):
        moments = [m for m in training("gibbs", 2, ErrorControl(0.01, tolerance)).run(state(0.01), 5.0) if not m.side]
        counts.append(len(moments))
        ds = np.diff([m.state.s for m in moments])
        assert ds[-1] > 2.0 * ds[0]
        assert ds.sum() <= 5.0
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_control_rests_at_the_stationary_state(offset: float) -> None:
    # no energy is left to fall: rounding of F must not be taken for a rise
    tokens = GivenPotential(WELL + offset, KAPPA)
    moments = list(training("gibbs", 2, ErrorControl(0.1, 1e-4), tokens).run(state(0.1), 300.0))
    assert moments[-1].state.s == 300.0
    assert moments[-1].state.rejected <= 10
    mean = GRID.integral(moments[-1].state.rho[0] * X)
    psi = WELL + KAPPA * (0.5 * X**2 - mean * X)
    gibbs = np.exp(-(psi - psi.min()) / BETA)
    np.testing.assert_allclose(last(moments), gibbs / (gibbs.sum() * GRID.spacing[0]), rtol=1e-8)


def test_a_trial_that_is_not_finite_is_cut_once_and_the_run_goes_on() -> None:
    for bad in (np.nan, np.inf):
        tokens = Faulty(lambda call, psi, bad=bad: np.where(np.arange(24) == 7, bad, psi) if call == 4 else psi)
        moments = list(training("gibbs", 2, ErrorControl(0.02, 1e-2), tokens).run(state(0.02), 0.2))
        assert moments[-1].state.rejected == 1
        assert moments[-1].state.s == 0.2
        assert all(np.isfinite(m.state.rho).all() for m in moments)
        assert np.abs(last(moments) - semidiscrete("gibbs", 0.2)).sum() * GRID.spacing[0] < 2e-2


def test_what_stays_not_finite_ends_with_field_cell_step_and_time() -> None:
    tokens = Faulty(lambda call, psi: np.where(np.arange(24) == 7, np.nan, psi) if call > 6 else psi)
    with pytest.raises(MeanFieldError, match="step control fell") as caught:
        list(training("gibbs", 2, ErrorControl(0.02, 1e-2), tokens).run(state(0.02), 0.2))
    words = str(caught.value)
    assert all(word in words for word in ("psi", "cell (7,)", "s = ", "step "))
    fixed = Faulty(lambda call, psi: np.where(np.arange(24) == 7, np.nan, psi) if call > 6 else psi)
    with pytest.raises(NotFiniteError, match=r"psi.*cell \(7,\)"):
        list(training("gibbs", 2, Fixed(0.02), fixed).run(state(0.02), 0.2))


def test_an_energy_that_always_rises_ends_at_the_smallest_step() -> None:
    # the potential with the wrong sign: every step raises the energy
    tokens = Faulty(lambda call, psi: -5.0 * psi)
    control = ErrorControl(0.02, 1e-2, smallest=1e-6)
    with pytest.raises(MeanFieldError, match=r"fell to ds = .*smallest 1e-06"):
        list(training("gibbs", 2, control, tokens).run(state(0.02), 0.2))


def test_control_says_no_to_what_cannot_be_compared() -> None:
    control = ErrorControl(0.1, 1e-3)
    assert control.accepts(1e-4, -1.0, 0.0)
    for error, rise, estimate in ((np.nan, -1.0, 1.0), (1e-4, np.nan, 1.0), (1e-4, -1.0, np.nan), (1e-4, -np.inf, 1.0)):
        assert not control.accepts(error, rise, estimate)
    assert not control.accepts(2e-3, -1.0, 1.0)
    assert not control.accepts(1e-4, 2e-9, 1e-9)
    assert control.next_step(0.1, np.nan, False) == pytest.approx(0.02)
    assert control.next_step(0.1, 1e-5, False) <= 0.05
    assert control.next_step(0.1, 0.0, True) == pytest.approx(0.2)
    assert control.next_step(0.1, 4e-3, False) == pytest.approx(0.045)


def test_a_bad_initial_state_is_an_error_with_a_place() -> None:
    bad = start()
    bad[0, 5] = np.nan
    with pytest.raises(NotFiniteError, match=r"rho.*\(0, 5\)"):
        list(training().run(TrainingState(0.0, 0, 0.1, bad), 0.3))
