"""Work against precision: errors by an independent solve, the frontier, what is refused, and what is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.cli.main import main
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.output.solve import solve
from meanfield_pde.studies.work_precision import _frontier, work_precision


def test_errors_and_steps_are_those_of_a_solve() -> None:
    problem, exact = library.get("softmax_gaussian")
    assert exact is not None
    assert exact.mu is not None
    assert problem.tokens is not None
    assert problem.depth is not None
    options: dict[str, Any] = {"cells": (48,), "steppers": ("ssprk3",), "repeats": 1}
    found = work_precision(problem, exact, schemes=("muscl-mc", "linear5"), **options)
    assert [(row["scheme"], row["step"]) for row in found["rows"]] == [
        (name, factor * problem.depth.cfl) for name in ("muscl-mc", "linear5") for factor in (0.5, 1.0, 2.0)
    ]
    for row in found["rows"]:
        depth = replace(problem.depth, scheme=row["scheme"], stepper="ssprk3", cfl=row["step"])
        again = solve(replace(problem, tokens=replace(problem.tokens, cells=(48,)), depth=depth))
        grid = again.token_grid
        assert grid is not None
        gap = np.abs(again.mu[-1] - exact.mu(problem.depth.T, grid)).sum(axis=-1).max() * grid.spacing[0]
        assert row["error"] == pytest.approx(gap, rel=1e-9)
        assert row["fault"] is None
        assert row["mass_drift"] <= 1e-14
        assert row["memory"] > 8 * 48
        assert row["quartiles"][0] <= row["seconds"] <= row["quartiles"][1]
    # half the Courant number is twice the steps
    assert found["rows"][0]["steps"] == pytest.approx(2 * found["rows"][1]["steps"], abs=2)


def test_the_reference_without_an_exact_solution_is_near_it() -> None:
    problem, exact = library.get("softmax_gaussian")
    options: dict[str, Any] = {"cells": (64,), "schemes": ("muscl-mc",), "steppers": ("ssprk3",), "repeats": 1}
    alone = work_precision(problem, None, **options)["rows"]
    known = work_precision(problem, exact, **options)["rows"]
    for one, other in zip(alone, known, strict=True):
        assert one["error"] == pytest.approx(other["error"], rel=0.01)
        assert one["error"] != other["error"]


def test_gradients_and_heads_have_rows_too() -> None:
    problem, exact = library.get("gaussian_coupled")
    rows = work_precision(problem, exact, cells=(48,), schemes=("linear3", "linear5"), repeats=1)["rows"]
    assert rows[0]["error"] > 5.0 * rows[-1]["error"]
    with pytest.raises(MeanFieldError, match=r"no case of the flow 'gradient'"):
        work_precision(problem, exact, schemes=("muscl-mc",))
    problem, exact = library.get("ornstein_uhlenbeck")
    rows = work_precision(problem, exact, cells=(32,), repeats=1)["rows"]
    assert {row["scheme"] for row in rows} == {"scharfetter-gummel-1", "scharfetter-gummel-2"}
    assert all(row["minimum"] >= 0.0 and row["energy_rise"] <= 1e-10 for row in rows)
    with pytest.raises(MeanFieldError, match="no stepper"):
        work_precision(problem, exact, steppers=("ssprk3",))


def test_the_frontier_by_hand() -> None:
    points = [(1.0, 1.0), (2.0, 0.5), (2.5, 0.6), (3.0, 0.1), (0.5, 2.0), (1.0, 1.0)]
    rows: list[dict[str, Any]] = [{"seconds": a, "error": b, "fault": None} for a, b in points]
    rows.append({"seconds": None, "error": None, "fault": "the result is not finite"})
    rows.append({"seconds": 0.1, "error": 0.01, "fault": "mass drifts"})
    assert _frontier(rows) == [True, True, False, True, True, True, False, False]


def test_the_budget_leaves_fine_grids_out() -> None:
    problem, exact = library.get("softmax_gaussian")
    found = work_precision(problem, exact, cells=(32, 64), schemes=("upwind1",), repeats=1, budget=1e-9)
    assert not found["rows"]
    assert [row["n"] for row in found["left_out"]] == [32] * 6 + [64] * 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repeats": 0}, "repeats = 0"),
        ({"budget": -1.0}, "budget = -1"),
        ({"cells": (64, 32)}, "growing numbers"),
        ({"schemes": ("weno5",)}, "did you mean 'weno5z'"),
        ({"steppers": ("rk4",)}, "'rk4' is unknown"),
        ({"schemes": ("weno5z",), "steppers": ("lax-wendroff",)}, "no case is left"),
        ({"own": {"weno5z": object()}}, "name of a built-in"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    problem, exact = library.get("softmax_gaussian")
    with pytest.raises(MeanFieldError, match=words):
        work_precision(problem, exact, **options)


class Central:
    """Unstable with forward Euler, and much too big on purpose."""

    order = 1

    def faces(self, u3: np.ndarray, v3: np.ndarray, out3: np.ndarray) -> None:
        right = np.roll(u3, -1, axis=1)[:, : v3.shape[1]]
        out3[:] = np.where(v3 >= 0.0, right, u3[:, : v3.shape[1]])


def test_a_scheme_of_ones_own_that_blows_up_is_named() -> None:
    problem, exact = library.get("softmax_gaussian")
    found = work_precision(problem, exact, cells=(256,), schemes=(), own={"down": Central()}, repeats=1)
    assert found["laws"]
    for row in found["rows"]:
        assert row["fault"] is not None
        assert not row["frontier"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    arguments = ["bench", "softmax_gaussian", "--cells", "32,64", "--scheme", "muscl-mc", "--repeats", "1"]
    assert main([*arguments, "-o", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "lax-wendroff" in text
    assert "* no other case" in text
    tree = json.loads((folder / "bench.json").read_text())
    assert len(tree["rows"]) == 12
    assert tree["machine"]["processor"]
    assert (folder / "bench.svg").stat().st_size > 1000
    assert main([*arguments, "-o", str(folder)]) == 2
    assert "bench.json already" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flow"] == "mu"
    assert main(["bench", "softmax_gaussian", "--cells", "32,x"]) == 2
    assert "whole numbers" in capsys.readouterr().err
