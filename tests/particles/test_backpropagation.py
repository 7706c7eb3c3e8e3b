"""Exact derivatives of a loss of N tokens: complex steps through a dense numpy code, Taylor tests, duality."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.measure import Measure
from meanfield_pde.model.head_gradients import to_theta
from meanfield_pde.model.heads import head_matrices
from meanfield_pde.particles.backpropagation import Layers, carry, carry_back
from meanfield_pde.particles.direct_field import DirectField
from meanfield_pde.particles.final_loss import FinalLoss
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.particles.line_field import LineField
from meanfield_pde.particles.token_side import ParticleTokenSide
from meanfield_pde.problem import Feature, Objective, QueryTerm

SQUARE = Objective("regression", features=(Feature("polynomial", (0.1, 1.0, 0.5)),), bias=(0.05,))
TARGETS = np.array([0.4, -0.3])
# explicit Runge-Kutta methods, written down anew
TABLEAUS = {
    "euler": ([[]], [1.0]),
    "midpoint": ([[], [0.5]], [0.0, 1.0]),
    "heun": ([[], [1.0]], [0.5, 0.5]),
    "rk4": ([[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]], [1 / 6, 1 / 3, 1 / 3, 1 / 6]),
}


def matrices(family: str, theta: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """A and W of one head, also for complex theta."""
    eye = np.eye(dim)
    if family == "matrix":
        W, A = theta.reshape(2, dim, dim)
        return A, W
    if family == "rotation":
        c, s = np.cos(theta[2]), np.sin(theta[2])
        return theta[1] * np.array([[c, -s], [s, c]]), theta[0] * eye
    return np.diag(theta[1:]) if family == "diagonal" else theta[1] * eye, theta[0] * eye


def dense_loss(
    x: np.ndarray, masses: np.ndarray, family: str, theta: np.ndarray, rho: np.ndarray, T: float, layers: int, way: str
) -> complex:
    """The loss of SQUARE by plain sums: x (B, n, d), theta (parts, K, q), rho (parts, K); all may be complex."""
    dim, total = x.shape[2], 0.0
    for points, w, target in zip(x, masses, TARGETS, strict=False):

        def rate(y: np.ndarray, part: int, w: np.ndarray = w) -> np.ndarray:
            out = np.array([0.2, -0.1, 0.3])[:dim] - 0.3 * y
            for one, share in zip(theta[part], rho[part], strict=True):
                A, W = matrices(family, one, dim)
                score = y @ A.T @ y.T
                e = w * np.exp(score - score.real.max(axis=1, keepdims=True))
                out = out + share * ((e @ y) / e.sum(axis=1, keepdims=True)) @ W.T
            return np.asarray(out)

        y, dt = points, T / layers
        for layer in range(layers):
            a, b = TABLEAUS[way]
            slopes: list[np.ndarray] = []
            for row in a:
                slopes.append(rate(y + dt * sum((c * k for c, k in zip(row, slopes, strict=True)), 0.0 * y),
                                   layer * len(theta) // layers))  # fmt: skip
            y = y + dt * sum(c * k for c, k in zip(b, slopes, strict=True))
        total = total + 0.5 * (w @ (0.1 + y[:, 0] + 0.5 * y[:, 0] ** 2) + 0.05 - target) ** 2 / len(x)
    return total


def complex_steps(f: Callable[[np.ndarray], complex], at: np.ndarray) -> np.ndarray:
    """f' by (Im f(x + i h e))/h: no difference is taken, so no digit is lost."""
    out = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        moved = at.astype(complex)
        moved[index] += 1e-30j
        out[index] = complex(f(moved)).imag / 1e-30
    return out


def side(
    family: str, x: np.ndarray, masses: np.ndarray, T: float, layers: int, name: str, parts: int, way: str
) -> ParticleTokenSide:
    dim = x.shape[2]
    path = Layers(T, layers, METHODS[name], np.array([0.2, -0.1, 0.3])[:dim], 0.3)
    lengths = (1.0,) if parts == 1 else (T / parts,) * parts
    return ParticleTokenSide(family, x, masses, path, FinalLoss(SQUARE, TARGETS), lengths, True, way)


CASES = [
    ("scalar", 1, 1, "euler", "direct"), ("scalar", 1, 2, "rk4", "table"), ("matrix", 1, 1, "heun", "table"),
    ("diagonal", 1, 1, "midpoint", "table"), ("scalar", 2, 1, "rk4", "direct"), ("rotation", 2, 2, "heun", "direct"),
    ("diagonal", 2, 1, "euler", "direct"), ("matrix", 2, 1, "midpoint", "direct"), ("diagonal", 3, 1, "heun", "direct"),
    ("matrix", 3, 2, "euler", "direct"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "dim", "parts", "name", "way"), CASES)
def test_derivatives_are_those_of_a_dense_code_by_complex_steps(
    family: str, dim: int, parts: int, name: str, way: str
) -> None:
    rng = np.random.default_rng(3)
    q = {"scalar": 2, "rotation": 3, "diagonal": 1 + dim, "matrix": 2 * dim * dim}[family]
    x, masses = rng.normal(size=(2, 7, dim)), rng.uniform(0.5, 1.5, (2, 7))
    masses /= masses.sum(axis=1, keepdims=True)
    theta, rho = rng.normal(size=(parts, 4, q)), rng.uniform(0.1, 0.4, (parts, 4))
    T, layers = 0.8, 4
    laws = tuple(Measure.particles(one, share) for one, share in zip(theta, rho, strict=True))
    model = side(family, x, masses, T, layers, name, parts, way)
    found = model.first_variation(laws)
    dense = (T, layers, name)
    assert found.loss == pytest.approx(dense_loss(x, masses, family, theta, rho, *dense).real, rel=1e-13)
    assert model.loss(laws) == found.loss
    scale = 1.0 if parts == 1 else T / parts
    by_weight = complex_steps(lambda r: dense_loss(x, masses, family, theta, r, *dense), rho) / scale
    by_theta = complex_steps(lambda t: dense_loss(x, masses, family, t, rho, *dense), theta) / (scale * rho[:, :, None])
    by_token = complex_steps(lambda y: dense_loss(y, masses, family, theta, rho, *dense), x)
    close = 2e-12 if way == "direct" else 2e-10
    np.testing.assert_allclose(found.potential, by_weight, rtol=close, atol=close * np.abs(by_weight).max())
    assert found.gradient is not None
    np.testing.assert_allclose(found.gradient, by_theta, rtol=close, atol=close * np.abs(by_theta).max())
    fields, path = model.sweep(laws)
    _, g = model.loss_of.value_and_gradient(path.nodes[-1], masses)
    to_tokens, _ = carry_back(fields, model.layers, path, masses, g / 2)
    np.testing.assert_allclose(to_tokens, by_token, rtol=close, atol=close * np.abs(by_token).max())
    assert found.report.dual
    assert (found.report.table_error is None) == (way == "direct")


def test_a_zero_step_is_reached_with_slope_two() -> None:
    # 96 tokens and 128 heads by the table, a random direction of all heads: |L(θ + hη) − L(θ) − h<∇L, η>| ~ h²
    rng = np.random.default_rng(5)
    x, masses = np.sort(rng.normal(size=(2, 96, 1)), axis=1) * 0.6, np.full((2, 96), 1 / 96)
    theta, direction = rng.normal(size=(1, 128, 2)) * 0.7, rng.normal(size=(1, 128, 2))
    model = side("scalar", x, masses, 1.0, 20, "euler", 1, "table")
    start = model.first_variation((Measure.particles(theta[0]),))
    assert start.gradient is not None
    # the flow of 128 heads of weight 1/128 each: L changes by the mean over heads of ∇psi·η
    slope = float((start.gradient * direction).sum() / 128)
    steps = np.array([1e-1, 1e-2, 1e-3, 1e-4])
    rests = [
        abs(model.loss((Measure.particles((theta + h * direction)[0]),)) - start.loss - h * slope) for h in steps
    ]
    slopes = np.diff(np.log(rests)) / np.diff(np.log(steps))
    assert np.abs(slopes - 2.0).max() < 0.05
    difference = [model.loss((Measure.particles((theta + h * direction)[0]),)) for h in (1e-4, -1e-4)]
    assert (difference[0] - difference[1]) / 2e-4 == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("way", ["direct", "table"])
def test_costates_and_perturbations_pair_alike_at_both_ends_of_the_depth(way: str) -> None:
    # <g, Dσ> = <Dᵀg, σ>; D σ by a complex step of the dense flow for each functional of the last tokens
    rng = np.random.default_rng(9)
    x, w = rng.normal(size=(1, 9, 1)), np.full((1, 9), 1 / 9)
    heads, rho = head_matrices("scalar", rng.normal(size=(5, 2)), 1), np.full(5, 0.2)
    layers = Layers(1.0, 6, METHODS["rk4"], np.zeros(1), 0.0)
    field = DirectField(heads, rho) if way == "direct" else LineField.build(heads, rho, 192)
    path = carry([field], layers, x, w, np.inf)
    assert path is not None
    g, sigma = rng.normal(size=x.shape), rng.normal(size=x.shape)
    y, dt = x[0] + 1e-30j * sigma[0], 1 / 6

    def rate(y: np.ndarray) -> np.ndarray:
        out = np.zeros(y.shape, dtype=complex)
        for k, a in enumerate(heads.index):
            e = np.exp(heads.scores[a, 0, 0] * y @ y.T)
            out += 0.2 * heads.values[k, 0, 0] * (e @ y) / e.sum(axis=1, keepdims=True)
        return out

    for _ in range(6):
        k1 = rate(y)
        k2 = rate(y + dt / 2 * k1)
        k3 = rate(y + dt / 2 * k2)
        k4 = rate(y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    moved = (y.imag / 1e-30)[None]
    back, _ = carry_back([field], layers, path, w, g)
    size = np.linalg.norm(g) * np.linalg.norm(moved)
    assert abs(float((g * moved).sum() - (back * sigma).sum())) < (1e-13 if way == "direct" else 1e-11) * size


def test_both_ways_agree_and_the_table_is_left_where_it_does_not_reach() -> None:
    rng = np.random.default_rng(7)
    x, masses = rng.normal(size=(2, 40, 1)) * 0.7, np.full((2, 40), 1 / 40)
    laws = (Measure.particles(rng.normal(size=(30, 2))),)
    one, other, both = (side("scalar", x, masses, 1.0, 5, "heun", 1, way).first_variation(laws)
                        for way in ("direct", "table", "auto"))  # fmt: skip
    assert one.gradient is not None
    assert other.gradient is not None
    assert both.report.table_size is not None
    np.testing.assert_allclose(other.potential, one.potential, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(other.gradient, one.gradient, rtol=1e-8, atol=1e-10)
    far = (Measure.particles(rng.normal(size=(30, 2)) * [0.1, 300.0]),)
    wild = side("scalar", x, masses, 0.1, 5, "euler", 1, "auto").first_variation(far)
    assert wild.report.table_size is None
    with pytest.raises(MeanFieldError, match="way = 'direct'"):
        side("scalar", x, masses, 0.1, 5, "euler", 1, "table").first_variation(far)


def test_sequences_do_not_see_each_other() -> None:
    rng = np.random.default_rng(11)
    x, masses = rng.normal(size=(2, 30, 1)), np.full((2, 30), 1 / 30)
    laws = (Measure.particles(rng.normal(size=(40, 2)) * 0.5),)
    for way in ("direct", "table"):
        whole = side("scalar", x, masses, 1.0, 4, "euler", 1, way)
        fields, path = whole.sweep(laws)
        g = rng.normal(size=x.shape)
        back, _ = carry_back(fields, whole.layers, path, masses, g)
        for b in range(2):
            part = carry(fields, whole.layers, x[b : b + 1], masses[b : b + 1], np.inf)
            assert part is not None
            np.testing.assert_array_equal(part.nodes[:, 0], path.nodes[:, b])
            alone, _ = carry_back(fields, whole.layers, part, masses[b : b + 1], g[b : b + 1])
            np.testing.assert_array_equal(alone[0], back[b])


def test_a_family_of_ones_own_is_differentiated_to_rounding() -> None:
    rng = np.random.default_rng(13)
    theta = rng.normal(size=(6, 3)) * [1.0, 1.0, 4.0]
    to_scores, to_values = rng.normal(size=(2, 6, 2, 2))

    def own(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c, s, zero = np.cos(theta[:, 2]), np.sin(theta[:, 2]), 0.0 * theta[:, 0]
        A = theta[:, 1, None, None] * np.array([[c, -s], [s, c]]).transpose(2, 0, 1)
        return A, np.array([[theta[:, 0], zero], [zero, theta[:, 0]]]).transpose(2, 0, 1)

    known = to_theta("rotation", theta, to_scores, to_values)
    np.testing.assert_allclose(to_theta(own, theta, to_scores, to_values), known, atol=1e-11)


def test_losses_of_final_tokens_are_those_of_their_features_with_exact_gradients() -> None:
    rng = np.random.default_rng(17)
    x, w = rng.normal(size=(2, 5, 2)), np.full((2, 5), 0.2)
    features = (Feature("polynomial", (0.3, -1.0, 0.2), axis=1), Feature("bump", center=(0.1, -0.4), width=0.7))
    readout = ((1.0, -2.0), (0.5, 0.3), (-0.2, 0.9))
    potential = Objective("potential", potential=features[1])
    entropy = Objective("cross-entropy", features=features, readout=readout, bias=(0.1, 0.0, -0.3))

    def by_hand(y: np.ndarray, b: int, kind: str) -> complex:
        bump = np.exp(-((y[:, 0] - 0.1) ** 2 + (y[:, 1] + 0.4) ** 2) / (2 * 0.49)).mean()
        if kind == "potential":
            return complex(bump)
        z = np.array(readout) @ np.array([(0.3 - y[:, 1] + 0.2 * y[:, 1] ** 2).mean(), bump]) + [0.1, 0.0, -0.3]
        return complex(np.log(np.exp(z).sum()) - z[(1, 2)[b]])

    for objective, targets in ((potential, None), (entropy, np.array([1.0, 2.0]))):
        losses, g = FinalLoss(objective, targets).value_and_gradient(x, w)
        for b in range(2):
            assert losses[b] == pytest.approx(by_hand(x[b], b, objective.kind).real, rel=1e-14)
            wanted = complex_steps(lambda y, b=b, kind=objective.kind: by_hand(y, b, kind), x[b])
            np.testing.assert_allclose(g[b], wanted, rtol=1e-12, atol=1e-15)


def test_what_particles_do_not_have_is_refused() -> None:
    for objective in (
        Objective("energy-distance"),
        Objective("query-regression", query=QueryTerm()),
        Objective("potential", potential=Feature("harmonic", (1.0,), mode=1)),
    ):
        with pytest.raises(MeanFieldError, match="not covered for tokens as particles"):
            FinalLoss(objective, None)
    x, masses = np.zeros((2, 3, 2)), np.full((2, 3), 1 / 3)
    with pytest.raises(MeanFieldError, match="on a line"):
        side("scalar", x, masses, 1.0, 2, "euler", 1, "table")
    with pytest.raises(MeanFieldError, match="'direct'"):
        side("scalar", x, masses, 1.0, 2, "euler", 1, "directly")
    with pytest.raises(MeanFieldError, match="multiple"):
        side("scalar", x, masses, 1.0, 3, "euler", 2, "direct")
    with pytest.raises(MeanFieldError, match="one a layer"):
        side("scalar", x, masses, 1.0, 2, "euler", 2, "direct").loss((Measure.particles(np.ones((1, 2))),))
    with pytest.raises(MeanFieldError, match="no score and value matrices"):
        to_theta("radial", np.ones((1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1)))
    wild = (Measure.particles(np.array([[1e9, 1.0]])),)
    for layers, words in ((40, "tokens are not finite"), (21, "the tokens ran away")):
        with pytest.raises(NotFiniteError, match=words), np.errstate(all="ignore"):
            side("scalar", x + 1.0, masses, 1.0, layers, "euler", 1, "direct").loss(wild)
