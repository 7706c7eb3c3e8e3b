"""The figure of a shallow problem: what the layer predicts where it is trained, beside the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from meanfield_pde.errors import FileError
from meanfield_pde.measure import Measure
from meanfield_pde.output.plots_titles import LEAST_WIDTH, heading
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import DataFile, Shallow, TwoGaussians
from meanfield_pde.sequences import sequence_batch
from meanfield_pde.training.shallow import rows_of, shallow_model

PANELS = 4
# rows that weigh less than this share of the heaviest of their panel say nothing of the loss
SEEN = 1e-3
BLUE = "#0072B2"


def prediction_figure(solution: Solution) -> Any | None:
    """Predictions at the first and the last time against tokens, inputs or lengths; None if the data cannot be read."""
    from matplotlib.figure import Figure

    problem, grid = solution.problem, solution.head_grid
    assert grid is not None
    tokens = solution.token_grid
    try:
        batch = None if tokens is None else sequence_batch(problem, tokens, "train")
        model, rows = shallow_model(problem, grid.points(), batch), rows_of(problem, batch)
    except FileError:
        # the samples may have been moved since; the other figures are whole without
        return None
    laws = [Measure.particles(grid.points(), rho[0].ravel() * grid.cell_volume) for rho in solution.snapshots[[0, -1]]]
    found = [model.predictions(law) for law in laws]
    if (problem.shallow or Shallow()).loss == "logistic":
        found = [np.asarray(expit(f)) for f in found]
    groups = 1 if isinstance(problem.data, DataFile) else 2 if batch is None else len(batch.mu)
    shown = min(groups, PANELS)
    width = max(2.9 * shown + 1.0, LEAST_WIDTH)
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    figure.suptitle(heading(solution, "prediction of the layer where it is trained", width))
    size = len(rows.places) // groups
    for k, axes in enumerate(figure.subplots(1, shown, squeeze=False)[0]):
        part = slice(k * size, (k + 1) * size)
        weights = rows.weights[part]
        order = np.argsort(rows.places[part], kind="stable")
        order = order[weights[order] > SEEN * weights.max()]
        x = rows.places[part][order]
        axes.plot(x, model.targets[part][order], color="0.3", linestyle="", marker=".", markersize=3, label="target")
        for f, s, style in zip(found, solution.snapshot_s[[0, -1]], (":", "-"), strict=True):
            axes.plot(x, f[part][order], color=BLUE, linestyle=style, linewidth=1.3, label=f"s = {s:.3g}")
        axes.grid(alpha=0.25)
        axes.set(xlabel=_place(solution), title=_title(solution, k))
        if k == 0:
            axes.set_ylabel("prediction")
            axes.legend(frameon=False)
    return figure


def _place(solution: Solution) -> str:
    if isinstance(solution.problem.data, TwoGaussians):
        return "length |x| of a sample"
    return "token x" if solution.problem.attention == "softmax" else "input x"


def _title(solution: Solution, k: int) -> str:
    if isinstance(solution.problem.data, TwoGaussians):
        return "wide class" if k == 0 else "narrow class"
    return solution.names[k] if len(solution.names) > 1 else ""
