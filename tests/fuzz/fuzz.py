"""Mutated problem, token, trajectory, result and checkpoint files through the loaders, some through the command line.

Run by `make fuzz`, and in short by the suite: python tests/fuzz/fuzz.py --files 2000 --commands 60
Every file has to load or to be refused by name within two seconds: no other exception, no dead process, no traceback.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from commands import through_the_command_line
from loaders import read_all
from mutations import mutated
from seeds import make

SHARES = {
    "problem": 9, "tokens": 5, "samples": 8, "hdf5": 2, "trajectory": 5, "foreign": 2, "names": 1, "result": 5,
    "checkpoint": 5, "segment": 2, "text": 1,
}  # fmt: skip
HOW = ("refused", "loaded", "fault")


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its size and time."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def cases(
    folder: Path, seeds: dict[str, list[Path]], number: int, chance: random.Random
) -> Iterator[tuple[str, Path, bytes]]:
    """Mutated files and where they are to be put."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    for index in range(number):
        kind = kinds[index % len(kinds)]
        seed = chance.choice(seeds[kind])
        content = mutated(kind, seed.suffix, seed.read_bytes(), chance)
        path = folder / f"{kind}-{index:05d}{seed.suffix}"
        if kind in ("checkpoint", "segment"):
            path = folder / f"run-{index:05d}" / seed.parent.name / seed.name
            path.parent.mkdir(parents=True)
        yield kind, path, content


def main() -> int:
    """Print counts; 1 when anything was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000, help="mutated files through the loaders")
    parser.add_argument("--commands", type=int, default=60, help="mutated files through the command line")
    parser.add_argument("--seed", type=int, default=None, help="of the mutations")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the files that show a fault")
    given = parser.parse_args()
    seed = random.randrange(10**6) if given.seed is None else given.seed
    chance, faults, began = random.Random(seed), list[str](), time.monotonic()
    counts: Counter[tuple[str, str]] = Counter()
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory() as name:
        whole, work = Path(name) / "whole", Path(name) / "work"
        whole.mkdir()
        work.mkdir()
        seeds = make(whole)
        before = listing(whole)
        for kind, path, ending in read_all(cases(work, seeds, given.files, chance)):
            counts[kind, ending.how] += 1
            slowest = max(slowest, (ending.seconds, f"{path.name}: {ending.how} {ending.message[:100]}"))
            if ending.how == "fault":
                faults.append(f"{path.name}: {ending.message}")
                if given.keep is not None:
                    given.keep.mkdir(exist_ok=True)
                    (given.keep / f"{kind}-{len(faults)}{path.suffix}").write_bytes(path.read_bytes())
        left = [str(path) for path in work.rglob("*") if path.is_file()]
        faults += [f"written beside the files: {path}" for path in left]
        endings = through_the_command_line(Path(name), seeds, given.commands, chance, faults, given.keep)
        if listing(whole) != before:
            faults.append("a whole file was written to")
    print(f"seed {seed}, {time.monotonic() - began:.0f} s")
    for kind in SHARES:
        row = {how: counts[kind, how] for how in HOW}
        print(f"{sum(row.values()):6d} {kind:10s} {', '.join(f'{how} {number}' for how, number in row.items())}")
    ways = {how: sum(number for (_, other), number in counts.items() if other == how) for how in HOW}
    print(f"{given.files:6d} files      {', '.join(f'{how} {number}' for how, number in ways.items())}")
    print(f"{given.commands:6d} commands   {', '.join(f'{how} {number}' for how, number in sorted(endings.items()))}")
    print(f"slowest {slowest[0]:.2f} s ({slowest[1]})")
    for fault in faults:
        print(f"FAULT {fault}")
    print("nothing was found" if not faults else f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
