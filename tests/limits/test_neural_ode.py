"""Neural ODE: the flow, the laws it carries, the costate g(X(T; t, x)) and the gradient, in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erfinv

from meanfield_pde import library
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.laws import Gaussian, Mixture, Uniform, VonMises
from meanfield_pde.library.neural_ode import flow
from meanfield_pde.measure import Measure
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Drift, Feature, Objective, given
from meanfield_pde.studies.orders import orders
from meanfield_pde.training.assemble import assemble

W, A, C = 0.6, 1.0, -0.2


@pytest.mark.parametrize(("w", "a", "c"), [(0.6, 1.0, -0.2), (-1.3, 2.0, 0.7), (0.8, -1.5, 0.1), (0.9, 0.0, 0.4)])
def test_the_flow_solves_its_equation(w: float, a: float, c: float) -> None:
    x = np.linspace(-2.0, 2.0, 9)
    path = solve_ivp(lambda _, y: w * np.tanh(a * y + c), (0, 0.8), x, method="DOP853", rtol=1e-12, atol=1e-13)
    found = path.y[:, -1]
    np.testing.assert_allclose(flow(w, a, c, 0.8, x), found, rtol=0, atol=1e-10)
    np.testing.assert_allclose(flow(w, a, c, -0.8, found), x, rtol=0, atol=1e-10)


def test_the_law_is_the_image_of_the_law() -> None:
    part = Uniform((0.2,), (1.1,))
    law = Mixture((1.0, 3.0), (Gaussian((-0.4,), ((0.2,),)), part))
    # two heads of mean weight 0.6
    problem, _ = library.get("neural_ode", points=((0.2, A, C), (1.0, A, C)))
    grid = given(problem.tokens, "tokens").grid()
    whole, alone = (
        library.exact_of(replace(problem, sequences=(replace(problem.sequences[0], initial=one),)))
        for one in (law, part)
    )
    assert whole is not None
    assert alone is not None
    assert whole.mu is not None
    assert alone.mu is not None
    # many tokens of the uniform part, moved by the equation
    tokens = 0.2 + 0.9 * (np.arange(20000) + 0.5) / 20000
    moved = solve_ivp(lambda _, y: W * np.tanh(A * y + C), (0, 1), tokens, rtol=1e-9, atol=1e-9).y[:, -1]
    histogram = np.histogram(moved, grid.edges(0))[0] / len(moved)
    np.testing.assert_allclose(alone.mu(1.0, grid)[0] * grid.cell_volume, histogram, rtol=0, atol=1.01 / 20000)
    assert alone.observables(1.0)["mean_b0"] == pytest.approx(moved.mean(), abs=1e-8)
    assert alone.observables(1.0)["variance_b0"] == pytest.approx(moved.var(), abs=1e-8)
    # a Gaussian beside it: a sum over quantiles
    z = 0.4472135954999579 * np.sqrt(2) * erfinv((np.arange(200000) + 0.5) / 100000 - 1) - 0.4
    other = solve_ivp(lambda _, y: W * np.tanh(A * y + C), (0, 1), z, rtol=1e-8, atol=1e-8).y[:, -1]
    assert whole.observables(1.0)["mean_b0"] == pytest.approx(0.25 * other.mean() + 0.75 * moved.mean(), abs=1e-6)
    cells = 0.25 * np.histogram(other, grid.edges(0))[0] / len(other) + 0.75 * histogram
    np.testing.assert_allclose(whole.mu(1.0, grid)[0] * grid.cell_volume, cells, rtol=0, atol=1.01 / 20000)


def test_every_scheme_has_its_order() -> None:
    problem, exact = library.get("neural_ode")
    rows = orders(problem, exact, cells=(64, 128, 256))["rows"]
    assert len(rows) == 24
    assert not [row for row in rows if row["short"]]
    best = next(row for row in rows if row["scheme"] == "weno5z" and row["norm"] == "L1")
    assert best["errors"][-1] < 2e-7


THETAS = np.array([(W, A, C), (0.5, -0.7, 0.3), (-0.8, 2.0, 0.1), (1.0, 0.0, 1.0)])
M0, S0, B = 0.3, 0.3, 0.5


def exact_gradient(theta: np.ndarray, t0: float, t1: float) -> float:
    """∫ over depths t0..t1 of E[∂_x p(t, X_t) v(X_t, theta)], p(t, x) = ½(X(1 − t, x) − B)², by quadrature."""
    t, wt = np.polynomial.legendre.leggauss(12)
    t, wt = t0 + (t1 - t0) * 0.5 * (t + 1), wt * 0.5 * (t1 - t0)
    z = np.linspace(-9.0, 9.0, 401)
    x0, wx = M0 + np.sqrt(S0) * z, np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    end = flow(W, A, C, 1.0, x0)
    total = 0.0
    for depth, weight in zip(t, wt, strict=True):
        x = flow(W, A, C, depth, x0)
        # ∂X(1 − t, x)/∂x, from the derivative of sinh(a X + c) = e^{a w τ} sinh(a x + c)
        slope = np.exp(A * W * (1 - depth)) * np.cosh(A * x + C) / np.cosh(A * end + C)
        total += weight * float(wx @ ((end - B) * slope * theta[0] * np.tanh(theta[1] * x + theta[2])))
    return total


def side(scheme: str, cells: int, layers: int) -> GridTokens:
    # ssprk3: dt³ falls as fast as h⁵
    cfl = 0.2 * (48 / cells) ** (2 / 3)
    problem, _ = library.get("neural_ode", cells=cells, scheme=scheme, layers=layers, shared=layers == 1, cfl=cfl)
    loss = Objective("potential", potential=Feature("polynomial", (0.5 * B * B, -B, 0.5)))
    ready = assemble(replace(problem, reference=None, objective=loss), threads=1)
    assert ready.tokens is not None
    # one head carries all the weight; the gradient is wanted at the others too
    return replace(ready.tokens, head_points=THETAS)


def head_law(tokens: GridTokens, layers: int) -> tuple[Measure, ...]:
    return (Measure(tokens.head_points, np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3)),) * layers


@pytest.mark.parametrize("scheme", ["linear5", "weno5z"])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_gradient_is_the_integral_along_the_exact_flow(scheme: str, layers: int) -> None:
    edges = np.linspace(0.0, 1.0, layers + 1)
    wanted = np.array(
        [[exact_gradient(theta, *edges[k : k + 2]) * layers for theta in THETAS] for k in range(layers)]
    )
    errors = []
    for cells in (48, 96, 192):
        tokens = side(scheme, cells, layers)
        errors.append(np.abs(tokens.first_variation(head_law(tokens, layers)).potential - wanted).max())
    fitted = -np.polyfit(np.log([48, 96, 192]), np.log(errors), 1)[0]
    assert fitted >= 4.5
    assert errors[-1] <= 1e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("scheme", ["linear5", "weno5z"])
def test_the_costate_is_the_loss_at_the_end_of_the_flow(scheme: str) -> None:
    # V has no zero within the law: at an expanding one the dual of an upwind scheme is of first order in its cells
    c, errors = 3.2, []
    for cells in (128, 256, 512):
        tokens = side(scheme, cells, 1)
        tokens = replace(tokens, head_points=np.array([[W, A, c]]))
        sweep = tokens.forward((Measure(tokens.head_points, np.ones(1), np.zeros(3)),))
        grid = tokens.transport.grid
        p = grid.refilter(tokens.backward(sweep, tokens.terminal(sweep.final)[1]).nodes[0])[0]
        wanted = 0.5 * (flow(W, A, c, 1.0, grid.centers(0)) - B) ** 2
        errors.append(float(grid.integral(np.abs(p - wanted) * sweep.nodes[0, 0])))
    # refiltering is to second order in δ²: p − wanted falls with h⁴ at least
    assert -np.polyfit(np.log([128, 256, 512]), np.log(errors), 1)[0] >= 3.5
    assert errors[-1] <= 2e-9


def test_the_training_problem_learns_and_its_gradient_passes_a_taylor_test() -> None:
    problem, exact = library.get("neural_ode_training", cells=48, s_end=4.0)
    assert exact is None
    loss = solve(problem).history["loss"]
    assert loss[0] > 0.13
    assert loss[-1] < 0.45 * loss[0]
    ready = assemble(problem, threads=1)
    assert ready.tokens is not None
    assert ready.heads is not None
    assert ready.state is not None
    tokens, heads, rho = ready.tokens, ready.heads, ready.state.rho
    change = rho * np.random.default_rng(3).normal(size=rho.shape)
    change -= rho * (change.sum(axis=(1, 2, 3), keepdims=True) / rho.sum(axis=(1, 2, 3), keepdims=True))
    gradient = tokens.first_variation(heads.measure(rho)).potential.reshape(rho.shape)
    slope = float((gradient * change).sum() * heads.grid.cell_volume / problem.depth.layers)
    at_zero = tokens.loss(heads.measure(rho))
    steps = np.logspace(-0.5, -1.3, 4)  # smaller ones meet the face at which V is nearly 0
    rest = [abs(tokens.loss(heads.measure(rho + e * change)) - at_zero - e * slope) for e in steps]
    assert np.polyfit(np.log(steps), np.log(rest), 1)[0] == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokens": {"drift": Drift(leak=0.2)}}, "tokens.drift is set"),
        ({"heads": {"points": ((1.0, 1.0, 0.0), (1.0, 2.0, 0.0))}}, r"2 different \(a, c\)"),
        ({"tokens": {"lower": (-np.pi,), "upper": (np.pi,), "periodic": (True,)},
          "heads": {"points": ((1.0, 0.0, 1.0, 0.0, 0.0),)}}, "tokens.periodic is set"),
    ],
)  # fmt: skip
def test_a_neural_ode_that_lost_its_form_is_refused(changes: dict[str, dict[str, Any]], says: str) -> None:
    problem, _ = library.get("neural_ode")
    problem = replace(problem, **{key: replace(getattr(problem, key), **part) for key, part in changes.items()})
    with pytest.raises(MeanFieldError, match=says):
        library.exact_of(problem)


def test_a_law_without_a_distribution_function_is_refused() -> None:
    problem, _ = library.get("neural_ode")
    one = replace(problem.sequences[0], initial=Mixture((1.0,), (VonMises(0.0, 1.0),)))
    with pytest.raises(MeanFieldError, match=r"sequences\[0\] is another law"):
        library.exact_of(replace(problem, sequences=(one,)))
