"""Training runs killed at any moment, with faults at every write, and compared bit for bit with undisturbed ones.

Run by `make torture`, and in short by the suite: python tests/restart/torture.py --kills 50 --cold 2
Every victim is a process of its own, forked from one that has everything loaded, so that only its run takes time.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from file_faults import faults_at_every_write, full_and_locked_disks
from victims import (
    CONTROLS,
    SIDES,
    SPLITTINGS,
    Tally,
    begin,
    differences,
    ended,
    forked,
    go_on,
    problem_text,
    whole_record,
)

from meanfield_pde.output.run import run
from meanfield_pde.problem_file import parse_problem


def killed_anywhere(folder: Path, kills: int, chance: random.Random, tally: Tally) -> None:
    """Kill runs of every splitting, control and kind of heads at random moments until there were so many kills."""
    laws = [(s, c, shared, ()) for shared in (True, False) for c in CONTROLS for s in SPLITTINGS]
    cases = [*laws, *(("gibbs", "fixed", shared, sides) for shared in (True, False) for sides in SIDES)]
    chance.shuffle(cases)
    each = -(-kills // len(cases))
    done = number = 0
    while done < kills:
        case = cases[number % len(cases)]
        number += 1
        splitting, kind = case[0] if isinstance(case[0], str) else "table", "shared" if case[2] else "layers"
        name = "-".join([str(number), splitting, case[1], kind, *case[3]])
        aim = min(kills, done + each)
        text, whole, victim = problem_text(*case), folder / f"{name}-whole", folder / name
        began = time.monotonic()
        if ended(forked(lambda t=text, f=whole: begin(t, f), folder / "log")) != 0:
            tally.faults.append(f"{name}: the undisturbed run failed")
            return
        length = time.monotonic() - began
        tally.add("runs")
        for _ in range(100):
            pid = forked(lambda t=text, f=victim: go_on(t, f), folder / "log")
            if done < aim:
                time.sleep(chance.uniform(0.0, 0.7 * length))
                os.kill(pid, signal.SIGKILL)
            code = ended(pid)
            if code == 0:
                break
            tally.check(code == -signal.SIGKILL, f"{name}: going on ended with exit code {code}")
            done += 1
            tally.add("kills")
            tally.check(whole_record(victim), f"{name}: the record on disk is not whole after a kill")
        if not (victim / "result.h5").exists():
            tally.faults.append(f"{name}: no result")
            continue
        found = differences(victim / "result.h5", whole / "result.h5")
        tally.check(not found, f"{name}: not the same bits in {', '.join(found)}")
        tally.check(not list(victim.rglob("*.part")), f"{name}: temporary files left behind")


def killed_while_compiling(folder: Path, times: int, chance: random.Random, tally: Tally) -> None:
    """Kill a cold run while the cache of compiled kernels is written; the next one has to work from what is left."""
    text, whole = problem_text(end=0.1), folder / "cold-whole"
    tally.check(ended(forked(lambda: begin(text, whole), folder / "log")) == 0, "cold: the undisturbed run failed")
    source = folder / "cold.toml"
    source.write_text(text, encoding="utf-8")
    for number in range(times):
        cache = folder / f"cache-{number}"
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        command = [sys.executable, "-m", "meanfield_pde", "run", str(source), "-q", "-o"]
        first, victim = folder / f"cold-{number}a", folder / f"cold-{number}b"
        process = subprocess.Popen([*command, str(first)], env=environment, stderr=subprocess.DEVNULL)
        wanted = chance.randrange(1, 12)
        while process.poll() is None and len(list(cache.rglob("*.nbc"))) < wanted:
            time.sleep(0.002)
        process.kill()
        process.wait()
        again = subprocess.run([*command, str(victim)], env=environment, stderr=subprocess.DEVNULL, check=False)
        code = again.returncode
        tally.check(code == 0, f"{victim.name}: exit code {code} on a cache that was being written")
        tally.add("kills while compiling")
        found = differences(victim / "result.h5", whole / "result.h5") if code == 0 else []
        tally.check(not found, f"{victim.name}: not the same bits in {', '.join(found)}")


def main() -> int:
    """Print counts; 1 when anything was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills at random moments")
    parser.add_argument("--every", type=int, default=1, help="a fault at each so-many-th operation on files")
    parser.add_argument("--cold", type=int, default=0, help="kills while the compiled cache is written")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments")
    given = parser.parse_args()
    seed = random.randrange(10**6) if given.seed is None else given.seed
    chance, tally, began = random.Random(seed), Tally(), time.monotonic()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name)
        # everything is loaded and compiled once, before the first fork; no thread of it stays
        run(parse_problem(problem_text(shared=False, end=0.04), "torture"), folder / "warm", threads=1)
        killed_anywhere(folder, given.kills, chance, tally)
        faults_at_every_write(folder, given.every, tally)
        full_and_locked_disks(folder, tally)
        killed_while_compiling(folder, given.cold, chance, tally)
        log = folder / "log"
        if tally.faults and log.exists():
            print(log.read_text(encoding="utf-8")[-4000:])
    for what, count in tally.counts.items():
        print(f"{count:6d} {what}")
    print(f"seed {seed}, {time.monotonic() - began:.0f} s: ", end="")
    print("nothing was lost" if not tally.faults else f"{len(tally.faults)} FAULTS")
    for text in tally.faults:
        print(f"  {text}")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
