"""The memory plan: it bounds what a run takes, and what is too much is refused before it is allocated."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.cli.main import main
from meanfield_pde.cli.running import bytes_of
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Problem
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.assembled import Assembled
from meanfield_pde.training.memory_plan import head_parts, spelled, token_parts, total


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def coupled(**output: int) -> Problem:
    problem = library.get("gaussian_coupled")[0]
    assert problem.training is not None
    assert problem.depth is not None
    training = replace(problem.training, s_end=2 * problem.training.ds)
    depth = replace(problem.depth, layers=40)
    return replace(problem, training=training, depth=depth, output=replace(problem.output, **output))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["coupled", "softmax_plane", "digits_profile"])
def test_a_run_stays_within_its_plan(name: str) -> None:
    problem = coupled() if name == "coupled" else library.get(name)[0]
    if name == "digits_profile":
        assert problem.training is not None
        problem = replace(problem, training=replace(problem.training, s_end=problem.training.ds))
    plans: list[Assembled] = []
    solve(problem, threads=1)  # imports and compiled kernels are no part of it
    peak = peak_of(lambda: solve(problem, threads=1, on_ready=plans.append))
    planned = total(plans[0].memory)
    assert peak <= planned + 2e6
    # and the plan is of use: not a thousand times what is taken
    assert planned < 30 * peak


@pytest.mark.parametrize("key", ["heads", "tokens", "snapshots"])
def test_what_is_too_much_is_refused_before_it_is_made(key: str) -> None:
    problem = coupled()
    assert problem.heads is not None
    assert problem.tokens is not None
    if key == "heads":
        problem = replace(problem, heads=replace(problem.heads, cells=(3100, 3100)))
    elif key == "tokens":
        problem = replace(problem, tokens=replace(problem.tokens, cells=(9_000_000,)))
    else:
        problem = coupled(snapshots=100_000)

    def refused() -> None:
        with pytest.raises(MeanFieldError, match=r"this needs .* GB of memory, over the budget of 4 GB: .*--memory"):
            assemble(problem)

    assert peak_of(refused) < 1e6


def test_a_smaller_memory_changes_no_bit_until_it_is_refused() -> None:
    problem = coupled()
    plan = assemble(problem).memory
    (path,) = (part for part in plan if part.name.startswith("path"))
    assert path.name == "path of mu with its stages"
    tight = total(plan) - 0.5 * path.bytes
    again = assemble(problem, memory=tight).memory[-1]
    assert again.name == "path of mu, its stages made again"
    assert again.bytes < 0.5 * path.bytes
    one, two = solve(problem, threads=1), solve(problem, threads=1, memory=tight)
    np.testing.assert_array_equal(one.rho, two.rho)
    np.testing.assert_array_equal(one.p, two.p)
    with pytest.raises(MeanFieldError, match="the path of mu needs up to"):
        assemble(problem, memory=total(plan) - path.bytes + 0.5 * again.bytes)


def test_counts_of_the_parts() -> None:
    grid = Grid((0.0,) * 2, (1.0,) * 2, (10, 20), (False, False))
    law, kept = head_parts(grid, 3, 7)
    assert law.bytes == 8 * 3 * 200 * 25
    assert kept.bytes == 3 * 8 * 3 * 200 * 8
    assert token_parts(grid, 4, 5, 0)[0].bytes >= 8 * 4 * 200 * 2 * 6


@pytest.mark.parametrize(
    ("words", "size"),
    [("2GB", 2e9), ("512 MiB", 2.0**29), ("3e9", 3e9), ("1.5kb", 1500.0), ("7", 7.0), ("1TB", 1e12)],
)
def test_sizes_in_words(words: str, size: float) -> None:
    assert bytes_of(words) == size


@pytest.mark.parametrize("words", ["", "much", "-2GB", "0", "2 GBit", "nan", "1e999", "1.2.3MB", "2XB"])
def test_no_sizes(words: str) -> None:
    with pytest.raises(MeanFieldError, match="give one such as 2GB"):
        bytes_of(words)


def test_the_plan_is_said_before_the_first_step_and_kept_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "slab", "-o", str(tmp_path / "a"), "--steps", "1"]) == 130
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("meanfield-pde: memory: at most ")
    assert " of 4 GB: " in lines[0]
    assert main(["run", "slab", "-o", str(tmp_path / "b"), "--memory", "10kB"]) == 2
    assert "over the budget of 10 kB" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
    assert main(["resume", str(tmp_path / "a"), "--memory", "10kB"]) == 2
    assert spelled(1e13) == "10 TB"


def test_a_path_whose_steps_are_not_known_before_is_planned_within_what_is_left() -> None:
    problem = library.get("softmax_gaussian")[0]
    assert problem.depth is not None
    controlled = replace(problem, depth=replace(problem.depth, control="error"))
    usual, ready = assemble(problem).memory[-1], assemble(controlled).memory[-1]
    assert ready.name == "path of mu, whose steps are not known before"
    assert ready.bytes == 2 * usual.bytes
    tight = assemble(controlled, memory=total(assemble(problem).memory[:-1]) + 1e3)
    assert tight.memory[-1].bytes == pytest.approx(1e3)
