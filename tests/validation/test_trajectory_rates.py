"""Rates from files of a particle code: known shifts of the law of the grid, and its floor by a finer one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

from meanfield_pde.cli.rating import print_rates
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, Law, Mixture, VonMises
from meanfield_pde.problem import Depth, Heads, Problem, Sequence, Tokens
from meanfield_pde.problem_file import dump_problem
from meanfield_pde.validation.circle_distances import circle_w2
from meanfield_pde.validation.distances import readable
from meanfield_pde.validation.line_distances import line_w2
from meanfield_pde.validation.line_laws import LineLaw, exact_line
from meanfield_pde.validation.trajectory import Trajectory
from meanfield_pde.validation.trajectory_rates import finer, grid_law, laws_apart, trajectory_rate

TOKENS, SHIFTS = 500, np.array([10.0, 20.0, 40.0, 80.0])
# w = 0: tokens stay where they are, and the law is the first one at every depth
STILL = Heads("scalar", points=((0.0, 1.0),))
LAW = Gaussian((0.3,), ((0.49,),))
# the law at its quantiles, and its own distance to the law
QUANTILES = 0.3 + 0.7 * ndtri((np.arange(TOKENS) + 0.5) / TOKENS)


def problem_of(law: Law = LAW, cells: tuple[int, ...] = (96,), ring: bool = False) -> Problem:
    half = np.pi if ring else 5.0
    dim = len(cells)
    tokens = Tokens((-half,) * dim, (half,) * dim, cells, (ring,) * dim)
    return Problem(
        "tokens", attention="softmax", tokens=tokens, heads=STILL, depth=Depth(1.0, 2), sequences=(Sequence(law),)
    )


def shifted(size: float, runs: int = 5) -> np.ndarray:
    """Runs at two times: the law at 0, and at 1 shifted by ±1/size."""
    signs = np.where(np.arange(runs) % 2, 1.0, -1.0)
    end = QUANTILES + signs[:, None] / size
    return np.stack([np.broadcast_to(QUANTILES, end.shape), end], axis=1)[..., None]


def trajectory(size: float) -> Trajectory:
    return Trajectory("tokens", np.array([0.0, 1.0]), shifted(size), np.full((5, TOKENS), 1 / TOKENS), source=f"{size}")


def test_shifts_of_the_law_give_the_rate_of_the_shifts() -> None:
    # W2² of a shifted sample is shift² and that of the sample itself: the floor is exact in quadrature
    own = line_w2(QUANTILES, exact_line(LAW))
    assert own > 0.01
    problem, given = problem_of(), [trajectory(size) for size in SHIFTS]
    rate = trajectory_rate(problem, given, sizes=SHIFTS.tolist(), floor=own)
    assert rate.slope == pytest.approx(-1.0, abs=1e-3)
    np.testing.assert_allclose(rate.above, 1.0 / SHIFTS, rtol=1e-3)
    assert rate.runs == (5, 5, 5, 5)
    found = trajectory_rate(problem, given, sizes=SHIFTS.tolist(), floor="fit")
    assert found.slope == pytest.approx(-1.0, abs=0.01)
    assert found.floor == pytest.approx(own, rel=0.02)
    # without the floor of the sample the rate is another one
    assert trajectory_rate(problem, given, sizes=SHIFTS.tolist()).slope > -0.97
    # at the first time nothing falls
    first = trajectory_rate(problem, given, sizes=SHIFTS.tolist(), time=0.0)
    assert first.slope == pytest.approx(0.0, abs=1e-9)


def test_independent_tokens_approach_their_law_at_the_root_of_their_number() -> None:
    rng = np.random.default_rng(2)
    law = Mixture((0.5, 0.5), (Gaussian((-0.4,), ((0.3,),)), Gaussian((0.5,), ((0.3,),))))
    given = []
    for n in (50, 200, 800):
        x = rng.choice([-0.4, 0.5], size=(40, 1, n)) + np.sqrt(0.3) * rng.normal(size=(40, 1, n))
        given.append(Trajectory("tokens", np.array([1.0]), x[..., None], np.full((40, n), 1 / n)))
    rate = trajectory_rate(problem_of(law), given, threads=1)
    assert rate.lower is not None
    assert rate.upper is not None
    assert rate.lower - 0.03 <= -0.5 <= rate.upper + 0.03
    np.testing.assert_array_equal(rate.sizes, [50, 200, 800])
    assert 0 < rate.floor < 1e-3


@pytest.mark.parametrize("cells", [(128,), (64, 64)])
def test_the_distance_of_two_laws_is_that_of_normal_laws(cells: tuple[int, ...]) -> None:
    # W2² = (m − m')² + (σ − σ')² on a line; along a direction v it is that of ⟨v, X⟩
    dim = len(cells)
    laws = []
    for m, s in ((0.1, 0.6), (-0.3, 0.8)):
        covariance = tuple(tuple(s * s * (i == j) for j in range(dim)) for i in range(dim))
        laws.append(grid_law(problem_of(Gaussian((m,) * dim, covariance), cells), 1.0))
    # the mean over unit directions of (⟨v, (.4, .4)⟩)² is .16
    assert laws_apart(*laws) == pytest.approx(np.sqrt(0.16 + 0.04), rel=1e-4 if dim == 1 else 1e-3)
    assert laws_apart(laws[0], laws[0]) == pytest.approx(0.0, abs=1e-12)


def test_the_distance_of_two_laws_on_a_ring_is_that_of_fine_samples() -> None:
    box = Grid((-np.pi,), (np.pi,), (128,), (True,))
    angle = box.points()[:, 0]
    waves = [np.exp(k * np.cos(angle - m)) for m, k in ((2.9, 1.0), (-3.0, 2.0))]
    first, second = (readable(wave / box.integral(wave), box) for wave in waves)
    assert isinstance(first, LineLaw)
    assert isinstance(second, LineLaw)
    fine = second.quantile((np.arange(20000) + 0.5) / 20000)
    assert laws_apart(first, second) == pytest.approx(circle_w2(fine, first), rel=1e-6)
    ring = grid_law(problem_of(VonMises((0.4,), (1.5,)), (64,), ring=True), 1.0)
    assert laws_apart(ring, ring) == pytest.approx(0.0, abs=1e-9)


def test_the_floor_is_the_error_of_the_grid() -> None:
    problem = problem_of(cells=(24,))
    exact = exact_line(LAW)
    coarse = grid_law(problem, 1.0)
    floor = laws_apart(coarse, grid_law(finer(problem, 2.0), 1.0))
    assert floor == pytest.approx(laws_apart(coarse, exact), rel=0.1)
    assert floor > 1e-4


def test_what_has_no_rate_is_refused(tmp_path: Path) -> None:
    problem, given = problem_of(), [trajectory(size) for size in SHIFTS]
    heads = Trajectory("heads", np.array([0.0]), np.zeros((1, 1, 12, 2)), np.ones((1, 12)), source="heads.npz")
    for change, keys, words in (
        (given, {}, r"files have \[500, 500, 500, 500\] tokens: put runs of one number into one file"),
        (given, {"sizes": [1.0]}, "1 sizes for 4 files"),
        (given, {"sizes": SHIFTS.tolist(), "time": 0.5}, "10.0 has no snapshot at time 0.5: it has those at 0, 1"),
        (given, {"sizes": SHIFTS.tolist(), "sequence": 1}, "sequence = 1: the problem has 1"),
        ([], {}, "no trajectories"),
        ([heads], {}, "heads.npz holds heads"),
        ([replace(given[0], points=given[0].points + 9.0)], {}, "outside the box"),
    ):
        with pytest.raises(MeanFieldError, match=words):
            trajectory_rate(problem, change, **keys)
    flat = problem_of(Gaussian((0.0, 0.0), ((0.5, 0.0), (0.0, 0.5))), (16, 16))
    assert flat.tokens is not None
    mixed = replace(flat, tokens=replace(flat.tokens, periodic=(True, False)), attention=None, heads=None)
    with pytest.raises(MeanFieldError, match="walls and rings are mixed"):
        grid_law(mixed, 1.0)
    with pytest.raises(MeanFieldError, match="one number of dimensions"):
        laws_apart(exact_line(LAW), grid_law(flat, 0.0))


def test_files_are_read_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = tmp_path / "still.toml"
    problem.write_text(dump_problem(problem_of()), encoding="utf-8")
    paths = [tmp_path / f"{size:g}.npz" for size in SHIFTS]
    for path, size in zip(paths, SHIFTS, strict=True):
        np.savez(path, tokens=shifted(size), t=[0.0, 1.0])
    print_rates(str(problem), paths, sizes="10,20,40,80", floor="fit")
    out = capsys.readouterr().out
    assert "error ~ size^-1," in out
    assert "(fitted) is taken off in quadrature" in out
    assert len([line for line in out.splitlines() if line.split()[:1] in (["10"], ["20"], ["40"], ["80"])]) == 4
    print_rates(str(problem), paths, sizes="10,20,40,80", as_json=True, time=1.0, level=0.9)
    found = json.loads(capsys.readouterr().out)
    assert found["level"] == 0.9
    raw = np.hypot(1.0 / SHIFTS, line_w2(QUANTILES, exact_line(LAW)))
    assert found["slope"] == pytest.approx(np.polyfit(np.log(SHIFTS), np.log(raw), 1)[0], abs=1e-3)
    assert found["words"].startswith("error ~ size^")
    for keys, words in (
        ({"sizes": "10,x"}, "--sizes: 'x' is no number"),
        ({"sizes": "10,20,40,80", "floor": "gird"}, "--floor: 'gird' is no number, 'grid' or 'fit'"),
    ):
        with pytest.raises(MeanFieldError, match=words):
            print_rates(str(problem), paths, **keys)
