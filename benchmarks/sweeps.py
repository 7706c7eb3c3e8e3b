"""How near sweeps and stages of transport come to what the machine can do, on one thread and on two, in one run.

Cost model, in the plane: a sweep of `lax-wendroff` reads the law and one velocity and writes the law (whose lines are
read first): 32 bytes and some 40 operations a cell. A stage is two passes, of 32 and of 40 bytes, with some 70
(weno5z), 15 (linear5) or 20 (muscl-mc) operations a face, and 30 for the terms along the face and the divergence.
Limit: a triad of numbers in memory is what the bytes alone take.
Run: python benchmarks/sweeps.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np

from meanfield_pde.equations.lax_wendroff import sweep_axis
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.mu_fluxes import euler
from meanfield_pde.equations.runge_kutta import stepper
from meanfield_pde.equations.schemes import scheme
from meanfield_pde.equations.team import Team, team
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.reconstruction import MC

WHOLE, LARGE = (512, 512), (2048, 2048)
BYTES = {"sweep": 32.0, "stage": 72.0}
TRIAD = 2**23  # numbers a field: 64 MiB


@numba.njit(nogil=True)
def triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, first: int, last: int) -> None:
    """a = b + 3 c of a part of the numbers."""
    x, y, z = a[first:last], b[first:last], c[first:last]
    for i in range(x.shape[0]):
        x[i] = y[i] + 3.0 * z[i]


def seconds(call: Callable[[], object], budget: float = 1.0) -> float:
    """Median wall time of a call, repeated for so many seconds after one to warm up."""
    call()
    times: list[float] = []
    while sum(times) < budget or len(times) < 5:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def field(cells: tuple[int, int]) -> tuple[Grid, np.ndarray, tuple[np.ndarray, ...]]:
    """A rough positive law and a velocity of both signs."""
    rng = np.random.default_rng(1)
    grid = Grid((0.0, 0.0), (1.0, 1.0), cells, (False, False))
    v = tuple(rng.normal(size=(1, *grid.face_shape(axis))) for axis in range(2))
    return grid, 1.0 + rng.random((1, *cells)), v


def works(cells: tuple[int, int], workers: Team) -> dict[str, Callable[[], np.ndarray]]:
    """What is measured on a grid, by name: sweeps along each axis, and stages."""
    grid, u, v = field(cells)
    out = np.empty_like(u)
    dt = 0.1 * min(grid.spacing)
    made: dict[str, Callable[[], np.ndarray]] = {}
    for axis in range(2):
        made[f"sweep muscl-mc, axis {axis}"] = lambda axis=axis: sweep_axis(
            grid, axis, MC, v[axis], u, dt, out, workers
        )
    for name in ("weno5z", "linear5", "muscl-mc"):
        way = Transport(grid, scheme(name), stepper("ssprk3"), 0.1, False, v, team=workers)
        made[f"stage {name}"] = lambda way=way: euler(way, u, u, v, dt, 0.5)[0]
    return made


def bandwidth(workers: Team) -> float:
    """Bytes a second of a triad in memory, the line that is written counted as read, too."""
    a, b, c = (np.ones(TRIAD) for _ in range(3))
    return 32.0 * TRIAD / seconds(lambda: workers.share(lambda first, last: triad(a, b, c, first, last), TRIAD))


def measure() -> dict[str, object]:
    """Cells a second and shares of the limits, for each work and number of threads."""
    found: dict[str, dict[str, float | bool]] = {}
    memory: dict[int, float] = {}
    for threads in (1, 2):
        with team(threads) as workers:
            memory[threads] = bandwidth(workers)
            for label, cells in (("512²", WHOLE), ("2048²", LARGE)):
                for name, work in works(cells, workers).items():
                    row = found.setdefault(name, {})
                    row[f"M cells/s, {label}, {threads} threads"] = cells[0] * cells[1] / seconds(work) / 1e6
                    if threads == 2 and label == "512²":
                        alone = works(cells, Team())[name]().copy()
                        row["equal bits"] = bool(np.array_equal(work(), alone))
    for name, row in found.items():
        rate = {key: float(value) for key, value in row.items() if key != "equal bits"}
        for threads in (1, 2):
            used = BYTES[name.split()[0]] * 1e6 * rate[f"M cells/s, 2048², {threads} threads"]
            row[f"of memory, 2048², {threads} threads"] = used / memory[threads]
        row["two threads over one, 512²"] = rate["M cells/s, 512², 2 threads"] / rate["M cells/s, 512², 1 threads"]
    return {"memory GB/s": {str(k): round(v / 1e9, 2) for k, v in memory.items()}, "works": found}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1, ensure_ascii=False, default=float))
