"""Problems of heads alone, from the named problem to the solution: Ornstein-Uhlenbeck, the slab, Gibbs states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.laws import Density, Gaussian
from meanfield_pde.measure import Measure
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Heads, Output, Potential, Problem, Training
from meanfield_pde.training.state import TrainingState

# the walls are part of the slab
pytestmark = pytest.mark.filterwarnings("ignore:rho touches the wall")


def mean_and_variance(solution: Solution) -> tuple[float, float]:
    grid = solution.head_grid
    assert grid is not None
    law = Measure(grid.points(), solution.rho[0] * grid.cell_volume, np.zeros(1))
    return float(law.mean()[0]), float(law.covariance()[0, 0])


def l1(solution: Solution, exact: library.Exact, s: float) -> float:
    grid = solution.head_grid
    assert grid is not None
    assert exact.rho is not None
    return float(grid.integral(np.abs(solution.rho - exact.rho(s, grid))).max())


def test_ornstein_uhlenbeck_to_second_order() -> None:
    """Mean m0 e^{-αs}, variance D/(α+κ) + (s0 - D/(α+κ)) e^{-2(α+κ)s}, D = .1, α = 1, κ = .7, from N(.5, .05)."""
    mean, rest = 0.5 * np.exp(-1.0), 0.1 / 1.7
    variance = rest + (0.05 - rest) * np.exp(-2 * 1.7)
    found = []
    for refinement in (1, 2):
        problem, exact = library.get("ornstein_uhlenbeck", cells=100 * refinement, ds=0.02 / refinement, snapshots=2)
        assert exact is not None
        solution = solve(problem)
        got = mean_and_variance(solution)
        loss = 0.5 * (mean**2 + variance) + 0.35 * variance
        found.append(
            [
                abs(got[0] - mean),
                abs(got[1] - variance),
                abs(solution.history["loss"][-1] - loss),
                l1(solution, exact, 1.0),
            ]
        )
    assert max(found[1][:3]) <= 3e-4
    assert found[1][3] <= 1e-3
    assert (np.array(found[0]) / found[1] >= 3.5).all()


def test_slab_from_the_uniform_law_to_second_order() -> None:
    found = []
    for n in (40, 80, 160):
        problem, exact = library.get("slab", cells=n, ds=0.16 / n, snapshots=2)
        assert exact is not None
        solution = solve(problem)
        found.append(l1(solution, exact, 0.1))
    assert found[-1] <= 5e-6
    assert np.polyfit(np.log([40, 80, 160]), np.log(found), 1)[0] <= -1.85


def test_slab_to_its_published_digits() -> None:
    """g = 1, s = .1, backward Euler with ds = h², from cell averages: L1 of the density of mass 2π sinh(1/2)."""
    mass = 2 * np.pi * np.sinh(0.5)
    for n, digits in ((20, 1.397e-2), (40, 3.520e-3), (80, 8.818e-4), (160, 2.206e-4)):
        problem, exact = library.get(
            "slab", initial=Density(library.SlabMode(1.0)), cells=n, ds=1.0 / n**2, order=1, snapshots=2
        )
        assert exact is not None
        assert exact.rho is not None
        assert problem.heads is not None
        start = TrainingState(0.0, 0, 1.0 / n**2, exact.rho(0.0, problem.heads.grid()))
        assert mass * l1(solve(problem, start=start), exact, 0.1) == pytest.approx(digits, rel=4e-4)


def test_double_well_rests_off_the_middle_exactly() -> None:
    problem, exact = library.get("double_well", snapshots=2)
    assert exact is not None
    solution = solve(problem)
    mean, _ = mean_and_variance(solution)
    assert mean == pytest.approx(0.705495273209, abs=1e-9)
    # the law at rest is kept on any grid: a coarse one is as good
    coarse = solve(library.get("double_well", cells=32, snapshots=2)[0])
    assert mean_and_variance(coarse)[0] == pytest.approx(0.705495273209, abs=1e-9)
    assert l1(solution, exact, 60.0) <= 1e-9
    assert solution.certificates["energy_rise"] <= 1e-13


def test_gibbs_state_of_an_uneven_potential_is_reached() -> None:
    problem, _ = library.get("double_well", interaction=0.0, s_end=200.0, ds=1.0, snapshots=2)
    row = (0.0, 0.1, -0.5, 0.05, 0.25)
    assert problem.potential is not None
    solution = solve(replace(problem, reference=None, potential=replace(problem.potential, coefficients=(row,))))
    grid = solution.head_grid
    assert grid is not None
    gibbs = np.exp(-np.polynomial.polynomial.polyval(grid.centers(0), row) / 0.3)
    np.testing.assert_allclose(solution.rho[0], gibbs / (gibbs.sum() * grid.cell_volume), atol=1e-12)


def test_four_axes_of_heads_at_once() -> None:
    """Independent axes in V = α_k x²/2: variance D/α + (s0 - D/α) e^{-2αs} and mean m0 e^{-αs} on each, D = .2."""
    alpha, m0, s0, end = np.array([1.0, 0.7, 0.4, 1.2]), np.array([0.3, -0.2, 0.0, 0.1]), 0.25, 0.3
    wells = Potential(tuple((0.0, 0.0, 0.5 * float(a)) for a in alpha))
    law = Gaussian(tuple(m0.tolist()), tuple(tuple(row) for row in s0 * np.eye(4)))
    rest = 0.2 / alpha
    mean, covariance = m0 * np.exp(-alpha * end), np.diag(rest + (s0 - rest) * np.exp(-2 * alpha * end))
    errors = []
    for n in (12, 24):
        box = Heads(None, (-3.0,) * 4, (3.0,) * 4, (n, n, n - 2, n), initial=law)
        steps = Training(beta=0.2, ds=0.6 / n, s_end=end)
        ends = Output(snapshots=2)
        solution = solve(Problem("fokker-planck", heads=box, potential=wells, training=steps, output=ends))
        grid = solution.head_grid
        assert grid is not None
        assert solution.rho.shape == (1, n, n, n - 2, n)
        found = Measure(grid.points(), solution.rho[0].ravel() * grid.cell_volume, np.zeros(4))
        assert abs(found.mass - 1.0) <= 1e-13
        errors.append((np.abs(found.mean() - mean).max(), np.abs(found.covariance() - covariance).max()))
    assert (np.array(errors[0]) / errors[1] >= 3.3).all()
    assert max(errors[1]) <= 4e-3
