"""The short form of `make torture`: kills at random moments, faults at some of the writes, full and locked disks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_nothing_is_lost_to_kills_full_disks_and_locked_folders() -> None:
    script = Path(__file__).with_name("torture.py")
    command = [sys.executable, str(script), "--kills", "4", "--every", "24"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "nothing was lost" in found.stdout
    counts = {line[7:]: int(line[:6]) for line in found.stdout.splitlines() if line[:6].strip().isdigit()}
    assert counts["kills"] == 4
    assert counts["faults injected"] >= 12
    assert counts["full disks"] == 6
    assert counts["read-only folders"] == 1
