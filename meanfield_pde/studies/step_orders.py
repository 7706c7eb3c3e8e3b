"""Orders in the step: of steppers in depth, of the heads' steps in s, and of splittings with psi renewed; cells fixed.

Each number of steps is compared with twice as many on the same cells, so that no error in h is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

import numpy as np

from meanfield_pde.equations.depth_control import FixedSteps
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.equations.mu_continuity import Transport
from meanfield_pde.equations.runge_kutta import STEPPERS, Stepper, courant_limit
from meanfield_pde.equations.schemes import Linear, Reconstruction, centred_weights
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Problem, given
from meanfield_pde.splitting import HEADS, token_splitting
from meanfield_pde.studies.central_scheme import CENTRAL, Central
from meanfield_pde.studies.order_runs import TABLE, Law, scaled
from meanfield_pde.studies.order_series import Series, same
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.assembled import Assembled

COURANT = 0.4  # of the longest steps by three stages; others have as many stages in all
STAGES = 3
TOKEN_CELLS = {1: 96, 2: 24, 3: 12}
HEAD_CELLS = {1: 96, 2: 32, 3: 12, 4: 8}
DOUBLINGS = 4
# The order in dt is that of the semi-discrete equations, which an upwind scheme makes jump where the wind at a face
# turns; steppers that are not stable without upwinding are of an order too low to see that.
SCHEMES_TRIED: tuple[tuple[Reconstruction, tuple[float, ...]], ...] = (
    (Central(), CENTRAL),
    (Linear(3), tuple(centred_weights(3))),
    (Linear(1), (1.0,)),
)
HEAD_STEPS = 10  # the longest ones, over five of the problem's own ds
HEAD_SPAN = 5
JUDGED = 3
# name of a row -> splitting, order of psi and of every flow
COUPLINGS = {"lie": ("lie", 1), "strang": ("strang", 2), "gibbs-1": ("gibbs", 1), "gibbs-2": ("gibbs", 2)}
HEAD_STEPPERS = {"backward-euler": 1, "extrapolated": 2}


def time_series(problem: Problem, own: Mapping[str, Stepper]) -> list[Series]:
    """Every stepper in depth, the user's last; or the steps of orders 1 and 2 in s where heads alone move."""
    if problem.tokens is None or problem.depth is None:
        return [_heads(problem, "time", one, "gibbs", order) for one, order in HEAD_STEPPERS.items()]
    if problem.depth.T == 0.0:
        return []
    ready = assemble(_coarse(problem, COURANT))
    tokens = given(ready.tokens, "tokens")
    flow = "mu" if problem.kind == "tokens" else "gradient"
    first = _steps(ready, tokens)
    noisy = tokens.transport.noise is not None
    most = token_splitting(problem.depth.splitting).order if noisy else None

    def one(name: str, stepper: Stepper) -> Series:
        order = stepper.order if most is None else min(stepper.order, most)
        longest = ceil(first * STAGES / stepper.stages)
        sizes = tuple(longest * 2**k for k in range(DOUBLINGS + 1))
        return Series(
            "time", flow, name, "steps", sizes, lambda n: _stepped(ready, stepper, n), None, same, lambda norm: order,
            JUDGED, own=name in own,
        )  # fmt: skip

    return [one(name, stepper) for name, stepper in (STEPPERS | dict(own)).items()]


def coupling_series(problem: Problem) -> list[Series]:
    """Splittings of the heads with psi of the law at the start of a step, or renewed at its middle."""
    if problem.training is None or problem.training.flow is not None:
        return []
    # where heads alone move, the unsplit step is that of the time table
    return [
        _heads(problem, "coupling", one, *how)
        for one, how in COUPLINGS.items()
        if how[0] != "gibbs" or problem.tokens is not None
    ]


def _coarse(problem: Problem, courant: float) -> Problem:
    """The problem on the cells that steps are refined on, without positivity, whose limiter would be seen."""
    out = problem
    if problem.tokens is not None and problem.depth is not None:
        cells = problem.tokens.cells
        tokens = replace(problem.tokens, cells=scaled(cells, min(cells[0], TOKEN_CELLS[len(cells)])))
        depth = replace(
            problem.depth, scheme="linear5", stepper="ssprk3", cfl=courant, control="cfl", dt=None, positivity=False
        )
        out = replace(out, tokens=tokens, depth=depth)
    if problem.heads is not None and problem.heads.cells:
        cells = problem.heads.cells
        out = replace(out, heads=replace(problem.heads, cells=scaled(cells, min(cells[0], HEAD_CELLS[len(cells)]))))
    return replace(out, output=replace(out.output, times=()))


def _steps(ready: Assembled, tokens: GridTokens) -> int:
    """Steps a layer at the Courant number of the longest steps."""
    heads = ready.fixed_heads
    if heads is None:
        heads = given(ready.heads, "heads").measure(given(ready.state, "state").rho)
    paths = tokens.forward(heads).paths
    return max(len(layer.lengths) for path in paths for layer in path.layers)


def _stepped(ready: Assembled, stepper: Stepper, steps: int) -> Law:
    """Final token laws, or δL/δrho at s = 0, with so many equal steps a layer."""
    before = given(ready.tokens, "tokens")
    length = float(np.diff(before.edges).max())
    transport = _fixed(before.transport, stepper, FixedSteps(length / steps))
    tokens = replace(before, transport=transport, tolerance=TABLE[transport.grid.dim], threads=1)
    if ready.fixed_heads is not None:
        grid = transport.grid
        return Law(tokens.forward(ready.fixed_heads).final, grid, np.full(grid.cells, grid.cell_volume))
    heads, rho = given(ready.heads, "heads"), given(ready.state, "state").rho
    found = tokens.first_variation(heads.measure(rho)).potential
    return Law(found.reshape(rho.shape), heads.grid, rho * heads.grid.cell_volume)


def _fixed(transport: Transport, stepper: Stepper, control: FixedSteps) -> Transport:
    """The transport by a stepper in given steps up to its stability limit, with the first scheme that it goes with."""
    least = COURANT * stepper.stages / STAGES
    for scheme, weights in SCHEMES_TRIED:
        limit = courant_limit(tuple(weights), stepper)
        if limit >= least:
            return replace(transport, reconstruction=scheme, stepper=stepper, cfl=limit, control=control)
    raise MeanFieldError(
        f"a stepper of order {stepper.order} with {stepper.stages} stages is not stable at Courant number {least:.3g}, "
        "even with upwind1"
    )


def _heads(problem: Problem, kind: str, name: str, splitting: str, order: int) -> Series:
    training = given(problem.training, "training")
    end = min(training.s_end, HEAD_SPAN * training.ds)
    # every step of a training problem is two solves over depth
    sizes = tuple(HEAD_STEPS * 2**k for k in range(DOUBLINGS + (problem.kind != "training")))
    coarse = _coarse(problem, COURANT)

    def solve(steps: int) -> Law:
        keys = replace(training, ds=end / steps, s_end=end, order=order, splitting=splitting, control="fixed")
        ready = assemble(replace(coarse, training=keys), threads=1)
        grid = given(ready.heads, "heads").grid
        rho = given(ready.state, "state").rho
        for moment in given(ready.training, "training").run(given(ready.state, "state"), end):
            rho = moment.state.rho
        return Law(rho, grid, np.full(grid.cells, grid.cell_volume))

    split = splitting != "gibbs"

    def declared(norm: str) -> int:
        # drift without diffusion is upwind, with a kink where psi is stationary, and the largest error sees that alone
        return 1 if split and norm == "Linf" else min(order, HEADS[splitting].order)

    return Series(kind, "rho", name, "steps", sizes, solve, None, same,
                  declared, JUDGED, smooth_at_walls=not split)  # fmt: skip
