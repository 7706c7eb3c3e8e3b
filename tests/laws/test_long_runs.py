"""What only many steps show: the Gibbs state after 1e5 of them, shifts along rings, particles on the seam."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.equations.schemes import SCHEMES
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Atoms, Density, Gaussian, Samples, VonMises, cell_averages
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Depth, Drift, Problem, Sequence, Tokens


@pytest.mark.parametrize(
    ("potential", "steps"),
    [(lambda x: np.abs(x) ** 3, 100_000), (lambda x: x**4 / 4 - x**2 / 2, 20_000)],
    ids=["kink", "wells"],
)
def test_the_gibbs_state_stays_for_a_hundred_thousand_steps(potential, steps: int) -> None:
    grid = Grid((-2.5,), (2.5,), (32,), (False,))
    side = FokkerPlanckHeads(grid, beta=0.1)
    psi = potential(grid.centers(0))[None]
    gibbs = side.gibbs_state(psi)
    # exp(-psi/beta), and not what the code itself calls at rest
    exact = np.exp(-(psi - psi.min()) / 0.1)
    exact /= exact.sum() * grid.spacing[0]
    np.testing.assert_allclose(gibbs, exact, rtol=1e-12)
    rho, flow = exact, side.flows["gibbs"]
    for _ in range(steps):
        rho = flow(rho, psi, 0.03, 1).rho
    assert np.abs(rho - exact).max() <= 1e-11
    assert abs(rho.sum() * grid.spacing[0] - 1.0) <= 1e-13


# ---- rings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splitting", ["strang", "lie"])
@pytest.mark.parametrize("positivity", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_shift_by_whole_cells_commutes_with_drift_and_noise(scheme: str, positivity: bool, splitting: str) -> None:
    n, length = 24, 2.0
    depth = Depth(T=0.3, scheme=scheme, positivity=positivity, splitting=splitting)
    tokens = Tokens((0.0,), (length,), (n,), (True,), Drift(constant=(0.7,)), noise=0.02)

    def law(shift: int) -> np.ndarray:
        at = 0.03 + shift * length / n
        initial = Density(lambda x: 1.3 + np.cos(np.pi * (x[:, 0] - at)) ** 5)
        return solve(Problem(kind="tokens", tokens=tokens, depth=depth, sequences=(Sequence(initial),))).mu

    straight = law(0)
    for shift in (1, 13, 23):
        np.testing.assert_allclose(law(shift), np.roll(straight, shift, -1), rtol=0, atol=1e-13 * straight.max())


@pytest.mark.parametrize("length", [1.0, 0.3, 2 * np.pi])
@pytest.mark.parametrize("bandwidth", [None, 0.07])
def test_samples_on_the_seam_of_a_ring_are_counted_once(length: float, bandwidth: float | None, tmp_path: Path) -> None:
    grid = Grid((0.0,), (length,), (10,), (True,))
    inside = (0.0, 0.0, 0.0, 0.0, 0.3 * length)
    there = (-1e-17, 0.0, length, np.nextafter(length, 0), 5.3 * length)
    width = None if bandwidth is None else bandwidth * length
    found = []
    for name, points in (("in.npy", inside), ("on.npy", there)):
        np.save(tmp_path / name, np.array(points)[:, None])
        density, outside = cell_averages(Samples(name, width), grid, tmp_path)
        assert abs(density.sum() * grid.cell_volume - 1.0) <= 1e-14
        assert outside <= 1e-15
        assert density.min() >= 0.0
        found.append(density * grid.cell_volume)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-12)
    if bandwidth is None:
        atoms, _ = cell_averages(Atoms(tuple((x,) for x in there)), grid)
        np.testing.assert_allclose(atoms * grid.cell_volume, found[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "make", [lambda x: Gaussian((x,), ((0.2,),)), lambda x: VonMises((x,), (1.3,))], ids=["wrapped", "mises"]
)
def test_a_law_is_the_same_wherever_around_the_ring_its_centre_is_written(make) -> None:
    length = 2 * np.pi
    grid = Grid((-np.pi,), (np.pi,), (17,), (True,))
    straight, _ = cell_averages(make(0.4), grid)
    for turns in (-1, 1, 3):
        density, outside = cell_averages(make(0.4 + turns * length), grid)
        np.testing.assert_allclose(density, straight, rtol=0, atol=1e-13)
        assert outside <= 1e-13
