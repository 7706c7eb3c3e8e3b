"""The reported costate against an independent solution of (B): Lagrangian, spectral in x, closed forms for the rest.

For Gaussian tokens N(m, s) the flow is linear, Z(z) = exp(z m + z² s / 2) and m(z) = m + s z are known, so (B) along
characteristics x = X(t, ξ) reads  -dP/dt = Σ_k rho_k w_k ∫ mu(dy) p'(y) (x - m(a_k y)) e^{a_k y x} / Z(a_k y).
P is kept on Chebyshev nodes in ξ, p' = P_ξ / X_ξ by spectral differentiation, the integral by Gauss–Legendre.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import chebyshev, legendre
from scipy.integrate import solve_ivp

from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, cell_averages
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.objective import Potential, deconvolved_polynomial

M0, S0, T, B = 0.5, 0.4, 1.0, 1.0
RHO = np.array([0.5, 0.3, 0.2])
# V keeps its sign where the tokens are, or changes it among them
MOVING = np.array([[0.6, 0.4], [0.5, -0.4], [0.3, 0.9]])
STAGNANT = np.array([[-0.6, 0.7], [0.5, -0.4], [0.3, 0.9]])
REACH = 8.0


def flow(heads: np.ndarray, t: float) -> tuple[float, float, float]:
    """Mean, variance and stretch of the linear flow at depth t, in closed form."""
    mean_w, kappa = RHO @ heads[:, 0], RHO @ (heads[:, 0] * heads[:, 1])
    s = S0 / (1.0 - 2.0 * kappa * S0 * t)
    m = M0 * np.exp(mean_w * t) * np.sqrt(s / S0)
    return m, s, np.sqrt(s / S0)


def reference(heads: np.ndarray, x: np.ndarray) -> np.ndarray:
    """p_0 at x from the Lagrangian spectral solution."""
    count = 100
    nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    to_modes = np.linalg.inv(chebyshev.chebvander(nodes, count - 1))
    eta, weights = legendre.leggauss(200)
    eta, weights = REACH * eta, REACH * weights
    weights *= np.exp(-(eta**2) / 2.0) / np.sqrt(2.0 * np.pi)
    # row q: P_ξ at the quadrature point from node values, ξ in standard deviations
    slope_rows = np.stack(
        [chebyshev.chebval(eta / REACH, chebyshev.chebder(to_modes[:, k])) / REACH for k in range(count)], axis=1
    )

    def backward(tau: float, p: np.ndarray) -> np.ndarray:
        m, s, _ = flow(heads, T - tau)
        deviation = np.sqrt(s)
        y = m + deviation * eta
        slope = slope_rows @ p / deviation
        points = m + deviation * REACH * nodes
        source = np.zeros(count)
        for (w, a), weight in zip(heads, RHO, strict=True):
            kernel = np.exp(a * np.outer(points - m, y) - 0.5 * a * a * s * y**2)
            source += weight * w * ((points[:, None] - m - a * s * y) * kernel) @ (weights * slope)
        return source

    m, s, _ = flow(heads, T)
    start = 0.5 * (m + np.sqrt(s) * REACH * nodes - B) ** 2
    found = solve_ivp(backward, (0.0, T), start, method="DOP853", rtol=1e-12, atol=1e-13)
    return chebyshev.chebval((x - M0) / (np.sqrt(S0) * REACH), to_modes @ found.y[:, -1])


def side(heads: np.ndarray, cells: int, name: str) -> GridTokens:
    """Gaussian tokens under three heads, with the loss ½∫(x - b)² dmu_T."""
    grid = Grid((-4.8,), (5.8,), (cells,), (False,))
    mu = cell_averages(Gaussian((M0,), ((S0,),)), grid)[0]
    # the depth step shrinks faster than h, so that its error of order 3 does not show
    courant = 0.1 * (64 / cells) ** (2 / 3)
    transport = Transport(grid, scheme(name), stepper("ssprk3"), courant, False, (np.zeros(cells - 1),))
    loss = Potential(
        np.polynomial.polynomial.polyval(
            grid.centers(0), deconvolved_polynomial((0.5 * B**2, -B, 0.5), grid.spacing[0])
        )
    )
    return GridTokens(transport, Attention(), "scalar", heads, np.linspace(0.0, T, 41), True, mu[None], loss, None)


def computed(heads: np.ndarray, cells: int, name: str) -> tuple[Grid, np.ndarray, np.ndarray]:
    """Grid, mu_0 and the reported p_0."""
    tokens = side(heads, cells, name)
    grid = tokens.transport.grid
    sweep = tokens.forward((Measure.particles(heads, RHO),))
    costate = tokens.backward(sweep, tokens.terminal(sweep.final)[1])
    return grid, tokens.mu0[0], grid.refilter(costate.nodes[0])[0]


def errors(heads: np.ndarray, name: str) -> np.ndarray:
    """mu-weighted L1 error of the reported p_0 at 64, 128, 256 cells."""
    out = []
    for cells in (64, 128, 256):
        grid, mu, p = computed(heads, cells, name)
        inside = np.abs(grid.centers(0) - M0) < 0.98 * REACH * np.sqrt(S0)
        gap = np.abs(p - reference(heads, grid.centers(0)))
        out.append(float((gap * mu)[inside].sum() * grid.spacing[0]))
    return np.array(out)


@pytest.mark.parametrize("heads", [MOVING, STAGNANT])
def test_the_reference_knows_the_derivative_of_the_mean(heads: np.ndarray) -> None:
    # ∫ p_0 dσ for a shift σ of mu_0 is dJ/dm0, known from the closed form
    x = np.linspace(M0 - 7.5 * np.sqrt(S0), M0 + 7.5 * np.sqrt(S0), 2001)
    density = np.exp(-((x - M0) ** 2) / (2 * S0)) / np.sqrt(2 * np.pi * S0)
    shift = density * (x - M0) / S0
    m, _, stretch = flow(heads, T)
    expected = (m - B) * np.exp(RHO @ heads[:, 0] * T) * stretch
    assert np.trapezoid(reference(heads, x) * shift, x) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", ["linear5", "weno5z"])
def test_reported_costate_is_of_order_four(name: str) -> None:
    found = errors(MOVING, name)
    orders = np.log2(found[:-1] / found[1:])
    assert orders.min() >= 4.0, (found, orders)
    assert found[-1] < 1e-7, found


@pytest.mark.parametrize("name", ["linear5", "weno5z"])
def test_a_stagnation_point_among_the_tokens_costs_the_costate_its_order(name: str) -> None:
    # where V changes sign the transposed stencils of both winds meet: order 1 in a few cells, 2 in L1 (docs/schemes.md)
    found = errors(STAGNANT, name)
    fitted = np.log2(found[0] / found[-1]) / 2.0
    assert 2.0 <= fitted < 3.5, found
    assert found[-1] < 1e-5, found


@pytest.mark.parametrize("heads", [MOVING, STAGNANT])
@pytest.mark.parametrize("name", ["linear5", "weno5z"])
def test_the_gradient_keeps_its_order_in_both_cases(heads: np.ndarray, name: str) -> None:
    # δL/δrho = c1 w + c2 w a + const for Gaussian tokens and any heads (docs/mathematics.md, 5.2)
    m, s, _ = flow(heads, T)
    c1 = T * m * (m - B)
    exact = c1 * heads[:, 0] + (T * s * m * (m - B) + T * s * s) * heads[:, 0] * heads[:, 1]
    found = []
    for cells in (64, 128):
        tokens = side(heads, cells, name)
        potential = tokens.first_variation((Measure.particles(heads, RHO),)).potential[0]
        gap = potential - exact
        found.append(float(np.abs(gap - gap[0]).max() / np.abs(exact - exact[0]).max()))
    assert np.log2(found[0] / found[1]) >= 3.5, found
    assert found[1] < 3e-6, found
