"""The figures of a solution as PNG files: tokens over depth, heads over training, loss, certificates.

Figures are made as objects, without the global state of pyplot, so that they can be made from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.output.plots_heads import head_figures
from meanfield_pde.output.plots_points import head_points_figure, token_points_figure
from meanfield_pde.output.plots_shallow import prediction_figure
from meanfield_pde.output.plots_titles import heading
from meanfield_pde.output.plots_tokens import token_figures
from meanfield_pde.output.report import certificates_of, spelled, summary
from meanfield_pde.output.solution import Solution

DPI = 130
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "figure.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
}
BLUE, ORANGE = "#0072B2", "#D55E00"


def figures(solution: Solution, folder: Path) -> list[Path]:
    """Write the figures that the kind of problem has into ``folder``; the paths written, in order.

    Raises: FileError if the folder cannot be written.
    """
    import matplotlib as mpl

    written = []
    with mpl.rc_context(STYLE):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, figure in _all(solution):
                figure.savefig(folder / f"{name}.png", dpi=DPI)
                written.append(folder / f"{name}.png")
        except OSError as error:
            raise FileError(f"cannot write figures into {folder}: {error.strerror or error}") from None
    return written


def _all(solution: Solution) -> Iterator[tuple[str, Any]]:
    if len(solution.mu):
        yield from token_figures(solution)
    if len(solution.points):
        yield "tokens", token_points_figure(solution)
    if solution.heads_are_points and len(solution.snapshots):
        yield "heads", head_points_figure(solution)
    elif len(solution.snapshots):
        yield from head_figures(solution)
    if solution.problem.kind == "shallow" and len(solution.snapshots):
        prediction = prediction_figure(solution)
        if prediction is not None:
            yield "prediction", prediction
    if len(solution.history.get("s", ())) > 1:
        yield "training", training_figure(solution)
    yield "certificates", certificates_figure(solution)


def training_figure(solution: Solution) -> Any:
    """Loss and free energy against training time."""
    from matplotlib.figure import Figure

    s = solution.history["s"]
    # a given potential and data without tokens have no sequences
    names = {"fokker-planck": "energy L(rho)", "shallow": "loss L(rho)"}
    loss = names.get(solution.problem.kind, "loss L(rho), mean over sequences")
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    figure.suptitle(heading(solution, "training", 6.4))
    panels = np.atleast_1d(figure.subplots(1, 2, sharex=True))
    points = ("penalised_loss", "loss and weight decay")
    second = points if solution.heads_are_points else ("free_energy", "free energy F(rho)")
    for axes, name, colour, label in ((panels[0], "loss", BLUE, loss), (panels[1], second[0], ORANGE, second[1])):
        values = solution.history[name]
        axes.plot(s, values, color=colour, marker="." if len(s) < 60 else "", markersize=4, linewidth=1.3)
        axes.set_xlabel("training time s")
        axes.set_title(f"{label}\nfrom {values[0]:.6g} to {values[-1]:.6g}")
        axes.grid(alpha=0.25)
    return figure


def certificates_figure(solution: Solution) -> Any:
    """The certificates of the run as a table, with its warnings under it."""
    import textwrap

    from matplotlib.figure import Figure

    facts = summary(solution)
    rows = [(text, spelled(facts[name])) for name, text in certificates_of(solution).items()]
    notes = [line for text in facts["warnings"] for line in textwrap.wrap("warning: " + text, 88)]
    title = heading(solution, "certificates, the worst of the run", 6.4)
    height = 0.9 + 0.21 * (len(rows) + len(notes) + title.count("\n"))
    figure = Figure(figsize=(6.4, height))
    figure.suptitle(title, y=1 - 0.2 / height)
    y = 1 - (0.65 + 0.21 * title.count("\n")) / height
    for text, value in rows:
        figure.text(0.06, y, text)
        figure.text(0.94, y, value, ha="right", family="monospace", color="0.55" if value == "not measured" else "0")
        y -= 0.21 / height
    for line in notes:
        figure.text(0.06, y, line, color=ORANGE, fontsize=8)
        y -= 0.21 / height
    return figure
