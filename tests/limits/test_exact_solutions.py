"""Exact solutions of the library against independent digits, ODE integrations and finite differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Density, Gaussian, Mixture, Uniform
from meanfield_pde.library.gaussian_closure import GaussianClosure
from meanfield_pde.library.gaussian_flow import blow_up, flow
from meanfield_pde.problem import Heads

# the coupled system, docs/mathematics.md 5.2: s, (eta_w, eta_a), C_ww = C_aa, C_wa, (m_T, s_T), loss, free energy
COUPLED = (
    (0.0, (0.2, 0.3), 0.04, 0.0, (0.6259078905124904, 0.4201680672268908), 0.28005648680385287, 0.3516064247),
    (0.5, (0.24832502554949876, 0.22569988375120037), 0.06372076741790102, -0.003360958513191405,
     (0.6548881974478612, 0.41760138764090976), 0.2683517719508481, 0.3242016269),
    (1.0, (0.2848538393545663, 0.166247863709876), 0.07832115413778726, -0.0066016490307060595,
     (0.6758934786275762, 0.41348103416351756), 0.2592630356798255, 0.3112499040),
    (2.0, (0.33324309001241037, 0.0811279420692133), 0.09298945528313042, -0.011312805059013728,
     (0.7021731902058765, 0.40509529544548056), 0.24689805203881277, 0.3000433354),
    (5.0, (0.38599575812930625, -0.026491654804238086), 0.10180502687780257, -0.015264597107822115,
     (0.7281523655723602, 0.39200612839854204), 0.23295363237122288, 0.2941891763),
    (20.0, (0.399358656782101, -0.059657393937599466), 0.10228422739031345, -0.015285115292945822,
     (0.7340393040150441, 0.3878645522239201), 0.2292998220163611, 0.2938742761),
)  # fmt: skip


@pytest.mark.parametrize("row", COUPLED, ids=lambda row: f"s={row[0]:g}")
def test_coupled_system_to_the_digits_of_its_table(row: Any) -> None:
    s, eta, C_diagonal, C_wa, tokens, loss, energy = row
    _, exact = library.get("gaussian_coupled")
    assert exact is not None
    got = exact.observables(s)
    expected = {"loss": loss, "free_energy": energy, "mean_0": eta[0], "mean_1": eta[1], "covariance_00": C_diagonal,
                "covariance_01": C_wa, "covariance_11": C_diagonal, "token_mean": tokens[0],
                "token_variance": tokens[1]}  # fmt: skip
    assert got == pytest.approx(expected, abs=1e-10)


def test_softmax_attention_a1() -> None:
    problem, exact = library.get("softmax_gaussian", m0=0.5, s0=0.4, w=0.7, a=0.8)
    assert exact is not None
    assert exact.observables(1.0) == pytest.approx({"mean_b0": 1.3552100161534195, "variance_b0": 0.7246376811594203})
    assert blow_up(0.4, 0.7 * 0.8, 0.0) == pytest.approx(2.232142857142857, rel=1e-14)
    with pytest.raises(MeanFieldError, match=r"blows up at depth 2\.23214, before 2\.3"):
        library.get("softmax_gaussian", m0=0.5, s0=0.4, w=0.7, a=0.8, T=2.3)
    # several heads: w -> mean of w, w a -> mean of w a; each of (0.7, 0.8) split into two with the same means
    split, same = library.get("softmax_gaussian", m0=0.5, s0=0.4, points=((0.4, 0.2), (1.0, 1.04)))
    assert split.heads is not None
    assert problem.heads != split.heads
    assert same is not None
    assert same.observables(1.0) == pytest.approx(exact.observables(1.0), rel=1e-13)


def test_softmax_attention_with_a_leak_a2() -> None:
    _, exact = library.get("softmax_leak", m0=0.5, s0=0.4, w=0.7, a=0.8, leak=0.9)
    assert exact is not None
    digits = {"mean_b0": 0.4599169227898667, "variance_b0": 0.08345771457799073}
    assert exact.observables(1.0) == pytest.approx(digits, rel=1e-12)


@pytest.mark.parametrize(("leak", "kappa"), [(0.0, 0.6), (0.9, 0.0), (-0.4, 0.3), (0.7, 1.5), (1e-9, 0.5)])
def test_flow_of_a_gaussian_solves_its_equations(leak: float, kappa: float) -> None:
    def rate(_: float, y: np.ndarray) -> np.ndarray:
        m, s = y
        return np.array([(0.3 + kappa * s - leak) * m, 2 * kappa * s**2 - 2 * leak * s])

    end = 0.6
    found = solve_ivp(rate, (0, end), [0.5, 0.4], method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    np.testing.assert_allclose(flow(0.5, 0.4, 0.3, kappa, leak, end), found, rtol=1e-10)
    depth = blow_up(0.4, kappa, leak)
    if np.isfinite(depth):
        assert flow(0.5, 0.4, 0.3, kappa, leak, depth - 1e-6)[1] > 1e4
        with pytest.raises(MeanFieldError, match="blows up"):
            flow(0.5, 0.4, 0.3, kappa, leak, depth + 1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_gradient_coefficients_are_derivatives_of_the_loss(shared: bool) -> None:
    """dL/dE[w] and dL/dE[wa] of a layer, its depth times c1 and c2, by differences of an integrated token flow."""
    edges = np.linspace(0.0, 1.2, 2 if shared else 5)
    groups = len(edges) - 1
    eta = np.array([[0.2, 0.3], [0.5, -0.1], [-0.3, 0.4], [0.1, 0.2]])[:groups]
    C = np.array([[[0.04, 0.01], [0.01, 0.05]]] * groups)
    closure = GaussianClosure(
        0.5, 0.4, 0.5, (0.5, -1.0, 0.7), tuple(edges), shared, 0.05, 0.5, (0.2, 0.3), (0.04, 0.01, 0.05)
    )
    moments = np.stack([eta[:, 0], C[:, 0, 1] + eta[:, 0] * eta[:, 1]], axis=1)

    def loss(moments: np.ndarray) -> float:
        y = np.array([0.5, 0.4])
        for (w, kappa), start, end in zip(moments, edges, edges[1:], strict=False):

            def rate(_: float, y: np.ndarray, w: float = w, kappa: float = kappa) -> list[float]:
                return [(w + kappa * y[1] - 0.5) * y[0], 2 * kappa * y[1] ** 2 - 2 * 0.5 * y[1]]

            y = solve_ivp(rate, (start, end), y, method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
        return float(0.5 - y[0] + 0.7 * (y[0] ** 2 + y[1]))

    assert closure.loss_of(eta, C) == pytest.approx(loss(moments), rel=1e-11)
    lengths = np.ones(1) if shared else np.diff(edges)
    for which, coefficient in enumerate(closure.gradient(eta, C)):
        for layer in range(groups):
            step = np.zeros_like(moments)
            step[layer, which] = 1e-4
            slope = (loss(moments + step) - loss(moments - step)) / 2e-4
            assert lengths[layer] * coefficient[layer] == pytest.approx(slope, rel=2e-7)


def test_layerwise_gradients_sum_to_the_shared_one() -> None:
    def closure(shared: bool) -> GaussianClosure:
        edges = (0.0, 0.9) if shared else tuple(np.linspace(0.0, 0.9, 7))
        return GaussianClosure(
            0.5, 0.4, 0.5, (0.5, -1.0, 0.5), edges, shared, 0.05, 0.5, (0.2, 0.3), (0.04, 0.01, 0.05)
        )

    one, many = closure(True), closure(False)
    for whole, parts in zip(one.gradient(*one.state(0.0)), many.gradient(*many.state(0.0)), strict=True):
        assert 0.15 * parts.sum() == pytest.approx(whole[0], rel=1e-13)
    assert one.free_energy(*one.state(0.0)) - one.loss_of(*one.state(0.0)) == pytest.approx(
        (many.free_energy(*many.state(0.0)) - many.loss_of(*many.state(0.0))) / 0.9, rel=1e-13
    )


def test_ornstein_uhlenbeck_in_two_dimensions_against_its_moment_equations() -> None:
    problem, _ = library.get("ornstein_uhlenbeck", weight_decay=0.3)
    heads = Heads(lower=(-4.0, -4.0), upper=(4.0, 4.0), cells=(40, 40),
                  initial=Gaussian((0.5, -0.4), ((0.05, 0.02), (0.02, 0.09))))  # fmt: skip
    assert problem.potential is not None
    potential = replace(problem.potential, coefficients=((0.1, 0.2, 0.5), (0.0, -0.3, -0.15)))
    exact = library.exact_of(replace(problem, heads=heads, potential=potential))
    assert exact is not None
    beta, decay, kappa = 0.1, 0.3, 0.7
    slope, curvature = np.array([0.2, -0.3]), np.array([1.0, -0.3]) + decay

    def rate(_: float, y: np.ndarray) -> np.ndarray:
        m, C = y[:2], y[2:].reshape(2, 2)
        A = np.diag(curvature) + kappa * np.eye(2)
        return np.concatenate([-curvature * m - slope, (-A @ C - C @ A + 2 * beta * np.eye(2)).ravel()])

    start = [0.5, -0.4, 0.05, 0.02, 0.02, 0.09]
    m0, m1, c00, c01, _, c11 = solve_ivp(rate, (0, 1.3), start, rtol=1e-12, atol=1e-14).y[:, -1]
    loss = 0.1 + 0.2 * m0 + 0.5 * (m0**2 + c00) - 0.3 * m1 - 0.15 * (m1**2 + c11) + 0.5 * kappa * (c00 + c11)
    entropy = 0.5 * np.log((2 * np.pi * np.e) ** 2 * (c00 * c11 - c01**2))
    got = exact.observables(1.3)
    assert got == pytest.approx(
        {"mean_0": m0, "mean_1": m1, "covariance_00": c00, "covariance_01": c01, "covariance_11": c11, "loss": loss,
         "free_energy": loss + 0.15 * (m0**2 + m1**2 + c00 + c11) - beta * entropy}, rel=1e-9
    )  # fmt: skip


@pytest.mark.parametrize("initial", [None, Density(library.SlabMode(1.0))])
def test_slab_solves_its_equation(initial: Any) -> None:
    """Mass 1; the mean moves with g less the jump of rho, the second moment with 2 (g mean + 1 - rho(1))."""
    _, exact = library.get("slab") if initial is None else library.get("slab", initial=initial)
    assert exact is not None
    assert exact.rho is not None
    fine = Grid((0.0,), (1.0,), (4000,), (False,))
    s, ds = 0.04, 1e-5
    rho = exact.rho(s, fine)[0]
    assert rho.sum() / 4000 == pytest.approx(1.0, abs=1e-13)
    x = fine.centers(0)
    middle = exact.observables(s)
    assert middle["mean_0"] == pytest.approx((rho * x).sum() / 4000, abs=1e-7)
    assert middle["covariance_00"] == pytest.approx((rho * (x - middle["mean_0"]) ** 2).sum() / 4000, abs=1e-7)
    before, after = exact.observables(s - ds), exact.observables(s + ds)
    left, right = 1.5 * rho[0] - 0.5 * rho[1], 1.5 * rho[-1] - 0.5 * rho[-2]
    assert (after["mean_0"] - before["mean_0"]) / (2 * ds) == pytest.approx(1.0 - (right - left), abs=1e-5)

    def second(values: dict[str, float]) -> float:
        return values["covariance_00"] + values["mean_0"] ** 2

    slope = (second(after) - second(before)) / (2 * ds)
    assert slope == pytest.approx(2 * (middle["mean_0"] + 1.0 - right), abs=1e-5)
    # no flux through a wall: rho' = g rho
    assert (rho[1] - rho[0]) * 4000 == pytest.approx(0.5 * (rho[0] + rho[1]), abs=4e-3)
    # and at s = 0 the initial law
    start = np.ones(50) if initial is None else library.SlabMode()(np.linspace(0.01, 0.99, 50)[:, None])
    coarse = exact.rho(0.0, Grid((0.0,), (1.0,), (50,), (False,)))[0]
    np.testing.assert_allclose(coarse, start / start.mean(), atol=2e-3 if initial is None else 6e-4)


@pytest.mark.parametrize(("beta", "mean"), [(0.2, 0.851478857177), (0.3, 0.705495273209), (0.4, 0.447106426663)])
def test_double_well_comes_to_rest_off_the_middle(beta: float, mean: float) -> None:
    _, exact = library.get("double_well", beta=beta)
    _, mirrored = library.get("double_well", beta=beta, m0=-0.1)
    assert exact is not None
    assert mirrored is not None
    assert exact.limit
    assert exact.observables(60.0)["mean_0"] == pytest.approx(mean, abs=1e-11)
    assert mirrored.observables(60.0)["mean_0"] == pytest.approx(-mean, abs=1e-11)
    assert exact.observables(59.0) == {}


def test_double_well_keeps_its_symmetry_above_the_critical_beta() -> None:
    for beta, broken in ((0.4569, True), (0.4570, False)):
        _, exact = library.get("double_well", beta=beta)
        assert exact is not None
        assert (exact.observables(60.0)["mean_0"] > 0.0) == broken


def test_heads_of_tokens_alone_may_be_a_law() -> None:
    """Only E[w] and E[w a] matter, and they are those of the law."""
    problem, _ = library.get("softmax_gaussian")
    gaussian = Gaussian((0.3, 0.2), ((0.04, 0.01), (0.01, 0.09)))
    uniform = Uniform((-0.5, 0.0), (0.5, 1.0))
    laws = (
        (gaussian, 0.3, 0.07),
        (uniform, 0.0, 0.0),
        (Mixture((3.0, 1.0), (gaussian, uniform)), 0.225, 0.0525),
    )
    for law, w, kappa in laws:
        heads = Heads("scalar", (-2.0, -2.0), (2.0, 2.0), (32, 32), initial=law)
        exact = library.exact_of(replace(problem, heads=heads))
        assert exact is not None
        m, s = flow(0.3, 0.49, w, kappa, 0.0, 1.0)
        assert exact.observables(1.0) == pytest.approx({"mean_b0": m, "variance_b0": s}, rel=1e-12)
    unknown = Heads(
        "scalar", (-2.0, -2.0), (2.0, 2.0), (32, 32), initial=Density(lambda x: np.exp(-(x**2).sum(axis=1)))
    )
    with pytest.raises(MeanFieldError, match="no moments in closed form"):
        library.exact_of(replace(problem, heads=unknown))
