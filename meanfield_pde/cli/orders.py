"""The table of convergence orders."""

from __future__ import annotations

import sys
from contextlib import nullcontext
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


def print_orders(name: str, as_json: bool) -> bool:
    """Measure and print; False when an order falls short of what the scheme promises."""
    from meanfield_pde import library
    from meanfield_pde.output.progress import is_terminal
    from meanfield_pde.output.report import clean
    from meanfield_pde.studies.orders import orders

    problem = find_problem(name)
    try:
        exact = library.exact_of(problem)
    except MeanFieldError as error:
        say(f"{error}; measured by self-convergence")
        exact = None
    with _status() if is_terminal(sys.stderr) else nullcontext() as status:
        progress = None if status is None else status.update
        measured = clean(orders(problem, exact, name=name if name in library.NAMES else Path(name).stem,
                                progress=progress))  # fmt: skip
    rows = measured["rows"]
    if as_json:
        print_json(measured)
    else:
        print_rows(rows)
    return not any(row.get("short") for row in rows)


def print_all(as_json: bool) -> bool:
    """Orders of every library problem with an exact solution, and its named values computed beside the exact ones.

    False when an order falls short.
    """
    from meanfield_pde import library
    from meanfield_pde.output.progress import is_terminal
    from meanfield_pde.output.report import clean
    from meanfield_pde.studies.orders import orders

    rows: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    with _status() if is_terminal(sys.stderr) else nullcontext() as status:
        for name in library.NAMES:
            problem, exact = library.get(name)
            if exact is None:
                continue
            if status is None:
                say(f"measuring {name}")
            progress = None if status is None else (lambda text, name=name: status.update(f"{name}: {text}"))
            # a gradient of which no order is claimed would take minutes and say nothing
            unclaimed = exact.order == 0 and problem.kind == "training"
            found = [] if unclaimed else clean(orders(problem, exact, name=name, progress=progress))["rows"]
            beside = clean(_values(name, problem, exact))
            if not as_json:
                print_rows(found)
                print_values(beside)
                print()
            rows += found
            values += beside
    if as_json:
        print_json({"rows": rows, "values": values})
    return not any(row.get("short") for row in rows)


def _values(name: str, problem: Problem, exact: Exact) -> list[dict[str, Any]]:
    """The problem solved as it is shipped: its named quantities at the end, computed beside exact."""
    from meanfield_pde.cli.compare import comparison
    from meanfield_pde.output.solve import solve

    return [{"problem": name, **row} for row in comparison(solve(problem), exact)]


def print_values(rows: list[dict[str, Any]]) -> None:
    """One line a quantity."""
    form = {"computed": ".10g", "exact": ".10g", "error": ".1e"}
    cells = [(str(row["quantity"]), *(_spell(row[key], form[key]) for key in form)) for row in rows]
    table(("quantity, as shipped", "computed", "exact", "error"), cells, left=1)


def _status() -> Any:
    from rich.console import Console

    return Console(stderr=True).status("measuring")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """One line a resolution: the error there and the order from the line before; then the fitted order."""
    cells = []
    for row in rows:
        orders = [None] * (len(row["n"]) - len(row["orders"])) + list(row["orders"])
        for k, (n, error, order) in enumerate(zip(row["n"], row["errors"], orders, strict=True)):
            head = (str(row["flow"]), str(row["scheme"]), str(row["norm"])) if k == 0 else ("", "", "")
            end = _end(row) if k == len(row["n"]) - 1 else ("", "", "")
            cells.append((*head, str(n), _spell(error, ".3e"), _spell(order, ".2f"), *end))
    if rows:
        how = "by self-convergence" if rows[0].get("reference") == "self" else "against the exact solution"
        print(f"{rows[0]['problem']}: errors and orders of convergence, {how}")
    table(("flow", "scheme", "norm", "n", "error", "order", "fitted", "seconds", ""), cells, left=3)


def _end(row: dict[str, Any]) -> tuple[str, str, str]:
    """What the last line of a row says of all of it: fitted order, seconds, a verdict or an error estimate."""
    notes = []
    if row.get("short"):
        notes.append(f"falls short of {row.get('declared')}")
    if _known(row.get("error_estimate")):
        notes.append(f"error at {row['finest']} cells about {row['error_estimate']:.1e}")
    return _spell(row.get("fitted"), ".2f"), _spell(row["seconds"], ".1f"), "; ".join(notes)


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _spell(value: Any, form: str) -> str:
    return format(value, form) if _known(value) else ""
