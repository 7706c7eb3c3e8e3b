"""A package that nobody may write to, for a user without a home: it is imported and runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import meanfield_pde

PACKAGE = Path(meanfield_pde.__file__).parent
PROBLEM = """
kind = "fokker-planck"
[heads]
lower = [-2.0]
upper = [2.0]
cells = [12]
initial = { law = "gaussian", mean = [0.2], covariance = [[0.1]] }
[potential]
coefficients = [[0.0, 0.0, 0.5]]
[training]
beta = 0.3
ds = 0.1
s_end = 0.2
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in whose folders no cache can be made, whoever asks: a file stands in its place."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [folder / PACKAGE.name, *(folder / PACKAGE.name).rglob("*")]:
        if path.is_dir():
            (path / "__pycache__").write_bytes(b"")
    return folder


def environment(installed: Path, cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR")}
    # compiling is what takes the time here, and its result is not looked at
    return kept | {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(cache), "NUMBA_OPT": "0"}


def test_a_run_needs_no_folder_for_compiled_code(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PROBLEM)
    nowhere = environment(installed, Path("/dev/null/x"))
    command = [sys.executable, "-m", "meanfield_pde", "run", str(tmp_path / "p.toml"), "-o", str(tmp_path / "out")]
    ended = subprocess.run(command, cwd=tmp_path, env=nowhere, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "out" / "result.h5").exists()
    assert not [path for path in installed.rglob("__pycache__") if path.is_dir()]


def test_a_read_only_package_keeps_its_compiled_code_elsewhere(installed: Path, tmp_path: Path) -> None:
    words = (
        "import meanfield_pde, numpy as np; from meanfield_pde.kernels.scharfetter_gummel import bernoulli; "
        "print(meanfield_pde.__file__, bernoulli(np.zeros(1))[0])"
    )
    there = environment(installed, tmp_path / "cache")
    found = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, env=there, capture_output=True, text=True, check=False
    )
    assert found.stdout.split() == [str(installed / "meanfield_pde" / "__init__.py"), "1.0"], found.stderr
    assert list((tmp_path / "cache").rglob("*.nbi"))
