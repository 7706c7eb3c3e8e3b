"""A forward solve of all sequences, and what it and its way back measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import Costate, Path
from meanfield_pde.equations.mu_continuity import Transport, seen_weights
from meanfield_pde.equations.query_tokens import QueryPath
from meanfield_pde.equations.schemes import DualReconstruction
from meanfield_pde.model.field import AssembledField
from meanfield_pde.model.sides import TokenReport

# the table is checked at the layer edges that cut the depth into so many parts
CHECK_EDGES = 2


@dataclass(frozen=True, slots=True)
class Sweep:
    """A forward solve of all sequences: fields per layer, one path a block, and what was measured."""

    fields: tuple[AssembledField, ...]
    paths: tuple[Path, ...]
    table_size: int | None
    table_error: float | None
    queries: tuple[QueryPath, ...] = ()

    @property
    def final(self) -> FloatArray:
        """mu at the last depth, (B, *cells)."""
        return np.concatenate([p.nodes[-1] for p in self.paths])

    @property
    def nodes(self) -> FloatArray:
        """mu at the layer edges, (layers + 1, B, *cells)."""
        return np.concatenate([p.nodes for p in self.paths], axis=1)

    @property
    def query_nodes(self) -> FloatArray:
        """Query points at the layer edges, (layers + 1, B, Q, d)."""
        return np.concatenate([q.nodes for q in self.queries], axis=1)


def token_report(
    transport: Transport, sweep: Sweep, costate: Costate | None, outside_mass: float | None, paired: bool
) -> TokenReport:
    """Masses, minima, Courant number, table error and the invariants of the costate.

    Meaning: ``paired`` says that ∫ p dmu is an invariant.
    """
    paths, nodes = sweep.paths, sweep.nodes
    grid = transport.grid
    flat = nodes.reshape(*nodes.shape[:2], -1)
    drift = None
    if costate is not None and paired:
        pairing = np.asarray([grid.integral(p * mu) for p, mu in zip(costate.nodes, nodes, strict=True)])
        drift = float(np.abs(pairing - pairing[-1]).max())
    limited = sum(p.limited for p in paths)
    exact = isinstance(transport.reconstruction, DualReconstruction) and not limited
    return TokenReport(
        mass_error=float(np.abs(grid.integral(nodes) - 1.0).max()),
        minimum=float(nodes.min()),
        undershoot=float(max(0.0, (-flat.min(axis=2) / flat.max(axis=2)).max())),
        peak_mass=float(flat.max()) * grid.cell_volume,
        outside_mass=outside_mass,
        courant=max(p.courant for p in paths),
        table_error=sweep.table_error,
        table_size=sweep.table_size,
        costate_drift=drift,
        wall_mass=float(grid.wall_mass(nodes).max()),
        limited=limited if transport.positivity else None,
        dual=exact if costate is not None else None,
        steps=max(sum(len(part.starts) for part in p.layers) for p in paths),
    )


def met_weights(transport: Transport, sweep: Sweep) -> FloatArray:
    """The masses of seen cells of all laws where the table of a sweep was checked, (edges · B, n)."""
    met = np.concatenate([path.nodes[edge] for path in sweep.paths for edge in checked_edges(path)])
    return seen_weights(transport.grid, met)


def checked_edges(path: Path) -> list[int]:
    """The layer edges at which the table is checked: the first, the middle and the last."""
    last = len(path.nodes) - 1
    return sorted({round(last * k / CHECK_EDGES) for k in range(CHECK_EDGES + 1)})
