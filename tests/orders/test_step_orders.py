"""Orders in the step: steppers in depth, the heads' steps in s, splittings; and steppers that break a law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.equations.runge_kutta import STEPPERS, Stepper
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.studies import step_orders
from meanfield_pde.studies.central_scheme import CENTRAL, Central
from meanfield_pde.studies.orders import orders
from meanfield_pde.studies.scheme_laws import scheme_laws
from meanfield_pde.studies.stepper_laws import stepper_laws


def fitted(name: str, kind: str, norm: str = "L1", **more: Any) -> dict[str, float]:
    problem, exact = library.get(name)
    rows = orders(problem, exact, kind=kind, **more)["rows"]
    assert {row["kind"] for row in rows} == {kind}
    assert not [row for row in rows if row["short"]]
    return {row["scheme"]: max(row["fitted"], row["fitted_finest"]) for row in rows if row["norm"] == norm}


@pytest.mark.parametrize("name", ["logistic_walls", "softmax_gaussian"])
def test_every_stepper_has_its_order_in_depth(name: str) -> None:
    found = fitted(name, "time")
    assert set(found) == set(STEPPERS)
    for one, order in found.items():
        assert order == pytest.approx(STEPPERS[one].order, abs=0.1)


def test_the_steps_of_heads_have_orders_1_and_2_and_so_have_their_splittings() -> None:
    assert fitted("noisy_kuramoto", "time") == {
        "backward-euler": pytest.approx(1.0, abs=0.05),
        "extrapolated": pytest.approx(2.0, abs=0.05),
    }
    assert fitted("noisy_kuramoto", "coupling") == {
        "lie": pytest.approx(1.0, abs=0.05),
        "strang": pytest.approx(2.0, abs=0.05),
    }


def test_no_order_is_asked_of_a_split_where_a_law_has_mass_at_walls() -> None:
    problem, exact = library.get("slab")
    rows = orders(problem, exact, kind="coupling")["rows"]
    assert {row["declared"] for row in rows} == {0}
    # drift and diffusion balance at a wall only together
    assert next(row["fitted"] for row in rows if (row["scheme"], row["norm"]) == ("strang", "L1")) < 1.7


def test_training_has_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_orders, "TOKEN_CELLS", {1: 40})
    monkeypatch.setattr(step_orders, "HEAD_CELLS", {2: 20})
    monkeypatch.setattr(step_orders, "DOUBLINGS", 3)
    problem, _ = library.get("gaussian_coupled")
    assert problem.depth is not None
    problem = replace(problem, depth=replace(problem.depth, layers=4))
    rows = orders(problem, kind="coupling")["rows"] + orders(problem, kind="time")["rows"]
    found = {row["scheme"]: row["orders"][-1] for row in rows if row["norm"] != "Linf"}
    for one, order in {"lie": 1, "strang": 2, "gibbs-1": 1, "gibbs-2": 2, "ssprk2": 2, "ssprk3": 3}.items():
        assert found[one] == pytest.approx(order, abs=0.15)


def test_a_stepper_that_lies_about_its_order_is_short_and_its_law_broken() -> None:
    problem, exact = library.get("logistic_walls")
    liar = Stepper(3, STEPPERS["ssprk2"].rows)
    found = orders(problem, exact, kind="time", steppers={"liar": liar})
    assert [row["scheme"] for row in found["rows"] if row["short"] and row["norm"] == "L1"] == ["liar"]
    assert {law["law"] for law in found["laws"] if not law["held"]} == {
        "stability polynomial is that of its order",
        "order short of the declared one by",
    }


@pytest.mark.parametrize("name", STEPPERS)
def test_every_built_in_stepper_keeps_every_law(name: str) -> None:
    assert all(law.held for law in stepper_laws(STEPPERS[name]))


def test_weights_that_do_not_keep_mass_or_sign_break_their_laws() -> None:
    def broken(stepper: Stepper) -> set[str]:
        return {law.law for law in stepper_laws(stepper) if not law.held}

    assert "rows sum to 1" in broken(Stepper(1, ((0.0, 1.0 + 1e-9),)))
    # the midpoint rule: u_1 = u + dt/2 L(u), then u - 2 e_0 + 2 e_1 = u + dt L(u_1)
    midpoint = Stepper(2, ((0.0, 1.0), (1.0, -2.0, 2.0)), share=0.5)
    assert broken(midpoint) == {"weights are >= 0"}


@pytest.mark.parametrize(
    ("stepper", "says"),
    [
        ("ssprk3", "is a str"),
        (Stepper(0, ((0.0, 1.0),)), "order = 0"),
    ],
)
def test_what_is_no_stepper_is_refused(stepper: Any, says: str) -> None:
    problem, exact = library.get("logistic_walls")
    with pytest.raises(MeanFieldError, match=says):
        orders(problem, exact, kind="time", steppers={"mine": stepper})


def test_the_central_scheme_keeps_all_laws_and_its_weights_are_those_of_cubics() -> None:
    assert all(law.held for law in scheme_laws(Central()))
    offsets = np.arange(-2, 3)
    for power in range(4):
        averages = ((offsets + 0.5) ** (power + 1) - (offsets - 0.5) ** (power + 1)) / (power + 1)
        assert averages @ np.array(CENTRAL) == pytest.approx(0.5**power, abs=1e-14)
    scheme, wind = Central(), np.ones((1, 8, 1))
    out = np.empty_like(wind)
    scheme.faces(np.eye(8)[[3]][:, :, None], wind, out)
    np.testing.assert_allclose(out[0, [1, 2, 3, 4], 0], np.array(CENTRAL)[[4, 3, 2, 1]], atol=1e-16)


def test_an_unknown_kind_is_refused() -> None:
    problem, exact = library.get("logistic_walls")
    with pytest.raises(MeanFieldError, match="did you mean 'time'"):
        orders(problem, exact, kind="tim")
