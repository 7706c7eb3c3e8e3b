"""Mutated files through the real command line: exit codes, one line of message, and nothing written elsewhere."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from matplotlib import get_cachedir
from mutations import mutated

PATIENCE = 60.0
# a run that has begun says so; a mutation may well ask for one that takes days
BEGUN = "memory: at most"
KINDS = ("problem", "tokens", "result", "checkpoint", "segment", "text", "problem", "samples")


def through_the_command_line(
    folder: Path, seeds: dict[str, list[Path]], number: int, chance: random.Random, faults: list[str], keep: Path | None
) -> Counter[str]:
    """Run commands on mutated files, and note what is wrong in ``faults``; returns how they ended."""
    endings: Counter[str] = Counter()
    home = folder / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "MPLCONFIGDIR": get_cachedir()}
    for index in range(number):
        kind = KINDS[index % len(KINDS)]
        place = folder / f"commands-{index}"
        place.mkdir()
        arguments, changed = _prepared(kind, place, seeds, chance)
        before = _files(folder, place)
        command = [sys.executable, "-m", "meanfield_pde", *arguments]
        try:
            ended = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, timeout=PATIENCE, check=False
            )
            code, words = ended.returncode, ended.stderr.decode("utf-8", "replace")
        except subprocess.TimeoutExpired as error:
            code, words = None, (error.stderr or b"").decode("utf-8", "replace")
        what = f"{' '.join(arguments)} [{changed.name}]: "
        said = [line for line in words.splitlines() if line.startswith("meanfield-pde: ")]
        found = []
        if code is None and BEGUN not in words:
            found.append("it hangs")
        if code not in (0, 2, 3, 130, None):
            found.append(f"exit code {code}")
        if "Traceback" in words:
            found.append(words[-600:])
        if code == 2 and (not said or len(words.splitlines()) > 12 or max(map(len, words.splitlines())) > 3000):
            found.append(f"no short message: {words[:300]!r}")
        if _files(folder, place) != before:
            found.append("a file was written elsewhere")
        faults += [what + fault for fault in found]
        if found and keep is not None:
            keep.mkdir(exist_ok=True)
            shutil.copytree(place, keep / f"command-{index}", dirs_exist_ok=True)
        endings["running" if code is None else f"exit {code}"] += 1
        shutil.rmtree(place)
    return endings


def _prepared(
    kind: str, place: Path, seeds: dict[str, list[Path]], chance: random.Random
) -> tuple[list[str], Path]:
    """A command line and the mutated file that it meets."""
    seed = chance.choice(seeds[kind])
    if kind in ("problem", "tokens", "samples"):
        for path in seeds["problem"] + seeds["tokens"] + seeds["samples"]:
            shutil.copy(path, place)
        changed = place / seed.name
        problem = {"problem": changed, "tokens": place / "training.toml", "samples": place / "tokens.toml"}[kind]
        arguments = ["run", str(problem), "-o", str(place / "out"), "--steps", "2", "--memory", "500MB"]
        if kind == "samples" and seed.name != "samples.npy":
            text = problem.read_text(encoding="utf-8")
            problem.write_text(text.replace("samples.npy", seed.name), encoding="utf-8")
    else:
        run = seed.parent if kind in ("result", "text") else seed.parent.parent
        shutil.copytree(run, place / run.name)
        changed = place / seed.relative_to(run.parent)
        target = str(place / run.name)
        arguments = chance.choice(
            (["show", target], ["show", target, "--json"], ["show", target, "-f"], ["resume", target, "--steps", "1"])
        )
        if kind != "result":
            (place / run.name / "result.h5").unlink()
    changed.write_bytes(mutated(kind, seed.suffix, seed.read_bytes(), chance))
    return arguments, changed


def _files(folder: Path, but: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and but not in path.parents
    }
