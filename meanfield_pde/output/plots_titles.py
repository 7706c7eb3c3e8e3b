"""Titles of figures: what is shown, and of which problem, never wider than the figure."""

from __future__ import annotations

import textwrap

from meanfield_pde.output.solution import Solution

# characters to an inch at the size of figure titles, on the safe side
PER_INCH = 12.5


def heading(solution: Solution, what: str, width: float, *more: str) -> str:
    """Lines for a figure ``width`` inches wide: what it shows · the problem, then ``more``, one line each."""
    name = solution.problem.title or solution.problem.reference
    lines = [f"{what}  ·  {name}" if name else what, *more]
    return "\n".join(part for line in lines for part in textwrap.wrap(line, int(PER_INCH * width)))


def name_of(solution: Solution, index: int) -> str:
    """The name of a sequence as the problem gives it, without folders."""
    name = solution.names[index].rsplit("/", 1)[-1] if index < len(solution.names) else f"sequence {index}"
    return name if len(name) <= 24 else "…" + name[-23:]
