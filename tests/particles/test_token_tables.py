"""Tables of the velocity of tokens in the plane and on the circle: against direct sums at all tokens."""

from __future__ import annotations

from math import pi

import numpy as np
import pytest
from numpy.polynomial.chebyshev import chebvander

from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.kernels.ring_moments import ring_means, ring_moments
from meanfield_pde.kernels.token_tables import BLOCK, ring_values, tensor_sums, tensor_values
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadMatrices, head_matrices
from meanfield_pde.particles.circle_table import circle_velocity
from meanfield_pde.particles.plane_table import plane_velocity
from meanfield_pde.particles.tokens import CIRCLE, ParticleTokens, carry
from meanfield_pde.particles.velocity import attention_velocity, softmax_means

Array = np.ndarray
RNG = np.random.default_rng(11)
CLUMPS = np.concatenate([c + 0.25 * RNG.standard_normal((200, 2)) for c in ((-0.8, -0.2), (0.7, 0.6), (0.5, -0.8))])
LAWS = {
    "clumps": CLUMPS,
    "far from 0": CLUMPS + np.array([4.0, -2.0]),
    "square": RNG.uniform(-1.0, 1.0, (600, 2)),
    "on a line": np.stack([np.linspace(-1.0, 1.0, 600), np.full(600, 0.3)], axis=1),
    "almost one": 0.7 + 1e-7 * RNG.standard_normal((600, 2)),
    "one": np.full((600, 2), -0.4),
    # rare tokens far out bring a pole closer than the deviation tells
    "with few far": np.concatenate([0.2 * CLUMPS[:-4], [1.6, 1.8] + 0.1 * RNG.standard_normal((4, 2))]),
}


def few_heads(scale: float) -> tuple[HeadMatrices, Array]:
    """Five heads of full matrices, two of which share their scores, and weights that sum to less than 1."""
    theta = scale * np.random.default_rng(7).standard_normal((5, 8))
    theta[3, 4:] = theta[1, 4:]
    return head_matrices("matrix", theta, 2), RNG.uniform(0.05, 0.2, 5)


def on_circle(angles: Array) -> Array:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize("law", sorted(LAWS))
def test_in_the_plane_the_table_agrees_with_direct_sums(law: str) -> None:
    x, w = LAWS[law], RNG.uniform(0.0, 1.0, 600)
    w[::5] = 0.0
    heads, rho = few_heads(0.6)
    at = np.concatenate([x, x[:50] + 0.01])
    direct = attention_velocity("softmax", heads, rho, x, w, at)
    found, error = plane_velocity(heads, rho, x, w, at, 1e-10, False)
    largest = np.abs(direct).max()
    assert error <= 1e-10
    assert np.abs(found - direct).max() <= 1e-10 * largest
    if law in ("clumps", "square"):  # the error that is reported is one that is there
        rough, error = plane_velocity(heads, rho, x, w, at, 1e-4, False)
        assert 1e-9 < error <= 1e-4
        assert 0.02 * error < np.abs(rough - direct).max() / largest < 5.0 * error


@pytest.mark.parametrize(("attention", "scale"), [("softmax", 0.9), ("softmax", 4.0), ("unnormalised", 1.5)])
@pytest.mark.parametrize("law", ["two clumps", "all around", "almost one", "one", "with few far"])
def test_on_the_circle_the_table_agrees_with_direct_sums(law: str, attention: str, scale: float) -> None:
    # small scores are summed by moments, large ones are not
    angles = {
        "two clumps": np.concatenate([RNG.vonmises(0.0, 4.0, 300), RNG.vonmises(2.2, 6.0, 300)]),
        "all around": RNG.uniform(-pi, pi, 600),
        "almost one": 3.1 + 1e-7 * RNG.standard_normal(600),
        "one": np.full(600, 1.0),
        # rare tokens far out bring a pole closer than the deviation tells
        "with few far": np.concatenate([0.05 * RNG.standard_normal(592), 2.0 + 0.05 * RNG.standard_normal(8)]),
    }[law]
    x, w = on_circle(angles), RNG.uniform(0.0, 1.0, 600)
    heads, rho = few_heads(scale)
    assert (np.linalg.norm(heads.scores, 2, axis=(1, 2)).max() < 5.0) == (scale < 4.0)
    at = np.concatenate([x, on_circle(RNG.uniform(-pi, pi, 50))])
    direct = attention_velocity(attention, heads, rho, x, w, at)
    found, error = circle_velocity(attention, heads, rho, x, w, at, 1e-10, False)
    assert error <= 1e-10
    assert np.abs(found - direct).max() <= 1e-10 * np.abs(direct).max()
    if (law, attention) == ("two clumps", "softmax"):  # the error that is reported is one that is there
        rough, error = circle_velocity(attention, heads, rho, x, w, at, 1e-3, False)
        assert 1e-9 < error <= 1e-3
        assert 0.02 * error < np.abs(rough - direct).max() / np.abs(direct).max() < 5.0 * error


@pytest.mark.parametrize("circle", [False, True])
def test_both_ways_carry_tokens_to_the_same_places(circle: bool) -> None:
    points = np.concatenate([RNG.vonmises(0.0, 4.0, 500), RNG.vonmises(2.2, 6.0, 500)])[:, None] if circle else CLUMPS
    heads = (Measure.particles(np.array([[-0.9, 2.0, 0.3], [0.4, 0.8, -0.4]]) / np.array([1.0, 2.0 - circle, 1.0])),)
    ends = {}
    for way in ("direct", "table", "auto"):
        tokens = ParticleTokens("softmax", "rotation", heads, 2 - circle, CIRCLE if circle else None, way=way)
        run = carry(tokens, Measure.particles(points), 1.0, 8, "rk4")
        ends[way] = run.x[-1]
        assert (run.table_error is None) == (way == "direct")
        assert run.table_error is None or 0.0 < run.table_error <= 1e-10
    np.testing.assert_array_equal(ends["auto"], ends["table"])
    np.testing.assert_allclose(ends["table"], ends["direct"], rtol=0, atol=1e-10)
    assert np.abs(ends["direct"] - points).max() > 0.1


@pytest.mark.parametrize("circle", [False, True])
def test_a_table_that_does_not_reach_its_tolerance_is_refused_or_left(circle: bool) -> None:
    # two places and a steep score: m jumps between them
    x = np.repeat([[-1.0, 0.0], [1.0, 0.0]], 150, axis=0) * (1.0 if circle else 8.0)
    heads, w = (Measure.particles(np.array([[1.0, 4e5 if circle else 50.0]])),), np.full(300, 1 / 300)
    box, dim = (CIRCLE, 1) if circle else (None, 2)
    with pytest.raises(NotConvergedError, match="way = 'direct'"):
        ParticleTokens("softmax", "scalar", heads, dim, box, way="table").field(x, w, 0, x)
    found, error = ParticleTokens("softmax", "scalar", heads, dim, box).field(x, w, 0, x)
    assert error == 0.0
    np.testing.assert_allclose(found, x, rtol=1e-13, atol=1e-13)


def test_a_table_that_does_not_pay_is_left() -> None:
    # one head and few tokens, for which the nodes are as many as they
    for dim, box, x in ((2, None, CLUMPS[::2]), (1, CIRCLE, on_circle(RNG.uniform(-pi, pi, 200)))):
        heads = (Measure.particles(np.array([[1.0, 1.0 if dim == 2 else 12.0]])),)
        w = np.full(len(x), 1.0 / len(x))
        found, error = ParticleTokens("softmax", "scalar", heads, dim, box).field(x, w, 0, x)
        assert error == 0.0
        made = ParticleTokens("softmax", "scalar", heads, dim, box).made[0]
        assert isinstance(made, HeadMatrices)
        np.testing.assert_array_equal(found, attention_velocity("softmax", made, np.ones(1), x, w, x))
        assert ParticleTokens("softmax", "scalar", heads, dim, box, way="table").field(x, w, 0, x)[1] > 0.0


def test_a_node_that_overflows_takes_no_token_along() -> None:
    # tokens near 0 repel by e^{-700 cos}; at the other end of the circle, where no token is, it is e^700
    x, w = on_circle(0.001 * RNG.standard_normal(300)), np.full(300, 1 / 300)
    heads = (Measure.particles(np.array([[1.0, -700.0]])),)
    found, error = ParticleTokens("unnormalised", "scalar", heads, 1, CIRCLE).field(x, w, 0, x)
    assert error == 0.0
    np.testing.assert_allclose(found, np.exp(-700.0 * x @ x.T) @ x / 300, rtol=1e-10)


@pytest.mark.parametrize(("attention", "dim"), [("softmax", 3), ("l2", 2), ("unnormalised", 2), ("linear", 1)])
def test_what_has_no_table_is_refused_by_name(attention: str, dim: int) -> None:
    heads = (Measure.particles(np.ones((1, 2))),)
    with pytest.raises(MeanFieldError, match=f"attention = '{attention}' in dimension {dim}"):
        ParticleTokens(attention, "scalar", heads, dim, way="table")


def test_sums_at_tensor_nodes_are_the_sums_written_out() -> None:
    n, q = 2 * BLOCK + 7, 6
    y, w, nodes = RNG.standard_normal((2, n)), RNG.uniform(0.0, 1.0, n), 3.0 * RNG.standard_normal((2, q))
    sums = np.empty((q // 2, q, 2, 3))
    tensor_sums(nodes, y, w, sums)
    total, first, second = sums.transpose(3, 0, 2, 1).reshape(3, q, q)
    e = w * np.exp(nodes[0][:, None, None] * y[0] + nodes[1][None, :, None] * y[1])
    np.testing.assert_allclose(first / total, e @ y[0] / e.sum(axis=2), rtol=0, atol=1e-13)
    np.testing.assert_allclose(second / total, e @ y[1] / e.sum(axis=2), rtol=0, atol=1e-13)
    assert total.max() <= w.sum()


def test_interpolants_are_evaluated_as_written_and_apart_from_each_other() -> None:
    n, q = BLOCK + 9, 8
    c, unit, out = RNG.standard_normal((2, q, q)), RNG.uniform(-1.0, 1.0, (n, 2)), np.empty((n, 2))
    tensor_values(c, unit, out)
    wanted = np.einsum("ni,cik,nk->nc", chebvander(unit[:, 0], q - 1), c, chebvander(unit[:, 1], q - 1))
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-13)
    some = np.empty((5, 2))
    tensor_values(c, unit[7:12].copy(), some)
    np.testing.assert_array_equal(some, out[7:12])
    modes, angles = RNG.standard_normal((9, 2)) + 1j * RNG.standard_normal((9, 2)), RNG.uniform(-pi, pi, n)
    ring_values(modes.real.copy(), modes.imag.copy(), on_circle(angles), out)
    wanted = (np.exp(1j * np.outer(angles, np.arange(9))) @ modes).real
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("size", [0.0, 1e-12, 0.3, 2.0, 5.0])
def test_means_by_moments_are_softmax_means(size: float) -> None:
    psi, w = np.concatenate([RNG.vonmises(0.5, 9.0, BLOCK), RNG.vonmises(-2.0, 4.0, 41)]), RNG.random(BLOCK + 41)
    moments, turned = np.empty((2, 42)), np.exp(-1j * np.outer(np.arange(42), psi)) @ w
    ring_moments(on_circle(psi), w, moments)
    np.testing.assert_allclose(moments, [turned.real, turned.imag], rtol=0, atol=1e-13 * w.sum())
    # also keys along one axis, as a singular A has them
    keys = size * np.concatenate([on_circle(RNG.uniform(-pi, pi, BLOCK)), np.linspace([-1.0, 0.0], [1.0, 0.0], 9)])
    means = np.empty(keys.shape)
    ring_means(keys, moments, means)
    # as many digits are lost as e^{2|z|} has
    wanted = softmax_means(keys, on_circle(psi), w)[0]
    np.testing.assert_allclose(means, wanted, rtol=0, atol=1e-14 + 1e-15 * np.exp(2.0 * size))
