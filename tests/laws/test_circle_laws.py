"""Laws on the ring over attentions: mass, sign, turns, reflection, pairing of p and mu, gradient, energy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import iv

from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport, face_velocity, seen
from meanfield_pde.equations.mu_fluxes import rate, reconstruct
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention
from meanfield_pde.model.objective import FeatureMap, PooledRegression

RING = Grid((-np.pi,), (np.pi,), (40,), (True,))
ATTENTIONS = ("softmax", "unnormalised", "none")
NAMES = ("upwind1", "linear5", "weno5z")
CASES = [(attention, name) for attention in ATTENTIONS for name in NAMES]
ROTATIONS = np.array([(0.8, 1.5, 0.3), (-0.5, 2.0, -1.0), (0.6, 1.5, 2.0)])
PERCEPTRONS = np.array([(0.7, -0.2, 1.0, 0.5, 0.2), (-0.4, 0.6, 0.3, -1.2, -0.5)])
SHARE = np.array([0.5, 0.3, 0.2])


def laws() -> np.ndarray:
    x = RING.centers(0)
    u = np.stack([1.0 + 0.6 * np.cos(x - 0.4) + 0.2 * np.sin(2 * x), np.exp(1.5 * np.cos(x - 3.0))])
    return np.asarray(u / RING.integral(u)[:, None])


def rough() -> np.ndarray:
    u = np.random.default_rng(1).random((2, 40)) ** 4
    u[u < 0.2] = 0.0
    u[:, 39] += 1.0  # at the seam
    return np.asarray(u / RING.integral(u)[:, None])


def tokens(attention: str, name: str, mu0: np.ndarray, theta: np.ndarray | None = None, **more: Any) -> GridTokens:
    family = "perceptron" if attention == "none" else "rotation"
    points = (PERCEPTRONS if attention == "none" else ROTATIONS) if theta is None else theta
    still = (np.zeros(40),)
    way = Transport(RING, scheme(name), stepper("ssprk3"), 0.4, more.pop("positivity", False), still)
    edges = np.linspace(0.0, 0.6, 16)  # one step a layer, whatever is varied
    values = np.stack([np.cos(RING.centers(0)), np.sin(2 * RING.centers(0))])
    targets = np.array([[0.1, -0.2], [0.3, 0.2]])[: len(mu0)]
    loss = PooledRegression(FeatureMap(values))
    return GridTokens(way, Attention(attention), family, points, edges, True, mu0, loss, targets, threads=1, **more)


def head_law(side: GridTokens, weights: np.ndarray | None = None) -> tuple[Measure, ...]:
    share = SHARE[: len(side.head_points)] if weights is None else weights
    share = share / share.sum() if weights is None else share
    return (Measure(side.head_points, share, np.zeros(side.head_points.shape[1])),)


@pytest.mark.parametrize(("attention", "name"), CASES)
def test_mass_and_sign_of_rough_laws(attention: str, name: str) -> None:
    side = tokens(attention, name, rough(), positivity=True)
    nodes = side.forward(head_law(side)).nodes
    assert np.abs(RING.integral(nodes) - 1.0).max() <= 1e-13
    assert nodes.min() >= -1e-15
    assert np.abs(nodes[-1] - nodes[0]).max() > 0.1


@pytest.mark.parametrize(("attention", "name"), CASES)
def test_a_turn_by_whole_cells_commutes(attention: str, name: str) -> None:
    straight = tokens(attention, name, laws())
    plain = straight.forward(head_law(straight)).final
    for shift in (1, 17, 33):
        theta = None
        if attention == "none":
            # perceptrons single out directions, which turn along; attention by turns of the plane does not
            angle = shift * RING.spacing[0]
            turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            theta = np.hstack([PERCEPTRONS[:, :2] @ turn, PERCEPTRONS[:, 2:4] @ turn, PERCEPTRONS[:, 4:]])
        side = tokens(attention, name, np.roll(laws(), shift, axis=1), theta)
        moved = side.forward(head_law(side)).final
        assert np.abs(moved - np.roll(plain, shift, axis=1)).max() <= 1e-13


@pytest.mark.parametrize(("attention", "name"), CASES)
def test_reflection_commutes(attention: str, name: str) -> None:
    straight = tokens(attention, name, laws())
    plain = straight.forward(head_law(straight)).final
    mirror = np.array([1.0, -1.0, 1.0, -1.0, 1.0]) if attention == "none" else np.array([1.0, 1.0, -1.0])
    side = tokens(attention, name, laws()[:, ::-1], straight.head_points * mirror)
    assert np.abs(side.forward(head_law(side)).final[:, ::-1] - plain).max() <= 1e-13


@pytest.mark.parametrize(("attention", "name"), CASES)
def test_the_gradient_is_that_of_the_discrete_loss(attention: str, name: str) -> None:
    side = tokens(attention, name, laws())
    weights = head_law(side)[0].weights
    change = weights * np.array([1.0, -0.4, 0.7])[: len(weights)]
    change -= weights * change.sum()
    gradient = side.first_variation(head_law(side)).potential[0]
    at_zero, slope = side.loss(head_law(side)), float(gradient @ change)

    def rest(e: float) -> float:
        return abs(side.loss(head_law(side, weights + e * change)) - at_zero - e * slope)

    steps = np.logspace(-1.0, -3.5, 6)
    order = np.polyfit(np.log(steps), np.log([rest(e) for e in steps]), 1)[0]
    assert order == pytest.approx(2.0, abs=0.05)
    assert abs(slope) > 1e-4


def tangent_velocity(attention: str, side: GridTokens, u: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The derivative of the face velocity at u along s, (40,), from the formula itself by a complex step."""
    at, y = RING.faces(0), np.stack([np.cos(RING.centers(0)), np.sin(RING.centers(0))])
    x, masses = np.stack([np.cos(at), np.sin(at)]), (u + 1e-30j * s) * RING.spacing[0]
    out = np.zeros(40)
    if attention == "none":
        return out
    for (w, a, turn), share in zip(side.head_points, head_law(side)[0].weights, strict=True):
        key = a * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ x
        kernel = np.exp(key.T @ y)
        mean = np.stack([RING.deconvolve(kernel * y[c]) @ masses for c in (0, 1)])
        if attention == "softmax":
            mean = mean / (RING.deconvolve(kernel) @ masses)
        out += share * w * (x[0] * mean[1] - x[1] * mean[0]).imag / 1e-30
    return out


@pytest.mark.parametrize("name", ["upwind1", "linear5"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_duality_with_a_tangent_written_anew(attention: str, name: str) -> None:
    side = tokens(attention, name, laws()[:1])
    sweep = side.forward(head_law(side))
    p_end = np.random.default_rng(6).normal(size=(1, 40))
    p_start = side.backward(sweep, p_end).nodes[0]
    start = side.mu0 * np.cos(2 * RING.centers(0) + 0.3)
    s = start
    for layer in sweep.paths[0].layers:
        assert layer.stages is not None
        for stages in layer.stages:
            # the schemes are linear and V R(mu) is bilinear; ssprk3 by its convex combinations
            current = s
            for stage, base in zip(stages, (0.0, 0.75, 1.0 / 3.0), strict=True):
                moved = tangent_velocity(attention, side, stage.u[0], current[0])[None]
                way, v = side.transport, stage.velocity
                slope = rate(way, current, v, 0.0)[0]
                slope += rate(way, stage.u, (moved,), 0.0, reconstruct(way, stage.u, v))[0]
                current = base * s + (1.0 - base) * (current + layer.dt * slope)
            s = current
    left, right = (p_end * s).sum(), (p_start * start).sum()
    assert abs(left - right) <= 1e-12 * max(np.abs(p_end * s).sum(), np.abs(p_start * start).sum())


@pytest.mark.parametrize(("attention", "name"), CASES)
def test_duality_in_the_initial_law(attention: str, name: str) -> None:
    side = tokens(attention, name, laws())
    sweep = side.forward(head_law(side))
    rng = np.random.default_rng(4)
    p_end = rng.normal(size=sweep.final.shape)
    p_start = side.backward(sweep, p_end).nodes[0]
    sigma = 0.2 * side.mu0 * np.cos(3 * RING.centers(0) + 0.5)
    sigma -= side.mu0 * RING.integral(sigma)[:, None]
    starts = [side.mu0 + e * sigma for e in (4e-4, -4e-4, 2e-4, -2e-4, 1e-4, -1e-4)]
    ends = [side.forward(head_law(side), start).final for start in starts]
    coarse, fine, finest = ((ends[2 * i] - ends[2 * i + 1]) / (2 * e) for i, e in enumerate((4e-4, 2e-4, 1e-4)))
    sigma_end = (16 * (4 * finest - fine) / 3 - (4 * fine - coarse) / 3) / 15
    left, right = (p_end * sigma_end).sum(), (p_start * sigma).sum()
    assert abs(left - right) <= 1e-9 * (np.abs(p_end * sigma_end).sum() + np.abs(p_start * sigma).sum())


@pytest.mark.parametrize("name", NAMES)
def test_the_pairing_of_p_and_mu_is_constant_for_softmax_alone(name: str) -> None:
    drifts = {}
    for attention in ATTENTIONS:
        side = tokens(attention, name, laws())
        sweep = side.forward(head_law(side))
        costate = side.backward(sweep, side.terminal(sweep.final)[1])
        pairing = RING.integral(costate.nodes * sweep.nodes)
        drifts[attention] = np.abs(pairing - pairing[-1]).max()
        assert side.report(sweep, costate).dual is True
    # of degree 0 in mu: softmax, and heads that look at no token
    assert max(drifts["softmax"], drifts["none"]) <= 1e-13
    assert drifts["unnormalised"] > 1e-4


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_unnormalised_kernel_climbs_its_energy(sign: float) -> None:
    # E = (w/2a) ∫∫ e^{a cos(φ - ψ)} dmu dmu = (w/2a) Σ I_m(a) |∫ e^{imφ} dmu|², and dE/dt = ∫ V² dmu
    a, grid, modes = 2.0, RING, np.arange(-19, 20)
    theta = np.array([(sign, a, 0.0)])
    side = tokens("unnormalised", "weno5z", laws(), theta)
    side = replace(side, edges=np.linspace(0.0, 0.5, 101))
    nodes = side.forward(head_law(side)).nodes

    def energy(u: np.ndarray) -> float:
        hat = np.exp(1j * modes[:, None] * grid.centers(0)) @ u * grid.spacing[0] / np.sinc(modes / grid.cells[0])
        return float(sign / (2 * a) * (iv(modes, a) * np.abs(hat) ** 2).sum())

    for law in range(2):
        path = np.array([energy(u) for u in nodes[:, law]])
        assert np.diff(path).min() > 0.0
        start = nodes[50, law][None]
        v = face_velocity(side.transport, side.assemble(head_law(side), None)[0], start)[1][0][0]
        # V at the centres, where it is wanted, by its Fourier series
        turned = np.fft.irfft(np.fft.rfft(v) * np.exp(-1j * np.pi * np.arange(21) / 40), 40)
        power = float(grid.deconvolve(turned**2) @ start[0] * grid.spacing[0])
        slope = (path[51] - path[49]) / (2 * 0.005)
        assert slope == pytest.approx(power, rel=2e-4)


def test_a_law_is_seen_across_the_seam() -> None:
    x = RING.centers(0)
    thin = np.exp(-((x[None] - 0.1) ** 2) / 0.04)
    thin /= RING.integral(thin)[:, None]
    thin[thin < 1e-60] = 0.0
    wanted = seen(RING, thin)
    assert 0 < wanted.sum() < 40
    assert (thin[wanted > 0] < 1e-12 * thin.max()).any()  # a true tail is kept
    for shift in range(40):
        np.testing.assert_array_equal(seen(RING, np.roll(thin, shift, axis=1)), np.roll(wanted, shift, axis=1))
