"""What is printed of a solution: words for people, JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanfield_pde.cli.terminal import table
from meanfield_pde.errors import MeanFieldError

if TYPE_CHECKING:
    from meanfield_pde.output.solution import Solution


def print_json(value: Any) -> None:
    """Valid JSON, no NaN."""
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def against_exact(solution: Solution) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Rows of computed beside exact, or None and why there are none (None too when no exact solution is named)."""
    from meanfield_pde import library
    from meanfield_pde.cli.compare import comparison

    if solution.problem.reference is None:
        return None, None
    try:
        exact = library.exact_of(solution.problem)
    except MeanFieldError as error:
        return None, str(error)
    return (None, None) if exact is None else (comparison(solution, exact), None)


def print_solution(solution: Solution) -> None:
    """Outcome, values, certificates, warnings and, where known, the exact values."""
    from meanfield_pde.output.report import certificates_of, spelled, summary

    facts = summary(solution)
    title = facts["title"] or facts["reference"]
    print(f"{title} ({facts['kind']})" if title else f"a problem of kind '{facts['kind']}'")
    rows = [("outcome", str(facts["outcome"]))]
    if facts["s"] is not None:
        rows.append(("training time s", f"{facts['s']:g}, {facts['steps']} steps"))
    if facts["sequences"] is not None:
        rows.append(("training sequences", str(facts["sequences"])))
    if facts["loss"] is not None:
        first = facts["loss_first"]
        name = "energy" if facts["kind"] == "fokker-planck" else "loss"
        rows.append((name, f"{facts['loss']:.10g}" + ("" if first is None else f", from {first:.10g}")))
    if facts["free_energy"] is not None:
        rows.append(("free energy", f"{facts['free_energy']:.10g}"))
    if facts["penalised_loss"] is not None:
        rows.append(("loss and weight decay", f"{facts['penalised_loss']:.10g}"))
    each = {"tokens": "a sequence", "heads": "in place of their law"}
    for side, count in (facts["particles"] or {}).items():
        rows.append(("as particles", f"{count} {side} {each[side]}"))
    for role, share in (facts["accuracy"] or {}).items():
        rows.append((f"accuracy, {role}", accuracy_words(share)))
    table(("", ""), rows, left=2)
    print("\ncertificates (the worst of the run)")
    certified = certificates_of(solution).items()
    table(("", ""), [(f"  {text}", spelled(facts[name])) for name, text in certified])
    print_exact(solution)
    for text in facts["warnings"]:
        print(f"warning: {text}")


def print_exact(solution: Solution) -> None:
    """Computed beside exact with the errors, if an exact solution is known."""
    rows, why = against_exact(solution)
    if rows:
        tokens = solution.problem.kind == "tokens"
        at = f"t = {solution.depth_t[-1]:g}" if tokens else f"s = {solution.snapshot_s[-1]:g}"
        print(f"\ncomputed beside exact at {at}")
        cells = [(f"  {row['quantity']}", _value(row["computed"]), _value(row["exact"]), f"{row['error']:.1e}")
                 for row in rows]  # fmt: skip
        table(("  quantity", "computed", "exact", "error"), cells)
    elif why:
        print(f"\nno exact solution: {why}")


def _value(number: float) -> str:
    # a distance has the exact value 0; and no minus before what is rounded to 0
    return "0" if number == 0.0 else f"{round(number, 10) + 0.0:.10f}"


def accuracy_words(share: dict[str, float], when: str = "") -> str:
    """An accuracy with its counts and its interval; ``when`` follows the counts."""
    return (
        f"{100 * share['share']:.1f} % ({share['correct']} of {share['total']}){when}, "
        f"95 % interval {100 * share['low']:.1f} to {100 * share['high']:.1f} %"
    )


def show(target: Path, as_json: bool, with_figures: bool) -> None:
    """Print the solution of a run folder or a result file; figures go into its folder ``figures``.

    Raises: FileError naming the path.
    """
    from meanfield_pde.output.report import clean, read_run, summary

    solution = read_run(target)
    paths: list[Path] = []
    if with_figures:
        from meanfield_pde.output.plots import figures

        paths = figures(solution, (target.parent if target.is_file() else target) / "figures")
    if not as_json:
        print_solution(solution)
        for path in paths:
            print(f"figure: {path}")
        return
    rows, why = against_exact(solution)
    facts = {**summary(solution), "exact": rows}
    if why:
        facts["exact_missing"] = why
    if with_figures:
        facts["figures"] = [str(path) for path in paths]
    print_json(clean(facts))
