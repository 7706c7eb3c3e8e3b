"""A scheme of one's own: its laws, each broken once on purpose, and its rows beside the built-in ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.equations.schemes import SCHEMES, DualReconstruction, Linear
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.studies.orders import orders
from meanfield_pde.studies.scheme_laws import scheme_laws, usable

Array = np.ndarray


def broken(scheme: Any) -> set[str]:
    return {law.law for law in scheme_laws(scheme) if not law.held}


@pytest.mark.parametrize("name", SCHEMES)
def test_every_built_in_scheme_keeps_every_law(name: str) -> None:
    laws = scheme_laws(SCHEMES[name])
    assert not [law for law in laws if not law.held]
    told = {law.law: law.measured for law in laws if law.allowed is None}
    assert set(told) == {"order of face values inside", "order of face values at walls"}
    assert min(told.values()) >= SCHEMES[name].order - 0.05
    dual = sum(law.law.startswith("cells is the transpose") for law in laws)
    assert dual == (2 if isinstance(SCHEMES[name], DualReconstruction) else 0)


class Third:
    """linear3 by another road, to plant faults in."""

    order, width = 3, 3

    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        Linear(3).faces(u3, v3, out3)


class Scaled(Third):
    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        super().faces(u3, v3, out3)
        out3 *= 1.0 + 1e-9


class Leftward(Third):
    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        super().faces(u3, np.abs(v3), out3)


class Writing(Third):
    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        super().faces(u3, v3, out3)
        u3 *= 0.5


class Mixing(Third):
    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        super().faces(u3, v3, out3)
        out3 *= u3.mean() / u3.mean(axis=(1, 2), keepdims=True)


class Seamed(Third):
    """Treats the seam of a ring as a wall would be."""

    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        super().faces(u3, v3, out3)
        out3[:, -1] = 0.5 * (u3[:, -1] + u3[:, -2])


class Wallless(Third):
    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        super().faces(u3, v3, out3)
        if v3.shape[1] < u3.shape[1]:
            out3[:, 0] = np.nan


class RingOnly(Third):
    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        out3[:] = 0.5 * (u3 + np.roll(u3, -1, axis=1))


class Transposing(Third):
    def cells(self, u3: Array, g3: Array, v3: Array, out3: Array) -> None:
        Linear(3).cells(u3, g3, v3, out3)


class Overwriting(Transposing):
    def cells(self, u3: Array, g3: Array, v3: Array, out3: Array) -> None:
        out3[:] = 0.0
        super().cells(u3, g3, v3, out3)


class OtherDual(Third):
    def cells(self, u3: Array, g3: Array, v3: Array, out3: Array) -> None:
        Linear(1).cells(u3, g3, v3, out3)


class FrozenWeights(Third):
    """WENO-Z with the transpose of the linear scheme: right where the weights do not move, and nowhere else."""

    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        SCHEMES["weno5z"].faces(u3, v3, out3)

    def cells(self, u3: Array, g3: Array, v3: Array, out3: Array) -> None:
        Linear(5).cells(u3, g3, v3, out3)


BOTH = (" on a ring", " between walls")


@pytest.mark.parametrize(
    ("scheme", "laws"),
    [
        (Third(), set()),
        (Transposing(), set()),
        (Scaled(), {"a constant is kept" + where for where in BOTH}),
        (Leftward(), {"mirror symmetry" + where for where in BOTH}),
        (Writing(), {"input left as it was" + where for where in BOTH}),
        (Mixing(), {"a batch has the values of its lines" + where for where in BOTH}),
        (Wallless(), {"values at every face between walls"}),
        (RingOnly(), {"runs"}),
        (Overwriting(), {"cells is the transpose of faces" + where for where in BOTH}),
        (OtherDual(), {"cells is the transpose of faces" + where for where in BOTH}),
        (FrozenWeights(), {"cells is the transpose of faces" + where for where in BOTH}),
    ],
)
def test_each_fault_breaks_its_law_and_no_other(scheme: Any, laws: set[str]) -> None:
    assert broken(scheme) == laws


def test_a_seam_breaks_the_shift_of_a_ring() -> None:
    assert "shift of a ring" in broken(Seamed())


def test_what_does_not_run_is_told_with_its_error() -> None:
    last = scheme_laws(RingOnly())[-1]
    assert "ValueError" in last.words
    assert not last.held
    assert not usable(scheme_laws(RingOnly()))
    assert usable(scheme_laws(Leftward()))


class Nameless:
    order = 2


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        (Nameless(), "has no 'faces'"),
        (object(), "has no 'order'"),
        (Third, r"give an object, Third\(\)"),
        (type("S", (Third,), {"order": 2.5})(), "order = 2.5"),
        (type("S", (Third,), {"width": 0})(), "width = 0"),
        (type("S", (Third,), {"cells": 3})(), "cells = 3"),
    ],
)
def test_what_is_no_scheme_is_refused_by_what_it_lacks(scheme: Any, says: str) -> None:
    problem, exact = library.get("softmax_gaussian")
    with pytest.raises(MeanFieldError, match=says):
        orders(problem, exact, own={"mine": scheme})


def test_the_name_of_a_built_in_scheme_is_taken() -> None:
    problem, exact = library.get("softmax_gaussian")
    with pytest.raises(MeanFieldError, match="'linear3' of your own"):
        orders(problem, exact, own={"linear3": Third()})


def test_own_schemes_stand_beside_the_built_in_ones_in_every_flow_they_can_carry() -> None:
    own = {"third": Third(), "dual": Transposing()}
    problem, exact = library.get("softmax_gaussian")
    found = orders(problem, exact, cells=(64, 128), schemes=["linear3"], own=own)
    errors = {(row["scheme"], row["norm"]): row["errors"] for row in found["rows"]}
    for one in own:
        for norm in ("L1", "Linf", "W1"):
            assert errors[one, norm] == errors["linear3", norm]
    assert {law["scheme"] for law in found["laws"]} == set(own)
    assert all(law["held"] for law in found["laws"])
    problem, exact = library.get("gaussian_coupled", head_cells=24)
    found = orders(problem, exact, cells=(48, 96), schemes=["linear3"], own=own)
    assert [row["scheme"] for row in found["rows"]] == ["linear3", "dual"]
    assert found["rows"][0]["errors"] == found["rows"][1]["errors"]


def test_a_scheme_without_values_has_no_rows_and_one_that_blows_up_falls_short() -> None:
    problem, _ = library.get("softmax_gaussian")
    assert problem.depth is not None
    long = replace(problem, depth=replace(problem.depth, T=2.0))
    own = {"wallless": Wallless(), "leftward": Leftward()}
    rows = orders(long, library.exact_of(long), cells=(64, 128, 256), schemes=[], own=own)["rows"]
    assert {row["scheme"] for row in rows} == {"leftward"}
    assert all(row["short"] for row in rows)


class PlantedWall:
    """A built-in scheme but for the two faces next to the walls, which are upwind of order 1."""

    def __init__(self, name: str) -> None:
        self.inner = SCHEMES[name]
        self.order, self.width = self.inner.order, self.inner.width
        self.order_at_extrema = 1

    def faces(self, u3: Array, v3: Array, out3: Array) -> None:
        self.inner.faces(u3, v3, out3)
        if v3.shape[1] < u3.shape[1]:
            upwind = np.empty_like(out3)
            Linear(1).faces(u3, v3, upwind)
            out3[:, [0, -1]] = upwind[:, [0, -1]]


def test_a_first_order_wall_rule_is_short_at_the_walls_and_the_built_in_ones_are_not() -> None:
    problem, exact = library.get("logistic_walls")
    higher = [name for name in SCHEMES if SCHEMES[name].order > 1]
    rows = orders(problem, exact, own={f"planted {name}": PlantedWall(name) for name in higher})["rows"]
    walls = {row["scheme"]: row for row in rows if row["norm"] == "L1 walls"}
    assert set(walls) == {*SCHEMES, *(f"planted {name}" for name in higher)}
    for name in SCHEMES:
        assert not [row["norm"] for row in rows if row["scheme"] == name and row["short"]]
    for name in higher:
        assert walls[f"planted {name}"]["short"]
        assert walls[f"planted {name}"]["fitted"] < 1.45
    # of a limiter nothing else shows it
    assert [row["norm"] for row in rows if row["scheme"] == "planted muscl-mc" and row["short"]] == ["L1 walls"]


def test_threads_change_no_digit() -> None:
    problem, exact = library.get("softmax_gaussian")
    tables = [orders(problem, exact, cells=(32, 64), threads=threads)["rows"] for threads in (1, 3)]
    for a, b in zip(*tables, strict=True):
        assert a["scheme"] == b["scheme"]
        assert a["errors"] == b["errors"]
