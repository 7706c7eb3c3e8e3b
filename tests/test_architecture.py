"""The shape of the house: floors, file sizes, who may compile, what is packaged."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "meanfield_pde"
MODULES = sorted(PACKAGE.rglob("*.py"))
KERNELS = sorted((PACKAGE / "kernels").glob("*.py"))


def relative(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        [command, "--no-cache"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_contracts_are_kept() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("where", "line", "contract"),
    [
        ("measure.py", "import meanfield_pde.grid", "Imports only run downward"),
        ("model/objective.py", "import meanfield_pde.training", "A model knows no grid, no clock, no file"),
        ("model/objective.py", "import h5py", "A model knows no grid, no clock, no file"),
        ("grid.py", "from numba import njit", "Only kernels know numba"),
        ("no_floor.py", "", "Imports only run downward"),
    ],
)
def test_a_planted_import_breaks_its_contract(where: str, line: str, contract: str, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / PACKAGE.name / where).open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout


@pytest.mark.parametrize("path", relative(MODULES))
def test_no_file_is_longer_than_300_lines(path: str) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("path", relative(MODULES))
def test_only_kernels_compile_and_never_with_plain_fastmath(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    if "kernels" not in Path(path).parts:
        assert not [name for name in imports(tree) if name.split(".")[0] in {"numba", "llvmlite"}]
    # fastmath=True carries nnan and ninf, with which isfinite is compiled away
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "fastmath":
            assert isinstance(node.value, ast.Set), f"{path}:{node.value.lineno}: name the flags of fastmath"
            flags = {item.value for item in node.value.elts if isinstance(item, ast.Constant)}
            assert len(flags) == len(node.value.elts)
            assert not flags & {"fast", "nnan", "ninf"}


@pytest.mark.parametrize("path", relative(KERNELS))
def test_every_kernel_says_what_it_computes(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path}: {node.name} has no docstring"


def test_every_package_folder_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    code = {".".join(p.parent.relative_to(ROOT).parts) for p in PACKAGE.rglob("*.py")}
    data = {".".join(("meanfield_pde", *p.parent.relative_to(ROOT).parts)) for p in (ROOT / "data").rglob("*.*")}
    listed = set(settings["tool"]["setuptools"]["packages"])
    assert code | {name for name in data if "__pycache__" not in name} == listed
    assert all((ROOT / name.replace(".", "/") / "__init__.py").is_file() for name in code)


def test_shipped_data_is_found_and_sound() -> None:
    folder = files("meanfield_pde.data") / "tokens"
    with np.load(str(folder / "digits_01.npz")) as digits:
        points, weights, labels, images = (digits[k] for k in ("points", "weights", "labels", "images"))
    assert (points.shape, weights.shape, images.shape) == ((8, 1), (360, 8), (360, 8, 8))
    assert np.bincount(labels).tolist() == [178, 182]
    assert points.ravel().tolist() == [-7 / 8, -5 / 8, -3 / 8, -1 / 8, 1 / 8, 3 / 8, 5 / 8, 7 / 8]
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-15)
    # the ink of column c over all rows, by another route than the file was made by
    ink = np.array([[sum(int(row[c]) for row in image) for c in range(8)] for image in images])
    np.testing.assert_allclose(weights * ink.sum(axis=1, keepdims=True), ink, rtol=1e-15)
    with np.load(str(folder / "digits_012.npz")) as digits:
        plane, grey, three = (digits[k] for k in ("points", "weights", "labels"))
    assert (plane.shape, grey.shape, grey.dtype, int(grey.max())) == ((64, 2), (537, 64), np.uint8, 16)
    assert np.bincount(three).tolist() == [178, 182, 177]
    # a 0 and a 1 are the images of the other file, and the first row of pixels is the uppermost, from left to right
    np.testing.assert_array_equal(grey[three < 2].reshape(-1, 8, 8), images)
    np.testing.assert_array_equal(plane[:8], [[x, 7 / 8] for x in points.ravel()])
    np.testing.assert_array_equal(plane[-1], [7 / 8, -7 / 8])


def test_names_that_a_problem_may_use_are_those_that_exist() -> None:
    from meanfield_pde import problem_depth
    from meanfield_pde.equations.lax_wendroff import ONE_STEP, limiter_of
    from meanfield_pde.equations.runge_kutta import STEPPERS
    from meanfield_pde.equations.schemes import SCHEMES

    assert set(problem_depth.SCHEMES) == set(SCHEMES)
    assert set(problem_depth.STEPPERS) == {*STEPPERS, ONE_STEP}
    for name, one in SCHEMES.items():
        if name in problem_depth.LIMITED:
            limiter_of(one)
        else:
            with pytest.raises(MeanFieldError, match="limits slopes"):
                limiter_of(one)
