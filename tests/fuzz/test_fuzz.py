"""The short form of `make fuzz`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_mutated_files_load_or_are_refused_by_name() -> None:
    script = Path(__file__).with_name("fuzz.py")
    command = [sys.executable, str(script), "--files", "135", "--commands", "3"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "nothing was found" in found.stdout
    counts = {line.split()[1]: int(line[:6]) for line in found.stdout.splitlines() if line[:6].strip().isdigit()}
    assert counts["files"] == 135
    assert counts["commands"] == 3
    kinds = ("problem", "tokens", "samples", "hdf5", "foreign", "result", "checkpoint")
    assert min(counts[kind] for kind in kinds) >= 6
    assert counts["trajectory"] >= 15
