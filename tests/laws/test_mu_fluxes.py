"""Rates of the continuity equation against the same sums in numpy, on every shape of grid, and shared by threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.mu_fluxes import euler, rate, reconstruct
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import SCHEMES, WenoZ, scheme
from meanfield_pde.equations.team import Team, team
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.axis_rates import PIECE

# an axis goes in pieces of several cells, of one, and of more cells than it has
SHAPES = {
    "line": ((2 * PIECE + 7,), (False,)),
    "ring": ((PIECE + 1,), (True,)),
    "plane": ((23, 400), (False, False)),
    "torus": ((17, 650), (True, True)),
    "strip": ((9, 2 * PIECE + 3), (True, False)),
    "space": ((7, 9, 300), (False, True, False)),
    "rings": ((9, 6, 11), (True, False, True)),
}


def made(place: str, name: str) -> tuple[Transport, np.ndarray, tuple[np.ndarray, ...]]:
    cells, rings = SHAPES[place]
    grid = Grid((-1.0,) * len(cells), (1.0,) * len(cells), cells, rings)
    rng = np.random.default_rng(3)
    still = tuple(np.zeros(grid.face_shape(axis)) for axis in range(grid.dim))
    v = tuple(rng.normal(size=(2, *grid.face_shape(axis))) for axis in range(grid.dim))
    return Transport(grid, scheme(name), stepper("ssprk3"), 0.1, False, still), 1.0 + rng.random((2, *cells)), v


class Halved(WenoZ):
    """Half the values of weno5z at faces."""

    def faces(self, u3: np.ndarray, v3: np.ndarray, out3: np.ndarray) -> None:
        WenoZ.faces(self, u3, v3, out3)
        out3 *= 0.5


def difference(a: np.ndarray, axis: int, ring: bool, second: bool) -> np.ndarray:
    """Central differences, the first half of that between the neighbours; at walls of order 2, or of the next cell."""
    ahead, behind = np.roll(a, -1, axis), np.roll(a, 1, axis)
    out = np.moveaxis(ahead - 2.0 * a + behind if second else 0.5 * (ahead - behind), axis, 0)
    if not ring:
        line = np.moveaxis(a, axis, 0)
        if second:
            out[0], out[-1] = out[1].copy(), out[-2].copy()
        else:
            out[0] = -1.5 * line[0] + 2.0 * line[1] - 0.5 * line[2]
            out[-1] = 1.5 * line[-1] - 2.0 * line[-2] + 0.5 * line[-3]
    return np.moveaxis(out, 0, axis)


def by_hand(way: Transport, u: np.ndarray, velocity: tuple[np.ndarray, ...]) -> np.ndarray:
    """-∇·F by whole arrays."""
    grid = way.grid
    out = np.zeros_like(u)
    for axis, (v, r) in enumerate(zip(velocity, reconstruct(way, u, velocity), strict=True)):
        ring, at = grid.periodic[axis], axis + 1
        mean = 0.5 * (u + np.roll(u, -1, at))
        mean = mean if ring else np.delete(mean, -1, at)
        flux = v * r
        for k in range(grid.dim):
            if k != axis:
                turns = grid.periodic[k]
                flux += difference(v, k + 1, turns, False) * difference(mean, k + 1, turns, False) / 12.0
                flux += difference(v, k + 1, turns, True) * mean / 24.0
        walls = [(0, 0) if ring or k != at else (1, 1) for k in range(u.ndim)]
        out -= (flux - np.roll(flux, 1, at) if ring else np.diff(np.pad(flux, walls), axis=at)) / grid.spacing[axis]
    return out


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("place", SHAPES)
def test_rates_are_those_of_whole_arrays(place: str, name: str) -> None:
    way, u, v = made(place, name)
    wanted = by_hand(way, u, v)
    found, limited = rate(way, u, v, 0.0)
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-12 * np.abs(wanted).max())
    given, _ = rate(way, u, v, 0.0, reconstruct(way, u, v))
    np.testing.assert_array_equal(given, found)
    assert limited == 0


@pytest.mark.parametrize("place", ["line", "torus", "space"])
def test_steps_are_changes_by_the_rate(place: str) -> None:
    way, u, v = made(place, "weno5z")
    start = u + 0.1
    change, _ = euler(way, u, start, v, 1e-3)
    np.testing.assert_allclose(change, 1e-3 * rate(way, u, v, 0.0)[0] + (u - start), rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(euler(way, u, start, v, 1e-3, 0.25)[0], start + 0.25 * change, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("place", SHAPES)
def test_threads_change_no_bit(place: str) -> None:
    way, u, v = made(place, "weno5z")
    alone, _ = euler(way, u, u, v, 1e-3, 0.5)
    for threads in (2, 3):
        with team(threads) as workers:
            np.testing.assert_array_equal(euler(replace(way, team=workers), u, u, v, 1e-3, 0.5)[0], alone)


def test_work_is_done_whole_with_or_without_a_pool() -> None:
    done: list[int] = []
    for workers in (Team(), Team(None, 3)):
        done.clear()
        workers.share(lambda first, last: done.extend(range(first, last)), 7)
        assert done == list(range(7))


def test_a_scheme_that_changes_the_faces_of_a_known_one_is_asked_for_them() -> None:
    way, u, v = made("plane", "weno5z")
    own = replace(way, reconstruction=Halved())
    np.testing.assert_allclose(rate(own, u, v, 0.0)[0], by_hand(own, u, v), rtol=0.0, atol=1e-9)
    assert np.abs(rate(own, u, v, 0.0)[0] - rate(way, u, v, 0.0)[0]).max() > 1.0
