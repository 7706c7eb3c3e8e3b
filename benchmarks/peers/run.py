"""Run the problems with every peer, one process each, and write RESULTS.md and RESULTS.json.

    python benchmarks/peers/run.py [PROBLEM ...] [--peers NAME ...] [--output FOLDER]

An environment a peer is made in .venv-peers/ when it is first needed; one that pip cannot make is reported with pip's
last line, and one that fails or takes too long with its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import CASES, CELLS, PEERS, Case
from problems import fokker_planck_reference
from results import markdown, ratios

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".venv-peers"
THREADS = 2
PATIENCE = 1200.0  # seconds for the environment of one package
Row = dict[str, Any]


def last_line(text: str) -> str:
    """The last line that says something, an error before a hint, without pip's warnings and notices."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("WARNING", "[notice]"))]
    errors = [line for line in said if line.startswith("ERROR")]
    return (errors or said or ["no output"])[-1]


def environment(name: str) -> tuple[Path, str | None]:
    """The interpreter of a peer, made if it is not there, and why it could not be made."""
    wanted = PEERS[name].requirements
    if not wanted:
        return Path(sys.executable), None
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    text = "\n".join(wanted) + "\n"
    if stamp.exists() and stamp.read_text() == text:
        return python, None
    print(f"making the environment of {name}", flush=True)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted],
    ):
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return python, f"pip did not end in {PATIENCE:g} s"
        if made.returncode:
            return python, last_line(made.stderr or made.stdout)
    stamp.write_text(text)
    return python, None


def asked_of(case: Case) -> dict[str, Any]:
    """All that a peer is told of a case, but where the reference is."""
    named = {"problem": case.problem, "method": case.method, "threads": THREADS}
    return {**CELLS.get(case.problem, {}), **named, **case.ask}


def named(case: Case) -> Row:
    """The part of a row that says what it is of."""
    return {"problem": case.problem, "peer": case.peer, "method": case.method, "licence": PEERS[case.peer].licence}


def run_case(case: Case, python: Path, folder: Path) -> Row:
    """What a case answers, or why it does not; the references lie in a folder, one a number of cells."""
    ask = asked_of(case)
    ask["reference"] = str(folder / f"{ask.get('cells')}.npy")
    row = named(case)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    variables = {**os.environ, **{name: str(THREADS) for name in names}, "PYTHONWARNINGS": "ignore"}
    command = [str(python), str(HERE / PEERS[case.peer].script), json.dumps(ask)]
    try:
        done = subprocess.run(
            command, env=variables, cwd=HERE, capture_output=True, text=True, timeout=case.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return row | {"failed": f"ended after {case.timeout:g} s"}
    if done.returncode:
        return row | {"failed": last_line(done.stderr)}
    return row | json.loads(done.stdout.splitlines()[-1])


def processor() -> str:
    """The name of the processor, as the system gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    known = tuple(dict.fromkeys(case.problem for case in CASES))
    parser = argparse.ArgumentParser(description="the same problems with every peer")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"of {', '.join(known)}, or how one begins")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--output", type=Path, default=HERE.parent)
    given = parser.parse_args()
    for name in given.problems:
        if not any(problem.startswith(name) for problem in known):
            parser.error(f"{name!r} is no problem: take of {', '.join(known)}")
    asked = tuple(given.problems) or known
    chosen = {*given.peers, "meanfield-pde"}
    cases = [case for case in CASES if case.peer in chosen and case.problem.startswith(asked)]
    begun, load = time.time(), os.getloadavg()[1]
    made = {name: environment(name) for name in dict.fromkeys(case.peer for case in cases)}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for n in {asked_of(case)["cells"] for case in cases if case.problem == "fokker_planck"}:
            np.save(Path(folder) / f"{n}.npy", fokker_planck_reference(n))
        for case in cases:
            python, wrong = made[case.peer]
            if wrong is None:
                row = run_case(case, python, Path(folder))
            else:
                row = {**named(case), "failed": f"not installed: {wrong}"}
            rows.append(row)
            print(json.dumps(row), flush=True)
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "threads": THREADS,
        "load_before": load,
        "seconds": round(time.time() - begun, 1),
        "rows": rows,
        "ratios": ratios(rows),
    }
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "RESULTS.json").write_text(json.dumps(found, indent=1) + "\n")
    (given.output / "RESULTS.md").write_text(markdown(found))


if __name__ == "__main__":
    main()
