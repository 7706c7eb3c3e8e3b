"""Titles of figures: what is shown, and of which problem, never wider than the figure nor longer than two lines."""

from __future__ import annotations

import textwrap
from numbers import Real

from meanfield_pde.errors import FileError
from meanfield_pde.output.solution import Solution
from meanfield_pde.sequences import sequence_batch

# characters to an inch at the size of figure titles, on the safe side
PER_INCH = 14.0
# inches; in a narrower figure two lines hold too little
LEAST_WIDTH = 7.0


def heading(solution: Solution, what: str, width: float, *notes: str) -> str:
    """Two lines for a figure ``width`` inches wide: what it shows · the problem, then the notes; cut with … ."""
    name = solution.problem.title or solution.problem.reference
    room, more = int(PER_INCH * width), "; ".join(notes)
    lines = textwrap.wrap(f"{what}  ·  {name}" if name else what, room, max_lines=1 if more else 2, placeholder=" …")
    return "\n".join([*lines, *textwrap.wrap(more, room, max_lines=1, placeholder=" …")])


def name_of(solution: Solution, index: int) -> str:
    """The name of a sequence as the problem gives it, without folders."""
    name = solution.names[index].rsplit("/", 1)[-1] if index < len(solution.names) else f"sequence {index}"
    return name if len(name) <= 24 else "…" + name[-23:]


def target_words(solution: Solution) -> list[str]:
    """The target of each training sequence, "target 0.5" or "label 1"; "" for laws and what cannot be read."""
    grid, objective = solution.token_grid, solution.problem.objective
    if grid is None or objective is None:
        return [""] * len(solution.names)
    try:
        targets = sequence_batch(solution.problem, grid, "train").targets
    except FileError:
        # the token file may have been moved since; the figure is whole without
        return [""] * len(solution.names)
    word = "label" if objective.kind == "cross-entropy" else "target"
    rows = [target if isinstance(target, tuple) else (target,) for target in targets]
    # more numbers than that are wider than a panel
    short = [len(row) <= 3 and all(isinstance(value, Real) for value in row) for row in rows]
    return [f"{word} {', '.join(f'{v:g}' for v in row)}" if fits else "" for row, fits in zip(rows, short, strict=True)]
