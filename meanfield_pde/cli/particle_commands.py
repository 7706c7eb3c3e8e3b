"""The commands on what particle codes have recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanfield_pde.cli.options import NAME_OR_FILE, Json, Set, Threads

VERDICT_EXITS = "Exit codes: 0 consistent, 2 bad input, 3 a verdict rejects, 4 not enough data for any, 130 stopped."
Names = Annotated[
    Path | None,
    typer.Option("--names", metavar="FILE", help="A TOML file of array names (that beside DATA, if any)."),
]


def validate_command(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help=NAME_OR_FILE)],
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A .npz, .h5, .npy, .csv or .parquet file, or an example, such as line."),
    ],
    set_: Set = None,
    names: Names = None,
    verdict: Annotated[
        str | None, typer.Option(metavar="limit|identity", help="Ask for one verdict alone (both).")
    ] = None,
    level: Annotated[float, typer.Option(metavar="X", help="How often the limit may reject what is right.")] = 0.05,
    runs: Annotated[int, typer.Option(metavar="N", help="Runs of our own by which the noise is known.")] = 99,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for verdict.json and a figure.")
    ] = None,
    json: Json = False,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on the way.")] = False,
) -> None:
    """Ask whether the tokens or heads that a particle code has recorded agree with a problem.

    Identity: the same first tokens through our own particles, up to rounding. Limit: statistics of the sample against
    the noise of as many particles, at one level for all. Where one rejects, the fault that explains it best.
    """
    from meanfield_pde.cli.validating import print_validation

    code = print_validation(
        problem, data, set_ or (), names=names, asked=verdict, level=level, runs=runs, folder=output, as_json=json,
        threads=threads, quiet=quiet,
    )  # fmt: skip
    raise typer.Exit(code)


def rates_command(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help=NAME_OR_FILE)],
    data: Annotated[list[Path], typer.Argument(metavar="DATA", help="Trajectories, one file for each size.")],
    set_: Set = None,
    names: Names = None,
    time: Annotated[float | None, typer.Option(metavar="T", help="The depth at which to measure (the last).")] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="N,N,..", help="What grows, if not the number of tokens: heads or layers.")
    ] = None,
    floor: Annotated[
        str, typer.Option(metavar="X|grid|fit", help="The error that stays: of the grid, fitted, or a number.")
    ] = "grid",
    level: Annotated[float, typer.Option(metavar="X", help="Confidence of the interval.")] = 0.95,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Fit the rate at which the runs of a particle code approach the limit, with a bootstrap interval."""
    from meanfield_pde.cli.rating import print_rates

    print_rates(
        problem, data, set_ or (), names=names, time=time, sizes=sizes, floor=floor, level=level, as_json=json,
        threads=threads,
    )  # fmt: skip
