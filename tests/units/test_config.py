from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanfield_pde.config import from_toml, set_keys, to_toml
from meanfield_pde.errors import MeanFieldError


@dataclass(frozen=True, slots=True)
class Disc:
    law: ClassVar[str] = "disc"
    radius: float


@dataclass(frozen=True, slots=True)
class Blend:
    law: ClassVar[str] = "blend"
    parts: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    law: ClassVar[str] = "formula"
    function: Callable[[float], float]


Shape = Disc | Blend | Formula


@dataclass(frozen=True, slots=True)
class Step:
    n: int
    beta: float = 0.5
    rows: tuple[tuple[float, ...], ...] = ()
    on: bool = False


@dataclass(frozen=True, slots=True)
class Import:
    file: str
    every: int = 1


@dataclass(frozen=True, slots=True)
class Item:
    shape: Shape
    target: int | float | tuple[float, ...] | Shape | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    title: str = ""
    note: str | None = None
    step: Step | None = None
    items: tuple[Item | Import, ...] = ()
    cells: tuple[int, ...] = ()
    folder: str = field(default=".", compare=False, metadata={"toml": False})

    def __post_init__(self) -> None:
        if self.title == "bad":
            raise MeanFieldError("title = 'bad' is no title")


def read(text: str, *overrides: str) -> Plan:
    return from_toml(text, Plan, "plan.toml", overrides, {"mask": "masks are not covered yet"})


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_come_back_bit_for_bit(values: list[float]) -> None:
    plan = Plan(step=Step(3, values[0], (tuple(values), tuple(values))))
    back = read(to_toml(plan)).step
    assert back is not None
    pack = struct.Struct(f"{len(values)}d").pack
    assert pack(*back.rows[0]) == pack(*back.rows[1]) == pack(*values)
    assert struct.pack("d", back.beta) == struct.pack("d", values[0])


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_strings_come_back_whatever_they_hold(text: str) -> None:
    plan = Plan(title=f"x{text}", note="[\n 1.0,\n]" + text)
    assert read(to_toml(plan)) == plan


@pytest.mark.parametrize("target", [None, 1, 1.0, (1.0, 2.5), Disc(2.0), Blend((Disc(1.0), Blend((Disc(0.1),))))])
def test_unions_keep_their_type(target: object) -> None:
    plan = Plan(items=(Item(Disc(1.0), target), Import("a.npz", 3)))
    back = read(to_toml(plan))
    assert back == plan
    assert isinstance(back.items[0], Item)
    assert type(back.items[0].target) is type(target)


def test_what_is_read_is_what_is_written_in_the_file() -> None:
    items = '[[items]]\nshape = {law = "disc", radius = 2}\n[[items]]\nfile = "f"'
    plan = read('title = "t"\n[step]\nn = 4\nbeta = 1\n' + items)
    assert plan == Plan("t", None, Step(4, 1.0), (Item(Disc(2.0)), Import("f")))
    assert plan.step is not None
    assert type(plan.step.beta) is float


def test_numpy_numbers_are_written_as_numbers() -> None:
    plan = Plan(step=Step(np.int64(3), np.float64(0.1), (tuple(np.array([0.2, 0.3])),)))
    assert read(to_toml(plan)) == Plan(step=Step(3, 0.1, ((0.2, 0.3),)))


def test_rows_of_numbers_stay_on_one_line() -> None:
    assert "cells = [1, 2, 3]\n" in to_toml(Plan(cells=(1, 2, 3)))


def test_defaults_are_written_and_what_belongs_to_no_file_is_not() -> None:
    text = to_toml(Plan(step=Step(3), folder="elsewhere"))
    assert "beta = 0.5" in text
    assert "folder" not in text
    assert "note" not in text
    with pytest.raises(MeanFieldError, match="unknown key folder"):
        read('folder = "x"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[step]\nn = 3\nbetta = 1.0", r"unknown key step\.betta; did you mean 'beta'\?"),
        ("[stepp]\nn = 3", r"unknown key stepp; did you mean 'step'\?"),
        ("zzzzz = 3", "unknown key zzzzz; allowed: title, note, step, items, cells"),
        ("[step]\nn = 64.5", r"step\.n = 64\.5 must be an integer"),
        ("[step]\nn = 64.0", r"step\.n = 64\.0 must be an integer"),
        ("[step]\nn = true", r"step\.n = true must be an integer"),
        ('[step]\nn = "3"', r"step\.n = '3' must be an integer"),
        ('[step]\nn = 3\nbeta = "0.1"', r"step\.beta = '0\.1' must be a number"),
        ("[step]\nn = 3\nbeta = true", r"step\.beta = true must be a number"),
        ("[step]\nn = 3\nbeta = nan", r"step\.beta = nan must be finite"),
        ("[step]\nn = 3\nrows = [[1.0], [0.0, -inf]]", r"step\.rows\[1\]\[1\] = -inf must be finite"),
        ("[step]\nn = 3\nrows = [1.0]", r"step\.rows = \[1\.0\] must be a list, each entry a list of numbers"),
        ("[step]\nn = 3\non = 1", r"step\.on = 1 must be true or false"),
        ("[step]\nbeta = 1.0", r"step\.n is missing: give an integer"),
        ("[step]\nn = 1979-05-27", r"step\.n = .*must be an integer"),
        ("step = 3", "step = 3 must be a table"),
        ("[title]\nx = 3", "title is given as a table, but must be a string"),
        ("cells = 64", "cells = 64 must be a list of integers"),
        ("cells = [3, 4.5]", r"cells = \[3, 4\.5\] must be a list of integers"),
        ("[[items]]\nshape = {radius = 1.0}", r"items\[0\]\.shape\.law is missing: allowed: disc, blend$"),
        ('[[items]]\nshape = {law = "disk", radius = 1.0}', r"items\[0\]\.shape\.law = 'disk' .*did you mean 'disc'"),
        ('[[items]]\nshape = {law = "formula"}', r"items\[0\]\.shape\.law = 'formula' is not known"),
        ('[[items]]\nshape = {law = "blend", parts = [{law = "disc"}]}', r"items\[0\]\.shape\.parts\[0\]\.radius is"),
        ('[[items]]\nfile = "f"\nevry = 2', r"unknown key items\[0\]\.evry; did you mean 'every'"),
        ("items = [3]", r"items\[0\] = 3 must be a table"),
        ('mask = "causal"', "mask: masks are not covered yet"),
        ('[title]\nmask = "causal"', r"title\.mask: masks are not covered yet"),
        ('title = "bad"', "title = 'bad' is no title"),
        ("title = ", "not valid TOML"),
        ('title = "a"\ntitle = "b"', "not valid TOML"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(MeanFieldError, match=rf"^plan\.toml: {message}") as caught:
        read(text)
    assert "pydantic" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(step=Step(3, float("nan"))), r"step\.beta = nan cannot be written"),
        (Plan(items=(Item(Formula(abs)),)), r"items\[0\]\.shape\.function is a Python function"),
        (Plan(title=object()), "title = .* cannot be written"),
    ],
)
def test_what_toml_cannot_say_is_refused(plan: Plan, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        to_toml(plan)


def test_assignments_are_read_as_toml_and_bare_words_are_strings() -> None:
    base = '[step]\nn = 3\n[[items]]\nshape = {law = "disc", radius = 2.0}'
    words = ("title=a b", 'note="x=1"')
    plan = read(base, *words, "step.beta=0.1", "cells=[1, 2]", "items.0.shape.radius=3", "step.on=true")
    assert plan == Plan("a b", "x=1", Step(3, 0.1, (), True), (Item(Disc(3.0)),), (1, 2))
    assert read("", "step.n=5") == Plan(step=Step(5))


def test_assignments_leave_the_mapping_alone() -> None:
    table = {"step": {"n": 3}, "items": [{"file": "f"}]}
    out = set_keys(table, ["step.n=4", "items.0.file=g", "title=1\ncells = 2"])
    assert table == {"step": {"n": 3}, "items": [{"file": "f"}]}
    assert out == {"step": {"n": 4}, "items": [{"file": "g"}], "title": "1\ncells = 2"}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("step.betta=0.1", r"unknown key step\.betta; did you mean 'beta'"),
        ("step.n=64.5", r"step\.n = 64\.5 must be an integer"),
        ("step.n=many", r"step\.n = 'many' must be an integer"),
        ("step.beta=nan", "must be finite"),
        ("step.n", "is not an assignment"),
        ("=3", "is not an assignment"),
        ("step..n=3", "is not an assignment"),
        ("step.n.x=3", r"step\.n = 3 is not a table"),
        ("items.1.file=f", "items has 1 entries, from 0 on, no '1'"),
        ("items.first.file=f", "no 'first'"),
    ],
)
def test_bad_assignments_are_refused(assignment: str, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        read('[step]\nn = 3\n[[items]]\nfile = "f"', assignment)


def test_pydantic_is_not_imported_with_the_module() -> None:
    import subprocess

    code = "import sys, meanfield_pde.problem_file; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
