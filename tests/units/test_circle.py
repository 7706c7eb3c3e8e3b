"""Attention on the circle: velocities and transposes against sums filtered by mode, budgets, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde.equations.grid_tokens import GridTokens, grid_lattice
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model import circle
from meanfield_pde.model.attention import Attention, assemble_field
from meanfield_pde.model.circle import CircleField
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import head_matrices

RING = Grid((-np.pi,), (np.pi,), (48,), (True,))


def turned(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A user's own family on the circle: A a shear, W a turn."""
    a, angle = theta.T
    c, s, zero = np.cos(angle), np.sin(angle), np.zeros(len(a))
    scores = np.stack([np.stack([a, 0.5 + zero], axis=1), np.stack([zero, -a], axis=1)], axis=1)
    return scores, np.stack([np.stack([c, -s], axis=1), np.stack([s, c], axis=1)], axis=1)


RNG = np.random.default_rng(11)
FAMILIES: dict[str, tuple[Any, np.ndarray]] = {
    "scalar": ("scalar", np.array([(0.7, 3.0), (-0.4, -1.5), (0.9, 0.0), (0.3, 3.0)])),
    "rotation": ("rotation", np.array([(0.7, 3.0, 0.4), (0.5, -1.0, 2.0), (-0.8, 2.0, -1.1), (0.2, 3.0, 0.4)])),
    "matrix": ("matrix", RNG.normal(size=(3, 8))),
    "function": (turned, RNG.normal(size=(4, 2))),
}
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])


def built(attention: str, which: str, grid: Grid = RING, targets: np.ndarray | None = None) -> CircleField:
    family, theta = FAMILIES[which]
    return built_of(attention, family, theta, WEIGHTS[: len(theta)] / WEIGHTS[: len(theta)].sum(), grid, targets)


def built_of(
    attention: str,
    family: Any,
    theta: np.ndarray,
    weights: np.ndarray,
    grid: Grid = RING,
    targets: np.ndarray | None = None,
) -> CircleField:
    kind = Attention(attention)
    lattice = grid_lattice(grid, kind)
    where = (Target(grid.face_points(0) if targets is None else targets[:, None], 0),)
    heads = head_matrices(family, theta, 2)
    found = assemble_field(kind, lattice, where, heads, weights, None)
    assert isinstance(found, CircleField)
    return found


def reference(attention: str, which: str, masses: np.ndarray, grid: Grid, at: np.ndarray) -> np.ndarray:
    """The velocity of each head, (K, faces), with the box filter inverted mode by mode; masses may be complex."""
    family, theta = FAMILIES[which]
    heads = head_matrices(family, theta, 2)
    cells = grid.centers(0)
    y = np.stack([np.cos(cells), np.sin(cells)])
    x = np.stack([np.cos(at), np.sin(at)])
    rows = []
    for k in range(len(theta)):
        A, W = heads.scores[heads.index[k]], heads.values[k]
        e = np.exp((A @ x).T @ y)
        first = np.stack([grid.deconvolve(e * y[c]) @ masses for c in (0, 1)])
        mean = first / (grid.deconvolve(e) @ masses) if attention == "softmax" else first
        rows.append((np.stack([-x[1], x[0]]) * (W @ mean)).sum(axis=0))
    return np.stack(rows)


def law(seed: int = 5) -> np.ndarray:
    x = RING.centers(0)
    waves = sum(a * np.cos(k * x + f) for k, a, f in zip((1, 2, 3), (0.5, 0.3, 0.1), (seed, 1.0, 2.0), strict=True))
    return np.asarray((1.0 + waves) / RING.cells[0])


CASES = [(attention, which) for attention in ("softmax", "unnormalised") for which in FAMILIES]


@pytest.mark.parametrize(("attention", "which"), CASES)
def test_velocity_is_the_sum_over_cells_filtered_by_mode(attention: str, which: str) -> None:
    for at in (RING.faces(0), np.array([0.1, 2.0, -3.0])):  # whole cells apart, and anywhere
        found = built(attention, which, targets=at)
        masses = law()
        wanted = found.weights @ reference(attention, which, masses, RING, at)
        got = found.velocity(found.moments(masses[None]))[0][0]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-13 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize(("attention", "which"), CASES)
def test_transposes_are_those_of_the_derivative(attention: str, which: str) -> None:
    found = built(attention, which)
    masses, g = law(), RNG.normal(size=RING.cells[0])
    sigma = RNG.normal(size=RING.cells[0]) * masses
    # a complex step: the derivative without differences
    step = reference(attention, which, masses + 1e-30j * sigma, RING, RING.faces(0)).imag / 1e-30
    left, right = float(g @ (found.weights @ step)), float(found.to_mu((g[None],), masses[None])[0] @ sigma)
    scale = np.abs(found.to_mu((g[None],), masses[None])[0] * sigma).sum()
    assert abs(left - right) <= 1e-12 * scale
    in_rho = found.to_rho((g[None],), masses[None])
    wanted = reference(attention, which, masses, RING, RING.faces(0)) @ g
    np.testing.assert_allclose(in_rho, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    # a batch sums up in rho, and its laws do not see each other
    both = np.stack([masses, law(7)])
    gs = np.stack([g, RNG.normal(size=len(g))])
    apart = found.to_rho((gs[:1],), both[:1]) + found.to_rho((gs[1:],), both[1:])
    np.testing.assert_allclose(found.to_rho((gs,), both), apart, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(found.velocity(both)[0][0], found.velocity(both[:1])[0][0])
    np.testing.assert_array_equal(found.to_mu((gs,), both)[0], found.to_mu((gs[:1],), both[:1])[0])


def test_the_kernel_keeps_its_digits_opposite_to_the_key() -> None:
    # all mass sits opposite to the key, where e^{<Ax,y>} is e^{-28} of its largest: the mean is still that of the law
    grid = Grid((-np.pi,), (np.pi,), (96,), (True,))
    kind, lattice = Attention(), grid_lattice(grid, Attention())
    heads, where = head_matrices("scalar", np.array([[1.0, -14.0]]), 2), (Target(np.array([[0.03]]), 0),)
    found = assemble_field(kind, lattice, where, heads, np.ones(1), None)
    masses = np.zeros(96)
    masses[46:50] = (0.2, 0.3, 0.3, 0.2)
    u, h = grid.centers(0)[46:50] - 0.03, grid.spacing[0]
    # the Taylor coefficients by Cauchy's formula on a circle in the complex plane, and the numbers B_k(1/2)
    z = 0.4 * np.exp(2j * np.pi * np.arange(64) / 64)
    integrals = []
    for f in (lambda v: np.exp(14 - 14 * np.cos(v)), lambda v: np.exp(14 - 14 * np.cos(v)) * np.sin(v)):
        taylor = np.fft.fft(f(u[:, None] + z), axis=1).real / 64 / 0.4 ** np.arange(64)
        numbers = (1.0, -1 / 12, 7 / 240, -31 / 1344, 127 / 3840, -2555 / 33792)
        integrals.append(sum(b * h ** (2 * k) * taylor[:, 2 * k] for k, b in enumerate(numbers)) @ masses[46:50])
    got = found.velocity(masses[None])[0][0, 0]
    assert got == pytest.approx(integrals[1] / integrals[0], rel=1e-10)


def test_a_law_across_the_seam_is_the_law_elsewhere_turned() -> None:
    found = built("softmax", "scalar")
    x = RING.centers(0)
    masses = np.exp(-((x - 0.3) ** 2) / 0.02)
    masses /= masses.sum()
    for shift in (24, 21, 5):
        here, there = (found.velocity(np.roll(masses, k)[None])[0][0] for k in (0, shift))
        assert np.abs(np.roll(here, shift) - there).max() <= 1e-13


def side(attention: str, family: Any, theta: np.ndarray, grid: Grid, **more: Any) -> GridTokens:
    still = (np.zeros(grid.face_shape(0)),)
    way = Transport(grid, scheme("linear3"), stepper("ssprk3"), 0.5, False, still)
    mu0 = np.full((1, *grid.cells), 0.5 / np.pi)
    return GridTokens(way, Attention(attention), family, theta, np.array([0.0, 0.1]), True, mu0, None, None, **more)


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeanFieldError, match=r"48 cells do not resolve .* up to 20: take at least 63 cells"):
        built_of("softmax", "scalar", np.array([[1.0, 20.0]]), np.ones(1))
    with pytest.raises(MeanFieldError, match="without mass"):
        built("softmax", "scalar").velocity(np.zeros((1, 48)))
    monkeypatch.setattr(circle, "MOST_BYTES", 1e5)
    with pytest.raises(MeanFieldError, match=r"needs 1\.66e\+05 bytes for 3 score .* over the budget of 1e\+05"):
        built("softmax", "matrix")
    # turning families need one row a score
    built("softmax", "rotation")


def test_layers_share_the_kernels_of_their_heads() -> None:
    theta = FAMILIES["matrix"][1]
    tokens = replace(side("softmax", "matrix", theta, RING), edges=np.linspace(0.0, 0.1, 4), shared=False)
    rho = tuple(Measure(tokens.head_points, row, np.zeros(8)) for row in np.eye(3))
    fields = tokens.assemble(rho, None)
    assert all(one.kernels is fields[0].kernels for one in fields)
    for one, row in zip(fields, np.eye(3), strict=True):
        alone = built_of("softmax", "matrix", theta, row)
        np.testing.assert_array_equal(one.velocity(law()[None])[0], alone.velocity(law()[None])[0])


def test_a_law_of_heads_on_other_points_makes_its_own_kernels() -> None:
    tokens = side("softmax", "scalar", np.array([[1.0, 2.0]]), RING)
    tokens = replace(tokens, mu0=law()[None] / RING.spacing[0])
    other = Measure.particles(np.array([[0.5, 1.0], [0.2, -1.0]]), np.array([0.5, 0.5]))
    own = side("softmax", "scalar", other.points, RING)
    got = tokens.forward((other,)).final
    wanted = replace(own, mu0=tokens.mu0).forward((Measure(own.head_points, other.weights, other.widths),)).final
    np.testing.assert_array_equal(got, wanted)
