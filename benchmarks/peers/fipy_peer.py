"""Transport and Fokker-Planck with FiPy; its steps take seconds, so time is extrapolated from a few of them."""

from __future__ import annotations

from math import ceil

import fipy
import numpy as np
from problems import BETA, END, HALF, TURN, head_grid, normalised, rotated_gaussian, rotation, slope, start
from protocol import Answer, Ask, answer, seconds_of

COURANT = 0.5  # of explicit van Leer fluxes, summed over the axes
STEPS = 200  # of backward Euler over s = 1
MEASURED = 3


def mesh_of(half: float, n: int) -> fipy.Grid2D:
    """n² cells of [-half, half]²."""
    mesh = fipy.Grid2D(dx=2.0 * half / n, dy=2.0 * half / n, nx=n, ny=n)
    return mesh + np.full((2, 1), -half)


def measured(equation: fipy.terms.term.Term, rho: fipy.CellVariable, dt: float, n: int, steps: int) -> Answer:
    """Seconds of all steps from those of a few, after one that fills its caches."""
    equation.solve(var=rho, dt=dt)

    def run() -> None:
        for _ in range(MEASURED):
            equation.solve(var=rho, dt=dt)

    seconds, _ = seconds_of(run)
    return {
        "seconds": seconds / MEASURED * steps,
        "steps": steps,
        "cell_steps": n * n * steps,
        "error": None,
        "extrapolated_from": MEASURED,
    }


def transport(ask: Ask) -> Answer:
    n = ask["cells"]
    mesh = mesh_of(1.0, n)
    u, v = rotation(*mesh.faceCenters.value)
    velocity = fipy.FaceVariable(mesh=mesh, rank=1, value=np.stack([u, v]))
    mu = fipy.CellVariable(mesh=mesh, value=rotated_gaussian(n, 0.0).T.ravel(), hasOld=False)
    equation = fipy.TransientTerm() + fipy.VanLeerConvectionTerm(coeff=velocity) == 0
    steps = ceil(TURN * 2.0 * float(np.abs(u).max()) * n / 2.0 / COURANT)
    return measured(equation, mu, TURN / steps, n, steps)


def fokker_planck(ask: Ask) -> Answer:
    n = ask["cells"]
    mesh = mesh_of(HALF, n)
    force = fipy.FaceVariable(mesh=mesh, rank=1, value=-np.stack(slope(*mesh.faceCenters.value)))
    # no flux at the walls: the normal component of the force is dropped there
    force.setValue(0.0, where=mesh.exteriorFaces.value)
    rho = fipy.CellVariable(mesh=mesh, value=normalised(start(*head_grid(n))).T.ravel())
    equation = fipy.TransientTerm() + fipy.ExponentialConvectionTerm(coeff=force) == fipy.DiffusionTerm(coeff=BETA)
    return measured(equation, rho, END / STEPS, n, STEPS)


if __name__ == "__main__":
    solvers = {"transport": transport, "fokker_planck": fokker_planck}
    answer(lambda ask: solvers[ask["problem"]](ask), "fipy", "scipy", "numpy")
