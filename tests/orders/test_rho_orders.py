"""Orders of the head equation in cells and in ds against exact solutions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import expm

from meanfield_pde.equations.rho_fokker_planck import fokker_planck_step
from meanfield_pde.grid import Grid


def _run(grid: Grid, rho: np.ndarray, psi: np.ndarray, beta: float, time: float, steps: int, order: int) -> np.ndarray:
    rho = rho[None]
    for _ in range(steps):
        rho = fokker_planck_step(grid, rho, psi[None], beta, time / steps, order).rho
    return rho[0]


def _slope(errors: list[float]) -> float:
    """Fitted order when each error belongs to twice the resolution of the one before."""
    return -float(np.polyfit(np.arange(len(errors)), np.log2(errors), 1)[0])


def test_heat_mode_on_a_ring() -> None:
    errors = []
    for n in (20, 40, 80, 160):
        grid = Grid((0.0,), (1.0,), (n,), (True,))
        mode = np.cos(2 * np.pi * grid.centers(0))
        rho = _run(grid, 1 + 0.5 * mode, np.zeros(n), 0.05, 0.5, 300, 2)
        errors.append(np.abs((rho - 1) / 0.5 - math.exp(-4 * np.pi**2 * 0.025) * mode).max())
    np.testing.assert_allclose(errors, [3e-3, 8e-4, 2e-4, 5e-5], rtol=0.08)
    assert _slope(errors) == pytest.approx(2.0, abs=0.06)


def test_slab_with_gravity() -> None:
    """rho = e^{-αt+gx/2}(π cos πx + (g/2) sin πx) + π e^{g(x-1/2)}, α = π² + g²/4, compared by cell averages."""
    g, end = 1.0, 0.1
    alpha = np.pi**2 + g**2 / 4

    def average(grid: Grid, t: float) -> np.ndarray:
        x = grid.edges(0)
        primitive = np.exp(g * x / 2 - alpha * t) * np.sin(np.pi * x) + np.pi / g * np.exp(g * (x - 0.5))
        return np.diff(primitive) / grid.spacing[0]

    errors = []
    for n in (20, 40, 80, 160):
        grid = Grid((0.0,), (1.0,), (n,), (False,))
        rho = _run(grid, average(grid, 0.0), -g * grid.centers(0), 1.0, end, round(end * n**2), 1)
        errors.append(float(grid.integral(np.abs(rho - average(grid, end)))))
    np.testing.assert_allclose(errors, [1.397e-2, 3.520e-3, 8.818e-4, 2.206e-4], rtol=4e-4)


def test_free_diffusion_spreads_by_two_beta_t() -> None:
    grid = Grid((-4.0,), (4.0,), (160,), (False,))
    x = grid.centers(0)
    rho = np.exp(-(x**2) / 0.2)
    rho /= rho.sum() * grid.cell_volume
    start = (rho * x**2).sum() * grid.cell_volume
    rho = _run(grid, rho, np.zeros(160), 0.3, 0.5, 20, 2)
    assert (rho * x**2).sum() * grid.cell_volume - start == pytest.approx(2 * 0.3 * 0.5, rel=1e-3)


@pytest.mark.parametrize("kappa", [0.0, 0.7])
def test_ornstein_uhlenbeck_with_interaction(kappa: float) -> None:
    """Mean m0 e^{-αt}; variance D/(α+κ) + (s0 - D/(α+κ)) e^{-2(α+κ)t}: second order in h."""
    alpha, diffusion, m0, s0, end = 1.0, 0.1, 0.5, 0.05, 0.6
    rate = alpha + kappa
    mean, variance = m0 * math.exp(-alpha * end), diffusion / rate + (s0 - diffusion / rate) * math.exp(-2 * rate * end)
    errors = []
    for n in (60, 120, 240):
        grid = Grid((-3.0,), (3.0,), (n,), (False,))
        x, h = grid.centers(0), grid.spacing[0]
        rho = np.exp(-((x - m0) ** 2) / (2 * s0))[None]
        rho /= rho.sum() * h
        steps = 2 * n
        for _ in range(steps):
            # the interaction is taken at the middle of the step, where the mean is m e^{-α ds/2}
            centre = (rho * x).sum() * h * math.exp(-0.5 * alpha * end / steps)
            psi = (0.5 * alpha * x**2 + 0.5 * kappa * (x - centre) ** 2)[None]
            rho = fokker_planck_step(grid, rho, psi, diffusion, end / steps, 2).rho
        got_mean = (rho * x).sum() * h
        errors.append(abs(got_mean - mean) + abs((rho * (x - got_mean) ** 2).sum() * h - variance))
    assert errors[-1] <= 4e-4
    assert _slope(errors) >= 1.85


def _generator(psi: np.ndarray, beta: float, h: float, ring: bool) -> np.ndarray:
    """Rates between neighbours with the ratio e^{-(difference of psi)/beta}, written down directly."""
    n = len(psi)
    matrix = np.zeros((n, n))
    for left in range(n if ring else n - 1):
        right = (left + 1) % n
        z = (psi[right] - psi[left]) / beta
        up, dn = (beta / h**2 * (x / math.expm1(x) if x else 1.0) for x in (z, -z))
        matrix[left, left] -= up
        matrix[right, left] += up
        matrix[right, right] -= dn
        matrix[left, right] += dn
    return matrix


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("rings", [(False,), (True,), (False, True)])
def test_order_in_ds(order: int, rings: tuple[bool, ...]) -> None:
    cells = (14, 11)[: len(rings)]
    grid = Grid((0.0,) * len(rings), (1.0,) * len(rings), cells, rings)
    x = np.meshgrid(*(grid.centers(k) for k in range(grid.dim)), indexing="ij")
    # not a sum over axes, so that the sweeps do not commute
    psi = np.sin(2 * np.pi * x[0]) + (np.cos(2 * np.pi * (x[0] + x[-1])) if grid.dim == 2 else 0.0)
    rho = 1 + 0.5 * np.cos(2 * np.pi * x[0]) * np.cos(2 * np.pi * x[-1])
    if grid.dim == 1:
        generator = _generator(psi, 0.3, grid.spacing[0], rings[0])
    else:
        generator = np.zeros((grid.size, grid.size))
        index = np.arange(grid.size).reshape(cells)
        for j in range(cells[1]):
            generator[np.ix_(index[:, j], index[:, j])] += _generator(psi[:, j], 0.3, grid.spacing[0], rings[0])
        for i in range(cells[0]):
            generator[np.ix_(index[i], index[i])] += _generator(psi[i], 0.3, grid.spacing[1], rings[1])
    exact = (expm(0.1 * generator) @ rho.ravel()).reshape(cells)
    runs = [_run(grid, rho, psi, 0.3, 0.1, steps, order) for steps in (32, 64, 128, 256)]
    errors = [float(grid.integral(np.abs(run - exact))) for run in runs]
    assert _slope(errors) >= order - 0.15
    assert errors[-1] <= (3e-3 if order == 1 else 2e-5)


def test_order_in_ds_while_the_limiter_works() -> None:
    """A block between empty cells: the plain second-order step is negative, the limited one as good and >= 0."""
    n, beta, end = 40, 0.05, 0.05
    grid = Grid((0.0,), (1.0,), (n,), (False,))
    psi = 0.3 * np.cos(2 * np.pi * grid.centers(0))
    rho = np.where(np.abs(grid.centers(0) - 0.4) < 0.1, 5.0, 0.0)
    rho /= rho.sum() / n
    exact = expm(end * _generator(psi, beta, 1 / n, False)) @ rho
    errors, embedded = [], []
    for steps in (20, 40, 80, 160):
        new, limited, estimate = rho[None], 0, 0.0
        for _ in range(steps):
            new, error, faces = fokker_planck_step(grid, new, psi[None], beta, end / steps, 2)
            limited += faces
            estimate += error
        assert limited > 0
        assert new.min() >= 0.0
        assert abs(grid.integral(new)[0] - 1.0) <= 1e-14
        errors.append(float(grid.integral(np.abs(new[0] - exact))))
        embedded.append(estimate)
    assert _slope(errors) >= 1.85
    # the estimate bounds the error and falls like the first-order one it belongs to
    assert all(e <= b for e, b in zip(errors, embedded, strict=True))
    assert 0.7 <= _slope(embedded) <= 1.3


def test_no_estimate_without_an_embedded_step() -> None:
    grid = Grid((0.0,), (1.0,), (8,), (False,))
    assert fokker_planck_step(grid, np.ones((1, 8)), np.zeros((1, 8)), 1.0, 0.1, 1).error is None
