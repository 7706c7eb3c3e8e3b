"""Transport and Fokker-Planck with py-pde: central differences compiled by numba, explicit steps."""

from __future__ import annotations

from math import ceil

import numpy as np
import pde
from problems import (
    BETA,
    END,
    HALF,
    TURN,
    centres,
    head_grid,
    l1_distance,
    normalised,
    relative_l1,
    rotated_gaussian,
    rotation,
    slope,
    start,
)
from protocol import Answer, Ask, answer

# |V| dt/h summed over the axes (Runge-Kutta is stable to 2.8), and shares of the stable step of diffusion
COURANT, DIFFUSIVE = 2.0, {"euler": 0.9, "runge-kutta": 1.25}


def solved(
    terms: str, values: dict[str, np.ndarray], begun: np.ndarray, half: float, end: float, steps: int, way: str
) -> tuple[np.ndarray, float]:
    """The density at the end, and the seconds of the steps by py-pde's own clock, which leaves compilation out."""
    n = len(begun)
    grid = pde.CartesianGrid([(-half, half)] * 2, [n, n], periodic=False)
    consts = {name: pde.ScalarField(grid, value) for name, value in values.items()}
    equation = pde.PDE({"c": terms}, bc={"derivative": 0}, consts=consts)
    state, info = equation.solve(
        pde.ScalarField(grid, begun), end, dt=end / steps, solver=way, adaptive=False, tracker=None, ret_info=True,
        backend="numba",
    )  # fmt: skip
    hours, minutes, seconds = info["controller"]["solver_duration"].split(":")
    return state.data, 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds)


def transport(ask: Ask) -> Answer:
    n = ask["cells"]
    x = centres(1.0, n)
    u, v = rotation(*np.meshgrid(x, x, indexing="ij"))
    steps = ceil(TURN * float(np.abs(u).max() + np.abs(v).max()) * n / 2.0 / COURANT)
    begun = rotated_gaussian(n, 0.0)
    found, seconds = solved("-u * d_dx(c) - v * d_dy(c)", {"u": u, "v": v}, begun, 1.0, TURN, steps, "runge-kutta")
    return {
        "seconds": seconds,
        "steps": steps,
        "stages": 4,
        "cell_steps": n * n * steps,
        "error": relative_l1(found, rotated_gaussian(n)),
        "minimum": float(found.min()),
    }


def fokker_planck(ask: Ask) -> Answer:
    n, h = ask["cells"], 2.0 * HALF / ask["cells"]
    x, y = head_grid(n)
    u, v = slope(x, y)
    way = ask["method"].split(",")[0]
    steps = ceil(END * 4.0 * BETA / h**2 / DIFFUSIVE[way])
    values = {"u": u, "v": v, "w": 3.0 * x**2}  # w = ΔU
    begun = normalised(start(x, y))
    terms = f"{BETA} * laplace(c) + u * d_dx(c) + v * d_dy(c) + w * c"
    rho, seconds = solved(terms, values, begun, HALF, END, steps, way)
    return {
        "seconds": seconds,
        "steps": steps,
        "cell_steps": n * n * steps,
        "error": l1_distance(rho, np.load(ask["reference"])),
        "minimum": float(rho.min()),
        "mass_error": float(abs(rho.sum() * h**2 - 1.0)),
    }


if __name__ == "__main__":
    solvers = {"transport": transport, "fokker_planck": fokker_planck}
    answer(lambda ask: solvers[ask["problem"]](ask), "py-pde", "numba", "numpy")
