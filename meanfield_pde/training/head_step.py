"""One step of the heads in s by the table of a splitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.sides import Flow, Moved
from meanfield_pde.splitting import Splitting, compose


def split_step(
    table: Splitting, flows: Mapping[str, Flow], rho: FloatArray, psi: FloatArray, ds: float, order: int
) -> Moved:
    """One step ds of all stages in their order, each flow at the given order; what limiters did is summed."""

    def moving(flow: Flow) -> Callable[[Moved, float], Moved]:
        def move(before: Moved, length: float) -> Moved:
            after = flow(before.rho, psi, length, order)
            return Moved(after.rho, before.limited + after.limited)

        return move

    return compose(table.stages, {name: moving(flows[name]) for name in table.flows}, Moved(rho, 0.0), ds)
