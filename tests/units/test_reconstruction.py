"""Cells to faces: exact polynomials up to both walls, transposes, limiters, and numbers at the ends of the range."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from meanfield_pde.equations.schemes import SCHEMES, DualReconstruction, Linear, Muscl, scheme, stencils
from meanfield_pde.errors import MeanFieldError

LINEAR = ("upwind1", "linear3", "linear5")
MUSCL = ("muscl-minmod", "muscl-mc", "muscl-vanleer", "muscl-vanalbada")


def faces(name: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R u for one line of cells."""
    out = np.full((1, len(v), 1), np.nan)
    SCHEMES[name].faces(u[None, :, None].copy(), v[None, :, None].copy(), out)
    return out[0, :, 0]


def cells(name: str, u: np.ndarray, g: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R'(u)ᵀ g for one line of cells."""
    own = SCHEMES[name]
    assert isinstance(own, DualReconstruction)
    out = np.zeros((1, len(u), 1))
    own.cells(u[None, :, None].copy(), g[None, :, None].copy(), v[None, :, None].copy(), out)
    return out[0, :, 0]


def monomial(degree: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cell averages and inner face values of x^degree on [-1, 1]."""
    edge = np.linspace(-1.0, 1.0, n + 1)
    primitive = edge ** (degree + 1) / (degree + 1)
    return np.diff(primitive) * n / 2, edge[1:-1] ** degree


def test_weights_inside_are_those_of_the_table() -> None:
    # Shu (1998), table 2.1, counted from the cell upwind
    wanted = {
        1: [Fraction(1)],
        3: [Fraction(-1, 6), Fraction(5, 6), Fraction(1, 3)],
        5: [Fraction(1, 30), Fraction(-13, 60), Fraction(47, 60), Fraction(9, 20), Fraction(-1, 20)],
    }
    for width, row in wanted.items():
        index, coefficient, inner = stencils(width, 16, False)
        middle = 8
        assert inner[:, middle].all()
        for wind in (0, 1):
            weight = np.zeros(16)
            np.add.at(weight, index[wind, middle], coefficient[wind, middle])
            # the face between the cells 8 and 9: upwind is 8 or, for the other wind, 9
            expected = np.zeros(16)
            for k, value in zip(range(-(width // 2), width // 2 + 1), row, strict=True):
                expected[8 + k if wind == 0 else 9 - k] = float(value)
            np.testing.assert_allclose(weight, expected, rtol=0, atol=1e-16)


@pytest.mark.parametrize("wind", [1.0, -1.0])
@pytest.mark.parametrize(("name", "order"), [("upwind1", 1), ("linear3", 3), ("linear5", 5), *((m, 2) for m in MUSCL)])
@pytest.mark.parametrize("n", [5, 6, 17])
def test_polynomials_are_exact_up_to_both_walls(name: str, order: int, n: int, wind: float) -> None:
    assert SCHEMES[name].order == order
    for degree in range(order):
        average, exact = monomial(degree, n)
        found = faces(name, average, np.full(n - 1, wind))
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("name", "order"), [("upwind1", 1), ("linear3", 3), ("linear5", 5)])
def test_the_next_degree_is_not_exact(name: str, order: int) -> None:
    average, exact = monomial(order, 17)
    assert np.abs(faces(name, average, np.ones(16)) - exact).max() > 1e-7


@pytest.mark.parametrize("wind", [1.0, -1.0])
@pytest.mark.parametrize("degree", [0, 1])
def test_weno_keeps_affine_data_up_to_both_walls(degree: int, wind: float) -> None:
    average, exact = monomial(degree, 12)
    np.testing.assert_allclose(faces("weno5z", average, np.full(11, wind)), exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize("wind", [1.0, -1.0])
@pytest.mark.parametrize(("name", "least"), [("linear3", 2.85), ("linear5", 4.85), ("weno5z", 4.85)])
def test_smooth_data_converge_at_the_stated_order_up_to_both_walls(name: str, least: float, wind: float) -> None:
    inside, beside = [], []
    for n in (40, 80):
        edge = np.linspace(0.3, 1.3, n + 1)
        average = np.diff(-np.cos(2.0 * edge) / 2.0) * n
        error = np.abs(faces(name, average, np.full(n - 1, wind)) - np.sin(2.0 * edge[1:-1]))
        inside.append(error[3:-3].max())
        beside.append(max(error[:3].max(), error[-3:].max()))
    assert np.log2(inside[0] / inside[1]) > least
    assert np.log2(beside[0] / beside[1]) > least


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("wind", [1.0, -1.0])
def test_a_ring_has_no_seam(name: str, wind: float) -> None:
    rng = np.random.default_rng(3)
    u, v = rng.random(11), rng.normal(size=11)
    for shift in (1, 4, 9):
        moved = faces(name, np.roll(u, shift), np.roll(v, shift))
        np.testing.assert_array_equal(moved, np.roll(faces(name, u, v), shift))


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("ring", [False, True])
def test_reflection(name: str, ring: bool) -> None:
    rng = np.random.default_rng(4)
    u, v = rng.random(12), rng.normal(size=12 if ring else 11)
    mirrored = -v[::-1] if not ring else -np.roll(v[::-1], -1)
    found = faces(name, u[::-1].copy(), mirrored.copy())
    wanted = faces(name, u, v)[::-1]
    np.testing.assert_allclose(found, np.roll(wanted, -1) if ring else wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_cells_is_the_transpose_of_faces(name: str, ring: bool) -> None:
    rng = np.random.default_rng(5)
    own = SCHEMES[name]
    assert isinstance(own, Linear)
    u3, v3 = rng.normal(size=(3, 9, 4)), rng.normal(size=(3, 9 if ring else 8, 4))
    v3[0, 2] = 0.0
    g3 = rng.normal(size=v3.shape)
    forward, back = np.empty_like(v3), np.zeros_like(u3)
    own.faces(u3, v3, forward)
    own.cells(u3, g3, v3, back)
    scale = np.abs(forward * g3).sum()
    assert abs((forward * g3).sum() - (u3 * back).sum()) <= 1e-14 * scale


def weno_complex(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """WENO-Z on a ring for complex u, written anew from Borges et al. (2008): the outside formula of the transpose."""
    n = len(u)
    out = np.empty(n, dtype=u.dtype)
    for f in range(n):
        start, step = (f, 1) if v[f] >= 0 else (f + 1, -1)
        x = [u[(start + step * k) % n] for k in (-2, -1, 0, 1, 2)]
        values = (
            (2 * x[0] - 7 * x[1] + 11 * x[2]) / 6,
            (-x[1] + 5 * x[2] + 2 * x[3]) / 6,
            (2 * x[2] + 5 * x[3] - x[4]) / 6,
        )
        slopes = (x[0] - 4 * x[1] + 3 * x[2], x[1] - x[3], 3 * x[2] - 4 * x[3] + x[4])
        smooth = [
            13 / 12 * (x[k] - 2 * x[k + 1] + x[k + 2]) ** 2 + slope**2 / 4 + 1e-40 for k, slope in enumerate(slopes)
        ]
        tau = smooth[0] - smooth[2]
        alpha = [d * (1 + (tau / s) ** 2) for d, s in zip((0.1, 0.6, 0.3), smooth, strict=True)]
        out[f] = sum(a * q for a, q in zip(alpha, values, strict=True)) / sum(alpha)
    return out


def test_weno_on_a_ring_against_the_formulas() -> None:
    rng = np.random.default_rng(6)
    u, v = rng.random(14), rng.normal(size=14)
    np.testing.assert_allclose(faces("weno5z", u, v), weno_complex(u, v), rtol=1e-13)


@pytest.mark.parametrize("kind", ["rough", "smooth", "kink", "tail"])
def test_weno_transpose_against_the_complex_step(kind: str) -> None:
    rng = np.random.default_rng(7)
    x = np.arange(14) / 14
    u = {
        "rough": rng.random(14),
        "smooth": 2.0 + np.sin(2 * np.pi * x),
        # multiples of 1/16, so that second differences on the straight parts are exactly 0
        "kink": np.maximum(0.0, np.arange(14) / 16 - 0.375) + 0.125,
        "tail": np.exp(-300.0 * (x - 0.5) ** 2),
    }[kind]
    v, g = rng.normal(size=14), rng.normal(size=14)
    wanted = np.empty(14)
    for j in range(14):
        moved = u.astype(complex)
        moved[j] += 1e-30j
        wanted[j] = g @ weno_complex(moved, v).imag / 1e-30
    found = cells("weno5z", u, g, v)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


@pytest.mark.parametrize("ring", [False, True])
def test_weno_transpose_has_a_taylor_remainder_of_order_two(ring: bool) -> None:
    rng = np.random.default_rng(8)
    u, du = 1.0 + rng.random(13), rng.normal(size=13)
    v, g = rng.normal(size=13 if ring else 12), rng.normal(size=13 if ring else 12)
    slope = cells("weno5z", u, g, v) @ du
    steps = 10.0 ** -np.arange(1.5, 4.6, 0.5)
    rest = [abs(g @ (faces("weno5z", u + e * du, v) - faces("weno5z", u, v)) - e * slope) for e in steps]
    order = np.polyfit(np.log(steps[2:]), np.log(rest[2:]), 1)[0]
    assert 1.9 < order < 2.1


def test_limiters_have_no_transpose() -> None:
    for name in MUSCL:
        assert not isinstance(SCHEMES[name], DualReconstruction)
        assert not hasattr(SCHEMES[name], "cells")
    assert all(isinstance(SCHEMES[name], DualReconstruction) for name in (*LINEAR, "weno5z"))


@pytest.mark.parametrize("name", MUSCL)
def test_limited_faces_lie_between_their_cells(name: str) -> None:
    # Sweby's region: on a ring the face value is between the two cells it separates
    rng = np.random.default_rng(9)
    for _ in range(50):
        u, v = rng.random(12) ** 4, rng.normal(size=12)
        found, ahead = faces(name, u, v), np.roll(u, -1)
        low, high = np.minimum(u, ahead), np.maximum(u, ahead)
        assert (found >= low - 1e-15).all()
        assert (found <= high + 1e-15).all()


@pytest.mark.parametrize("name", ["upwind1", *MUSCL])
def test_total_variation_does_not_grow(name: str) -> None:
    rng = np.random.default_rng(10)
    u = np.where(rng.random(40) > 0.5, 1.0, 0.0) + 0.2 * rng.random(40)
    for _ in range(60):
        before = np.abs(np.diff(u, append=u[0])).sum()
        found = faces(name, u, np.ones(40))
        u = u - 0.5 * (found - np.roll(found, 1))
        assert np.abs(np.diff(u, append=u[0])).sum() <= before + 1e-13


@pytest.mark.parametrize(
    ("name", "slope"), [("muscl-minmod", 1.0), ("muscl-mc", 2.0), ("muscl-vanleer", 1.5), ("muscl-vanalbada", 1.2)]
)
def test_limiters_are_the_named_ones(name: str, slope: float) -> None:
    # one-sided differences 1 and 3: minmod 1, MC min(2, 2, 6), van Leer 2·3/4, van Albada 3·4/10
    u = np.array([0.0, 0.0, 1.0, 4.0, 9.0, 9.0])
    assert faces(name, u, np.ones(6))[2] == pytest.approx(1.0 + 0.5 * slope, rel=1e-14)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-20, 1e20, 1e40])
@pytest.mark.parametrize("name", SCHEMES)
def test_tiny_and_huge_values_stay_finite_and_bounded(name: str, scale: float) -> None:
    rng = np.random.default_rng(11)
    rough = rng.random(12)
    for u in (rough, np.r_[np.zeros(6), rough[:6]], np.where(rough > 0.5, rough, 1e-30)):
        for ring in (False, True):
            v = rng.normal(size=12 if ring else 11)
            found = faces(name, scale * u, v)
            assert np.isfinite(found).all()
            # the largest sum of |weights| of a one-sided stencil of five cells is below 10
            assert np.abs(found).max() <= 10.0 * scale
            if isinstance(SCHEMES[name], DualReconstruction):
                assert np.isfinite(cells(name, scale * u, np.ones_like(v), v)).all()


@pytest.mark.parametrize("name", [*MUSCL, "weno5z"])
def test_slopes_of_very_different_size_stay_finite(name: str) -> None:
    # slopes whose ratio overflows: a fall by 1 next to one by 1e-309
    for small in (1e-309, 1e-300, 5e-324):
        for u in ([1.0, 0.0, -small, -small, -1.0, -1.0], [0.0, small, small, 1e10, 1e10, 1e10]):
            for wind in (1.0, -1.0):
                assert np.isfinite(faces(name, np.array(u), np.full(6, wind))).all()


def test_unknown_scheme_names_the_nearest() -> None:
    with pytest.raises(MeanFieldError, match="muscl-minmod"):
        scheme("muscl-minmode")
    assert isinstance(scheme("muscl-mc"), Muscl)
