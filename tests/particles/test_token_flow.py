"""Tokens carried through layers: orders against exact solutions, symmetries, circles, weights, refusals."""

from __future__ import annotations

from dataclasses import replace
from math import exp, pi, sin, sqrt, tan
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian
from meanfield_pde.measure import Measure
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.particles.of_problem import drift_of, initial_tokens, particle_tokens, run_tokens
from meanfield_pde.particles.tokens import CIRCLE, ParticleTokens, carry
from meanfield_pde.problem import Heads

RNG = np.random.default_rng(11)
X1 = RNG.normal(0.3, 0.7, (60, 1))
LAYERS = {1: (64, 128, 256, 512), 2: (32, 64, 128, 256), 4: (8, 16, 32)}
WITHIN = {1: 0.05, 2: 0.1, 4: 0.2}


def one_head(*theta: float) -> tuple[Measure, ...]:
    return (Measure.particles(np.array([theta])),)


def slope(errors: list[float], layers: tuple[int, ...]) -> float:
    return float(np.polyfit(np.log(layers), np.log(errors), 1)[0])


@pytest.mark.parametrize("name", METHODS)
def test_orders_against_tokens_of_linear_attention(name: str) -> None:
    # x(t) = x(0)/sqrt(1 - 2 k M2 t) for any law, that of the tokens included
    w, a, t = 0.7, 0.8, 1.0
    second = float((X1**2).mean())
    exact = X1 / sqrt(1.0 - 2.0 * w * a * second * t)
    tokens, order = ParticleTokens("linear", "scalar", one_head(w, a)), METHODS[name].order
    runs = [carry(tokens, Measure.particles(X1), t, layers, name).x[-1] for layers in LAYERS[order]]
    errors = [float(np.abs(x - exact).max()) for x in runs]
    assert slope(errors, LAYERS[order]) == pytest.approx(-order, abs=WITHIN[order])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("way", ["direct", "table"])
def test_orders_against_the_same_tokens_under_softmax(name: str, way: str) -> None:
    w, a, t = -1.0, 0.8, 1.0

    def rate(_: float, x: np.ndarray) -> np.ndarray:
        e = np.exp(a * np.outer(x, x))
        return w * (e @ x) / e.sum(axis=1)

    exact = solve_ivp(rate, (0.0, t), X1[:, 0], method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1:]
    tokens, order = ParticleTokens("softmax", "scalar", one_head(w, a), way=way), METHODS[name].order
    runs = [carry(tokens, Measure.particles(X1), t, layers, name).x[-1] for layers in LAYERS[order]]
    errors = [float(np.abs(x - exact).max()) for x in runs]
    assert slope(errors, LAYERS[order]) == pytest.approx(-order, abs=WITHIN[order])


def test_two_opposite_tokens_go_by_their_equation() -> None:
    problem, exact = library.get("two_diracs")
    run = run_tokens(problem, None, 64, "rk4", times=(0.0, 0.25, 1.0))
    assert exact is not None
    for t, x in zip(run.t, run.x[:, 1, 0], strict=True):
        assert x**2 == pytest.approx(exact.observables(float(t))["variance_b0"], rel=1e-8)
    assert run.x[-1, 1, 0] == pytest.approx(1.82687363, abs=5e-9)
    np.testing.assert_allclose(run.x[:, 0], -run.x[:, 1], rtol=1e-15)


@pytest.mark.parametrize("name", ["softmax_gaussian", "l2_gaussian", "linear_flow", "softmax_plane", "l2_plane"])
def test_many_tokens_have_the_moments_of_their_law(name: str) -> None:
    # 2^10 quasi-random tokens: moments are those of the law to a few 1e-3
    problem, exact = library.get(name)
    assert exact is not None
    assert problem.depth is not None
    run = run_tokens(problem, 1024, 8, "rk4", sampling="sobol", seed=1)
    measure, wanted = run.at(-1), exact.observables(problem.depth.T)
    names = {"mean_b0": measure.mean()[0], "variance_b0": measure.covariance()[0, 0]}
    names |= {f"mean_b0_{k}": measure.mean()[k] for k in range(measure.dim)}
    names |= {f"covariance_b0_{j}{k}": v for (j, k), v in np.ndenumerate(measure.covariance())}
    assert set(wanted) <= set(names)
    for key in wanted:
        assert names[key] == pytest.approx(wanted[key], abs=4e-3), key


@pytest.mark.parametrize("attention", ["softmax", "linear", "l2", "unnormalised"])
def test_one_token_alone(attention: str) -> None:
    x = np.array([[0.4, -0.7]])
    value, score = np.array([[0.3, -0.2], [0.5, 0.1]]), np.array([[0.6, 0.2], [-0.1, 0.9]])
    heads = (Measure.particles(np.concatenate([value.ravel(), score.ravel()])[None]),)
    tokens = ParticleTokens(attention, "matrix", heads, dim=2)
    pairing = float(score @ x[0] @ x[0])
    factor = {"softmax": 1.0, "l2": 1.0, "linear": pairing, "unnormalised": exp(pairing)}[attention]
    moved = carry(tokens, Measure.particles(x), 0.25, 1).x[-1]
    np.testing.assert_allclose(moved[0], x[0] + 0.25 * factor * value @ x[0], rtol=1e-14)


def test_tokens_that_are_renamed_move_alike() -> None:
    x = RNG.standard_normal((50, 2))
    heads = (Measure.particles(0.5 * RNG.standard_normal((3, 8))),)
    tokens, order = ParticleTokens("softmax", "matrix", heads, dim=2), RNG.permutation(50)
    there = carry(tokens, Measure.particles(x), 1.0, 10, "midpoint").x[-1]
    back = carry(tokens, Measure.particles(x[order]), 1.0, 10, "midpoint").x[-1]
    np.testing.assert_allclose(back, there[order], rtol=0, atol=1e-13)


@pytest.mark.parametrize("way", ["direct", "table"])
def test_weights_count_as_repetitions_and_none_as_a_tracer(way: str) -> None:
    x = np.array([[-1.0], [0.2], [0.9]])
    tokens = ParticleTokens("softmax", "scalar", one_head(-0.8, 1.1), way=way)
    repeated = carry(tokens, Measure.particles(x[[0, 0, 0, 1, 2, 2]]), 1.0, 8, "rk4").x[-1]
    with_tracer = Measure.particles(np.concatenate([x, [[0.5]]]), np.array([3.0, 1.0, 2.0, 0.0]) / 6)
    weighted = carry(tokens, with_tracer, 1.0, 8, "rk4").x[-1]
    np.testing.assert_allclose(weighted[:3], repeated[[0, 3, 4]], rtol=0, atol=1e-12)
    assert repeated[3, 0] < weighted[3, 0] < repeated[4, 0]


def test_heads_that_change_with_depth_are_the_parts_one_after_the_other() -> None:
    first, second = one_head(0.5, 0.7)[0], one_head(-0.9, 1.4)[0]
    both = carry(ParticleTokens("softmax", "scalar", (first, second)), Measure.particles(X1), 1.0, 6, "heun")
    half = carry(ParticleTokens("softmax", "scalar", (first,)), Measure.particles(X1), 0.5, 3, "heun").x[-1]
    rest = carry(ParticleTokens("softmax", "scalar", (second,)), Measure.particles(half), 0.5, 3, "heun").x[-1]
    np.testing.assert_allclose(both.x[-1], rest, rtol=1e-14)


@pytest.mark.parametrize(("name", "order"), [("euler", 1), ("renormalised", 1), ("renormalised-whole", 1), ("rk4", 4)])
def test_two_tokens_on_the_circle_meet_by_their_equation(name: str, order: int) -> None:
    # A = 0: both look at the mean (cos f, 0), so f' = -w sin f cos f and tan f decays as e^{-w t}
    w, start, t = 0.8, 1.2, 1.0
    tokens = ParticleTokens("softmax", "scalar", one_head(w, 0.0), box=CIRCLE)
    exact = np.arctan(tan(start) * exp(-w * t))
    pair = Measure.particles(np.array([[start], [-start]]))
    errors = [abs(float(carry(tokens, pair, t, n, name).x[-1, 0, 0]) - exact) for n in LAYERS[order]]
    assert slope(errors, LAYERS[order]) == pytest.approx(-order, abs=WITHIN[order])


def test_steps_back_to_the_circle_are_those_of_the_plane() -> None:
    # written out in the plane: one step of tokens on the circle, and its length taken away
    angles = RNG.uniform(-pi, pi, (20, 1))
    x = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    e = np.exp(4.0 * x @ x.T)
    v = 0.7 * e @ x / e.sum(axis=1, keepdims=True)
    along = v - (v * x).sum(axis=1, keepdims=True) * x
    tokens = ParticleTokens("softmax", "scalar", one_head(0.7, 4.0), box=CIRCLE)
    for name, moved in (("renormalised", x + 0.1 * along), ("renormalised-whole", x + 0.1 * v)):
        found = carry(tokens, Measure.particles(angles), 0.1, 1, name).x[-1, :, 0]
        np.testing.assert_allclose(found, np.arctan2(moved[:, 1], moved[:, 0]), rtol=0, atol=1e-14)


def test_tokens_that_go_around_stay_in_their_box() -> None:
    tokens = ParticleTokens("softmax", "scalar", one_head(0.0, 1.0), box=CIRCLE, drift=lambda x, t: np.ones(x.shape))
    run = carry(tokens, Measure.particles(np.array([[3.0], [-1.0]])), 8.0, 16, "euler", (0.0, 1.0, 8.0))
    np.testing.assert_allclose(run.x[1, :, 0], [4.0 - 2.0 * pi, 0.0], atol=1e-14)
    np.testing.assert_allclose(run.x[2, :, 0], [11.0 - 4.0 * pi, 7.0 - 2.0 * pi], atol=1e-14)


@pytest.mark.parametrize("attention", ["softmax", "unnormalised"])
def test_turning_the_circle_turns_the_tokens(attention: str) -> None:
    angles = RNG.uniform(-pi, pi, (40, 1))
    heads = (Measure.particles(np.array([[0.5, 2.0, 0.3], [-0.2, 1.0, -0.4]])),)
    tokens = ParticleTokens(attention, "rotation", heads, box=CIRCLE)
    plain = carry(tokens, Measure.particles(angles), 1.0, 10, "rk4").x[-1]
    turned = carry(tokens, Measure.particles(angles + 2.0), 1.0, 10, "rk4").x[-1]
    apart = np.mod(turned - plain - 2.0 + pi, 2.0 * pi) - pi
    assert np.abs(apart).max() < 1e-12
    assert -pi <= plain.min() <= plain.max() < pi
    assert np.abs(plain - angles).max() > 0.05


def test_unnormalised_tokens_on_the_circle_climb_their_energy() -> None:
    # dE/dt = mean of V^2 for E = (w/2a) mean over pairs of e^{a cos}, so by the trapezoid of two steps to order 2
    w, a = 0.3, 1.5
    angles = RNG.uniform(-pi, pi, (30, 1))
    tokens = ParticleTokens("unnormalised", "scalar", one_head(w, a), box=CIRCLE)
    run = carry(tokens, Measure.particles(angles), 2e-3, 2, "rk4", (0.0, 1e-3, 2e-3))
    energy = [0.5 * w / a * np.exp(a * np.cos(x - x.T)).mean() for x in run.x]
    speed = (run.x[2] - run.x[0]) / 2e-3
    assert (energy[2] - energy[0]) / 2e-3 == pytest.approx(float((speed**2).mean()), rel=1e-6)


@pytest.mark.parametrize("name", ["zalesak_disk", "leveque_deformation", "variable_speed_ring", "logistic_walls"])
def test_drifts_carry_tokens_along_their_exact_paths(name: str) -> None:
    problem, _ = library.get(name)
    assert problem.tokens is not None
    assert problem.depth is not None
    start = initial_tokens(problem, 50, seed=3)
    model = particle_tokens(problem)
    end = problem.depth.T
    run = carry(model, start, end, 400, "rk4")
    if name == "variable_speed_ring":
        exact = 2.0 * np.arctan(np.exp(end) * np.tan(0.5 * start.points))
        np.testing.assert_allclose(np.mod(run.x[-1] - exact + 3.0, 2 * pi), 3.0, atol=1e-9)
    elif name == "logistic_walls":
        exact = start.points / (start.points + (1.0 - start.points) * np.exp(-end))
        np.testing.assert_allclose(run.x[-1], exact, atol=1e-9)
    else:
        np.testing.assert_allclose(run.x[-1], start.points, atol=1e-8)
    half = carry(model, start, 0.5 * end, 200, "rk4").x[-1]
    assert np.abs(half - start.points).max() > 0.05


def test_a_drift_of_one_s_own_sees_the_depths_of_the_stages() -> None:
    # x' = cos t: the midpoint rule takes t at the middle, x = sin T + O(dt^2), exact for x' = 2 t
    still = Measure.particles(np.zeros((1, 1)))
    tokens = ParticleTokens("none", "perceptron", (), drift=lambda x, t: np.full(x.shape, 2.0 * t))
    assert carry(tokens, still, 1.0, 3, "midpoint").x[-1, 0, 0] == pytest.approx(1.0, rel=1e-14)
    assert carry(tokens, still, 1.0, 3, "euler").x[-1, 0, 0] == pytest.approx(2.0 / 3.0, rel=1e-14)
    waves = ParticleTokens("none", "perceptron", (), drift=lambda x, t: np.full(x.shape, np.cos(t)))
    assert carry(waves, still, 1.0, 20, "rk4").x[-1, 0, 0] == pytest.approx(sin(1.0), abs=1e-8)


def test_the_drift_of_a_problem_is_constant_leak_and_flow() -> None:
    problem, _ = library.get("softmax_leak", **{"leak": 0.9})
    assert problem.tokens is not None
    drift = drift_of(problem.tokens)
    assert drift is not None
    np.testing.assert_array_equal(drift(np.array([[2.0]]), 0.0), [[-1.8]])
    plain, _ = library.get("softmax_gaussian")
    assert plain.tokens is not None
    assert drift_of(plain.tokens) is None


def test_requested_times_are_kept_and_cost_nothing() -> None:
    tokens = ParticleTokens("softmax", "scalar", one_head(-1.0, 0.8))
    times = (0.0, 0.3, 0.7)
    run = carry(tokens, Measure.particles(X1), 0.7, 7, "rk4", times)
    assert tuple(run.t.tolist()) == times
    np.testing.assert_array_equal(run.x[0], X1)
    np.testing.assert_array_equal(run.x[-1], carry(tokens, Measure.particles(X1), 0.7, 7, "rk4").x[-1])
    assert run.table_error is None or run.table_error == 0.0
    with pytest.raises(MeanFieldError, match="no edge of the 7 layers"):
        carry(tokens, Measure.particles(X1), 0.7, 7, "rk4", (0.25,))
    with pytest.raises(MeanFieldError, match="must increase"):
        carry(tokens, Measure.particles(X1), 0.7, 7, "rk4", (0.3, 0.1))


def test_what_cannot_be_carried_is_refused() -> None:
    tokens, start = ParticleTokens("softmax", "scalar", one_head(1.0, 1.0)), Measure.particles(X1)
    with pytest.raises(MeanFieldError, match="did you mean 'euler'"):
        carry(tokens, start, 1.0, 2, "eular")
    with pytest.raises(MeanFieldError, match="lives on the circle"):
        carry(tokens, start, 1.0, 2, "renormalised")
    with pytest.raises(MeanFieldError, match="dimension 2"):
        carry(tokens, Measure.particles(np.zeros((3, 2))), 1.0, 2)
    with pytest.raises(MeanFieldError, match="positive width"):
        carry(tokens, Measure(X1, np.ones(60) / 60, np.array([0.1])), 1.0, 2)
    with pytest.raises(MeanFieldError, match="positive sum"):
        carry(tokens, Measure.particles(X1, np.zeros(60)), 1.0, 2)
    three = ParticleTokens("softmax", "scalar", one_head(1.0, 1.0) * 3)
    with pytest.raises(MeanFieldError, match="take a multiple"):
        carry(three, start, 1.0, 4)
    with pytest.raises(MeanFieldError, match="at least one layer"):
        carry(tokens, start, 1.0, 0)
    linear = ParticleTokens("linear", "scalar", one_head(1e3, 1e3))
    with pytest.raises(NotFiniteError, match="after layer"), np.errstate(all="ignore"):
        carry(linear, start, 1.0, 60)
    with pytest.raises(MeanFieldError, match="box with 2 axes"):
        ParticleTokens("softmax", "scalar", one_head(1.0, 1.0), box=Grid((0, 0), (1, 1), (3, 3), (True, True)))


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("noisy_softmax", {}, "tokens.noise"),
        ("gaussian_coupled", {}, "kind = 'training'"),
        ("sinkhorn_gaussian", {}, "allowed: softmax"),
        ("softmax_gaussian", {"heads": 3}, "has 1 heads"),
        ("softmax_gaussian", {"sequence": 1}, "has 1, counted from 0"),
        ("softmax_gaussian", {"sampling": "sobool"}, "did you mean 'sobol'"),
        ("zalesak_disk", {"heads": 3}, "no heads"),
    ],
)
def test_problems_that_particles_do_not_solve_are_refused(name: str, more: dict[str, Any], words: str) -> None:
    problem, _ = library.get(name)
    with pytest.raises(MeanFieldError, match=words):
        run_tokens(problem, 20, 2, **more)


def test_heads_are_drawn_from_their_law_apart_from_the_tokens() -> None:
    # tokens and heads both on two axes: of one generator they would be the same normal numbers
    plain, _ = library.get("softmax_plane")
    law = Gaussian((-0.5, 0.8), ((0.04, 0.02), (0.02, 0.09)))
    heads = Heads("scalar", (-2.0, -2.0), (2.0, 3.0), (40, 40), initial=law)
    problem = replace(plain, heads=heads, reference=None)
    with pytest.raises(MeanFieldError, match="say how many are drawn"):
        particle_tokens(problem)
    drawn = particle_tokens(problem, 4000, seed=3).heads[0]
    assert drawn.weights[0] == pytest.approx(1.0 / 4000, rel=1e-14)
    np.testing.assert_allclose(drawn.mean(), law.mean, atol=0.02)
    np.testing.assert_allclose(drawn.covariance(), law.covariance, atol=0.008)
    tokens = initial_tokens(problem, 4000, seed=3).points
    assert abs(np.corrcoef(np.concatenate([tokens, drawn.points], axis=1).T)[:2, 2:]).max() < 0.06
    assert len(particle_tokens(problem, 16, sampling="sobol").heads[0].points) == 16


def test_seeds_draw_other_tokens() -> None:
    problem, _ = library.get("softmax_gaussian")
    runs = [run_tokens(problem, 100, 4, seed=seed).x for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 0.1
    assert runs[0][0].std() == pytest.approx(0.7, abs=0.2)
