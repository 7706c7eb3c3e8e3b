"""Training runs in processes of their own that can be killed, and what two results differ in."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from small_runs import COUPLED

from meanfield_pde.errors import FileError
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.segments import read_segments
from meanfield_pde.problem_file import dump_problem, parse_problem

SPLITTINGS = ("gibbs", "lie", "strang", [["diffusion", 0.5], ["drift", 1.0], ["diffusion", 0.5]])
CONTROLS = ("fixed", "error", "energy")
# what may be particles in place of laws
SIDES = (("tokens",), ("heads",), ("tokens", "heads"))


@dataclass
class Tally:
    """What happened, and what was found wrong."""

    counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def check(self, holds: bool, what: str) -> None:
        self.add("checks")
        if not holds:
            self.faults.append(what)


def problem_text(
    splitting: Any = "gibbs",
    control: str = "fixed",
    shared: bool = True,
    sides: tuple[str, ...] = (),
    end: float = 1.6,
) -> str:
    order = 1 if splitting == "lie" or sides else 2
    changes = [f"training.splitting={splitting!r}", f"training.control={control!r}", f"training.order={order}",
               f"depth.shared={str(shared).lower()}", f"training.s_end={end}",
               *(["output.times=[0.033]"] if end < 0.7 else []),
               *([f"particles={{tokens=12,heads=9,sides={list(sides)}}}"] if sides else [])]  # fmt: skip
    return dump_problem(parse_problem(COUPLED, "torture", changes))


def begin(text: str, folder: Path) -> None:
    run(parse_problem(text, "torture"), folder, threads=1)


def go_on(text: str, folder: Path) -> None:
    """Resume what is there, or begin: what a user does after a kill."""
    if (folder / "problem.toml").exists():
        resume(folder, threads=2)
    else:
        begin(text, folder)


def forked(work: Callable[[], None], log: Path) -> int:
    """Start ``work`` in a process forked from this one; its end is seen by `ended`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(log, "a", encoding="utf-8") as sys.stderr:
            try:
                work()
                code = 0
            except FileError as error:
                code = 2
                print(error, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(code)  # whatever happens, even to the log on a full disk, a child never runs the parent's code


def ended(pid: int) -> int:
    """Exit code of a child, minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def contents(path: Path) -> dict[str, Any]:
    """Every dataset of a file by name, and how the run ended."""
    found: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
        found["outcome"] = file.attrs["outcome"]
    return found


def differences(a: Path, b: Path) -> list[str]:
    """Names of what is not the same, bit for bit, in two result files."""
    if not a.exists():
        return ["the whole result, which is missing"]
    one, two = contents(a), contents(b)
    out = sorted(one.keys() ^ two.keys())
    for name in one.keys() & two.keys() - {"problem"}:
        x, y = np.asarray(one[name]), np.asarray(two[name])
        same = x.shape == y.shape and (x.tobytes() == y.tobytes() if x.dtype != object else (x == y).all())
        if not same:
            out.append(name)
    return out


def whole_record(folder: Path) -> bool:
    """Whether the segments can all be read and their times increase strictly."""
    parts, fault = read_segments(folder / "segments")
    times = [part.record.history["s"] for part in parts if "s" in part.record.history]
    return fault is None and (not times or bool((np.diff(np.concatenate(times)) > 0).all()))


