"""Bernoulli function, face rates, elimination and face fluxes against outside formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanfield_pde.kernels.flux import add_outflow
from meanfield_pde.kernels.scharfetter_gummel import (
    bernoulli,
    face_flux,
    face_rates,
    move_limited,
    summed_flux,
)
from meanfield_pde.kernels.tridiagonal import backward_euler

# z and z / (e^z - 1) to seventeen digits (B(-z) = B(z) + z)
BERNOULLI = [
    (0.0, 1.0),
    (1e-300, 1.0),
    (-1e-300, 1.0),
    (1e-12, 1.0 - 5e-13),
    (-1e-12, 1.0 + 5e-13),
    (1e-9, 1.0 - 5e-10),
    (-1e-9, 1.0 + 5e-10),
    (1.0, 0.58197670686932642),
    (-1.0, 1.5819767068693264),
    (40.0, 1.6993417021166355e-16),
    (-40.0, 40.0),
    (800.0, 0.0),
    (-800.0, 800.0),
    (math.inf, 0.0),
    (-math.inf, math.inf),
]


@pytest.mark.parametrize(("z", "value"), BERNOULLI)
def test_bernoulli_at_its_difficult_points(z: float, value: float) -> None:
    assert bernoulli(np.array([z]))[0] == pytest.approx(value, rel=4e-16, abs=0.0)


def test_bernoulli_everywhere() -> None:
    z = np.concatenate([*(s * np.geomspace(1e-8, 690.0, 400) for s in (1, -1)), np.linspace(-3, 3, 301)[1:150]])
    exact = np.array([x / math.expm1(x) for x in z])
    np.testing.assert_allclose(bernoulli(z), exact, rtol=8e-16, atol=0.0)


def test_bernoulli_of_nan_is_nan() -> None:
    assert np.isnan(bernoulli(np.array([math.nan]))[0])


@pytest.mark.parametrize("shape", [(2, 7, 1), (1, 6, 3), (3, 5, 20)])
@pytest.mark.parametrize("ring", [False, True])
def test_rates_balance_at_the_gibbs_state(shape: tuple[int, int, int], ring: bool) -> None:
    psi = np.random.default_rng(1).normal(size=shape)
    up, dn = face_rates(psi, 0.05, 0.1, ring)
    step = np.roll(psi, -1, axis=1) - psi
    step = step if ring else step[:, :-1]
    assert up.shape == dn.shape == step.shape
    np.testing.assert_allclose(up, dn * np.exp(-step / 0.05), rtol=2e-14)
    # drift minus its reverse is the potential difference itself
    np.testing.assert_allclose(dn - up, step / 0.01, rtol=1e-13)


def test_flat_potential_gives_the_heat_equation() -> None:
    up, dn = face_rates(np.full((1, 5, 2), 3.0), 0.3, 0.5, True)
    np.testing.assert_allclose(up, 1.2, rtol=2e-16)
    np.testing.assert_array_equal(up, dn)


@pytest.mark.parametrize("beta", [0.0, 1e-310, 1e-250, 1e-12])
def test_rates_without_diffusion_are_upwind(beta: float) -> None:
    psi = np.array([0.0, 2.0, 2.0, -1.0, 0.5]).reshape(1, 5, 1)
    up, dn = face_rates(psi, beta, 0.5, False)
    np.testing.assert_allclose(up.ravel(), [0.0, 0.0, 12.0, 0.0], atol=5e-12)
    np.testing.assert_allclose(dn.ravel(), [8.0, 0.0, 0.0, 6.0], atol=5e-12)


def _matrix(up: np.ndarray, dn: np.ndarray, ds: float, cells: int) -> np.ndarray:
    matrix = np.eye(cells)
    for face in range(len(up)):
        left, right = face, (face + 1) % cells
        matrix[left, left] += ds * up[face]
        matrix[right, left] -= ds * up[face]
        matrix[right, right] += ds * dn[face]
        matrix[left, right] -= ds * dn[face]
    return matrix


@pytest.mark.parametrize("shape", [(1, 3, 1), (2, 4, 1), (19, 5, 1), (2, 6, 3), (2, 5, 16), (2, 4, 35)])
@pytest.mark.parametrize("ring", [False, True])
def test_elimination_solves_the_system(shape: tuple[int, int, int], ring: bool) -> None:
    rng = np.random.default_rng(2)
    outer, cells, inner = shape
    faces = cells if ring else cells - 1
    rho = rng.random(shape)
    up, dn = rng.random((2, outer, faces, inner))
    new = backward_euler(rho, up, dn, 0.7)
    for o in range(outer):
        for k in range(inner):
            exact = np.linalg.solve(_matrix(up[o, :, k], dn[o, :, k], 0.7, cells), rho[o, :, k])
            np.testing.assert_allclose(new[o, :, k], exact, rtol=1e-13)


@pytest.mark.parametrize("ring", [False, True])
def test_nan_is_not_hidden(ring: bool) -> None:
    up = np.full((1, 6 if ring else 5, 1), 0.3)
    rho = np.linspace(1.0, 2.0, 6).reshape(1, 6, 1)
    rho[0, 2, 0] = np.nan
    assert np.isnan(backward_euler(rho, up, up, 1.0)).any()


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("ds", [0.01, 3.0, 1e7])
def test_fluxes_explain_the_step(ring: bool, ds: float) -> None:
    rng = np.random.default_rng(3)
    rho = rng.random((2, 9, 2))
    up, dn = face_rates(rng.normal(size=rho.shape), 0.5, 0.2, ring)
    new = backward_euler(rho, up, dn, ds)
    summed = summed_flux(rho - new, new, new, up, dn, ds)
    out = summed.copy()
    back = np.roll(summed, 1, axis=1)
    if not ring:
        wall = np.zeros((2, 1, 2))
        out, back = np.concatenate([summed, wall], axis=1), np.concatenate([wall, summed], axis=1)
    np.testing.assert_allclose(rho - out + back, new, rtol=0.0, atol=1e-15 * new.max())
    np.testing.assert_allclose(summed, face_flux(new, up, dn, ds), rtol=1e-12, atol=1e-14 * ds)


@pytest.mark.parametrize("side", [1, -1])
def test_fluxes_in_both_tails_keep_their_digits(side: int) -> None:
    rho = np.exp(-3.0 * np.arange(24.0))[::side].reshape(1, 24, 1)
    up, dn = face_rates(3.1 * np.arange(24.0)[::side].reshape(1, 24, 1), 1.0, 1.0, False)
    new = backward_euler(rho, up, dn, 1e9)
    flux = summed_flux(rho - new, new, new, up, dn, 1e9).ravel()
    # the last cell of the tail changes by the flux through its one face
    tail, face = ((23, 22), (0, 0))[side < 0]
    assert side * flux[face] == pytest.approx(new[0, tail, 0] - rho[0, tail, 0], rel=1e-12, abs=0.0)


def test_limited_fluxes_leave_nothing_negative() -> None:
    cells = np.array([1.0, 0.1, 0.5]).reshape(1, 3, 1)
    flux = np.array([-0.3, 0.2, 0.1]).reshape(1, 3, 1)  # a ring: cell 1 is asked for 0.3 + 0.2, five times too much
    outflow = np.zeros_like(cells)
    add_outflow(flux[:, :, 0].copy(), 1.0, 1, outflow[:, :, 0])
    np.testing.assert_allclose(outflow.ravel(), [0.0, 0.5, 0.1])
    share = np.array([1.0, 0.2, 1.0]).reshape(1, 3, 1)
    rest, gain, touched = cells.copy(), np.zeros_like(cells), np.zeros_like(cells)
    assert move_limited(flux, share, rest, gain, touched) == 2
    np.testing.assert_allclose((rest + gain).ravel(), [1.16, 0.0, 0.44], atol=1e-16)
    np.testing.assert_array_equal(touched.ravel(), [1.0, 1.0, 1.0])
