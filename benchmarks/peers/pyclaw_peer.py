"""Transport with PyClaw: classic (split, MC limiter) and SharpClaw (WENO5, SSPRK(10,4)), both Fortran, one thread.

The solvers are those of Clawpack's own advection examples; rotation enters as velocities at the cell edges.
"""

from __future__ import annotations

import logging

import numpy as np
from clawpack import pyclaw, riemann
from problems import TURN, edges, relative_l1, rotated_gaussian, rotation
from protocol import Answer, Ask, answer, seconds_of


def transport(ask: Ask) -> Answer:
    logging.disable(logging.CRITICAL)
    n, end = ask["cells"], ask.get("turns", 1.0) * TURN
    if ask["method"] == "sharpclaw":
        solver = pyclaw.SharpClawSolver2D(riemann.vc_advection_2D)
        solver.weno_order, solver.time_integrator = 5, "SSP104"
        solver.cfl_desired, solver.cfl_max, stages = 2.45, 2.5, 10
    else:
        solver = pyclaw.ClawSolver2D(riemann.vc_advection_2D)
        solver.limiters, solver.order, solver.dimensional_split = pyclaw.limiters.tvd.MC, 2, True
        solver.cfl_desired, solver.cfl_max, stages = 0.9, 1.0, 1
    solver.bc_lower[:] = solver.bc_upper[:] = [pyclaw.BC.extrap] * 2
    solver.aux_bc_lower[:] = solver.aux_bc_upper[:] = [pyclaw.BC.extrap] * 2
    solver.max_steps = 10**6
    domain = pyclaw.Domain((-1.0, -1.0), (1.0, 1.0), (n, n))
    state = pyclaw.State(domain, 1, 2)
    left = edges(1.0, n)[:-1]
    middle = left + 1.0 / n
    # velocities at the left and the lower edge of every cell, exact means along the edge
    state.aux[0] = rotation(left[:, None], middle[None, :])[0] + np.zeros((n, 1))
    state.aux[1] = rotation(middle[:, None], left[None, :])[1] + np.zeros((1, n))
    state.q[0] = rotated_gaussian(n, 0.0)
    solution = pyclaw.Solution(state, domain)
    solver.dt_initial = solver.cfl_desired * (2.0 / n) / (2.0 * np.pi / TURN)
    solver.setup(solution)
    seconds, status = seconds_of(lambda: solver.evolve_to_time(solution, end))
    steps = status["numsteps"]
    error = relative_l1(solution.q[0], rotated_gaussian(n, end))
    return {"seconds": seconds, "steps": steps, "stages": stages, "cell_steps": n * n * steps, "error": error}


if __name__ == "__main__":
    answer(transport, "clawpack", "numpy")
