"""One step in depth: the stages of its splitting, transport by a Runge–Kutta step or sweeps, token noise by heat."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.lax_wendroff import limiter_of, strang
from meanfield_pde.equations.mu_continuity import Stage, Transport, evaluate, face_velocity
from meanfield_pde.equations.mu_fluxes import euler
from meanfield_pde.kernels.increments import increased
from meanfield_pde.kernels.reconstruction import UPWIND
from meanfield_pde.kernels.sweep import flat
from meanfield_pde.model.field import AssembledField, PrescribedField
from meanfield_pde.splitting import compose


class Carried(NamedTuple):
    """What a step carries along: laws, the depth that transport has reached, its stages, and faces limited."""

    u: FloatArray
    t: float
    stages: tuple[Stage, ...] = ()
    limited: int = 0


def opening(transport: Transport, u: FloatArray, dt: float) -> FloatArray:
    """Where the transport of a step from u begins: behind the noise that comes before it, u itself without any."""
    table = transport.splitting
    return compose(table.stages[: table.until("transport")], {"noise": _heat(transport)}, Carried(u, 0.0), dt).u


def step(
    transport: Transport, field: AssembledField, u: FloatArray, t: float, dt: float, first: Stage | None = None
) -> tuple[FloatArray, tuple[Stage, ...], int]:
    """One step from depth t of length dt: the new laws, the stages (for the costate), faces limited.

    Depth passes in transport alone. ``first`` may hand in the stage at the `opening` of the step when it is known.
    """
    table = transport.splitting
    start = opening(transport, u, dt) if first is None else first.u

    def moved(state: Carried, length: float) -> Carried:
        carry = _one_step if transport.one_step else _runge_kutta
        return carry(transport, field, state, length, None if state.stages else first)

    flows = {"transport": moved, "noise": _heat(transport)}
    end = compose(table.stages[table.until("transport") :], flows, Carried(start, t), dt)
    return end.u, end.stages, end.limited


def _heat(transport: Transport) -> Callable[[Carried, float], Carried]:
    noise = transport.noise

    def diffused(state: Carried, length: float) -> Carried:
        return state if noise is None else state._replace(u=noise.heat(state.u, length))

    return diffused


def _runge_kutta(
    transport: Transport, field: AssembledField, state: Carried, dt: float, first: Stage | None
) -> Carried:
    stages = []
    limited = 0
    method = transport.runge_kutta
    u = current = state.u
    recalled: dict[int, FloatArray] = {}
    for i, (row, node) in enumerate(zip(method.rows, method.nodes, strict=True)):
        stage = first if i == 0 and first is not None else evaluate(transport, field, current, state.t + node * dt)
        stages.append(stage)
        earlier = [(row[j + 1], e) for j, e in recalled.items() if row[j + 1]]
        alone = not earlier and i not in method.recalled
        change, count = euler(transport, current, u, stage.velocity, method.share * dt, row[-1] if alone else None)
        limited += count
        if alone:
            current = change
            continue
        if i in method.recalled:
            recalled[i] = change
        total = row[-1] * change
        for weight, e in earlier:
            total += weight * e
        increased(flat(total), 1.0, flat(u))
        current = total
    return Carried(current, state.t + dt, state.stages + tuple(stages), state.limited + limited)


def _one_step(
    transport: Transport, field: AssembledField, state: Carried, dt: float, first: Stage | None
) -> Carried:
    """Sweeps by the velocity at half the step: that of the laws a donor-cell half step on, where V looks at them."""
    stage = evaluate(transport, field, state.u, state.t) if first is None else first
    velocity = stage.velocity
    if transport.moving is not None or not isinstance(field, PrescribedField):
        half = strang(transport.grid, UPWIND, velocity, state.u, 0.5 * dt, transport.team)
        velocity = face_velocity(transport, field, half, state.t + 0.5 * dt)[1]
    u = strang(transport.grid, limiter_of(transport.reconstruction), velocity, state.u, dt, transport.team)
    return Carried(u, state.t + dt, (*state.stages, stage._replace(velocity=velocity)), state.limited)
