"""The command that measures orders of convergence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanfield_pde.cli.options import NAME_OR_FILE, Fluxes, Json, Schemes, Threads

FAILED = 3


def orders_command(
    problem: Annotated[str, typer.Argument(metavar="NAME|FILE|all", help=NAME_OR_FILE)],
    scheme: Schemes = None,
    stepper: Annotated[
        list[str] | None, typer.Option(metavar="MODULE:OBJECT", help="A stepper of your own too; repeatable.")
    ] = None,
    flux: Fluxes = None,
    kind: Annotated[
        str, typer.Option(metavar="space|time|coupling|all", help="Orders in h, in the step, of heads and psi coupled.")
    ] = "space",
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw errors over h or steps: .png, .pdf or .svg.")
    ] = None,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Measure orders of convergence: against the exact solution, or by self-convergence.

    `orders all` takes every problem of the library with an exact solution, and solves each as shipped beside it.
    A scheme or flux of your own, an object in a module here, is checked for its laws first (see docs/own_scheme.md).
    """
    from meanfield_pde.cli.orders import Asked, print_all, print_orders
    from meanfield_pde.output.background import interruptible

    asked = Asked(json, tuple(scheme or ()), tuple(stepper or ()), kind, figure, threads, tuple(flux or ()))
    if not interruptible(lambda: print_all(asked) if problem == "all" else print_orders(problem, asked)):
        raise typer.Exit(FAILED)
