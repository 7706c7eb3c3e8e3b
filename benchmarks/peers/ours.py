"""The same problems with meanfield_pde, in a process like every other."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from problems import (
    BETA,
    END,
    HALF,
    TURN,
    attention_case,
    head_grid,
    l1_distance,
    normalised,
    potential,
    relative_l1,
    rotated_gaussian,
    start,
    velocity_error,
)
from protocol import Answer, Ask, answer, seconds_of
from threadpoolctl import threadpool_limits

from meanfield_pde.equations.depth_step import step
from meanfield_pde.equations.mu_continuity import courant_rate
from meanfield_pde.equations.rho_fokker_planck import fokker_planck_step
from meanfield_pde.equations.team import Team, team
from meanfield_pde.grid import Grid
from meanfield_pde.model.attention import Attention, assemble_field, make_table, plan_means
from meanfield_pde.model.field import PrescribedField, Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.softmax_table import table_reach
from meanfield_pde.model.tensor_table import UNIFORM_SIZES
from meanfield_pde.problem_sections import Depth, Drift, Tokens
from meanfield_pde.training.grid_side import transport as transport_of

# what comes before the steps that are timed: compilation or the load of compiled code, and one touch of every array
WARM_STEPS = 3
# stages of a sweep through depth, for which the heads, and so the table's matrix, stay what they are
STAGES = 30
EVERY = 16  # the error is taken at every so-manyth token


def transport(ask: Ask) -> Answer:
    """One revolution in equal steps; "method" is scheme + stepper.

    The path through depth is not kept, since no costate asks for it. A one-step step goes along every axis forth and
    back, and is counted as two.
    """
    n = ask["cells"]
    scheme, stepper = ask["method"].split(",")[0].split("+")
    tokens = Tokens((-1.0, -1.0), (1.0, 1.0), (n, n), drift=Drift(flow="rotation", period=TURN))
    mover = transport_of(tokens, Depth(TURN, scheme=scheme, stepper=stepper, cfl=ask["cfl"]))
    velocity = mover.drift_at(0.0)
    field = PrescribedField(tuple(np.zeros(v.size) for v in velocity))
    begun = rotated_gaussian(n, 0.0)[None]
    steps = ceil(TURN * courant_rate(mover, velocity) / mover.cfl - 1e-9)
    dt, sweeps = TURN / steps, 2 if mover.one_step else 1

    def run(count: int, workers: Team) -> np.ndarray:
        u, shared = begun, replace(mover, team=workers)
        for k in range(count):
            u, _, _ = step(shared, field, u, k * dt, dt)
        return u

    with team(ask["threads"]) as workers:
        run(WARM_STEPS, workers)
        seconds, u = seconds_of(lambda: run(steps, workers))
    return {
        "seconds": seconds,
        "steps": steps * sweeps,
        "stages": mover.stepper.stages,
        "cell_steps": n * n * steps * sweeps,
        "error": relative_l1(u[0], rotated_gaussian(n)),
        "minimum": float(u.min()),
    }


def fokker_planck(ask: Ask) -> Answer:
    """Steps of order 2 with U handed in anew at every one; the result is >= 0 and keeps its mass."""
    n, steps = ask["cells"], ask["steps"]
    grid = Grid((-HALF, -HALF), (HALF, HALF), (n, n), (False, False))
    x, y = head_grid(n)
    begun = normalised(start(x, y))[None]
    psi = potential(x, y)[None]

    def run(count: int) -> np.ndarray:
        rho = begun
        for _ in range(count):
            rho = fokker_planck_step(grid, rho, psi, BETA, END / steps, 2).rho
        return rho

    run(1)
    seconds, rho = seconds_of(lambda: run(steps), repeats=3)
    return {
        "seconds": seconds,
        "steps": steps,
        "cell_steps": n * n * steps,
        "error": l1_distance(rho[0], np.load(ask["reference"])),
        "minimum": float(rho.min()),
        "mass_error": float(abs(rho.sum() * grid.cell_volume - 1.0)),
    }


def attention(ask: Ask) -> Answer:
    """The velocity of a new law under heads that stay for `STAGES` stages, by the least table that meets the error."""
    dim = int(ask["problem"][-2])
    case = attention_case(dim)
    # tokens are points, as in every other package: cells without width
    lattice = Lattice(case.axes, np.zeros(dim))
    targets = tuple(Target(case.points, component, case.axes) for component in range(dim))
    count = len(case.scores)
    heads = HeadMatrices(case.scores, np.arange(count), np.broadcast_to(np.eye(dim), (count, dim, dim)).copy())
    softmax, masses = Attention(), case.masses[None]
    plan = plan_means(softmax, lattice, targets, heads, 1, 1, ask["tolerance"])
    way = ask.get("way", plan.way)
    for size in UNIFORM_SIZES[dim] if way == "keys" else plan.sizes:
        table = make_table(way, lattice, table_reach(heads, targets), size)
        field = assemble_field(softmax, lattice, targets, heads, case.weights, table)
        velocity = np.stack(field.velocity(field.moments(masses))[:dim], axis=-1)[0]
        error = velocity_error(case, velocity, EVERY)
        if error <= ask["tolerance"]:
            break
    build, _ = seconds_of(lambda: assemble_field(softmax, lattice, targets, heads, case.weights, table), 5)
    stage, _ = seconds_of(lambda: field.velocity(field.moments(masses)), 200 if dim == 1 else 20, warm=True)
    return {
        "seconds": stage + build / STAGES,
        "stage_seconds": stage,
        "build_seconds": build,
        "error": error,
        "note": f"{way}, {size} nodes an axis; the stage alone {1e3 * stage:.3g} ms, with 1/{STAGES} of the build",
    }


if __name__ == "__main__":
    solvers = {
        "transport": transport,
        "fokker_planck": fokker_planck,
        "attention_1d": attention,
        "attention_2d": attention,
    }
    with threadpool_limits(limits=1, user_api="blas"):
        answer(lambda ask: solvers[ask["problem"]](ask), "meanfield-pde", "numba", "numpy")
