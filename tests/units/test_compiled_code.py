"""Compiled code on disk belongs to the sources at hand: a kernel holds the functions of other files that it calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanfield_pde.kernels import _jit


def made(folder: Path) -> list[Path]:
    files = [folder / "faces-12.py311.nbi", folder / "faces-12.py311.1.nbc"]
    for file in files:
        file.write_bytes(b"code")
    return files


def test_what_was_compiled_from_other_sources_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path)
    _jit._forget_stale.__wrapped__(tmp_path)  # nothing says what they were made from
    assert not any(file.exists() for file in files)
    files = made(tmp_path)
    _jit._forget_stale.__wrapped__(tmp_path)
    assert all(file.exists() for file in files)

    # a kernel of another package with another text in one of its files
    other = tmp_path / "kernels"
    other.mkdir()
    for file in Path(_jit.__file__).parent.glob("*.py"):
        (other / file.name).write_text(file.read_text())
    monkeypatch.setattr(_jit, "__file__", str(other / "_jit.py"))
    _jit._forget_stale.__wrapped__(tmp_path)
    assert all(file.exists() for file in files)
    (other / "flux.py").write_text("changed = True\n")
    _jit._forget_stale.__wrapped__(tmp_path)
    assert not any(file.exists() for file in files)
