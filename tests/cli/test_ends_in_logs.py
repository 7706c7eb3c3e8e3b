"""However a run ends, and wherever its words go, its log has plain lines and the last of them say how."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from meanfield_pde.cli.main import main

Out = pytest.CaptureFixture[str]
HEADS = """
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
s_end = 0.5
"""
TOKENS = """
kind = "tokens"
[tokens]
lower = [0.0]
upper = [1.0]
cells = [12]
[depth]
T = 0.0
[[sequences]]
initial = { law = "uniform", lower = [0.2], upper = [0.7] }
"""
# how a run is asked for, its exit code, and how its end begins
ENDS = {
    "an end": (HEADS, [], 0, "finished: s = 0.5 of 0.5, step 5, "),
    "no time": (HEADS, ["--set", "training.s_end=0.0"], 0, "finished: s = 0 of 0, step 0, "),
    "no depth": (TOKENS, [], 0, "finished: "),
    "an early stop": (HEADS, ["--steps", "2"], 130, "stopped: s = 0.2 of 0.5, step 2, "),
    "rest": (HEADS, ["--set", "training.rest=50.0"], 0, "at rest: s = 0 of 0.5, step 0, "),
    "a refusal": (HEADS, ["--set", "training.betta=1"], 2, "meanfield-pde: "),
}


@pytest.mark.parametrize("ci", ["1", "true", None])
@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("how", ENDS)
def test_a_file_gets_no_carriage_returns_and_an_end(
    how: str, quiet: bool, ci: str | None, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, flags, code, words = ENDS[how]
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    (tmp_path / "p.toml").write_text(text)
    arguments = ["run", str(tmp_path / "p.toml"), "-o", str(tmp_path / "out"), *flags, *(["-q"] if quiet else [])]
    assert main(arguments) == code
    said = capsys.readouterr()
    assert "\r" not in said.err + said.out
    assert "\x1b" not in said.err + said.out
    lines = said.err.splitlines()
    assert [line for line in lines if line.startswith(words)], lines
    # what comes after the end says what to do next
    after = lines[max(k for k, line in enumerate(lines) if line.startswith(words)) + 1 :]
    assert all(line.startswith("meanfield-pde: ") for line in after)
    assert len(lines) <= 16


def test_a_terminal_under_ci_is_a_log_file_too(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(HEADS)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "CI": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "meanfield_pde", "run", str(tmp_path / "p.toml"), "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
        assert process.wait() == 0
    os.close(ours)
    # a terminal itself puts a carriage return before each line end
    assert b"\r" not in said.replace(b"\r\n", b"\n")
    assert b"\x1b" not in said
    assert b"finished: s = 0.5 of 0.5, step 5" in said
