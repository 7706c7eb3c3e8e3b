"""The table and the figure of work against precision."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanfield_pde.cli.orders import print_laws, progress_line
from meanfield_pde.cli.own_objects import own_schemes
from meanfield_pde.cli.running import find_problem
from meanfield_pde.cli.showing import print_json
from meanfield_pde.cli.terminal import say, table
from meanfield_pde.cli.validating import folder_for
from meanfield_pde.errors import MeanFieldError

if TYPE_CHECKING:
    from collections.abc import Sequence

TREE, FIGURE = "bench.json", "bench.svg"
HEADS = ("scheme", "stepper", "cells", "step", "steps", "error", "seconds", "ns / cell / step", "memory", "mass drift",
         "least value", "energy rise", "")  # fmt: skip


def print_bench(
    name: str,
    overrides: Sequence[str],
    *,
    cells: str | None,
    schemes: Sequence[str],
    steppers: Sequence[str],
    repeats: int,
    budget: float | None,
    folder: Path | None,
    as_json: bool,
    threads: int | None,
    fluxes: Sequence[str] = (),
) -> bool:
    """Measure, print and draw; False when a result is not finite or not conservative, or a law is broken."""
    from meanfield_pde import library
    from meanfield_pde.output.files import provenance
    from meanfield_pde.output.report import clean
    from meanfield_pde.studies.work_precision import work_precision

    problem = find_problem(name, overrides)
    asked = own_schemes(schemes, fluxes)
    if folder is not None:
        folder_for(folder, TREE)
    try:
        exact = library.exact_of(problem)
    except MeanFieldError as error:
        say(f"{error}; compared with the best scheme on finer cells")
        exact = None
    count = threads or 1
    with progress_line() as progress:
        found = work_precision(
            problem, exact, cells=_numbers(cells), steppers=steppers or None, repeats=repeats, budget=budget,
            threads=count, progress=progress, **asked,
        )  # fmt: skip
    machine = provenance() | {"processors": os.cpu_count() or 1, "threads": count}
    found = clean({"problem": name, "machine": machine, **found})
    if folder is not None:
        (folder / TREE).write_text(json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False), encoding="utf-8")
        _draw(found, folder / FIGURE)
    if as_json:
        print_json(found)
    else:
        print_laws(found["laws"])
        _print(found)
        if folder is not None:
            print(f"\nfigure: {folder / FIGURE}; all numbers: {folder / TREE}")
    return all(row["fault"] is None for row in found["rows"]) and all(law["held"] for law in found["laws"])


def _numbers(cells: str | None) -> tuple[int, ...] | None:
    if cells is None:
        return None
    try:
        return tuple(int(one) for one in cells.split(","))
    except ValueError:
        raise MeanFieldError(f"--cells {cells} must be whole numbers with commas between, such as 64,128,256") from None


def _print(found: dict[str, Any]) -> None:
    machine = found["machine"]
    print(
        f"{found['problem']}: error of {found['flow']} against {found['reference']}, median of {found['repeats']} "
        f"solves, {machine['threads']} thread(s) on {machine['processor']}"
    )
    table(HEADS, [_row(row) for row in found["rows"]], left=2)
    print("* no other case here is both faster and more accurate; memory is the peak of numpy's arrays in a solve")
    for row in found["rows"]:
        if row["fault"] is not None:
            print(f"FAULT {row['scheme']}, {row['n']} cells, step {row['step']:g}: {row['fault']}")
    if found["left_out"]:
        print(f"{len(found['left_out'])} cases were left out: the budget was spent")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    form = {"error": ".2e", "seconds": ".3g", "nanoseconds": ".3g", "memory": "", "mass_drift": ".0e", "minimum": ".0e",
            "energy_rise": ".0e"}  # fmt: skip
    cells = [
        "" if row[key] is None else f"{row[key] / 1e6:.3g} MB" if key == "memory" else format(row[key], spec)
        for key, spec in form.items()
    ]
    first = (row["scheme"], row["stepper"] or "", str(row["n"]), f"{row['step']:.3g}", str(row["steps"] or ""))
    return (*first, *cells, "FAULT" if row["fault"] else "*" if row["frontier"] else "")


def _draw(found: dict[str, Any], path: Path) -> None:
    """Error against seconds, one line a scheme and stepper through its fastest case at each number of cells."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5.2), layout="constrained")
    ax = figure.subplots()
    sound = [row for row in found["rows"] if row["fault"] is None and row["error"]]
    for pair in dict.fromkeys((row["scheme"], row["stepper"]) for row in sound):
        own = [row for row in sound if (row["scheme"], row["stepper"]) == pair]
        color, line = f"C{_place(sound, pair)}", "--" if pair[1] == "lax-wendroff" else "-"
        ax.plot([row["seconds"] for row in own], [row["error"] for row in own], ".", color=color, ms=4)
        grids = dict.fromkeys(row["n"] for row in own)
        best = [min((row for row in own if row["n"] == n), key=lambda row: row["seconds"]) for n in grids]
        label = " ".join(one for one in pair if one)
        ax.plot([row["seconds"] for row in best], [row["error"] for row in best], line, color=color, label=label)
    ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel=f"error of {found['flow']}, L1", title=found["problem"])
    ax.grid(visible=True, which="major", color="0.9")
    ax.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def _place(rows: list[dict[str, Any]], pair: tuple[str, str | None]) -> int:
    return list(dict.fromkeys(row["scheme"] for row in rows)).index(pair[0])

