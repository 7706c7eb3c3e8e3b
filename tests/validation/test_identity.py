"""Recorded tokens against our own from the same first tokens on: what passes, by which bound, and what does not."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.laws import Uniform
from meanfield_pde.measure import Measure
from meanfield_pde.particles.of_problem import initial_tokens, particle_tokens
from meanfield_pde.particles.tokens import ParticleTokens
from meanfield_pde.problem import Heads, Particles, Problem
from meanfield_pde.validation.identity import IdentityVerdict, identity_verdict
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.precision import precision_of
from meanfield_pde.validation.reading import from_arrays, read_trajectory
from meanfield_pde.validation.rounding_bound import gamma, growth_of

Array = np.ndarray
PLANE, _ = library.get("heun_plane")
THETA = np.array(PLANE.heads.points if PLANE.heads is not None else ()).reshape(-1, 2, 2, 2)
W, A = THETA[:, 0], THETA[:, 1]
TURNS = (False, False, True)
LAW = Heads("rotation", (-1.0, -1.0, -np.pi), (1.0, 1.0, np.pi), (4, 4, 4), TURNS, Uniform((-1.0,) * 3, (1.0,) * 3))
FIRST = 0.7 * np.random.default_rng(3).standard_normal((150, 2))


def dense(
    x: Array, method: str = "heun", layers: int = 8, kind: type = np.float64, A: Array = A, W: Array = W,
    w: Array | None = None,
) -> Array:  # fmt: skip
    """The tokens at t = 0, .5, 1 by whole matrices, one product of einsum after the other."""
    x, A, W = x.astype(kind), A.astype(kind), W.astype(kind)
    share = np.full(len(x), 1.0 / len(x), kind) if w is None else w.astype(kind)
    dt, kept = kind(1.0 / layers), [x]

    def v(x: Array) -> Array:
        e = np.exp(np.einsum("hij,nj,mi->hnm", A, x, x)) * share
        mean = np.einsum("hnm,mi->hni", e, x) / e.sum(axis=2, keepdims=True)
        return np.asarray(np.einsum("hij,hnj->ni", W, mean) / kind(len(A)))

    for k in range(layers):
        k1 = v(x)
        if method == "euler":
            x = x + dt * k1
        elif method == "heun":
            x = x + dt / kind(2) * (k1 + v(x + dt * k1))
        else:
            k2 = v(x + dt / kind(2) * k1)
            k3 = v(x + dt / kind(2) * k2)
            x = x + dt / kind(6) * (k1 + kind(2) * k2 + kind(2) * k3 + v(x + dt * k3))
        if 2 * (k + 1) % layers == 0:
            kept.append(x)
    return np.stack(kept)


def judged(tokens: Array, problem: Problem = PLANE, **arrays: Any) -> IdentityVerdict:
    return identity_verdict(problem, from_arrays({"tokens": tokens, "t": np.array([0.0, 0.5, 1.0]), **arrays}))


def test_tokens_of_other_code_with_the_same_formulas_pass() -> None:
    verdict = judged(dense(FIRST))
    assert verdict.passed
    assert verdict.declared
    assert (verdict.integrator, verdict.layers) == ("heun", 8)
    assert verdict.largest[-1] <= 2e-15
    assert verdict.bounds[-1] <= 1e-12
    assert "those of our own particles (heun, 8 layers, declared; heads of the problem)" in verdict.words


@pytest.mark.parametrize("wrong", [{"A": A * (1.0 + 1e-6)}, {"W": W * (1.0 - 1e-6)}, {"layers": 16}, {"method": "rk4"}])
def test_faults_of_a_millionth_are_rejected(wrong: dict[str, Any]) -> None:
    verdict = judged(dense(FIRST, **wrong))
    assert verdict.passed is False
    assert (verdict.largest[1:] > 1e4 * verdict.bounds[1:]).all()
    assert "are not those of our own" in verdict.words


def test_single_precision_passes_by_its_own_bound() -> None:
    verdict = judged(dense(FIRST, kind=np.float32).astype(float))
    assert verdict.passed
    assert 1e-8 <= verdict.largest[-1] <= 1e-6
    assert 1e-6 <= verdict.bounds[-1] <= 5e-4
    wrong = judged(dense(FIRST, kind=np.float32, A=1.01 * A).astype(float))
    assert wrong.passed is False


def test_tokens_stored_with_few_digits_pass_by_their_storage() -> None:
    verdict = judged(np.round(dense(FIRST), 6))
    assert verdict.passed
    assert 1e-7 <= verdict.largest[-1] <= 2e-6
    assert verdict.bounds[-1] <= 5e-4
    verdict = judged(np.round(dense(FIRST), 11))
    assert verdict.passed
    assert verdict.bounds[-1] <= 1e-9
    assert judged(np.round(dense(FIRST, A=(1.0 + 1e-6) * A), 11)).passed is False


def test_weights_and_several_runs_of_which_all_must_agree() -> None:
    w = np.random.default_rng(1).uniform(0.5, 1.5, 150)
    w /= w.sum()
    assert judged(dense(FIRST, w=w), weights=w).passed
    assert judged(dense(FIRST, w=w)).passed is False
    good, bad = dense(FIRST), dense(-FIRST, A=1.001 * A)
    assert judged(np.stack([good, dense(-FIRST)])).passed
    verdict = judged(np.stack([good, bad]))
    assert verdict.passed is False
    assert verdict.largest[-1] == pytest.approx(judged(bad).largest[-1], rel=1e-12)


def test_heads_of_the_data_come_first_and_are_read_by_their_convention() -> None:
    tokens = dense(FIRST)
    turned = A.transpose(0, 2, 1).copy()
    assert "heads of the problem)" in judged(tokens, A=A, W=W).words
    verdict = judged(tokens, A=turned, W=W)
    assert verdict.passed
    assert "with scores ⟨x, A y⟩" in verdict.words
    other = dense(FIRST, A=0.5 * A)
    assert judged(other, A=0.5 * A, W=W).passed
    assert "they are not those that the problem states" in judged(other, A=0.5 * A, W=W).words
    of_law = replace(PLANE, heads=LAW)
    assert judged(tokens, of_law, A=A, W=W).passed
    assert judged(tokens, of_law, A=turned, W=W).passed is False


@pytest.mark.parametrize(("method", "layers"), [("euler", 20), ("heun", 8), ("rk4", 4), ("rk4", 16), ("euler", 100)])
def test_steps_that_are_not_declared_are_found(method: str, layers: int) -> None:
    tokens = dense(FIRST[:60], method, layers)
    verdict = judged(tokens, replace(PLANE, particles=None))
    assert verdict.passed
    assert not verdict.declared
    assert (verdict.integrator, verdict.layers) == (method, layers)
    assert f"{method}, {layers} layers, found by search" in verdict.words
    said = Particles(layers=layers)
    verdict = judged(tokens, replace(PLANE, particles=said))
    assert (verdict.passed, verdict.integrator) == (True, method)


@pytest.mark.parametrize(("method", "layers"), [("euler", 26), ("euler", 74), ("heun", 38), ("rk4", 6)])
def test_uncommon_numbers_of_layers_are_found_by_the_error_they_make(method: str, layers: int) -> None:
    verdict = judged(dense(FIRST[:60], method, layers), replace(PLANE, particles=None))
    assert verdict.passed
    assert (verdict.integrator, verdict.layers) == (method, layers)


def test_steps_of_another_kind_are_not_found_and_the_words_say_so() -> None:
    # layers of two lengths
    half = dense(FIRST[:60], "euler", 20)
    uneven = np.stack([half[0], half[1], dense(half[1], "euler", 60)[1]])
    verdict = judged(uneven, replace(PLANE, particles=None))
    assert verdict.passed is False
    assert "declare integrator and layers in [particles]" in verdict.words
    assert judged(dense(FIRST[:60], "euler", 26), replace(PLANE, particles=Particles(layers=26))).passed


def test_rounding_that_explains_everything_tells_nothing() -> None:
    for coarse in (dense(FIRST, A=0.7 * A).astype(np.float16), np.round(dense(FIRST, A=0.7 * A), 2)):
        verdict = judged(coarse.astype(float))
        assert verdict.passed is not True
    verdict = judged(dense(FIRST).astype(np.float16).astype(float))
    assert verdict.passed is None
    assert "float16" in verdict.words
    # tokens that do not move
    still = np.stack([FIRST, FIRST, FIRST])
    assert judged(still).passed is not True


def test_the_runs_that_differ_are_named() -> None:
    runs = np.stack([dense(FIRST), dense(-FIRST, A=1.01 * A), dense(0.5 * FIRST)])
    verdict = judged(runs)
    assert verdict.passed is False
    assert "Runs that differ (counted from 0): 1 of 3" in verdict.words


@pytest.mark.parametrize(("name", "method", "layers"), [("line", "euler", 200), ("circle", "renormalised", 600)])
def test_what_is_recorded_by_torch_passes_declared_or_not(name: str, method: str, layers: int) -> None:
    problem, _ = library.get(f"torch_{name}")
    data = read_trajectory(str(files("meanfield_pde.data") / "particles" / f"{name}.npz"), problem)
    data = replace(data, times=data.times[:2], points=data.points[:, :2])
    for one in (problem, replace(problem, particles=None)):
        verdict = identity_verdict(one, data)
        assert verdict.passed
        assert (verdict.integrator, verdict.layers) == (method, layers)
        assert verdict.largest[-1] <= verdict.bounds[-1] <= 1e3 * verdict.largest[-1]


def test_angles_of_another_turn_are_the_same_tokens() -> None:
    problem, _ = library.get("torch_circle", layers=12)
    start = initial_tokens(problem, 50, seed=6)
    x = Motion(particle_tokens(problem), "renormalised", 12).run(start, 3.0, (0.0, 1.5, 3.0)).x
    for moved in (x % (2.0 * np.pi), x - 2.0 * np.pi * (x > 0.0)):
        verdict = identity_verdict(problem, from_arrays({"angles": moved[:, :, 0], "t": np.array([0.0, 1.5, 3.0])}))
        assert verdict.passed
        assert verdict.largest.max() <= 1e-13


def test_where_identity_does_not_apply() -> None:
    tokens = dense(FIRST)
    noisy = replace(PLANE, tokens=replace(PLANE.tokens, noise=0.1)) if PLANE.tokens is not None else PLANE
    law = replace(PLANE, heads=LAW)
    cases = [
        (law, tokens, [0.0, 0.5, 1.0], "heads of the problem are a law"),
        (noisy, tokens, [0.0, 0.5, 1.0], "noise"),
        (PLANE, tokens, [0.1, 0.5, 1.0], "record the tokens at t = 0"),
        (PLANE, tokens[:1], [0.0], "one snapshot"),
        (PLANE, tokens, [0.0, 0.3, 1.0], "no edges of 8 equal layers"),
        (replace(PLANE, attention="windowed", window=1.0), tokens, [0.0, 0.5, 1.0], "not covered for particles"),
    ]
    for problem, points, times, words in cases:
        verdict = identity_verdict(problem, from_arrays({"tokens": points, "t": np.array(times)}))
        assert verdict.passed is None
        assert not verdict.applies
        assert words in verdict.words
    heads = from_arrays({"heads": np.ones((2, 12, 8)), "t": np.array([0.0, 1.0])})
    assert "heads, which are compared by their law" in identity_verdict(PLANE, heads).words


def test_precision_is_read_off_the_numbers() -> None:
    x = np.random.default_rng(0).normal(size=500)
    assert precision_of(x).words == "float64"
    assert precision_of(x.astype(np.float32).astype(float)).arithmetic == 2.0**-24
    assert precision_of(x.astype(np.float16).astype(float)).words == "float16"
    digits = precision_of(np.array([float(f"{v:.10g}") for v in x]))
    assert (digits.words, digits.arithmetic) == ("10 decimal digits", 2.0**-53)
    assert digits.storage == pytest.approx(5e-10)
    assert precision_of(np.array([float(f"{v:.9g}") for v in np.float32(x).astype(float)])).arithmetic == 2.0**-24


def test_errors_of_sums_are_within_gamma() -> None:
    rng = np.random.default_rng(2)
    for n in (10, 1000, 20_000):
        x = rng.normal(size=(20, n)).astype(np.float32)
        one_after_another = np.cumsum(x, axis=1, dtype=np.float32)[:, -1]
        error = np.abs(one_after_another - x.astype(float).sum(axis=1))
        assert (error <= gamma(n, 2.0**-24) * np.abs(x).sum(axis=1)).all()
    assert gamma(10, 1e-8) == pytest.approx(1e-7)
    assert gamma(10_000, 1e-8) == pytest.approx(8e-6)


@pytest.mark.parametrize("w", [0.8, -0.8])
def test_growth_is_that_of_the_fastest_perturbation(w: float) -> None:
    # all tokens see their mean: a shift is multiplied by 1 + w dt in each layer, differences stay
    model = ParticleTokens("softmax", "scalar", (Measure.particles(np.array([[w, 0.0]])),))
    start = Measure.particles(np.random.default_rng(8).normal(1.0, 1.0, (40, 1)))
    growth = growth_of(Motion(model, "euler", 10), start, 1.0, (0.0, 0.5, 1.0))
    by = (1.0 + 0.1 * w) ** 5
    if w > 0.0:
        np.testing.assert_allclose(growth, np.triu([[1.0, by, by**2], [1.0, 1.0, by], [1.0, 1.0, 1.0]]), rtol=1e-6)
    else:  # of random perturbations the small mean goes, and what is left may be a little larger
        assert (np.triu(growth) >= np.triu(np.full((3, 3), 1.0 - 1e-6))).all()
        assert growth.max() <= 1.1
