"""One figure of an order table: errors over h or the step, a panel a norm, with the declared slope beside each row."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.errors import MeanFieldError

SUFFIXES = (".png", ".pdf", ".svg")
COLUMNS = 3


def check_figure(path: Path) -> None:
    """Refuse a file that cannot be drawn to, before any work."""
    if path.suffix.lower() not in SUFFIXES:
        raise MeanFieldError(f"--figure {path}: the name must end in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise MeanFieldError(f"--figure {path}: there is no folder {path.parent}")


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the figure of the rows of one problem.

    Meaning: dots are errors, the dashed line through the finest one has the declared order; a row that falls short is
    drawn open and says so.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    panels = list(dict.fromkeys((row["kind"], row["norm"]) for row in rows))
    columns = min(COLUMNS, max(1, len(panels)))
    lines = max(1, ceil(len(panels) / columns))
    figure = Figure(figsize=(4.6 * columns, 4.0 * lines), layout="constrained")
    every = figure.subplots(lines, columns, squeeze=False).ravel()
    for ax in every[len(panels) :]:
        ax.set_axis_off()
    names = list(dict.fromkeys(row["scheme"] for row in rows))
    for ax, (kind, norm) in zip(every, panels, strict=False):
        shown = [row for row in rows if (row["kind"], row["norm"]) == (kind, norm)]
        for row in shown:
            _line(ax, row, f"C{names.index(row['scheme']) % 10}")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("1/cells" if kind == "space" else "1/steps")
        ax.set_ylabel(f"error in {norm}")
        ax.set_title(f"{shown[0]['flow']}, orders in {kind}, {norm}", fontsize=10)
        ax.legend(fontsize=7)
    figure.suptitle(f"{rows[0]['problem']} (dashed: declared orders)" if rows else "no rows", fontsize=11)
    figure.savefig(path, dpi=150)


def _line(ax: Any, row: dict[str, Any], colour: str) -> None:
    h = 1.0 / np.array(row["n"], dtype=float)
    errors = np.array([np.nan if e is None or e <= 0.0 else e for e in row["errors"]], dtype=float)
    fit = row["fitted"]
    words = row["scheme"] if fit is None else f"{row['scheme']}  {fit:.2f}"
    style = {"mfc": "none"} if row["short"] else {}
    ax.plot(h, errors, "o-", ms=4, lw=0.9, color=colour, label=f"{words} (short)" if row["short"] else words, **style)
    if row["declared"] and np.isfinite(errors[-1]):
        ax.plot(h, errors[-1] * (h / h[-1]) ** row["declared"], "--", lw=0.7, color=colour, alpha=0.6)
