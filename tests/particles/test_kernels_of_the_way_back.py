"""The kernels of the way back on tiny inputs against plain numpy, cheap enough to run uncompiled too."""

from __future__ import annotations

import numpy as np
import pytest

from meanfield_pde.kernels.line_tokens import line_tokens, line_tokens_transpose
from meanfield_pde.kernels.token_means_transpose import token_means_transpose

pytestmark = pytest.mark.plain


def means(keys: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Softmax means of complex or real keys (K, d) and points (n, d)."""
    score = keys @ y.T
    e = w * np.exp(score - score.real.max(axis=1, keepdims=True))
    return np.asarray((e @ y) / e.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_cotangents_of_means_reach_keys_and_points(dim: int) -> None:
    rng = np.random.default_rng(dim)
    keys, y, u = rng.normal(size=(3, dim)), rng.normal(size=(6, dim)), rng.normal(size=(3, dim))
    w = np.array([0.2, 0.0, 0.3, 0.1, 0.25, 0.15])
    y[1] += 40.0  # of no weight and the largest score, or the least
    found, to_keys, to_points = np.empty(keys.shape), np.empty(keys.shape), np.ones((dim, 6))
    token_means_transpose(keys, np.ascontiguousarray(y.T), w, u, found, to_keys, to_points)
    seen = w > 0.0
    np.testing.assert_allclose(found, means(keys, y[seen], w[seen]), rtol=1e-14, atol=1e-15)
    for k in range(3):
        for c in range(dim):
            moved = keys.astype(complex)
            moved[k, c] += 1e-30j
            assert to_keys[k, c] == pytest.approx((u * means(moved, y[seen], w[seen]).imag).sum() / 1e-30, abs=1e-13)
    for j in range(6):
        for c in range(dim):
            moved = y.astype(complex)
            moved[j, c] += 1e-30j
            wanted = (u * means(keys, moved[seen], w[seen]).imag).sum() / 1e-30
            assert to_points[c, j] - 1.0 == pytest.approx(wanted, abs=1e-13)


def test_far_scores_neither_overflow_nor_vanish() -> None:
    y, w = np.array([[-900.0, 0.0, 900.0]]), np.full(3, 1 / 3)
    out, to_keys, to_points = np.empty((2, 1)), np.empty((2, 1)), np.zeros((1, 3))
    token_means_transpose(np.array([[5.0], [-5.0]]), y, w, np.ones((2, 1)), out, to_keys, to_points)
    np.testing.assert_allclose(out[:, 0], [900.0, -900.0], rtol=1e-15)
    np.testing.assert_allclose(to_keys, 0.0, atol=1e-20)
    np.testing.assert_allclose(to_points, [[1.0, 0.0, 1.0]], atol=1e-12)


def test_a_table_on_a_line_is_the_mixture_of_means_and_its_transpose() -> None:
    rng = np.random.default_rng(4)
    size, reach, least = 16, 0.9, 0.05
    x, w = rng.uniform(-0.8, 0.8, (2, 5)), np.full((2, 5), 0.2)
    a, share = np.array([0.9, -0.5, 0.2]), np.array([0.4, -1.1, 0.7])
    angle = np.pi * (np.arange(size) + 0.5) / size
    interpolation = 2.0 / size * np.cos(np.arange(size)[:, None] * angle)
    interpolation[0] *= 0.5
    nodes, checks = np.cos(angle), np.array([0.31, -0.77])
    basis = np.array([[sum(s * np.cos(q * np.arccos(b / reach * u)) for s, b in zip(share, a, strict=True))
                       for q in range(size)] for u in nodes])  # fmt: skip
    mixture = interpolation @ basis @ interpolation
    rows = np.cos(np.arange(size) * np.arccos(checks)[:, None]) @ interpolation
    velocity, found, series, half = np.empty((2, 5)), np.empty((2, size)), np.empty((2, size)), np.empty(2)
    unit = np.concatenate([nodes, checks])
    error = line_tokens(x, w, reach, least, unit, mixture, rows, velocity, found, series, half)
    assert 0.0 < error < 1e-10

    def dense(x: np.ndarray, share: np.ndarray) -> np.ndarray:
        return np.asarray(
            sum(s * np.stack([means(b * row[:, None], row[:, None], w[0])[:, 0] for row in x])
                for s, b in zip(share, a, strict=True))
        )  # fmt: skip

    np.testing.assert_allclose(velocity, dense(x, share), atol=1e-10)
    g, to_x, to_mixture = rng.normal(size=(2, 5)), np.empty((2, 5)), np.zeros((size, size))
    line_tokens_transpose(x, w, reach, nodes, mixture, series, half, g, to_x, to_mixture)
    for place in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[place] += 1e-30j
        assert to_x[place] == pytest.approx((g * dense(moved, share).imag).sum() / 1e-30, abs=1e-8)
    # V is linear in the mixture, and the mixture in the shares
    assert (to_mixture * mixture).sum() == pytest.approx((g * velocity).sum(), rel=1e-12)
    x[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        broken = line_tokens(x, w, reach, least, unit, mixture, rows, velocity, found, series, half)
    assert np.isnan(broken)
