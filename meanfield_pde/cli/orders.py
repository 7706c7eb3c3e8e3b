"""The table of convergence orders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanfield_pde.cli.running import find_problem
from meanfield_pde.cli.showing import print_json
from meanfield_pde.cli.terminal import say, table
from meanfield_pde.errors import MeanFieldError

if TYPE_CHECKING:
    from meanfield_pde.library import Exact
    from meanfield_pde.problem import Problem


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks of a table beside the problem."""

    as_json: bool = False
    schemes: tuple[str, ...] = ()
    steppers: tuple[str, ...] = ()
    kind: str = "space"
    figure: Path | None = None
    threads: int | None = None
    fluxes: tuple[str, ...] = ()


def print_orders(name: str, asked: Asked) -> bool:
    """Measure and print; False when an order falls short of what the scheme promises, or a law is broken."""
    from meanfield_pde import library
    from meanfield_pde.output.report import clean
    from meanfield_pde.studies.orders import orders

    problem = find_problem(name)
    options = _options(asked)
    try:
        exact = library.exact_of(problem)
    except MeanFieldError as error:
        say(f"{error}; measured by self-convergence")
        exact = None
    with progress_line() as status:
        title = name if name in library.NAMES else Path(name).stem
        measured = clean(orders(problem, exact, name=title, progress=status, **options))
    if asked.as_json:
        print_json(measured)
    else:
        print_laws(measured.get("laws", []))
        print_rows(measured["rows"])
    if asked.figure is not None:
        from meanfield_pde.cli.order_figure import draw

        draw(measured["rows"], asked.figure)
    for one in (*options.get("own", {}), *options.get("fluxes", {})):
        if not any(row["scheme"] == one for row in measured["rows"]):
            say(f"{one} has no row here: {_why(one, measured)}")
    return _good(measured)


def _why(one: str, measured: dict[str, Any]) -> str:
    if not all(law["held"] for law in measured["laws"] if law["scheme"] == one):
        return "it breaks laws"
    flow = measured["rows"][0]["flow"] if measured["rows"] else "rho"
    return "the flow of heads takes no scheme of tokens" if flow == "rho" else f"the flow '{flow}' needs cells, a dual"


def print_all(asked: Asked) -> bool:
    """Orders of every library problem with an exact solution, and its named values computed beside the exact ones.

    False when an order falls short or a law is broken.
    """
    from threadpoolctl import threadpool_limits

    from meanfield_pde import library
    from meanfield_pde.output.report import clean
    from meanfield_pde.studies.orders import orders

    if asked.figure is not None:
        raise MeanFieldError("--figure is drawn for one problem: give its name instead of 'all'")
    if asked.fluxes:
        raise MeanFieldError("--flux is for heads in a given potential: name such a problem, as double_well, not 'all'")
    rows: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    options = _options(asked)
    problems = {name: library.get(name) for name in library.NAMES}
    known = {name: (problem, exact) for name, (problem, exact) in problems.items() if exact is not None}
    # The problems as shipped are solved beside the tables: one takes as long as many tables. BLAS has one thread
    # out here too, so that neither side lets go of it while the other is at work.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(1) as pool, progress_line() as status:
        shipped = {name: pool.submit(_values, name, *both) for name, both in known.items()}
        for name, (problem, exact) in known.items():
            say(f"measuring {name}")
            # a gradient of which no order is claimed would take minutes and say nothing
            unclaimed = exact.order == 0 and problem.kind == "training"
            measured = {"rows": []} if unclaimed else orders(problem, exact, name=name, progress=status, **options)
            measured = clean(measured)
            if not asked.as_json:
                print_laws([] if laws else measured.get("laws", []))
                print_rows(measured["rows"])
                print()
            laws = laws or measured.get("laws", [])
            rows += measured["rows"]
        values = [row for name in known for row in clean(shipped[name].result())]
    if not asked.as_json:
        print_values(values)
    everything = {"rows": rows, "laws": laws, "values": values}
    if asked.as_json:
        print_json(everything)
    return _good(everything)


def _options(asked: Asked) -> dict[str, Any]:
    """The keywords of `orders`: names restrict its table, module:object adds to it."""
    from meanfield_pde.cli.own_objects import own_object, own_schemes

    if asked.figure is not None:
        from meanfield_pde.cli.order_figure import check_figure

        check_figure(asked.figure)
    out: dict[str, Any] = {"kind": asked.kind, **own_schemes(asked.schemes, asked.fluxes)}
    if asked.threads:
        out["threads"] = asked.threads
    if asked.steppers:
        if asked.kind not in ("time", "all"):
            raise MeanFieldError("--stepper adds to the orders in time: give --kind time, or all")
        out["steppers"] = {one: own_object(one, "--stepper") for one in asked.steppers}
    return out


def _good(measured: dict[str, Any]) -> bool:
    return not any(row.get("short") for row in measured["rows"]) and all(
        law["held"] for law in measured.get("laws", [])
    )


def print_laws(laws: list[dict[str, Any]]) -> None:
    """What was measured of the laws of one's own objects, the broken ones named."""
    if not laws:
        return
    cells = []
    for law in laws:
        bound = "" if law["allowed"] is None else f"{law['allowed']:g}"
        number = _spell(law["measured"], ".3g")
        cells.append(
            (law["scheme"], law["law"], number, bound, "" if law["held"] else f"BROKEN {law['words']}".strip())
        )
    table(("own", "law", "measured", "at most", ""), cells, left=2)
    print()


def _values(name: str, problem: Problem, exact: Exact) -> list[dict[str, Any]]:
    """The problem solved as it is shipped: its named quantities at the end, computed beside exact."""
    from meanfield_pde.cli.compare import comparison
    from meanfield_pde.output.solve import solve

    return [{"problem": name, **row} for row in comparison(solve(problem), exact)]


def print_values(rows: list[dict[str, Any]]) -> None:
    """One line a quantity."""
    form = {"computed": ".10g", "exact": ".10g", "error": ".1e"}
    cells = [
        (str(row["problem"]), str(row["quantity"]), *(_spell(row[key], form[key]) for key in form)) for row in rows
    ]
    table(("problem", "quantity, as shipped", "computed", "exact", "error"), cells, left=2)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None] | None]:
    """Says on a terminal what is being solved."""
    from meanfield_pde.output.progress import is_terminal

    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("measuring") as status:
        yield status.update


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A table a kind of order."""
    for kind in dict.fromkeys(row.get("kind", "space") for row in rows):
        _print_kind(kind, [row for row in rows if row.get("kind", "space") == kind])


def _print_kind(kind: str, rows: list[dict[str, Any]]) -> None:
    """One line a resolution: the error there and the order from the line before; then the fitted order."""
    cells = []
    for row in rows:
        orders = [None] * (len(row["n"]) - len(row["orders"])) + list(row["orders"])
        for k, (n, error, order) in enumerate(zip(row["n"], row["errors"], orders, strict=True)):
            head = (str(row["flow"]), str(row["scheme"]), str(row["norm"])) if k == 0 else ("", "", "")
            end = _end(row) if k == len(row["n"]) - 1 else ("", "", "")
            cells.append((*head, str(n), _spell(error, ".3e"), _spell(order, ".2f"), *end))
    how = "by self-convergence" if rows[0].get("reference") == "self" else "against the exact solution"
    what = {"space": "h", "time": "the step", "coupling": "the step of the heads"}[kind]
    print(f"{rows[0]['problem']}: errors and orders of convergence in {what}, {how}")
    table(
        ("flow", "scheme", "norm", rows[0].get("unit", "n"), "error", "order", "fitted", "seconds", ""), cells, left=3
    )


def _end(row: dict[str, Any]) -> tuple[str, str, str]:
    """What the last line of a row says of all of it: fitted order, seconds, a verdict or an error estimate."""
    notes = []
    if row.get("short"):
        notes.append(f"falls short of {row.get('declared')}")
    if _known(row.get("error_estimate")):
        notes.append(f"error at {row['finest']} {row.get('unit', 'cells')} about {row['error_estimate']:.1e}")
    return _spell(row.get("fitted"), ".2f"), _spell(row["seconds"], ".1f"), "; ".join(notes)


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _spell(value: Any, form: str) -> str:
    return format(value, form) if _known(value) else ""
