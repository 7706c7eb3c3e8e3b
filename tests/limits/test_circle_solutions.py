"""Exact solutions on the circle against a spectral solution coded anew, and the solver against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import iv

from meanfield_pde import library
from meanfield_pde.cli.compare import comparison
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import VonMises, WrappedCauchy, cell_averages
from meanfield_pde.library.circle_tokens import growth
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Drift, Problem, Tokens, given
from meanfield_pde.studies.orders import orders
from meanfield_pde.training.assemble import assemble

POINTS = 96


def spectral(
    u0: np.ndarray, heads: tuple[tuple[float, float], ...], normalised: bool, end: float, noise: float = 0.0
) -> np.ndarray:
    """mu on equidistant angles by Fourier collocation of the equation itself, heads (w, a) of equal weight."""
    angle = 2 * np.pi * np.arange(POINTS) / POINTS
    waves = np.fft.fftfreq(POINTS, 1 / POINTS)
    kernels = [np.exp(a * np.cos(angle)) for _, a in heads]
    along = [np.exp(a * np.cos(angle)) * -np.sin(angle) for _, a in heads]

    def convolved(kernel: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.asarray(np.fft.ifft(np.fft.fft(kernel) * np.fft.fft(u)).real * 2 * np.pi / POINTS)

    def rate(_: float, u: np.ndarray) -> np.ndarray:
        # <x^⊥, y> e^{a <x, y>} summed over y
        pairs = zip(kernels, along, strict=True)
        parts = [convolved(k, u) / (convolved(e, u) if normalised else 1.0) for e, k in pairs]
        v = np.mean([w * part for (w, _), part in zip(heads, parts, strict=True)], axis=0)
        return np.asarray(-np.fft.ifft(1j * waves * np.fft.fft(u * v) + noise * waves**2 * np.fft.fft(u)).real)

    return np.asarray(solve_ivp(rate, (0, end), u0, method="DOP853", rtol=1e-12, atol=1e-16).y[:, -1])


def on_grid(u: np.ndarray, grid: Grid) -> np.ndarray:
    """Cell averages of a trigonometric polynomial given at equidistant angles."""
    hat = np.fft.fft(u) / POINTS
    k = np.fft.fftfreq(POINTS, 1 / POINTS)
    waves = np.exp(1j * grid.centers(0)[:, None] * k) * np.sinc(k * grid.spacing[0] / (2 * np.pi))
    return np.asarray((waves @ hat).real)


@pytest.mark.parametrize(("attention", "noise"), [("softmax", 0.0), ("unnormalised", 0.0), ("softmax", 0.2)])
def test_modes_grow_as_the_equation_says_to_second_order(attention: str, noise: float) -> None:
    points = ((1.0, 2.0), (0.6, -1.0), (0.4, 0.0))
    problem, _ = library.get("circle_modes", points=points, mode=1, phase=0.4, noise=noise, T=0.7)
    problem = replace(problem, attention=attention)
    grid = Grid((-np.pi,), (np.pi,), (40,), (True,))
    x = 2 * np.pi * np.arange(POINTS) / POINTS
    errors = []
    for amplitude in (0.04, 0.02, 0.01):
        law = replace(problem.sequences[0], initial=replace(problem.sequences[0].initial, amplitude=amplitude))
        exact = library.exact_of(replace(problem, sequences=(law,)))
        assert exact is not None
        assert exact.mu is not None
        found = spectral((1 + amplitude * np.cos(x - 0.4)) / (2 * np.pi), points, attention == "softmax", 0.7, noise)
        # the drift turns the frame by 0.7
        turned = np.fft.ifft(np.fft.fft(found) * np.exp(-0.7j * np.fft.fftfreq(POINTS, 1 / POINTS))).real
        errors.append(np.abs(exact.mu(0.7, grid)[0] - on_grid(turned, grid)).max())
    # what is left out is of third order
    slopes = np.diff(np.log(errors)) / np.log(0.5)
    assert slopes.min() > 2.9
    assert errors[-1] < 1e-6


def test_the_rate_of_mode_three_to_twelve_digits_and_its_limits() -> None:
    one = np.ones(1)
    assert growth(3, np.array([[1.0, 4.0]]), one, True).rate == pytest.approx(0.664388812208, abs=5e-13)
    assert growth(2, np.array([[0.5, 3.0]]), one, False).rate == pytest.approx(0.5 * 4 * iv(2, 3.0) / 3.0, rel=1e-14)
    noisy = growth(3, np.array([[1.0, 4.0]]), one, True, noise=0.1).rate
    assert noisy == pytest.approx(0.664388812208 - 0.9, abs=1e-12)
    for k, limit in ((1, 0.5), (2, 0.0)):
        near, at = (growth(k, np.array([[1.0, a]]), one, True).rate for a in (1e-7, 0.0))
        assert at == limit
        assert near == pytest.approx(limit, abs=1e-6)


@pytest.mark.parametrize(("attention", "k", "a"), [("softmax", 3, 4.0), ("unnormalised", 2, 3.0)])
def test_a_fit_over_the_linear_stage_measures_the_rate(attention: str, k: int, a: float) -> None:
    problem, _ = library.get("circle_modes", amplitude=1e-8, mode=k, inverse_temperature=a, layers=500, cells=128)
    still = replace(given(problem.tokens, "tokens"), drift=Drift())
    ready = assemble(replace(problem, attention=attention, tokens=still))
    assert ready.tokens is not None
    assert ready.fixed_heads is not None
    nodes = ready.tokens.forward(ready.fixed_heads).nodes[:, 0]
    size = np.abs(np.fft.rfft(nodes, axis=1)[:, k])
    rate = np.polyfit(ready.tokens.edges, np.log(size), 1)[0]
    wanted = 0.664388812208 if k == 3 else k**2 * iv(k, a) / a
    assert rate == pytest.approx(wanted, rel=1e-6)


def test_poisson_kernels_stay_poisson_kernels() -> None:
    points = ((1.4, 0.0), (0.2, 0.0))
    problem, exact = library.get("kuramoto", r0=0.3, phase=0.7, points=points, weights=(1.0, 3.0), T=1.5)
    assert exact is not None
    assert exact.mu is not None
    x = 2 * np.pi * np.arange(POINTS) / POINTS
    found = spectral((1 - 0.09) / (1.09 - 0.6 * np.cos(x - 0.7)) / (2 * np.pi), ((0.5, 0.0),), True, 1.5)
    grid = given(problem.tokens, "tokens").grid()
    np.testing.assert_allclose(exact.mu(1.5, grid)[0], on_grid(found, grid), rtol=0, atol=1e-10)
    r = 1 / np.sqrt(1 + (1 / 0.09 - 1) * np.exp(-0.5 * 1.5))
    assert exact.observables(1.5) == pytest.approx({"mode1_b0": r, "mode2_b0": r * r}, rel=1e-13)
    # the kernel without its partition sum is the same at A = 0
    same = library.exact_of(replace(problem, attention="unnormalised"))
    assert same is not None
    assert same.observables(1.5) == exact.observables(1.5)
    still = library.get("kuramoto", r0=0.0)[1]
    assert still is not None
    assert still.observables(2.0) == {"mode1_b0": 0.0, "mode2_b0": 0.0}


@pytest.mark.parametrize("name", ["circle_modes", "kuramoto"])
def test_every_scheme_has_its_order_on_the_circle(name: str) -> None:
    # a longer wave than the problem's own is resolved by fewer cells
    problem, exact = library.get(name, **({"mode": 1} if name == "circle_modes" else {}))
    rows = orders(problem, exact, cells=(64, 128, 256))["rows"]
    assert len(rows) == 16
    assert not [row for row in rows if row["short"] and row["norm"] == "L1"]
    best = next(row for row in rows if row["scheme"] == "weno5z" and row["norm"] == "L1")
    assert best["errors"][-1] < 1e-6 * (1e-5 if name == "circle_modes" else 1.0)


def test_noise_takes_its_share_of_the_rate() -> None:
    problem, exact = library.get("circle_modes", noise=0.05, cells=128, cfl=0.2)
    assert exact is not None
    rows = {row["quantity"]: row for row in comparison(solve(problem), exact)}
    assert exact.observables(2.0)["mode3_b0"] == pytest.approx(0.5e-5 * np.exp(2 * (0.664388812208 - 0.45)), rel=1e-11)
    assert abs(rows["mode3_b0"]["error"]) < 2e-5 * rows["mode3_b0"]["exact"]


def test_a_run_is_compared_by_its_modes() -> None:
    problem, exact = library.get("kuramoto", cells=96, T=1.0)
    assert exact is not None
    rows = {row["quantity"]: row for row in comparison(solve(problem), exact)}
    assert set(rows) == {"mode1_b0", "mode2_b0", "mu_l1"}
    assert all(abs(row["error"]) < 1e-6 for row in rows.values())


def _with(problem: Problem, **changes: object) -> Problem:
    return replace(problem, **changes)


@pytest.mark.parametrize("name", ["circle_modes", "kuramoto"])
def test_a_problem_on_the_circle_that_lost_its_form_is_refused(name: str) -> None:
    problem, _ = library.get(name)
    heads, one = given(problem.heads, "heads"), problem.sequences[0]
    walls = Tokens((-np.pi,), (np.pi,), (64,))
    moved = replace(given(problem.tokens, "tokens"), drift=Drift(flow="sine"))
    other = replace(one, initial=VonMises(0.0, 1.0))
    both = replace(heads, family="rotation", points=((1.0, 0.0, 0.1),))
    for changed, says in (
        (_with(problem, sequences=(other,)), "a sequence is von-mises"),
        (_with(problem, heads=both), "the heads are others"),
        (_with(problem, tokens=moved), r"drift\.flow is set"),
        (_with(problem, tokens=walls, sequences=(replace(one, initial=VonMises(0.0, 1.0)),)), "the tokens have walls"),
    ):
        with pytest.raises(MeanFieldError, match=says):
            library.exact_of(changed)
    if name == "kuramoto":
        with pytest.raises(MeanFieldError, match="a head has a != 0"):
            library.exact_of(_with(problem, heads=replace(heads, points=((1.0, 0.5),))))


def test_wrapped_cauchy_is_its_own_mean_under_the_flow_of_the_disk() -> None:
    # cell masses against the series 1 + 2 Σ r^k cos k(φ − m), averaged over cells
    grid = Grid((-1.0,), (2.0,), (30,), (True,))
    k = np.arange(1, 400)
    for r in (0.0, 0.3, 0.9):
        got = cell_averages(WrappedCauchy(0.4, r), grid)[0]
        angle = 2 * np.pi / 3.0 * (grid.centers(0) - 0.4)
        series = 1 + 2 * (r**k * np.sinc(k / 30) * np.cos(np.outer(angle, k))).sum(axis=1)
        np.testing.assert_allclose(got, series / 3.0, rtol=1e-12)
    sharp = cell_averages(WrappedCauchy(0.45, 1 - 1e-9), grid)[0] * 0.1
    assert sharp.max() == pytest.approx(1.0, abs=1e-7)
    assert sharp.min() > 0.0
