"""Figures of particles: heads at a few training times, tokens over depth."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanfield_pde.output.plots_corner import line_colours
from meanfield_pde.output.plots_heads import axis_names
from meanfield_pde.output.plots_panels import evenly
from meanfield_pde.output.plots_titles import LEAST_WIDTH, heading
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import given

# panels and tokens beyond these are left out
MOST_SEQUENCES, MOST_TOKENS = 4, 60
BLUE = "#0072B2"


def head_points_figure(solution: Solution) -> Any:
    """The share of heads below each value, axis by axis, at a few training times; layers together."""
    from matplotlib.figure import Figure

    names = axis_names(solution, given(solution.problem.heads, "heads").grid())
    chosen, count = evenly(len(solution.snapshots)), solution.snapshots.shape[2]
    width = max(3.2 * len(names), LEAST_WIDTH)
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    figure.suptitle(heading(solution, f"{count} heads over training", width))
    for axis, (axes, name) in enumerate(zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True)):
        for k, colour in zip(chosen, line_colours(len(chosen)), strict=True):
            values = np.sort(solution.snapshots[k, :, :, axis].ravel())
            share = (np.arange(len(values)) + 1.0) / len(values)
            label = f"s = {solution.snapshot_s[k]:.3g}"
            axes.step(values, share, where="post", color=colour, linewidth=1.2, label=label)
        axes.set_xlabel(name)
        axes.set_ylabel("share of the heads below")
    axes.legend(frameon=False)
    return figure


def token_points_figure(solution: Solution) -> Any:
    """Tokens of the first sequences over depth under the last heads, axis by axis."""
    from matplotlib.figure import Figure

    points = solution.points[:, :MOST_SEQUENCES]
    _, sequences, count, dim = points.shape
    shown = np.linspace(0, count - 1, min(count, MOST_TOKENS)).astype(int)
    width = max(2.4 * sequences, LEAST_WIDTH)
    figure = Figure(figsize=(width, 2.6 * dim + 0.6), layout="constrained")
    figure.suptitle(heading(solution, f"{count} tokens a sequence over depth", width))
    panels = figure.subplots(dim, sequences, squeeze=False, sharex=True, sharey="row")
    for axis in range(dim):
        for b in range(sequences):
            panels[axis, b].plot(solution.depth_t, points[:, b, shown, axis], color=BLUE, alpha=0.4, linewidth=0.8)
            panels[0, b].set_title(solution.names[b])
            panels[-1, b].set_xlabel("depth t")
        panels[axis, 0].set_ylabel(f"x{axis}" if dim > 1 else "x")
    return figure
