"""The verdicts on a particle code in words and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meanfield_pde.cli.terminal import table

if TYPE_CHECKING:
    from pathlib import Path

    from meanfield_pde.validation.detectable import Detectable
    from meanfield_pde.validation.identity import IdentityVerdict
    from meanfield_pde.validation.limit_verdict import LimitVerdict
    from meanfield_pde.validation.verdict import Verdict

WORDS = {0: "CONSISTENT", 3: "REJECTED", 4: "NOT ENOUGH DATA"}
# rows of a table of statistics, the most extreme first
ROWS = 8


def print_verdict(verdict: Verdict, title: str, names: Path | None) -> None:
    """The verdicts in words and tables, the most extreme numbers first."""
    data, code = verdict.data, verdict.code
    print(f"{WORDS[verdict.exit_code]}: {data.source}")
    print(f"against: {title}")
    times = ", ".join(f"{t:g}" for t in data.times)
    runs = "1 run" if data.runs == 1 else f"{data.runs} independent runs"
    print(f"data: {runs} of {data.count} {data.kind} at {'s' if data.kind == 'heads' else 't'} = {times}")
    if names is not None:
        print(f"names of arrays: {names}")
    for note in verdict.notes:
        print(f"note: {note}")
    if verdict.identity is not None:
        _print_identity(verdict.identity)
    if verdict.limit is not None:
        _print_limit(verdict.limit, f"{code.integrator}, {code.layers} layers, tokens {code.sampling}")
    elif verdict.without is not None:
        print(f"\nlimit: does not apply: {verdict.without}")
    if verdict.diagnosis is not None:
        print(f"\nwhat is wrong: {verdict.diagnosis.words}")
    if verdict.detectable:
        print("\nthis sample could have seen (power 80 %, or the power itself):")
        rows = [(one.name, _seen(one), one.words) for one in verdict.detectable]
        table(("fault", "seen", "what it is"), rows, left=3)


def _print_identity(identity: IdentityVerdict) -> None:
    state = {None: "no verdict", True: "agrees", False: "REJECTS"}[identity.passed]
    print(f"\nidentity: {state}. {identity.words}")


def _print_limit(limit: LimitVerdict, code: str) -> None:
    state = "agrees" if limit.passed else "REJECTS"
    by_clt = "not used here" if limit.p_clt is None else f"p = {limit.p_clt:.3g}"
    count = len(limit.smooth) + len(limit.distances)
    print(f"\nlimit: {state} at level {limit.level:g} for all {count} statistics together.")
    ratio = "" if limit.variance_ratio is None else (
        f"; variance {limit.variance_ratio[0]:.2f} to {limit.variance_ratio[1]:.2f} of the central limit's"
    )  # fmt: skip
    worst = max((abs(one.grid_error) / one.noise for one in limit.smooth if one.grid_error is not None and one.noise),
                default=None)  # fmt: skip
    finite = max((abs(one.finite) / one.noise for one in limit.smooth if one.noise), default=0.0)
    rows = [
        (f"{limit.own_runs} own runs ({code})", f"p = {limit.p:.3g}{ratio}"),
        ("central limit by the costate", by_clt),
        ("error of the grid", "not known" if worst is None else f"{worst:.1e} of the noise at most"),
        *([("error of the layers", f"{finite:.1e} of the noise at most, corrected")] if finite else []),
    ]
    table(("", ""), rows, left=2)
    for note in limit.notes:
        print(f"note: {note}")
    print()
    extreme = sorted(limit.smooth, key=lambda one: -abs(one.z))[:ROWS]
    cells = [
        (one.name, f"{one.time:g}", f"{one.value:.6g}", f"{one.predicted:.6g}", f"{one.noise:.2g}", f"{one.z:+.2f}",
         f"{one.p:.2g}", "" if one.p_clt is None else f"{one.p_clt:.2g}")
        for one in extreme
    ]  # fmt: skip
    table(("statistic", "time", "found", "predicted", "noise", "z", "p", "p central"), cells)
    print()
    far = sorted(limit.distances, key=lambda one: -one.value / one.typical if one.typical > 0 else 0.0)[:ROWS]
    cells2 = [(one.name, f"{one.time:g}", f"{one.value:.4g}", f"{one.typical:.4g}", f"{one.p:.2g}") for one in far]
    table(("distance to the law", "time", "found", "median of own runs", "p"), cells2)


def _seen(one: Detectable) -> str:
    if one.power is not None:
        return f"in {100 * one.power:.0f} % of samples"
    sides = (("≤", one.below), ("≥", one.above))
    return " or ".join(f"c {sign} {value:.3g}" for sign, value in sides if value is not None) or "not at all"
