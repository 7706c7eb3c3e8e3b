"""The answers that packages are compared by are right: each is checked against something else than itself."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from meanfield_pde.equations.rho_fokker_planck import fokker_planck_step
from meanfield_pde.grid import Grid

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_peers_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


problems = loaded("problems")


@pytest.mark.parametrize("depth", [0.0, 0.2, 1.0])
def test_rotated_gaussian_is_the_first_one_seen_from_turned_axes(depth: float) -> None:
    n, angle = 40, 2.0 * np.pi * depth
    node, weight = np.polynomial.legendre.leggauss(12)
    x = (problems.centres(1.0, n)[:, None] + node / n).ravel()
    a, b = np.meshgrid(x, x, indexing="ij")
    back_x, back_y = np.cos(angle) * a + np.sin(angle) * b, -np.sin(angle) * a + np.cos(angle) * b
    variance = problems.DEVIATION**2
    density = np.exp(-0.5 * ((back_x - 0.5) ** 2 + back_y**2) / variance) / (2.0 * np.pi * variance)
    cells = np.einsum("iajb,a,b->ij", density.reshape(n, 12, n, 12), weight / 2.0, weight / 2.0)
    np.testing.assert_allclose(problems.rotated_gaussian(n, depth), cells, atol=1e-12 * cells.max())


def test_points_move_with_the_rotation() -> None:
    step, point = 1e-5, 0.7 * np.exp(0.4j)
    moved = (point * np.exp(2j * np.pi * step) - point * np.exp(-2j * np.pi * step)) / (2.0 * step)
    assert np.allclose(problems.rotation(point.real, point.imag), (moved.real, moved.imag), rtol=1e-8)


def test_slope_is_that_of_the_potential() -> None:
    x, y, step = 0.7, -1.3, 1e-5
    u = problems.potential
    along = (u(x + step, y) - u(x - step, y)) / (2 * step), (u(x, y + step) - u(x, y - step)) / (2 * step)
    assert np.allclose(problems.slope(x, y), along, rtol=1e-8)


def test_heads_come_to_rest_in_the_gibbs_state() -> None:
    gibbs = problems.normalised(np.exp(-problems.potential(*problems.head_grid(64)) / problems.BETA))
    found = problems.fokker_planck_reference(64, end=60.0, degree=32)
    assert problems.l1_distance(found, gibbs) < 3e-4
    assert problems.l1_distance(problems.fokker_planck_reference(64, degree=32), gibbs) > 0.5


def test_reference_solves_the_equation() -> None:
    n, step = 128, 1e-3
    before, now, after = (problems.fokker_planck_reference(n, end=s, degree=44) for s in (0.5 - step, 0.5, 0.5 + step))
    x, y = problems.head_grid(n)
    u, v = problems.slope(x, y)
    h = 2.0 * problems.HALF / n

    def derivative(field: np.ndarray, axis: int) -> np.ndarray:
        # of order 6; the density is below 1e-7 where the roll meets the other side
        weights = {1: 45.0, 2: -9.0, 3: 1.0}
        return sum(w * (np.roll(field, -k, axis) - np.roll(field, k, axis)) for k, w in weights.items()) / (60.0 * h)

    flux = [now * part + problems.BETA * derivative(now, axis) for axis, part in enumerate((u, v))]
    rate = derivative(flux[0], 0) + derivative(flux[1], 1)
    assert np.abs(rate).max() > 0.05
    inside = (slice(16, -16),) * 2
    np.testing.assert_allclose(((after - before) / (2.0 * step))[inside], rate[inside], atol=1e-3 * np.abs(rate).max())


def test_finite_volumes_converge_to_the_reference_with_order_two() -> None:
    errors = []
    for n, steps in ((48, 40), (96, 80)):
        grid = Grid((-3.0, -3.0), (3.0, 3.0), (n, n), (False, False))
        x, y = problems.head_grid(n)
        rho, psi = problems.normalised(problems.start(x, y))[None], problems.potential(x, y)[None]
        for _ in range(steps):
            rho = fokker_planck_step(grid, rho, psi, problems.BETA, 1.0 / steps, 2).rho
        errors.append(problems.l1_distance(rho[0], problems.fokker_planck_reference(n, degree=32)))
    assert np.log2(errors[0] / errors[1]) > 1.85


@pytest.mark.parametrize("dim", [1, 2])
def test_velocity_under_a_gaussian_is_affine(dim: int) -> None:
    # the softmax mean of N(m, C) at the key z is m + C z, and sums over a lattice of a Gaussian are exact to rounding
    case = problems.attention_case(dim)
    axis = np.linspace(-6.0, 6.0, 81)
    points = np.stack([a.ravel() for a in np.meshgrid(*(axis,) * dim, indexing="ij")], axis=1)
    mean, variance = np.array([0.3, -0.2])[:dim], np.array([0.5, 0.3])[:dim]
    masses = np.exp(-0.5 * ((points - mean) ** 2 / variance).sum(axis=1))
    targets = case.points[:: len(case.points) // 7] * 0.5
    found = problems.direct_velocity(case._replace(points=points, masses=masses / masses.sum()), targets)
    keys = np.einsum("h,hij,kj->ki", case.weights, case.scores, targets)
    np.testing.assert_allclose(found, mean + variance * keys, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 2])
def test_cases_have_64_heads_and_laws_of_mass_one(dim: int) -> None:
    case = problems.attention_case(dim)
    assert case.scores.shape == (64, dim, dim)
    assert case.points.shape == ({1: 1024, 2: 4096}[dim], dim)
    assert case.masses.sum() == pytest.approx(1.0, rel=1e-14)
    assert case.weights.sum() == pytest.approx(1.0, rel=1e-14)
    velocity = np.tile(problems.direct_velocity(case, case.points[:1]), (len(case.points), 1))
    assert problems.velocity_error(case, velocity, len(case.points)) == 0.0
    assert problems.velocity_error(case, velocity + 1.0, len(case.points)) > 0.1
