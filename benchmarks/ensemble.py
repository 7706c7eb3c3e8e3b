"""A sweep of 20 problems in two processes beside the same 20 one after the other in this process.

Run with: python benchmarks/ensemble.py
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from meanfield_pde import library
from meanfield_pde.output.ensemble import run_ensemble, sweep
from meanfield_pde.output.file_schema import read_result
from meanfield_pde.output.run import run
from meanfield_pde.problem_file import dump_problem, parse_problem

# enough steps that a member takes some seconds, as a real one would at least
SETTINGS = ("training.s_end=12.0", "depth.layers=4")
MEMBERS, WORKERS, WANTED = 20, 2, 0.6


def processor_seconds() -> float:
    """What this process and those it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    problem = parse_problem(dump_problem(library.get("gaussian_coupled")[0]), "gaussian_coupled", SETTINGS)
    members = sweep(problem, {"training.beta": np.linspace(0.05, 0.24, MEMBERS).round(3)})
    with tempfile.TemporaryDirectory() as where, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # compiled, imported and warm: the serial time is the best this process can do
        run(members[0].problem, Path(where) / "warm", threads=1)
        began, used = time.perf_counter(), processor_seconds()
        for member in members:
            run(member.problem, Path(where) / "serial" / member.name, threads=1)
        serial, used_serial = time.perf_counter() - began, processor_seconds() - used
        print(f"{MEMBERS} runs one after the other: {serial:.1f} s, {serial / MEMBERS:.2f} s each", flush=True)
        began, used = time.perf_counter(), processor_seconds()
        found = run_ensemble(members, Path(where) / "sweep", workers=WORKERS)
        taken, used_sweep = time.perf_counter() - began, processor_seconds() - used
        assert all(member.outcome == "finished" for member in found)
        for member in members:
            pair = [read_result(Path(where) / part / member.name / "result.h5") for part in ("serial", "sweep")]
            assert np.array_equal(pair[0].rho, pair[1].rho)
    print(f"the sweep in {WORKERS} processes, from nothing to the last row: {taken:.1f} s")
    print(f"processor seconds: {used_serial:.1f} and {used_sweep:.1f}; load of the machine {os.getloadavg()[0]:.1f}")
    print(f"ratio {taken / serial:.3f} (wanted: at most {WANTED}), equal bits")


if __name__ == "__main__":
    main()
