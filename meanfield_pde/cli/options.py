"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as training.beta=0.1; repeatable."),
]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Threads to use (all processors); results do not change.")
]
Steps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Stop after N more steps; `resume` goes on bit for bit.")
]
Minutes = Annotated[
    float | None, typer.Option(metavar="X", help="Stop before X minutes on the clock are over; `resume` goes on.")
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes the run may take, such as 2GB (4GB).")]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Processes for the members of an ensemble (all processors).")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Let a dask cluster carry members, or the sequences of a run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only say how the run ended.")]
Schemes = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme", metavar="NAME|MODULE:OBJECT", help="Only this scheme, or one of your own too; repeatable."
    ),
]
Fluxes = Annotated[
    list[str] | None,
    typer.Option("--flux", metavar="MODULE:OBJECT", help="A Fokker-Planck flux of your own too; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]
ONE_RUN, MANY_RUNS = "belongs to a single run, not to an ensemble", "belongs to an ensemble, not to a single run"
NAME_OR_FILE = "A problem of the library (see `list`) or a TOML file."
