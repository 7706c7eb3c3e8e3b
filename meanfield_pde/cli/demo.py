"""The demonstration: heads trained on handwritten digits, then a coupled problem whose exact solution is known."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meanfield_pde.cli.running import Means, find_problem, run_folder
from meanfield_pde.cli.showing import accuracy_words, print_exact
from meanfield_pde.errors import FileError

if TYPE_CHECKING:
    from meanfield_pde.output.solution import Solution

# marks a folder that a later demonstration may overwrite
MARK = ".meanfield-pde-demo"


def demonstrate(folder: Path, threads: int | None, quiet: bool) -> None:
    """Run both problems in ``folder`` and print what came out. Raises: FileError, as `run_folder`."""
    from meanfield_pde.output.report import accuracies, summary

    print(
        "1. Layerwise heads learn to tell handwritten 0s from 1s: every image's column profile is an input law.",
        flush=True,
    )
    solution = _run("digits_profile", folder, threads, quiet)
    facts = summary(solution)
    print(f"   training loss      {facts['loss_first']:.4f} at s = 0, {facts['loss']:.4f} at s = {facts['s']:g}")
    # the readout, set by hand, tells many apart before any training
    untrained = replace(solution, snapshots=solution.snapshots[:1], snapshot_s=solution.snapshot_s[:1])
    before = accuracies(untrained) or {}
    for role, share in (facts["accuracy"] or {}).items():
        name = {"train": "training accuracy", "held-out": "held-out accuracy"}[role]
        print(f"   {name}  {100 * before[role]['share']:.1f} % before training, {accuracy_words(share, ' after')}")
    _figures(solution, folder / "digits_profile")
    print("\n2. The coupled system mu - p - rho where the exact solution is known.", flush=True)
    solution = _run("gaussian_coupled", folder, threads, quiet)
    print_exact(solution)
    _figures(solution, folder / "gaussian_coupled")
    print(f"\nMore: meanfield-pde show {folder / 'digits_profile'}   meanfield-pde list")


def _run(name: str, folder: Path, threads: int | None, quiet: bool) -> Solution:
    target = folder / name
    problem = find_problem(name)
    _make_room(target)
    target.mkdir(parents=True, exist_ok=True)
    (target / MARK).touch()
    return run_folder(problem, target, Means(threads, quiet))


def _make_room(target: Path) -> None:
    """Remove what an earlier demonstration left, and nothing else."""
    if (target / MARK).is_file():
        shutil.rmtree(target)
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target} is not from an earlier demonstration: move it away, or give another folder with -o")


def _figures(solution: Solution, target: Path) -> None:
    from meanfield_pde.output.plots import figures

    paths = figures(solution, target / "figures")
    print(f"   figures            {target / 'figures'}: {', '.join(path.name for path in paths)}", flush=True)
