"""The commands that benchmark discretisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanfield_pde.cli.options import NAME_OR_FILE, Fluxes, Json, Schemes, Set


def bench_command(
    problem: Annotated[str, typer.Argument(metavar="NAME|FILE", help=NAME_OR_FILE)],
    set_: Set = None,
    scheme: Schemes = None,
    stepper: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this stepper in depth, such as ssprk104; repeatable.")
    ] = None,
    flux: Fluxes = None,
    cells: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Cells of the first axis, such as 64,128,256.")
    ] = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="Timed solves of each case.")] = 3,
    budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Begin no further case after so long.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for bench.json and a figure.")
    ] = None,
    json: Json = False,
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads of a solve (1).")] = None,
) -> None:
    """Measure work against precision: error, seconds and memory of every scheme over grids and steps.

    Beside them what each kept: mass, sign, the fall of the free energy. Marked cases are beaten by no other in both
    error and seconds.
    """
    from meanfield_pde.cli.benching import print_bench
    from meanfield_pde.output.background import interruptible

    sound = interruptible(
        lambda: print_bench(
            problem, set_ or (), cells=cells, schemes=scheme or (), steppers=stepper or (), repeats=repeats,
            budget=budget, folder=output, as_json=json, threads=threads, fluxes=flux or (),
        )
    )  # fmt: skip
    if not sound:
        raise typer.Exit(3)
