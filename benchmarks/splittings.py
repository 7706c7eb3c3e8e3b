"""Work and error of the splittings of the heads on gaussian_coupled, against its exact solution.

    .venv/bin/python benchmarks/splittings.py [FIGURE]

prints the table of docs/schemes.md and writes its figure, by default docs/figures/splittings.svg. Errors are those of
rho at s = 1 in L1; "in ds" compares with the same splitting at a step 8 times smaller than the least, so that only the
step is seen; the wall time is the least of three runs.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meanfield_pde import library, solve
from meanfield_pde.output.solution import Solution

TABLES = {
    "lie": ("lie", 1),
    "strang": ("strang", 2),
    "diffusion outside": ((("diffusion", 0.5), ("drift", 1.0), ("diffusion", 0.5)), 2),
    "gibbs": ("gibbs", 2),
}
STEPS = (5, 10, 20, 40, 80)
CELLS = (96, 192)
FIGURE = Path(__file__).parent.parent / "docs/figures/splittings.svg"


class Row(NamedTuple):
    """A run: what it took, L1 errors of rho against the exact law and the limit in ds, errors of loss and variance."""

    splitting: str
    cells: int
    steps: int
    seconds: float
    error: float
    in_ds: float
    loss: float
    covariance: float


def trained(name: str, cells: int, steps: int, runs: int = 1) -> tuple[Solution, float]:
    splitting, order = TABLES[name]
    problem, _ = library.get(
        "gaussian_coupled", splitting=splitting, order=order, ds=1.0 / steps, head_cells=(cells, cells), snapshots=2
    )
    least = np.inf
    for _ in range(runs):
        begun = time.perf_counter()
        solution = solve(problem, threads=1)
        least = min(least, time.perf_counter() - begun)
    return solution, least


def measured(name: str, cells: int) -> list[Row]:
    _, exact = library.get("gaussian_coupled", head_cells=(cells, cells))
    assert exact is not None
    assert exact.rho is not None
    limit = trained(name, cells, 8 * STEPS[-1])[0]
    grid = limit.head_grid
    assert grid is not None
    right, wanted = exact.rho(1.0, grid), exact.observables(1.0)
    x, out = grid.points()[:, 0], []
    for steps in STEPS:
        solution, seconds = trained(name, cells, steps, 3)
        mass = solution.rho[0].ravel() * grid.cell_volume
        spread = mass @ x**2 - (mass @ x) ** 2
        out.append(
            Row(
                name,
                cells,
                steps,
                seconds,
                float(np.abs(solution.rho - right).sum() * grid.cell_volume),
                float(np.abs(solution.rho - limit.rho).sum() * grid.cell_volume),
                abs(float(solution.history["loss"][-1]) - wanted["loss"]),
                abs(float(spread) - wanted["covariance_00"]),
            )
        )
    return out


def drawn(rows: list[Row], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, name in enumerate(TABLES):
        for cells, style in zip(CELLS, ("--", "-"), strict=True):
            own = [row for row in rows if (row.splitting, row.cells) == (name, cells)]
            look = {"color": f"C{number}", "linestyle": style, "marker": "o", "markersize": 3, "linewidth": 1.2}
            label = f"{name}, {cells}² cells"
            left.loglog([row.seconds for row in own], [row.error for row in own], label=label, **look)
            right.loglog([1.0 / row.steps for row in own], [row.in_ds for row in own], label=label, **look)
    left.set(xlabel="wall time [s]", ylabel="L1 error of rho", title="against the exact solution")
    right.set(xlabel="ds", ylabel="L1 distance of rho", title="against its own limit ds → 0")
    right.set_xticks([1.0 / steps for steps in STEPS], [f"1/{steps}" for steps in STEPS])
    right.minorticks_off()
    right.legend(fontsize=6, loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    # text as text, names from a fixed salt and no date: small, and a figure that did not change is the same file
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "splittings"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)  # of the free energy that long steps of Lie splitting raise
    rows = [row for name in TABLES for cells in CELLS for row in measured(name, cells)]
    print("| splitting | cells of theta | steps | seconds | L1 error of rho | in ds | loss | variance of w |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.splitting} | {row.cells}² | {row.steps} | {row.seconds:.2f} | {row.error:.1e} | {row.in_ds:.1e} | "
            f"{row.loss:.1e} | {row.covariance:.1e} |"
        )
    drawn(rows, Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURE)


if __name__ == "__main__":
    main()
