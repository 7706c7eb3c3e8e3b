"""Every key of every section: a misspelling, a wrong type, what is not finite, and what is out of range are refused."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tomli_w

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Depth, Problem, Sequence, Tokens
from meanfield_pde.problem_file import dump_problem, parse_problem

# together they have every kind of problem, law, loss, and section
NAMES = ("gaussian_coupled", "digits_plane", "circle_modes", "kuramoto", "in_context_regression", "two_gaussians",
         "shallow_gaussian", "slab", "leveque_deformation", "two_diracs", "neural_ode_training",
         "aggregation")  # fmt: skip
# words that anything may be, and numbers that may be anything finite
FREE = {"title", "reference", "file", "points", "weights", "labels", "inputs", "targets"}
# settings that have to be above 0, or at least 0, or a count
POSITIVE = {"ds", "cfl", "tolerance", "bandwidth", "width", "window", "checkpoint_minutes", "checkpoint_s", "layers",
            "order", "every", "snapshots", "checkpoint_every", "checkpoint_keep", "train_every", "T", "beta",
            "weight_decay", "s_end", "noise", "rest", "dimension"}  # fmt: skip

Path = tuple[str | int, ...]


def leaves(table: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(table, dict):
        for key, value in table.items():
            yield from leaves(value, (*path, key))
    elif isinstance(table, list) and table and isinstance(table[0], dict):
        for k, value in enumerate(table):
            yield from leaves(value, (*path, k))
    else:
        yield path, table


def changed(table: dict[str, Any], path: Path, value: Any, name: str | None = None) -> str:
    """The TOML text with one leaf changed, and renamed if a name is given."""
    copy = tomllib.loads(tomli_w.dumps(table))
    node: Any = copy
    for step in path[:-1]:
        node = node[step]
    node.pop(path[-1]) if name is not None else None
    node[path[-1] if name is None else name] = value
    return tomli_w.dumps(copy)


def spelled(path: Path) -> str:
    out = ""
    for step in path:
        out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
    return out


TABLES = {name: tomllib.loads(dump_problem(library.get(name)[0])) for name in NAMES}
CASES = sorted({(name, spelled(path)): (name, path, value) for name in NAMES
                for path, value in leaves(TABLES[name])}.items(), key=lambda item: item[0])  # fmt: skip
# one problem is enough for a key
SEEN: dict[str, tuple[str, Path, Any]] = {}
for (_name, _where), _case in CASES:
    SEEN.setdefault("".join(c for c in _where if not c.isdigit()), _case)


def refused(text: str, *words: str) -> str:
    with pytest.raises(MeanFieldError) as caught:
        parse_problem(text, "problem.toml")
    message = str(caught.value)
    assert message.startswith("problem.toml: "), message
    for word in words:
        assert word in message, message
    return message


@pytest.mark.parametrize("where", SEEN)
def test_a_misspelt_key_is_named_with_the_nearest(where: str) -> None:
    name, path, value = SEEN[where]
    key = str(path[-1])
    if key == "law" or len(key) < 2:
        return
    for wrong in (key[0] + key, key + key[-1], key[:1] + key[2:] if len(key) > 4 else key + "_"):
        text = changed(TABLES[name], path, value, wrong)
        refused(text, f"unknown key {spelled((*path[:-1], wrong))}")
        if len(key) > 3:
            refused(text, f"did you mean '{key}'?")


@pytest.mark.parametrize("where", SEEN)
def test_values_of_another_kind_or_not_finite_are_refused_by_their_key(where: str) -> None:
    name, path, value = SEEN[where]
    key = spelled(path)
    wrong: list[Any] = [{}, {"x": 1}]
    if isinstance(value, bool):
        wrong += [1, 0.5, "true", float("nan")]
    elif isinstance(value, int):
        wrong += [True, "3", float("nan"), float("inf")]
        # a label or a target may be a number of either kind
        wrong += [] if path[-1] in ("target", "amplitude") else [value + 0.5]
    elif isinstance(value, float):
        wrong += [True, "0.1", float("nan"), float("inf"), float("-inf")]
    elif isinstance(value, str):
        wrong += [7, 0.5, True, ["x"]]
    elif isinstance(value, list):
        wrong += ["x", True, [float("nan")], [[float("inf")]], [["x"]], [True, "x"]]
    for bad in wrong:
        refused(changed(TABLES[name], path, bad), key)


@pytest.mark.parametrize("where", [w for w, (_, path, value) in SEEN.items() if path[-1] in POSITIVE and value != 0.0])
def test_numbers_out_of_range_are_refused_by_their_key(where: str) -> None:
    name, path, value = SEEN[where]
    if isinstance(value, int | float) and not isinstance(value, bool):
        refused(changed(TABLES[name], path, -value), f"{spelled(path)} = {-value:g} ")


@pytest.mark.parametrize("where", [w for w, (_, path, value) in SEEN.items() if isinstance(value, str)])
def test_a_misspelt_word_is_refused_with_the_choices(where: str) -> None:
    name, path, value = SEEN[where]
    if path[-1] in FREE:
        return
    for wrong in (value + value[-1], value[1:], value.upper() + "x"):
        message = refused(changed(TABLES[name], path, wrong), str(path[-1]), wrong)
        assert "did you mean" in message or "allowed" in message, message


# ---- walls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["tokens", "heads"])
@pytest.mark.parametrize(
    "wall", ['["perodic"]', '["periodic"]', '"ring"', "true", "[1]", "[1.0]", '["wall"]', "[[true]]", "[true, true]"]
)
def test_a_misspelt_wall_never_becomes_a_ring(section: str, wall: str) -> None:
    for name in ("gaussian_coupled", "circle_modes"):
        table = tomllib.loads(tomli_w.dumps(TABLES[name]))
        if section not in table or "cells" not in table[section]:
            continue
        text = changed(table, (section, "periodic"), tomllib.loads(f"x = {wall}")["x"])
        refused(text, f"{section}.periodic" if wall != "[true, true]" else section)


@pytest.mark.filterwarnings("ignore:mu touches the wall")
def test_every_way_to_write_walls_gives_the_same_bits() -> None:
    def law(periodic: tuple[bool, ...]) -> np.ndarray:
        tokens = Tokens((0.0,), (1.0,), (20,), periodic)
        uniform = parse_problem(TEXT).sequences[0]
        assert isinstance(uniform, Sequence)
        tokens = replace(tokens, noise=0.01)
        return solve(Problem(kind="tokens", tokens=tokens, depth=Depth(T=0.1), sequences=(uniform,))).mu

    np.testing.assert_array_equal(law(()), law((False,)))
    for text in ("", "periodic = []", "periodic = [false]"):
        found = solve(parse_problem(TEXT.replace("cells = [20]", f"cells = [20]\n{text}")))
        np.testing.assert_array_equal(found.mu, law(()))
    assert np.abs(law((True,)) - law(())).max() > 1e-3


TEXT = """
kind = "tokens"
[tokens]
lower = [0.0]
upper = [1.0]
cells = [20]
noise = 0.01
[depth]
T = 0.1
[[sequences]]
initial = { law = "uniform", lower = [0.0], upper = [0.4] }
"""


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("gaussian_coupled", ("objective", "potential", "axis"), 1),
        ("gaussian_coupled", ("objective", "potential", "axis"), -1),
        ("digits_plane", ("objective", "features", 0, "center"), [0.0, 0.0, 0.0]),
        ("in_context_regression", ("objective", "query", "axis"), 7),
        ("slab", ("potential", "coefficients"), [[0.0], [0.0]]),
    ],
)
def test_an_axis_that_does_not_exist_is_refused(name: str, path: Path, value: Any) -> None:
    refused(changed(TABLES[name], path, value), str(path[-1]))


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(-1e308, 1e308), (0.0, 1e300), (0.0, 1e-320), (0.0, 1e-31), (1e12, 1e12 + 1.0), (1.0, 1.0), (1.0, 0.0)],
)
@pytest.mark.parametrize("section", ["tokens", "heads"])
def test_a_box_without_room_for_its_cells_or_digits_is_refused(section: str, lower: float, upper: float) -> None:
    table = tomllib.loads(tomli_w.dumps(TABLES["gaussian_coupled"]))
    for name, value in (("lower", lower), ("upper", upper)):
        table[section][name] = [value, *table[section][name][1:]]
    refused(tomli_w.dumps(table), f"{section}.", "er[0] = ")


def test_a_grid_takes_no_words_for_walls() -> None:
    with pytest.raises(MeanFieldError, match="one entry per axis"):
        Grid((0.0,), (1.0,), (20,), (True, False))
