"""A Fokker-Planck flux of one's own: its laws, its rows, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.cli.main import main
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads, fokker_planck_step
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Problem
from meanfield_pde.studies.orders import orders
from meanfield_pde.studies.own_fluxes import flux_laws, own_flux
from meanfield_pde.studies.work_precision import work_precision


def flux(weight: Any, order: Any = 2) -> Any:
    return SimpleNamespace(order=order, weight=weight)


def scharfetter_gummel(z: np.ndarray) -> np.ndarray:
    """z / (e^z - 1), 1 at 0."""
    with np.errstate(over="ignore"):
        return np.where(z == 0.0, 1.0, z / np.where(z == 0.0, 1.0, np.expm1(z)))


def upwind(z: np.ndarray) -> np.ndarray:
    return 1.0 + np.maximum(-z, 0.0)


def central(z: np.ndarray) -> np.ndarray:
    return 1.0 - 0.5 * z


def writes(z: np.ndarray) -> np.ndarray:
    out = upwind(z)
    z *= 0.5
    return out


def broken(weight: Any) -> set[str]:
    return {law.law for law in flux_laws(own_flux("mine", flux(weight))) if not law.held}


@pytest.mark.parametrize(
    ("weight", "laws"),
    [
        (scharfetter_gummel, set()),
        (upwind, set()),
        (central, {"weights are >= 0"}),
        (lambda z: 2.0 * upwind(z), {"B(0) = 1", "B(-z) - B(z) = z"}),
        (lambda z: upwind(-z), {"B(-z) - B(z) = z"}),
        (lambda z: np.where(z > 600.0, np.nan, upwind(z)), {"values of the weight"}),
        (writes, {"input left as it was"}),
        (lambda z: upwind(z)[1:], {"runs"}),
        (lambda z: 1.0 / 0, {"runs"}),
    ],
    ids=["exact", "upwind", "central", "double", "against the wind", "nan", "writes", "shape", "raises"],
)
def test_a_broken_law_is_named(weight: Any, laws: set[str]) -> None:
    assert broken(weight) == laws


def test_the_gibbs_state_is_told_not_judged() -> None:
    told = {w: flux_laws(own_flux("mine", flux(w)))[-1] for w in (scharfetter_gummel, upwind)}
    assert told[scharfetter_gummel].measured < 1e-14
    assert told[upwind].measured > 0.1
    assert all(law.held for law in told.values())


@pytest.mark.parametrize("periodic", [False, True])
def test_the_weight_of_scharfetter_and_gummel_gives_their_step(periodic: bool) -> None:
    grid = Grid((-2.0, -1.0), (2.0, 1.0), (24, 17), (False, periodic))
    rng = np.random.default_rng(4)
    psi = rng.normal(size=(2, *grid.cells))
    rho = rng.random((2, *grid.cells))
    rho /= grid.integral(rho)[:, None, None]
    known = fokker_planck_step(grid, rho, psi, 0.3, 0.05)
    mine = fokker_planck_step(grid, rho, psi, 0.3, 0.05, weight=scharfetter_gummel)
    np.testing.assert_allclose(mine.rho, known.rho, rtol=1e-12, atol=1e-14)
    other = fokker_planck_step(grid, rho, psi, 0.3, 0.05, weight=upwind)
    assert np.abs(other.rho - known.rho).max() > 1e-3


def test_a_flux_that_is_not_exact_at_rest_moves_the_gibbs_state() -> None:
    grid = Grid((-2.0,), (2.0,), (64,), (False,))
    heads = FokkerPlanckHeads(grid, beta=0.2)
    psi = heads.points[:, 0][None] ** 2
    gibbs = heads.gibbs_state(psi)
    for weight, still in ((scharfetter_gummel, True), (upwind, False)):
        moved = replace(heads, weight=weight).flows["gibbs"](gibbs, psi, 1.0, 2).rho
        assert (np.abs(moved - gibbs).max() <= 1e-13 * gibbs.max()) == still


def test_orders_are_those_that_were_declared() -> None:
    problem, exact = library.get("double_well")
    built_in, cells = ["scharfetter-gummel-2"], (64, 128, 256, 512)
    given = {"up": flux(upwind, 1), "central": flux(central)}
    found = orders(problem, exact, schemes=built_in, fluxes=given, cells=cells)
    fitted = {(row["scheme"], row["norm"]): row for row in found["rows"]}
    assert fitted["up", "L1"]["fitted"] == pytest.approx(1.0, abs=0.15)
    assert fitted["scharfetter-gummel-2", "L1"]["fitted"] >= 1.85
    assert not any(row["short"] for row in found["rows"])
    # what may go negative is named, and not solved with
    assert "central" not in {row["scheme"] for row in found["rows"]}
    assert [law["law"] for law in found["laws"] if law["scheme"] == "central" and not law["held"]] == [
        "weights are >= 0"
    ]
    wrong = orders(problem, exact, schemes=built_in, fluxes={"up": flux(upwind, 2)}, cells=cells[:3])
    assert any(row["short"] for row in wrong["rows"] if row["scheme"] == "up")


def test_bench_has_cases_of_it() -> None:
    problem = replace_training(library.get("double_well")[0], s_end=0.5)
    found = work_precision(
        problem,
        cells=(32, 64),
        schemes=["scharfetter-gummel-2"],
        fluxes={"mine": flux(scharfetter_gummel)},
        repeats=1,
    )
    errors = {(row["scheme"], row["n"], row["step"]): row["error"] for row in found["rows"]}
    mine = {(n, step): error for (scheme, n, step), error in errors.items() if scheme == "mine"}
    assert len(mine) == 6
    for at, error in mine.items():
        assert error == pytest.approx(errors["scharfetter-gummel-2", *at], rel=1e-9)
    assert {law["scheme"] for law in found["laws"]} == {"mine"}


def replace_training(problem: Problem, **changes: float) -> Problem:
    assert problem.training is not None
    return replace(problem, training=replace(problem.training, **changes))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (SimpleNamespace(order=1), "has no 'weight'"),
        (SimpleNamespace(weight=upwind), "has no 'order'"),
        (flux(upwind, 0), "an integer >= 1"),
        (flux(upwind, True), "an integer >= 1"),
        (flux(3.0), "must be a method"),
        (SimpleNamespace, "is the class"),
    ],
)
def test_an_object_that_is_none_is_refused(given: Any, words: str) -> None:
    problem, _ = library.get("double_well")
    with pytest.raises(MeanFieldError, match=words):
        orders(problem, fluxes={"mine": given})


def test_a_flux_is_refused_where_none_is_used() -> None:
    problem, _ = library.get("double_well")
    given = {"mine": flux(upwind, 1)}
    with pytest.raises(MeanFieldError, match="beta = 0"):
        orders(replace_training(problem, beta=0.0), fluxes=given)
    with pytest.raises(MeanFieldError, match="'fokker-planck'"):
        orders(library.get("softmax_gaussian")[0], fluxes=given)
    with pytest.raises(MeanFieldError, match="name of a built-in one"):
        work_precision(problem, fluxes={"scharfetter-gummel-1": flux(upwind, 1)})


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "class F:\n    order = 2\n    def weight(self, z):\n        return 1 - z / 2\n\n\ncentral = F()\n"
    (tmp_path / "centred.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "centred", raising=False)
    arguments = ["bench", "double_well", "--cells", "16,32", "--repeats", "1", "--flux", "centred:central"]
    arguments += ["--set", "training.s_end=0.5"]
    assert main(arguments) == 3
    said = capsys.readouterr()
    assert "BROKEN" in said.out
    assert main(["orders", "all", "--flux", "centred:central"]) == 2
    assert "double_well" in capsys.readouterr().err
