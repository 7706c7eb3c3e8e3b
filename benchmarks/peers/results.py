"""Ratios of rows measured in one run, and the page that shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
OURS = "meanfield-pde"
TITLES = {
    "transport": "Transport: a Gaussian turned once around on 512² cells",
    "fokker_planck": "Fokker–Planck: U = (x² − 1)²/4 + y²/2 + .3xy, beta = .25, 256² cells on [−3, 3]², s = 1",
    "attention_1d": "Softmax velocity on a line: 1024 tokens, 64 heads",
    "attention_2d": "Softmax velocity in the plane: 4096 tokens, 64 heads",
}
FOKKER_PLANCK_TARGET = 4e-4


def cell_rate(row: Row) -> float:
    """Cells times steps a second."""
    return float(row["cell_steps"] / row["seconds"])


def cell_stage_rate(row: Row) -> float:
    """Cells times stages a second."""
    return float(row["cell_steps"] * row["stages"] / row["seconds"])


QUANTITIES: dict[str, Callable[[Row], float]] = {
    "time": lambda row: 1.0 / float(row["seconds"]),
    "cell-steps a second": cell_rate,
    "cell-stages a second": cell_stage_rate,
}


def found(rows: list[Row], problem: str, peer: str, method: str = "") -> list[Row]:
    """Rows that were measured, of a peer on a problem, whose method begins so."""
    return [
        row
        for row in rows
        if row["problem"] == problem
        and row["peer"] == peer
        and row["method"].startswith(method)
        and "failed" not in row
    ]


def within(rows: list[Row], error: float) -> list[Row]:
    """Rows whose measured error is at most that."""
    return [row for row in rows if row["error"] is not None and row["error"] <= error]


def _quotient(name: str, over: list[Row], under: list[Row], quantity: str = "time") -> dict[str, Any] | None:
    """How many times better the best row of over is than that of under, both named; None if either has no row."""
    if not over or not under:
        return None
    value = QUANTITIES[quantity]
    a, b = (max(side, key=value) for side in (over, under))
    return {
        "name": name,
        "quantity": quantity,
        "ratio": value(a) / value(b),
        "ours": f"{a['peer']} {a['method']}",
        "peer": f"{b['peer']} {b['method']}",
    }


def ratios(rows: list[Row]) -> list[dict[str, Any]]:
    """Every ratio that the rows allow, ours over a peer: the best row of each side that meets the stated error."""
    out = []

    def of(problem: str, method: str = "") -> list[Row]:
        return found(rows, problem, OURS, method)

    # equal to a fiftieth
    classic = found(rows, "transport", "pyclaw", "classic")
    sharp = found(rows, "transport", "pyclaw", "sharpclaw")
    if classic:
        equal = within(of("transport"), 1.02 * classic[0]["error"])
        second = within(of("transport", "muscl-mc"), 1.02 * classic[0]["error"])
        out.append(
            _quotient("split MC against PyClaw classic, cell-steps a second", second, classic, "cell-steps a second")
        )
        out.append(_quotient("any scheme at the error of PyClaw classic, time", equal, classic))
    out.append(
        _quotient(
            "weno5z against SharpClaw, cell-stages a second", of("transport", "weno5z"), sharp, "cell-stages a second"
        )
    )
    if sharp:
        equal = within(of("transport"), 1.02 * sharp[0]["error"])
        out.append(_quotient(f"time to the error of SharpClaw, {sharp[0]['error']:.2g}", equal, sharp))
    for name in ("numpy", "py-pde", "fipy"):
        other = found(rows, "transport", name)
        error = other[0]["error"] if other else None
        best = of("transport") if error is None else within(of("transport"), error)
        out.append(_quotient(f"transport against {name}, time", best, other))
    for name in ("scipy", "fplanck", "py-pde", "fipy"):
        best = within(of("fokker_planck"), FOKKER_PLANCK_TARGET)
        every = found(rows, "fokker_planck", name)
        other = within(every, FOKKER_PLANCK_TARGET)
        out.append(_quotient(f"Fokker-Planck at the error {FOKKER_PLANCK_TARGET:g} against {name}", best, other))
        missed = [row for row in every if row not in other]
        out.append(_quotient(f"Fokker-Planck against {name} where it misses that error", best, missed))
    for problem, error in (("attention_1d", 1e-9), ("attention_2d", 1e-8), ("attention_2d", 1e-5)):
        libraries = [row for name in ("torch", "jax") for row in found(rows, problem, name)]
        best = within(of(problem), error)
        out.append(_quotient(f"{problem} at the error {error:g} against the best library", best, libraries))
    return [entry for entry in out if entry is not None]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _line(row: Row) -> str:
    who = f"| {row['peer']} | {row['method']} |"
    if "failed" in row:
        return f"{who} – | – | – | – | {row['failed']} |".replace("\n", " ")
    rate = None if row.get("cell_steps") is None else cell_rate(row) / 1e6
    note = [row["note"]] if row.get("note") else []
    if row.get("extrapolated_from"):
        note.append(f"time extrapolated from {row['extrapolated_from']} steps")
    if row.get("minimum") is not None and row["minimum"] < 0.0:
        note.append(f"least value {row['minimum']:.1e}")
    if row.get("mass_error") is not None and row["mass_error"] > 1e-10:
        note.append(f"mass off by {row['mass_error']:.1e}")
    return (
        f"{who} {row['seconds']:.4g} | {_number(row.get('steps'), 'd')} | {_number(rate, '.4g')} | "
        f"{_number(row['error'], '.1e')} | {'; '.join(note)} |"
    )


def markdown(run: dict[str, Any]) -> str:
    """The page of a run."""
    rows = run["rows"]
    versions = {row["peer"]: row["versions"] for row in rows if "versions" in row}
    load = f" on a machine with a load of {run['load_before']:.1f} before it" if "load_before" in run else ""
    out = [
        "# The same problems with other packages",
        "",
        f"Written by `make bench-peers` on {run['date']}: {run['processor']}, {run['processors']} processors, Python "
        f"{run['python']}, {run['threads']} threads for all that can use them. Every row is a process of its own, "
        f"all in one run{load}. "
        "[What is compared, and what is not claimed](../docs/benchmarks.md).",
        "",
        "| ratio | times | ours | peer |",
        "|---|---|---|---|",
    ]
    out += [f"| {r['name']} | {r['ratio']:.3g} | {r['ours']} | {r['peer']} |" for r in run["ratios"]]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        out += ["", f"## {TITLES[problem]}", ""]
        out += ["| package | method | seconds | steps | M cell-steps/s | error | |", "|---|---|---|---|---|---|---|"]
        out += [_line(row) for row in rows if row["problem"] == problem]
    licences = {row["peer"]: row["licence"] for row in rows}
    out += ["", "| package | licence | versions in its environment |", "|---|---|---|"]
    for name, licence in licences.items():
        used = ", ".join(f"{package} {number}" for package, number in versions.get(name, {}).items())
        out.append(f"| {name} | {licence} | {used or '–'} |")
    return "\n".join([*out, ""])
