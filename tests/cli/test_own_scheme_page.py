"""The example of docs/own_scheme.md, taken from the page: on the command line and from Python."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from meanfield_pde.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "own_scheme.md").read_text(encoding="utf-8")
SCHEME, PYTHON, STEPPER, FLUX = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
COMMAND, STEPPING, FLOWING = re.findall(r"```console\n(.*?)\n```", PAGE, flags=re.DOTALL)
Out = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "koren.py").write_text(SCHEME, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "koren", raising=False)
    return tmp_path


def test_the_example_is_20_lines() -> None:
    body = SCHEME[SCHEME.index("class") :]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20


def test_the_command_of_the_page(folder: Path, capsys: Out) -> None:
    program, *arguments = COMMAND.split()
    assert program == "meanfield-pde"
    before = list(sys.path)
    assert main([*arguments, "--scheme", "muscl-mc"]) == 0
    assert sys.path == before
    said = capsys.readouterr().out
    assert "BROKEN" not in said
    assert "falls short" not in said
    assert main([*arguments, "--scheme", "muscl-mc", "--json"]) == 0
    rows = {(row["scheme"], row["norm"]): row for row in json.loads(capsys.readouterr().out)["rows"]}
    # third order away from extrema: at equal cells more accurate than the limiter of the same order
    assert rows["koren:scheme", "L1"]["errors"][-1] < 0.6 * rows["muscl-mc", "L1"]["errors"][-1]
    assert rows["koren:scheme", "W1"]["fitted"] >= 2.5


def test_the_python_of_the_page(folder: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    exec(compile(PYTHON, "own_scheme.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"koren L1 2\.\d\d False", said)
    assert "False\n" not in said.partition("values at")[2]


def test_the_stepper_of_the_page(folder: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "steppers", raising=False)
    (folder / "steppers.py").write_text(STEPPER, encoding="utf-8")
    arguments = STEPPING.split()[1:]
    assert main([*arguments, "--figure", "orders.svg", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    rows = {row["scheme"]: row for row in said["rows"] if row["norm"] == "L1"}
    assert list(rows) == ["ssprk1", "ssprk2", "ssprk3", "ssprk104", "steppers:ssprk43"]
    for name, order in (("ssprk1", 1), ("ssprk2", 2), ("ssprk3", 3), ("ssprk104", 4), ("steppers:ssprk43", 3)):
        assert rows[name]["fitted"] == pytest.approx(order, abs=0.05)
    assert all(law["held"] for law in said["laws"])
    assert len(said["laws"]) == 4
    assert Path("orders.svg").read_text(encoding="utf-8").count('<g id="axes_') == 3
    assert main(["orders", "logistic_walls", "--stepper", "steppers:ssprk43"]) == 2
    assert "give --kind time" in capsys.readouterr().err


def test_broken_laws_are_named_with_exit_3(folder: Path, capsys: Out) -> None:
    Path("leaning.py").write_text(
        SCHEME.replace("v3 >= 0", "abs(v3) >= 0").replace("order = 2 ", "order = 1 "), encoding="utf-8"
    )
    assert main(["orders", "variable_speed_ring", "--scheme", "upwind1", "--scheme", "leaning:scheme"]) == 3
    lines = [line for line in capsys.readouterr().out.splitlines() if "BROKEN" in line]
    assert len(lines) == 2
    assert all("mirror symmetry" in line for line in lines)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("korne:scheme", "no module 'korne'"),
        ("koren:shceme", "has no 'shceme'"),
        ("koren:", "give MODULE:OBJECT"),
        ("koren", "'koren' has no order of the flow"),
        ("koren:np", "has no 'order'"),
        ("koren:Koren", "give an object, Koren()"),
        ("faulty:scheme", "importing faulty fails: ZeroDivisionError"),
        ("needy:scheme", "no module 'not_installed_anywhere'"),
    ],
)
def test_what_is_missing_is_named_with_exit_2(folder: Path, capsys: Out, named: str, says: str) -> None:
    Path("faulty.py").write_text("1 / 0\n", encoding="utf-8")
    Path("needy.py").write_text("import not_installed_anywhere\n", encoding="utf-8")
    importlib.invalidate_caches()
    assert main(["orders", "softmax_gaussian", "--scheme", named]) == 2
    assert says in capsys.readouterr().err


def test_a_scheme_of_tokens_has_no_row_where_only_heads_move(folder: Path, capsys: Out) -> None:
    assert main(["orders", "slab", "--scheme", "koren:scheme", "--scheme", "scharfetter-gummel-1"]) == 0
    assert "koren:scheme has no row here: the flow of heads takes no scheme of tokens" in capsys.readouterr().err


def test_the_flux_of_the_page(folder: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fluxes", raising=False)
    (folder / "fluxes.py").write_text(FLUX, encoding="utf-8")
    program, *arguments = FLOWING.split()
    assert program == "meanfield-pde"
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "BROKEN" not in said
    assert "falls short" not in said
    assert re.search(r"fluxes:upwind +L1", said)
