"""McKean–Vlasov problems at rest: magnetisation and order parameter, phase transitions, and the way there in time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

from meanfield_pde import critical_beta, library, stability, stationary
from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.given_potential import GivenPotential, given_potential
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.equations.stationary import stationary_state
from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Uniform, VonMises
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Heads, Potential, Problem, Training

CRITICAL = (2 * gamma(0.75) / gamma(0.25)) ** 2
FULL = 3.141592653589793


def mean(problem: Problem, rho: np.ndarray) -> float:
    assert problem.heads is not None
    grid = problem.heads.grid()
    return float(grid.centers(0) @ rho[0] * grid.cell_volume)


def order(problem: Problem, rho: np.ndarray) -> float:
    assert problem.heads is not None
    grid = problem.heads.grid()
    return float(abs((np.exp(1j * grid.centers(0)) * rho[0]).sum() * grid.cell_volume))


@pytest.mark.parametrize(("beta", "digits"), [(0.2, 0.851478857177), (0.3, 0.705495273209), (0.4, 0.447106426663)])
def test_two_wells_at_rest_to_all_digits(beta: float, digits: float) -> None:
    problem, exact = library.get("desai_zwanzig", beta=beta)
    found = stationary(problem)
    assert found.residual <= 1e-10
    assert mean(problem, found.rho) == pytest.approx(digits, abs=1e-10)
    assert stability(problem, found) < 1.0
    # from the other side it comes to rest on the other side
    other, _ = library.get("desai_zwanzig", beta=beta, m0=-0.5)
    assert mean(other, stationary(other).rho) == pytest.approx(-digits, abs=1e-10)
    assert exact is not None
    assert exact.observables(np.inf)["mean_0"] == pytest.approx(digits, abs=1e-10)


def test_the_transition_of_two_wells_is_where_the_formula_says() -> None:
    assert pytest.approx(0.456946581044464, abs=1e-15) == CRITICAL
    errors = [critical_beta(library.get("desai_zwanzig", cells=n)[0], 0.3, 0.6) - CRITICAL for n in (24, 32, 48)]
    # the rectangle rule on a law that decays before the walls: faster than any power of h
    assert [abs(e) <= bound for e, bound in zip(errors, (1e-6, 1e-9, 1e-12), strict=True)] == [True] * 3
    # and the states themselves say so within one per cent: off the middle below, in the middle above
    below, above = (library.get("desai_zwanzig", beta=c * CRITICAL)[0] for c in (0.99, 1.01))
    assert mean(below, stationary(below).rho) > 0.1
    assert abs(mean(above, stationary(above).rho)) <= 1e-8


def test_the_middle_is_at_rest_below_the_transition_but_not_stable() -> None:
    problem, _ = library.get("desai_zwanzig", beta=0.3)
    assert problem.heads is not None
    flat = replace(problem, reference=None, heads=replace(problem.heads, initial=Uniform((-3.5,), (3.5,))))
    found = stationary(flat)
    assert abs(mean(flat, found.rho)) <= 1e-9
    # kappa ⟨x²⟩/beta is the one eigenvalue of an interaction by the mean, here by quadrature

    def density(x: float) -> float:
        return float(np.exp(-(x**4 / 4 - x**2 / 2 + x**2 / 2) / 0.3))

    second = quad(lambda x: x * x * density(x), -4, 4)[0] / quad(density, -4, 4)[0]
    assert stability(flat, found) == pytest.approx(second / 0.3, rel=1e-8)
    assert second / 0.3 > 1.0


def test_oscillators_at_rest_and_their_transition() -> None:
    problem, exact = library.get("noisy_kuramoto")
    assert exact is not None
    assert exact.observables(np.inf)["order_0"] == pytest.approx(0.72415871762635, abs=1e-13)
    found = stationary(problem)
    assert order(problem, found.rho) == pytest.approx(0.72415871762635, abs=1e-12)
    # the broken symmetry leaves a direction in which nothing is restored
    assert stability(problem, found) == pytest.approx(1.0, abs=1e-9)
    # K_c = 2 D: at K = 1 the uniform law gives way at beta = 1/2, on any grid (the cosine is a mode of every ring)
    assert critical_beta(library.get("noisy_kuramoto", cells=12)[0], 0.3, 0.8) == pytest.approx(0.5, abs=1e-10)
    apart, _ = library.get("noisy_kuramoto", K=0.6)
    assert order(apart, stationary(apart).rho) <= 1e-8


@pytest.mark.parametrize(("name", "given"), [("noisy_kuramoto", {}), ("desai_zwanzig", {"beta": 0.3, "s_end": 60.0})])
def test_the_way_in_time_ends_at_the_fixed_point(name: str, given: dict[str, float]) -> None:
    problem, _ = library.get(name, snapshots=2, **given)
    found, moved = stationary(problem), solve(problem)
    grid = moved.head_grid
    assert grid is not None
    assert float(grid.integral(np.abs(moved.rho - found.rho)).max()) <= 1e-9
    assert moved.history["free_energy"][-1] == pytest.approx(found.free_energy, abs=1e-12)


def test_potentials_on_a_ring_and_the_cosine_are_their_integrals() -> None:
    grid = Grid((-FULL, -1.0), (FULL, 1.0), (16, 10), (True, False))
    points = grid.points()
    side = given_potential(
        Potential(((0.2,), (0.0, 0.0, 0.5)), cosine=0.7, harmonics=(((0.3, 0.0), (0.0, 0.1)), ())), grid, points
    )
    rng = np.random.default_rng(3)
    law = Measure.particles(points, rng.dirichlet(np.ones(len(points))))
    theta, x, w = points[:, 0], points[:, 1], law.weights
    V = 0.2 + 0.3 * np.cos(theta) + 0.1 * np.sin(2 * theta) + 0.5 * x**2
    pairs = np.cos(theta[:, None] - theta[None, :])
    found = side.first_variation((law,))
    np.testing.assert_allclose(found.potential[0], V - 0.7 * pairs @ w, rtol=1e-13)
    assert found.loss == pytest.approx(w @ V - 0.35 * w @ pairs @ w, rel=1e-13)


def test_the_gibbs_state_of_harmonics_is_reached_in_time() -> None:
    problem = Problem(
        "fokker-planck",
        heads=Heads(None, (0.0,), (2.0,), (48,), (True,), VonMises(0.3, 2.0)),
        potential=Potential(((0.0,),), harmonics=(((0.4, -0.2), (0.1, 0.3)),)),
        training=Training(beta=0.25, ds=0.5, s_end=60.0),
    )
    angle = np.pi * problem.heads.grid().centers(0)
    V = 0.4 * np.cos(angle) - 0.2 * np.sin(angle) + 0.1 * np.cos(2 * angle) + 0.3 * np.sin(2 * angle)
    gibbs = np.exp(-V / 0.25)
    np.testing.assert_allclose(solve(problem).rho[0], gibbs / (gibbs.sum() * 2.0 / 48), atol=1e-9)


@dataclass(slots=True)
class Restless:
    """A potential that pulls to one side and to the other by turns."""

    values: FloatArray
    sign: float = 1.0

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        self.sign = -self.sign
        return FirstVariation(0.0, self.sign * self.values[None], TokenReport())

    def loss(self, rho: tuple[Measure, ...]) -> float:
        return 0.0


def test_what_does_not_come_to_rest_is_said() -> None:
    grid = Grid((-4.0,), (4.0,), (64,), (False,))
    heads = FokkerPlanckHeads(grid, 0.3)
    rho = np.full((1, 64), 1.0 / 8.0)
    well = GivenPotential(grid.centers(0) ** 2, 1.0)
    with pytest.raises(MeanFieldError, match="needs training"):
        stationary_state(well, FokkerPlanckHeads(grid, 0.0), rho)
    with pytest.raises(NotConvergedError, match="‖rho − Gibbs‖_1"):
        stationary_state(Restless(grid.centers(0)), heads, rho, most_iterations=5)
    with pytest.raises(MeanFieldError, match="passes 1 nowhere"):
        critical_beta(library.get("desai_zwanzig")[0], 0.5, 0.6)
    with pytest.raises(MeanFieldError, match="0 < lower < upper"):
        critical_beta(library.get("desai_zwanzig")[0], 0.6, 0.5)
    with pytest.raises(MeanFieldError, match="heads that do not move"):
        stationary(library.get("softmax_gaussian")[0])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cosine": 1.0}, "acts along rings"),
        ({"harmonics": (((1.0, 0.0),),)}, "is for a ring"),
        ({"harmonics": ((), ())}, "has 2 lists, but heads has 1 axes"),
    ],
)
def test_what_lives_on_rings_is_refused_between_walls(changes: dict[str, object], says: str) -> None:
    problem, _ = library.get("desai_zwanzig")
    assert problem.potential is not None
    with pytest.raises(MeanFieldError, match=says):
        replace(problem, potential=replace(problem.potential, **changes))


def test_a_ring_of_another_length_is_refused() -> None:
    problem, _ = library.get("noisy_kuramoto")
    assert problem.heads is not None
    with pytest.raises(MeanFieldError, match="2 pi"):
        replace(problem, heads=replace(problem.heads, upper=(3.0,)))
