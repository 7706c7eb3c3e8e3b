"""The velocity of finitely many tokens: against sums written out, and the table against direct sums."""

from __future__ import annotations

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.token_means import BLOCK, chebyshev_values
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.particles.table import line_velocity
from meanfield_pde.particles.tokens import ParticleTokens
from meanfield_pde.particles.velocity import attention_velocity, softmax_means

Array = np.ndarray


def brute(attention: str, theta: Array, rho: Array, y: Array, w: Array, at: Array) -> Array:
    """V by loops over heads and points, theta = (W, A) row by row."""
    d = y.shape[1]
    out = np.zeros_like(at)
    for head, share in zip(theta.reshape(len(theta), 2, d, d), rho, strict=True):
        value, score = head
        for i, x in enumerate(at):
            s = np.array([score @ x @ q for q in y])
            if attention == "linear":
                out[i] += share * value @ sum(m * q * (q @ score @ x) for m, q in zip(w, y, strict=True))
                continue
            if attention == "l2":
                s -= 0.5 * np.array([score @ q @ q for q in y])
            kernel = w * np.exp(s if attention == "unnormalised" else s - s.max())
            mean = kernel @ y
            out[i] += share * value @ (mean if attention == "unnormalised" else mean / kernel.sum())
    return out


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("attention", ["softmax", "linear", "l2", "unnormalised"])
def test_velocities_are_the_sums_written_out(attention: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    y, w = rng.standard_normal((23, dim)), rng.uniform(0.0, 1.0, 23)
    w[::7] = 0.0
    at = rng.standard_normal((6, dim))
    theta, rho = 0.7 * rng.standard_normal((4, 2 * dim * dim)), rng.uniform(0.5, 1.0, 4)
    theta[3, dim * dim :] = theta[1, dim * dim :]  # two heads of one score matrix
    found = attention_velocity(attention, head_matrices("matrix", theta, dim), rho, y, w, at)
    np.testing.assert_allclose(found, brute(attention, theta, rho, y, w, at), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_means_of_more_points_than_a_block_and_of_far_ones(dim: int) -> None:
    rng = np.random.default_rng(dim)
    y = rng.standard_normal((2 * BLOCK + 7, dim))
    w = rng.uniform(0.0, 1.0, len(y))
    keys = 2.0 * rng.standard_normal((37, dim))
    for scale, far in ((1.0, False), (40.0, False), (40.0, True)):
        points = scale * y
        if far:  # a point of no weight sets the bound of the scores, and everything else underflows beside it
            points = np.concatenate([points[:-1], np.full((1, dim), 1e4)])
            w = np.concatenate([w[:-1], np.zeros(1)])
        means, log_z = softmax_means(keys, points, w)
        s = np.where(w > 0.0, keys @ points.T, -np.inf)
        top = s.max(axis=1, keepdims=True)
        e = w * np.exp(s - top)
        total = e.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(means, e @ points / total, rtol=1e-12, atol=1e-13 * np.abs(points[:-1]).max())
        np.testing.assert_allclose(log_z, (top + np.log(total))[:, 0], rtol=1e-14)
        some = softmax_means(keys[5:9], points, w)
        np.testing.assert_array_equal(some[0], means[5:9])
        np.testing.assert_array_equal(some[1], log_z[5:9])


def test_scores_as_large_as_doubles_resolve_them() -> None:
    # <z, y> about 1e13 and then 2e19, which no integer of 64 bits holds
    close = 1e8 + np.array([[0.0], [1.0], [2.0]])
    means, log_z = softmax_means(np.array([[1e5], [-1e5]]), close, np.ones(3))
    np.testing.assert_allclose(means[:, 0], [1e8 + 2.0, 1e8], rtol=1e-15)
    np.testing.assert_allclose(log_z, [1e13 + 2e5, -1e13], rtol=1e-14)
    # equal tokens: each sees their common place, however large the scores are
    found = softmax_means(np.array([[7e9], [-7e9]]), np.full((3, 1), 3e9), np.ones(3))[0]
    np.testing.assert_allclose(found, 3e9, rtol=1e-15)
    # neighbours among doubles, with scores that are hundreds apart and 1e17 large: nothing leaves their hull
    pair = np.array([[1.0], [1.0 + 2.0**-50]])
    keys = np.linspace(-3e17, 3e17, 41)[:, None]
    means, log_z = softmax_means(keys, pair, np.full(2, 0.5))
    assert ((pair[0] - 1e-15 <= means) & (means <= pair[1] + 1e-15)).all()
    np.testing.assert_allclose(log_z, keys[:, 0], rtol=1e-14)


def test_a_narrow_l2_kernel_keeps_every_token_in_sight() -> None:
    # e^{-a y^2/2} alone is 1e-3400 at the far token, which still sees itself and nothing else
    x = np.array([[0.0], [0.001], [12.5]])
    heads = head_matrices("scalar", np.array([[1.0, 100.0]]), 1)
    found = attention_velocity("l2", heads, np.ones(1), x, np.full(3, 1 / 3), x)
    near = 0.001 / (1.0 + np.exp(0.5 * 100.0 * 0.001**2))
    np.testing.assert_allclose(found[:, 0], [near, 0.001 - near, 12.5], rtol=1e-12)


@pytest.mark.parametrize("spread", [0.02, 1.0, 3.0])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_table_agrees_with_direct_sums(spread: float, shift: float) -> None:
    rng = np.random.default_rng(3)
    x = shift + spread * np.concatenate([rng.normal(-1.0, 0.3, (300, 1)), rng.normal(0.9, 0.2, (200, 1))])
    w = rng.uniform(0.0, 1.0, 500)
    theta = np.stack([rng.normal(-0.6, 0.4, 9), rng.normal(0.7, 0.5, 9)], axis=1)
    heads, rho = head_matrices("scalar", theta, 1), np.full(9, 1 / 9)
    at = np.concatenate([x, shift + spread * rng.uniform(-2.0, 2.0, (40, 1))])
    found, error = line_velocity(heads, rho, x, w, at, 1e-10)
    direct = attention_velocity("softmax", heads, rho, x, w, at)
    assert 0.0 < error <= 1e-10
    assert np.abs(found - direct).max() <= 1e-9 * np.abs(direct).max()
    if spread == 3.0:  # the error that is reported is one that is there
        rough, error = line_velocity(heads, rho, x, w, at, 1e-3)
        assert 1e-8 < np.abs(rough - direct).max() / np.abs(direct).max() < 1e-1
        assert 1e-8 < error <= 1e-3


def test_a_table_that_is_not_fine_enough_is_refused_or_left() -> None:
    # two tokens far apart: m jumps between them, tanh with poles near the line of keys
    x = Measure.particles(np.array([[-300.0], [300.0]]))
    heads = (Measure.particles(np.array([[1.0, 5.0]])),)
    with pytest.raises(MeanFieldError, match="way = 'direct'"):
        ParticleTokens("softmax", "scalar", heads, way="table").field(x.points, x.weights, 0, x.points)
    many = np.concatenate([np.full((150, 1), -300.0), np.full((150, 1), 300.0)])
    found, error = ParticleTokens("softmax", "scalar", heads).field(many, np.full(300, 1 / 300), 0, many)
    assert error == 0.0
    np.testing.assert_allclose(found, many, rtol=1e-13)


def test_chebyshev_values_are_sums_of_cosines() -> None:
    rng = np.random.default_rng(0)
    c, angle = rng.standard_normal(11), rng.uniform(0.0, np.pi, BLOCK + 5)
    out = np.empty(len(angle))
    chebyshev_values(c, np.cos(angle), out)
    np.testing.assert_allclose(out, np.cos(np.outer(angle, np.arange(11))) @ c, rtol=0, atol=1e-12)


def test_perceptrons_look_at_no_token() -> None:
    rng = np.random.default_rng(5)
    theta, x = rng.standard_normal((6, 5)), rng.standard_normal((7, 2))
    tokens = ParticleTokens("none", "perceptron", (Measure.particles(theta),), dim=2)
    found = tokens.field(x, np.full(7, 1 / 7), 0, x)[0]
    wanted = np.mean([np.tanh(x @ row[2:4] + row[4])[:, None] * row[:2] for row in theta], axis=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("attention", "more", "words"),
    [
        ("windowed", {}, "allowed: softmax, linear, l2, unnormalised, none"),
        ("sinkhorn", {}, "not covered for particles"),
        ("softmax", {"way": "tabel"}, "did you mean 'table'"),
        ("l2", {"way": "table"}, "way = 'direct'"),
        ("none", {}, "do not act"),
    ],
)
def test_what_particles_do_not_have_is_refused(attention: str, more: dict[str, str], words: str) -> None:
    with pytest.raises(MeanFieldError, match=words):
        ParticleTokens(attention, "scalar", (Measure.particles(np.ones((1, 2))),), **more)


def test_an_unnormalised_kernel_that_overflows_is_refused() -> None:
    heads = head_matrices("scalar", np.array([[1.0, 1.0]]), 1)
    x = np.array([[30.0]])
    with pytest.raises(MeanFieldError, match="e\\^900"):
        attention_velocity("unnormalised", heads, np.ones(1), x, np.ones(1), x)
