"""Motions that are wrong in one way, against dense sums written out for few tokens, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.particles.alternatives import (
    ALL,
    AXIS,
    FREE,
    FROZEN,
    ORDER_1,
    SCORE,
    SUM,
    TRANSPOSE_A,
    TRANSPOSE_W,
    VALUE,
    Alternative,
    alternatives_of,
    carry_altered,
    head_points,
)
from meanfield_pde.particles.tokens import CIRCLE, ParticleTokens, carry

Array = np.ndarray
T, LAYERS = 0.6, 3
DRIFT = np.array([0.1, -0.2])


def drift(x: Array, t: float) -> Array:
    return DRIFT[: x.shape[1]] * (1.0 + t) - 0.1 * x


def plane(attention: str = "softmax") -> tuple[ParticleTokens, Measure, Array, Array]:
    """Six weighted tokens and three heads, A not normal and W not symmetric."""
    rng = np.random.default_rng(4)
    A, W = rng.normal(size=(3, 2, 2)), rng.normal(size=(3, 2, 2))
    start = Measure.particles(rng.normal(size=(6, 2)), np.array([0.3, 0.1, 0.2, 0.15, 0.05, 0.2]))
    return ParticleTokens(attention, "matrix", (Measure.particles(head_points(A, W)),), 2, None, drift), start, A, W


def weights_of(attention: str, A: Array, x: Array, w: Array, over: str) -> Array:
    """P_ij of one head, the sums over keys j or over queries i."""
    s = x @ A.T @ x.T
    if attention == "l2":
        own = np.einsum("ni,ij,nj->n", x, A, x)
        s -= 0.5 * own[:, None] + 0.5 * own[None, :]
    e = np.exp(s)
    return w[None, :] * e / ((e @ w)[:, None] if over == "keys" else (w @ e)[None, :])


def dense(
    method: str, attention: str, A: Array, W: Array, x: Array, w: Array, over: str = "keys", frozen: bool = False,
    count: int | None = None,
) -> Array:  # fmt: skip
    """The motion by its formulas: mean (or a sum over ``count``) of heads, whole matrices, one layer after another."""
    dt = T / LAYERS

    def velocity(x: Array, first: Array, t: float) -> Array:
        out = np.zeros_like(x)
        for a, value in zip(A, W, strict=True):
            out += weights_of(attention, a, first if frozen else x, w, over) @ x @ value.T / (count or len(A))
        return out + drift(x, t)

    for k in range(LAYERS):
        t = k * dt
        k1 = velocity(x, x, t)
        if method == "euler":
            x = x + dt * k1
        elif method == "midpoint":
            x = x + dt * velocity(x + dt / 2 * k1, x, t + dt / 2)
        elif method == "heun":
            x = x + dt / 2 * (k1 + velocity(x + dt * k1, x, t + dt))
        else:
            k2 = velocity(x + dt / 2 * k1, x, t + dt / 2)
            k3 = velocity(x + dt / 2 * k2, x, t + dt / 2)
            x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + velocity(x + dt * k3, x, t + dt))
    return x


SAID: dict[str, tuple[Alternative, Callable[..., Array]]] = {
    "score": (SCORE.at(1.3), lambda m, k, A, W, x, w: dense(m, k, 1.3 * A, W, x, w)),
    "value": (VALUE.at(0.8), lambda m, k, A, W, x, w: dense(m, k, A, 0.8 * W, x, w)),
    "A": (TRANSPOSE_A, lambda m, k, A, W, x, w: dense(m, k, A.transpose(0, 2, 1), W, x, w)),
    "W": (TRANSPOSE_W, lambda m, k, A, W, x, w: dense(m, k, A, W.transpose(0, 2, 1), x, w)),
    "axis": (AXIS, lambda m, k, A, W, x, w: dense(m, k, A, W, x, w, over="queries")),
    "sum": (SUM, lambda m, k, A, W, x, w: dense(m, k, A, W, x, w, count=1)),
    "frozen": (FROZEN, lambda m, k, A, W, x, w: dense(m, k, A, W, x, w, frozen=True)),
    "order": (ORDER_1, lambda m, k, A, W, x, w: dense("euler", k, A, W, x, w)),
}


@pytest.mark.parametrize("method", ["midpoint", "heun", "rk4"])
@pytest.mark.parametrize("attention", ["softmax", "l2"])
@pytest.mark.parametrize("which", SAID)
def test_each_is_its_formula(which: str, attention: str, method: str) -> None:
    model, start, A, W = plane(attention)
    alternative, formula = SAID[which]
    found = carry_altered(model, start, T, LAYERS, method, None, alternative).x[-1]
    np.testing.assert_allclose(found, formula(method, attention, A, W, start.points, start.weights), rtol=0, atol=1e-13)
    right = carry(model, start, T, LAYERS, method).x[-1]
    assert np.abs(found - right).max() > 1e-4
    np.testing.assert_allclose(
        right, dense(method, attention, A, W, start.points, start.weights), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("alternative", [AXIS, FROZEN])
def test_tables_on_a_line_are_the_direct_sums(alternative: Alternative) -> None:
    rng = np.random.default_rng(7)
    heads = (Measure.particles(np.stack([rng.normal(-0.6, 0.4, 5), rng.normal(1.0, 0.5, 5)], axis=1)),)
    start = Measure.particles(rng.normal(0.4, 1.0, (300, 1)), rng.uniform(0.5, 1.5, 300) / 300)
    table = ParticleTokens("softmax", "scalar", heads, way="table", tolerance=1e-12)
    runs = [
        carry_altered(one, start, 1.0, 8, "heun", None, alternative) for one in (table, replace(table, way="direct"))
    ]
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=0, atol=2e-12)
    assert runs[0].table_error is not None
    assert 0.0 < runs[0].table_error <= 1e-12
    assert np.abs(runs[1].x[-1] - carry(table, start, 1.0, 8, "heun").x[-1]).max() > 1e-4


@pytest.mark.parametrize("circle", [False, True])
@pytest.mark.parametrize("alternative", [AXIS, FROZEN])
def test_where_only_the_model_has_a_table_the_alternatives_are_direct(alternative: Alternative, circle: bool) -> None:
    rng = np.random.default_rng(6)
    x = rng.vonmises(0.0, 3.0, (240, 1)) if circle else 0.4 * rng.standard_normal((240, 2))
    heads = (Measure.particles(np.array([[-0.6, 1.2, 0.3], [0.5, 0.7, -0.4]])),)
    model = ParticleTokens("softmax", "rotation", heads, x.shape[1], CIRCLE if circle else None, way="table")
    table, direct = (
        carry_altered(one, Measure.particles(x), 0.5, 4, "heun", None, alternative).x[-1]
        for one in (model, replace(model, way="direct"))
    )
    np.testing.assert_allclose(table, direct, rtol=0, atol=1e-10)


def test_on_the_circle_attention_is_altered_in_the_plane() -> None:
    rng = np.random.default_rng(9)
    A, W = rng.normal(size=(2, 2, 2)), rng.normal(size=(2, 2, 2))
    model = ParticleTokens("softmax", "matrix", (Measure.particles(head_points(A, W)),), 1, CIRCLE)
    phi, w, dt = rng.uniform(-3.0, 3.0, 6), np.full(6, 1 / 6), 0.2

    def speed(phi: Array, first: Array, over: str) -> Array:
        x, old = np.stack([np.cos(phi), np.sin(phi)], axis=1), np.stack([np.cos(first), np.sin(first)], axis=1)
        v = sum(weights_of("softmax", a, old, w, over) @ x @ b.T / 2 for a, b in zip(A, W, strict=True))
        return np.asarray(np.cos(phi) * v[:, 1] - np.sin(phi) * v[:, 0])

    start = Measure.particles(phi[:, None])
    one = carry_altered(model, start, dt, 1, "heun", None, FROZEN).x[-1, :, 0]
    k1 = speed(phi, phi, "keys")
    np.testing.assert_allclose(one, phi + dt / 2 * (k1 + speed(phi + dt * k1, phi, "keys")), rtol=0, atol=1e-14)
    one = carry_altered(model, start, dt, 1, "renormalised", None, AXIS).x[-1, :, 0]
    np.testing.assert_allclose(one, phi + np.arctan(dt * speed(phi, phi, "queries")), rtol=0, atol=1e-14)


def test_tokens_off_the_circle_are_free_in_the_plane() -> None:
    model = ParticleTokens("softmax", "scalar", (Measure.particles(np.array([[1.0, 4.0]])),), 1, CIRCLE)
    phi = np.random.default_rng(5).uniform(-3.1, 3.1, 6)
    x = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    for _ in range(4):
        x = x + 0.25 * weights_of("softmax", 4.0 * np.eye(2), x, np.full(6, 1 / 6), "keys") @ x
    found = carry_altered(model, Measure.particles(phi[:, None]), 1.0, 4, "renormalised", None, FREE).x[-1, :, 0]
    np.testing.assert_allclose(found, np.arctan2(x[:, 1], x[:, 0]), rtol=0, atol=1e-13)
    turn = replace(model, box=Grid((0.0,), (2 * np.pi,), (3,), (True,)))
    turned = carry_altered(turn, Measure.particles(phi[:, None]), 1.0, 4, "renormalised", None, FREE).x[-1, :, 0]
    np.testing.assert_allclose(turned, found % (2 * np.pi), rtol=0, atol=1e-13)


def names(model: ParticleTokens, integrator: str) -> list[str]:
    return [one.name for one in alternatives_of(model, integrator)]


def test_only_what_changes_something_is_offered() -> None:
    model, start, A, _ = plane()
    assert names(model, "heun") == [one.name for one in ALL if one is not FREE]
    assert names(model, "euler") == [one.name for one in ALL[:6]]
    line = ParticleTokens("softmax", "scalar", (Measure.particles(np.array([[0.7, 0.8]])),))
    assert names(line, "euler") == ["score scale", "value scale", "wrong axis"]
    assert names(replace(line, attention="linear"), "rk4") == ["score scale", "value scale", "order-1 integrator"]
    alone = ParticleTokens("none", "perceptron", (Measure.particles(np.ones((2, 3))),))
    assert names(alone, "euler") == ["value scale", "missing 1/H"]
    assert names(ParticleTokens("none", "scalar", (), 1, None, drift), "rk4") == []
    symmetric = np.concatenate([head_points(A + A.transpose(0, 2, 1), A[:1].repeat(3, axis=0))])
    only_w = ParticleTokens("softmax", "matrix", (Measure.particles(symmetric),), 2)
    assert "transpose of A" not in names(only_w, "euler")
    assert "transpose of W" in names(only_w, "euler")
    with pytest.raises(MeanFieldError, match="changes nothing for this model"):
        carry_altered(model, start, T, LAYERS, "euler", None, FROZEN)
    with pytest.raises(MeanFieldError, match=r"alternative 'missing 1/N' is not known; .*missing 1/H"):
        carry_altered(model, start, T, LAYERS, "euler", None, Alternative("missing 1/N", ""))


@pytest.mark.parametrize("alternative", [SCORE, VALUE])
def test_a_scale_of_one_is_the_model(alternative: Alternative) -> None:
    model, start, _, _ = plane()
    found = carry_altered(model, start, T, LAYERS, "rk4", None, alternative)
    np.testing.assert_array_equal(found.x, carry(model, start, T, LAYERS, "rk4").x)
    assert alternative.at(2.0).value == 2.0
    assert alternative.value == 1.0
