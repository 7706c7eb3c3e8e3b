"""Laws of heads with three or four axes: a square of panels, marginals on axes and on pairs of axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.output.plots_panels import angles, marginal, mark_angles, of_angles

# parts of an axis with less than this share of the largest marginal are cut off
SHOWN = 1e-3


def window(densities: list[FloatArray], centers: FloatArray) -> tuple[float, float]:
    """The part of an axis where any marginal is more than a thousandth of its largest value."""
    shown = np.any([d > SHOWN * d.max() for d in densities], axis=0)
    low, high = centers[np.flatnonzero(shown)[[0, -1]]]
    margin = 0.05 * (high - low) + (centers[1] - centers[0])
    return max(centers[0], low - margin), min(centers[-1], high + margin)


def line_colours(count: int) -> Any:
    """One colour a law, dark to light, without the end of the map that is hard to see on white."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"](np.linspace(0.0, 0.85, count))


def draw_corner(figure: Any, grid: Grid, laws: list[tuple[str, FloatArray]], names: tuple[str, ...]) -> None:
    """Marginals on axes along the diagonal, all laws; on pairs of axes the first law above it and the last below.

    Meaning: the two panels of a pair share their colours, from 0 to the largest density of either.
    """
    q = grid.dim
    panels = figure.subplots(q, q, squeeze=False)
    axis_of = [angles(grid, k) if of_angles(grid, k) else (grid.centers(k), np.arange(grid.cells[k])) for k in range(q)]
    alone = [[marginal(rho, grid, (k,)) for _, rho in laws] for k in range(q)]
    limits = [
        (-np.pi, np.pi) if of_angles(grid, k) else window(alone[k], grid.centers(k)) for k in range(q)
    ]
    for k in range(q):
        x, order = axis_of[k]
        for values, (label, _), colour in zip(alone[k], laws, line_colours(len(laws)), strict=True):
            panels[k, k].plot(x, values[order], color=colour, label=label, linewidth=1.3)
        panels[k, k].set(xlim=limits[k], ylim=(0.0, None))
        panels[k, k].grid(alpha=0.25)
        # densities on different axes differ in unit: their numbers would crowd the square
        panels[k, k].tick_params(labelleft=False)
    mesh: Any = None
    for low in range(q):
        for high in range(low + 1, q):
            both = [marginal(rho, grid, (low, high)) for _, rho in (laws[0], laws[-1])]
            top = max(float(law.max()) for law in both)
            (x, x_order), (y, y_order) = axis_of[low], axis_of[high]
            first, last = (law[np.ix_(x_order, y_order)] / top for law in both)
            style: dict[str, Any] = {"cmap": "viridis", "vmin": 0.0, "vmax": 1.0, "shading": "nearest"}
            mesh = panels[low, high].pcolormesh(y, x, first, rasterized=True, **style)
            panels[high, low].pcolormesh(x, y, last.T, rasterized=True, **style)
            panels[low, high].set(xlim=limits[high], ylim=limits[low])
            panels[high, low].set(xlim=limits[low], ylim=limits[high])
    for row in range(q):
        for column in range(q):
            axes = panels[row, column]
            if of_angles(grid, column):
                mark_angles(axes, "x")
            if of_angles(grid, row) and row != column:
                mark_angles(axes, "y")
            axes.tick_params(labelbottom=row == q - 1)
            if row != column:
                axes.tick_params(labelleft=column == 0)
            if row == q - 1:
                axes.set_xlabel(names[column])
        panels[row, 0].set_ylabel(names[row] if row else "marginal")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(laws), frameon=False)
    figure.colorbar(mesh, ax=list(panels.ravel()), label="density over the largest of its pair of axes", pad=0.02)
