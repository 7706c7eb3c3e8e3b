"""Step control in s: the slope of the free energy in closed form, the PI controller, errors that follow tolerances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.equations.dissipation import dissipation
from meanfield_pde.equations.given_potential import GivenPotential
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.grid import Grid
from meanfield_pde.splitting import HEADS
from meanfield_pde.training.scheduler import Training
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stepsize import ErrorControl, Fixed

GRID = Grid((-5.0,), (5.0,), (200,), (False,))
X = GRID.centers(0)
K, BETA, MEAN, VARIANCE = 1.3, 0.4, 0.6, 0.5
PSI = 0.5 * K * X**2


def gaussian(mean: float = MEAN, variance: float = VARIANCE) -> np.ndarray:
    rho = np.exp(-((X - mean) ** 2) / (2.0 * variance))[None]
    return rho / GRID.integral(rho)[:, None]


def run(control: Fixed | ErrorControl, end: float, psi: np.ndarray = PSI) -> list[Moment]:
    training = Training(GivenPotential(psi, 0.0), FokkerPlanckHeads(GRID, BETA), HEADS["gibbs"], 2, control)
    return list(training.run(TrainingState(0.0, 0, control.ds, gaussian()), end))


# ---- the slope ---------------------------------------------------------------------------------------------------


def test_the_slope_of_a_gaussian_in_a_parabola() -> None:
    # ∇psi + beta ∇log rho = K x − beta (x − m)/v, squared and averaged over N(m, v)
    exact = (K * MEAN) ** 2 + (K - BETA / VARIANCE) ** 2 * VARIANCE
    errors = []
    for n in (100, 200, 400):
        grid = Grid((-5.0,), (5.0,), (n,), (False,))
        x = grid.centers(0)
        rho = np.exp(-((x - MEAN) ** 2) / (2.0 * VARIANCE))[None]
        rho /= grid.integral(rho)[:, None]
        errors.append(abs(dissipation(grid, rho, (0.5 * K * x**2)[None], BETA)[0] - exact))
    assert errors[-1] < 2e-4
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)


def test_layers_are_weighed_by_their_lengths_and_axes_add_up() -> None:
    heads = FokkerPlanckHeads(GRID, BETA, layer_lengths=(0.25, 0.75))
    rho = np.concatenate([gaussian(), gaussian(-0.2, 0.3)])
    psi = np.stack([PSI, PSI])
    one, two = dissipation(GRID, rho, psi, BETA)
    assert heads.slope(rho, psi) == pytest.approx(np.sqrt(0.25 * one + 0.75 * two), rel=1e-14)
    plane = Grid((-5.0, -5.0), (5.0, 5.0), (200, 200), (False, False))
    both = rho[0][:, None] * rho[1][None, :]
    found = dissipation(plane, both[None], (PSI[:, None] + PSI[None, :])[None], BETA)[0]
    assert found == pytest.approx(one + two, rel=1e-12)


def test_no_slope_at_the_gibbs_state_and_a_finite_one_at_the_edge_of_a_law() -> None:
    heads = FokkerPlanckHeads(GRID, BETA)
    assert heads.slope(heads.gibbs_state(PSI[None]), PSI[None]) < 1e-13
    # underflow in the tails is no slope
    steep = 400.0 * PSI[None]
    assert heads.slope(heads.gibbs_state(steep), steep) < 1e-11
    half = np.where(X > 0.0, 0.2, 0.0)[None]
    assert np.isfinite(heads.slope(half, PSI[None]))
    assert heads.slope(half, PSI[None]) > 1.0
    # beta = 0: the slope of psi alone
    assert dissipation(GRID, gaussian(), PSI[None], 0.0)[0] == pytest.approx(K**2 * (MEAN**2 + VARIANCE), rel=1e-3)
    # a ring has a face across its seam
    ring = Grid((0.0,), (1.0,), (4,), (True,))
    psi = np.array([[0.0, 0.0, 0.0, 1.0]])
    assert dissipation(ring, np.ones((1, 4)), psi, 0.0)[0] == pytest.approx(2 * 16 * 0.25)


def test_the_free_energy_falls_at_the_rate_of_the_squared_slope() -> None:
    ds = 1e-3
    moments = run(Fixed(ds), 0.2)
    energies, slopes = (np.array([getattr(m, name) for m in moments]) for name in ("free_energy", "slope"))
    np.testing.assert_allclose(np.diff(energies), -0.5 * ds * (slopes[1:] ** 2 + slopes[:-1] ** 2), rtol=2e-3)


# ---- the controller ----------------------------------------------------------------------------------------------


def test_the_next_step_answers_to_this_error_and_to_the_one_before() -> None:
    control = ErrorControl(0.1, 1e-3)
    # Gustafsson's law for an error of order 2, from the formula
    wish = 0.9 * (1e-3 / 5e-4) ** 0.35 * (8e-4 / 1e-3) ** 0.2
    assert control.next_step(0.1, 5e-4, True, 8e-4) == pytest.approx(0.1 * wish, rel=1e-14)
    # an error that grows asks for more caution than one that falls
    assert control.next_step(0.1, 5e-4, True, 2e-4) < control.next_step(0.1, 5e-4, True, 8e-4)
    # before the first step there is none, and a rejected trial speaks for itself
    root = 0.1 * 0.9 * np.sqrt(2.0)
    assert control.next_step(0.1, 5e-4, True, np.nan) == pytest.approx(root, rel=1e-14)
    assert control.next_step(0.1, 4e-3, False, 8e-4) == pytest.approx(0.045, rel=1e-14)
    for before in (0.0, 1e300, np.nan):
        assert 0.02 <= control.next_step(0.1, 1e-9, True, before) <= 0.2


def test_without_falling_a_rise_is_no_reason_to_cut() -> None:
    assert ErrorControl(0.1, 1e-3, falling=False).accepts(1e-4, 1.0, 0.0)
    assert not ErrorControl(0.1, 1e-3, falling=True).accepts(1e-4, 1.0, 0.0)
    for error, rise in ((np.nan, 0.0), (1e-4, np.nan), (np.inf, 0.0), (1e-4, np.inf)):
        assert not ErrorControl(0.1, 1e-3, falling=False).accepts(error, rise, 0.0)


def test_the_error_falls_with_the_tolerance() -> None:
    # Ornstein–Uhlenbeck: the mean decays like e^{−K s}; fine steps stand for the limit ds → 0 of the same grid
    reference = run(Fixed(1e-3), 2.0)[-1].state.rho
    errors, steps = [], []
    for tolerance in (1e-2, 1e-3, 1e-4):
        last = run(ErrorControl(0.05, tolerance, falling=False), 2.0)[-1].state
        errors.append(float(GRID.integral(np.abs(last.rho - reference)).max()))
        steps.append(last.step)
        assert last.step_error <= tolerance
    assert steps[0] < steps[1] < steps[2]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    # the grid itself errs by O(h²), h² = 2.5e-3
    assert abs(GRID.integral(reference[0] * X) - MEAN * np.exp(-2.0 * K)) < 3e-4


def test_a_step_before_counts_after_going_on_from_its_state() -> None:
    control = ErrorControl(0.05, 1e-3, falling=False)
    whole = [m.state for m in run(control, 2.0) if not m.side]
    training = Training(GivenPotential(PSI, 0.0), FokkerPlanckHeads(GRID, BETA), HEADS["gibbs"], 2, control)
    rest = [m.state for m in training.run(whole[3], 2.0) if not m.side]
    assert [s.ds for s in rest] == [s.ds for s in whole[3:]]
    # and forgetting the error of that step would change the next one
    forgetful = [m.state for m in training.run(replace(whole[3], step_error=np.nan), 2.0) if not m.side]
    assert forgetful[1].ds != whole[4].ds
