"""One figure of a verdict: statistics in units of noise, and the sample beside the law of the limit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde.validation.line_laws import LineLaw

if TYPE_CHECKING:
    from meanfield_pde.arrays import FloatArray
    from meanfield_pde.grid import Grid
    from meanfield_pde.validation.limit_verdict import LimitVerdict
    from meanfield_pde.validation.verdict import Verdict

DOTS = 2000
# of the largest density
LEVELS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.95)


def draw(verdict: Verdict, title: str, path: Path) -> None:
    """Write the figure: z of each statistic, √N (F_N − F) on a line or ring (the sample on the law in the plane)."""
    from matplotlib.figure import Figure

    evidence, limit = verdict.evidence, verdict.limit
    identity = verdict.identity
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    axes = figure.subplots(1, 2)
    figure.suptitle(f"{title} — {Path(verdict.data.source).name}", fontsize=11)
    if limit is not None and evidence is not None:
        _z(axes[0], limit, evidence.noise.maximum.critical(limit.level))
        lines = [law for law in evidence.observed.laws if isinstance(law, LineLaw)]
        if lines:
            _functions(axes[1], verdict.data.points, evidence.observed.times, lines)
        else:
            end = float(evidence.observed.times[-1])
            _cloud(axes[1], verdict.data.points[0, -1], end, evidence.grid, evidence.densities[-1])
    else:
        axes[0].set_axis_off()
        axes[0].text(0.5, 0.5, verdict.without or "the limit was not asked for", ha="center", wrap=True)
        axes[1].set_axis_off()
    if limit is None and identity is not None and identity.applies:
        axes[0].set_axis_on()
        axes[0].clear()
        _gaps(axes[0], identity.times, identity.largest, identity.bounds)
    figure.savefig(path, dpi=150)


def _z(ax: Any, limit: LimitVerdict, critical: float) -> None:
    times = sorted({one.time for one in limit.smooth})
    names = list(dict.fromkeys(one.name for one in limit.smooth))
    width = min((b - a for a, b in pairwise(times)), default=1.0)
    for k, name in enumerate(names):
        rows = [one for one in limit.smooth if one.name == name]
        shift = 0.5 * width * ((k + 0.5) / len(names) - 0.5)
        ax.plot([one.time + shift for one in rows], [one.z for one in rows], "o", ms=4, label=name)
    ax.axhline(0.0, color="0.6", lw=0.8)
    for sign in (-1.0, 1.0):
        ax.axhline(sign * critical, color="0.3", ls="--", lw=0.8)
    ax.set_xlabel("time")
    ax.set_ylabel("(found − predicted)/noise")
    ax.set_title(f"smooth statistics, p = {limit.p:.2g} (dashed: level {limit.level:g} for all of them)", fontsize=10)
    ax.legend(fontsize=7, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def _functions(ax: Any, points: FloatArray, times: FloatArray, laws: list[LineLaw]) -> None:
    """√N (F_N − F) of all runs together, at each time."""
    for k, law in enumerate(laws):
        low, length = law.knots[0], law.length
        x = points[:, k].ravel()
        x = np.sort(low + np.mod(x - low, length) if law.ring else x)
        gap = (np.arange(1, len(x) + 1) - 0.5) / len(x) - law.cdf(x)
        ax.plot(x, np.sqrt(len(x)) * gap, lw=0.9, label=f"{times[k]:g}")
    ax.set_xlabel("angle" if laws[0].ring else "x")
    ax.set_ylabel("√N (share of the sample below − that of the law)")
    ax.legend(title="time", fontsize=7)
    ax.set_title("distribution function of the sample against the law", fontsize=10)


def _cloud(ax: Any, points: FloatArray, time: float, grid: Grid, density: FloatArray) -> None:
    """The first run on the law, summed over all axes but two."""
    shown = density.sum(axis=tuple(range(2, grid.dim)))
    ax.plot(points[:DOTS, 0], points[:DOTS, 1], ".", ms=2, color="0.5", alpha=0.6)
    window = ax.axis()
    levels = shown.max() * np.array(LEVELS)
    ax.contour(grid.centers(0), grid.centers(1), shown.T, levels=levels, linewidths=0.9, cmap="viridis")
    ax.axis(window)
    ax.set_xlabel("first coordinate")
    ax.set_ylabel("second coordinate")
    ax.set_title(f"the sample on the law at time {time:g}", fontsize=10)


def _gaps(ax: Any, times: FloatArray, largest: FloatArray, bounds: FloatArray) -> None:
    ax.semilogy(times, np.maximum(bounds, 1e-17), "k--", label="what rounding explains")
    ax.semilogy(times, np.maximum(largest, 1e-17), "o-", label="largest distance")
    ax.set_xlabel("t")
    ax.set_title("identity", fontsize=10)
    ax.legend(fontsize=8)
