"""The rate at which a particle code approaches the limit, printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from meanfield_pde.cli.running import find_problem
from meanfield_pde.cli.showing import print_json
from meanfield_pde.cli.terminal import table
from meanfield_pde.errors import MeanFieldError


def print_rates(
    name: str,
    paths: Sequence[Path],
    changes: Sequence[str] = (),
    *,
    names: Path | None = None,
    time: float | None = None,
    sizes: str | None = None,
    sequence: int = 0,
    floor: str = "grid",
    level: float = 0.95,
    as_json: bool = False,
    threads: int | None = None,
) -> None:
    """Read one file for each size, measure distances to the law of the grid, print errors and slope."""
    from meanfield_pde.output.report import clean
    from meanfield_pde.validation.reading import read_trajectory
    from meanfield_pde.validation.trajectory_rates import trajectory_rate

    problem = find_problem(name, changes)
    counts = None if sizes is None else [_number(text, "--sizes") for text in sizes.split(",")]
    found = trajectory_rate(
        problem,
        [read_trajectory(path, problem, names) for path in paths],
        time=time,
        sizes=counts,
        sequence=sequence,
        # the two words go through as they are
        floor=floor if floor in ("grid", "fit") else _number(floor, "--floor"),
        level=level,
        threads=threads,
    )
    if as_json:
        print_json(clean(asdict(found) | {"above": found.above, "words": found.words(_letter(counts))}))
        return
    logs = np.log(np.maximum(found.above, 1e-300))
    local = np.diff(logs) / np.diff(np.log(found.sizes))
    seen = found.above > 0
    slopes = ["", *(f"{slope:.3f}" if both else "" for slope, both in zip(local, seen[1:] & seen[:-1], strict=True))]
    rows = [
        (f"{size:g}", str(runs), f"{error:.4e}", f"{above:.4e}", slope)
        for size, runs, error, above, slope in zip(
            found.sizes, found.runs, found.errors, found.above, slopes, strict=True
        )
    ]
    table((_letter(counts), "runs", "W2", "above the floor", "slope"), rows, left=0)
    print(found.words(_letter(counts)))


def _letter(counts: list[float] | None) -> str:
    return "N" if counts is None else "size"


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        words = ", 'grid' or 'fit'" if option == "--floor" else ""
        raise MeanFieldError(f"{option}: '{text}' is no number{words}") from None
