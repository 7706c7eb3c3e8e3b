"""The token side on a grid: (mu, p) of a batch of sequences, its loss and its derivative in the law of the heads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_control import ErrorSteps
from meanfield_pde.equations.forward_backward import (
    Costate,
    Path,
    WayBack,
    carry_back,
    check_laws,
    contracted,
    forward,
)
from meanfield_pde.equations.means_tables import MeansTables
from meanfield_pde.equations.mu_continuity import Transport, seen_weights
from meanfield_pde.equations.path_budget import PathBytes, fastest, path_bytes, stages_fit
from meanfield_pde.equations.query_tokens import Queries, QueryPath, follow, query_costates
from meanfield_pde.equations.team import TEAM_PAYS, team
from meanfield_pde.equations.token_report import Sweep, checked_edges, met_weights, token_report
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention, Reach, assemble_field, plan_means
from meanfield_pde.model.field import AssembledField, Target
from meanfield_pde.model.heads import HeadFunction, HeadMatrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.objective import Objective
from meanfield_pde.model.perceptron import Perceptrons, heads_at
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.model.softmax_cost import TOLERANCE
from meanfield_pde.model.softmax_table import table_reach

# sequences a block: fixed, so that the number of threads never changes a bit
BLOCK = 8
# table entries a block from which on threads pay (measured: 512 cells, 64 nodes, 8 sequences)
THREADS_PAY = 2**18
T_ = TypeVar("T_")


@dataclass(frozen=True, slots=True)
class GridTokens:
    """Tokens in the limit N = ∞ on a grid.

    Meaning: laws ``mu0`` (B, *cells) are carried through layers between ``edges`` (layers + 1,); heads are shared
    over depth or one measure a layer; ``objective`` with ``targets`` makes the loss, the mean over sequences;
    ``queries`` are carried along, and may add to it.
    ``tolerance`` bounds the relative error of the softmax table where there is one, by default 1e-10, 1e-8, 1e-6 in
    1, 2, 3 dimensions;
    ``budget`` bounds the bytes of the stored path: stages if they fit, else steps, else a refusal.
    """

    transport: Transport
    attention: Attention
    family: str | HeadFunction
    head_points: FloatArray
    edges: FloatArray
    shared: bool
    mu0: FloatArray
    objective: Objective | None
    targets: Any
    outside_mass: float | None = None
    tolerance: float | None = None
    budget: float = 2e9
    queries: Queries | None = None
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    heads: HeadMatrices | Perceptrons = field(init=False)
    lattice: Lattice = field(init=False)
    field_targets: tuple[Target, ...] = field(init=False)
    tables: MeansTables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        grid = self.transport.grid
        lattice = grid_lattice(grid, self.attention)
        heads = heads_at(self.family, self.head_points, lattice.dim)
        targets = tuple(Target(grid.face_points(axis), axis, grid.face_axes(axis)) for axis in range(grid.dim))
        object.__setattr__(self, "lattice", lattice)
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "field_targets", targets)
        fields = 1 if self.shared else len(self.edges) - 1
        tolerance = TOLERANCE[grid.dim] if self.tolerance is None else self.tolerance
        plan = plan_means(self.attention, lattice, targets, heads, len(self.mu0), fields, tolerance)
        object.__setattr__(self, "tables", MeansTables(lattice, plan, tolerance))
        laws = self.mu0.copy()
        laws.setflags(write=False)  # what is remembered of them must stay true
        object.__setattr__(self, "mu0", laws)

    def _heads(self, rho: Measure) -> HeadMatrices | Perceptrons:
        own = rho.points is self.head_points
        return self.heads if own else heads_at(self.family, rho.points, self.lattice.dim)

    def _reach(self, law: Measure) -> Reach:
        heads = self._heads(law)
        return () if isinstance(heads, Perceptrons) else table_reach(heads, self.field_targets)

    def assemble(self, rho: tuple[Measure, ...], size: int | None) -> tuple[AssembledField, ...]:
        """One field a layer (one in all when shared): tabulated with ``size`` nodes, or direct when size is None."""
        wanted = 1 if self.shared else len(self.edges) - 1
        if len(rho) != wanted:
            raise MeanFieldError(f"{len(rho)} head measures given where the depth has {wanted}: give one a layer")
        heads = [self._heads(law) for law in rho]
        place = (self.attention, self.lattice, self.field_targets)
        if size is None:
            out: list[AssembledField] = []
            for own, law in zip(heads, rho, strict=True):
                out.append(assemble_field(*place, own, law.weights, None, out[-1] if out else None))
            return tuple(out)
        tables = [self.tables.table(size, self._reach(law)) for law in rho]

        def one(i: int) -> AssembledField:
            return assemble_field(*place, heads[i], rho[i].weights, tables[i])

        return tuple(self._blocks(one, wanted, size))

    def _blocks(self, run: Callable[[int], T_], count: int, size: int | None) -> list[T_]:
        # between short kernels threads only wait for the interpreter; the bits are the same either way
        grid = self.transport.grid
        short = size is not None and BLOCK * grid.size * size**grid.dim < THREADS_PAY
        if self.threads == 1 or count == 1 or short:
            return [run(i) for i in range(count)]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(run, range(count)))

    def forward(self, rho: tuple[Measure, ...], mu0: FloatArray | None = None) -> Sweep:
        """Carry all laws (or others, ``mu0``) through the layers.

        The table starts at the least size that resolves the initial laws; if the error measured at three layer edges
        (first, middle, last) is beyond ``tolerance``, the sweep is redone with the least size that resolves those.
        At the largest size the error is reported as it is, up to 1e-3.
        Raises: NotConvergedError beyond that.
        """
        laws = self.mu0 if mu0 is None else mu0
        check_laws(laws, float(self.edges[0]))
        starts = [laws[i : i + BLOCK] for i in range(0, len(laws), BLOCK)]
        tables = self.tables
        if not tables.sizes:
            return self._sweep(rho, starts, None)
        reach, size = self.first_size(rho, laws)
        while True:
            sweep = self._sweep(rho, starts, size)
            if tables.suffices(size, sweep.table_error, reach):
                return sweep
            size = tables.least_size(reach, met_weights(self.transport, sweep), tables.larger(size))

    def first_size(self, rho: tuple[Measure, ...], laws: FloatArray) -> tuple[Reach, int]:
        """How far keys reach under heads rho, and the least size of table that resolves initial laws for them."""
        reach = tuple(max(axis) for axis in zip(*(self._reach(law) for law in rho), strict=True))
        weights = seen_weights(self.transport.grid, laws)
        if laws is self.mu0 and all(law.points is self.head_points for law in rho):
            return reach, self.tables.first_size(reach, weights)
        return reach, self.tables.least_size(reach, weights, self.tables.sizes)

    def _sweep(self, rho: tuple[Measure, ...], starts: list[FloatArray], size: int | None) -> Sweep:
        count, batch = len(starts), sum(len(start) for start in starts)
        keep = self.keeps_stages(rho, batch, size)
        fields = self.assemble(rho, size)

        # threads share blocks of sequences, or where there is one block its lines
        lines = count == 1 and batch * self.transport.grid.size >= TEAM_PAYS
        with team(self.threads if lines else 1) as workers:
            mover = replace(self.transport, team=workers)

            def one(i: int) -> Path:
                share = self.budget * len(starts[i]) / batch
                return forward(mover, fields, starts[i], self.edges, keep, BLOCK * i, share)

            paths = self._blocks(one, count, size)
        followed = self._follow(rho, fields, paths)
        if size is None:
            return Sweep(fields, tuple(paths), None, None, followed)
        errors = self._blocks(lambda i: self._table_error(rho, paths[i], size), count, size)
        return Sweep(fields, tuple(paths), size, float(np.max(errors)), followed)

    def _follow(
        self, rho: tuple[Measure, ...], fields: tuple[AssembledField, ...], paths: list[Path]
    ) -> tuple[QueryPath, ...]:
        """The query points along the paths of the laws they belong to; none for other laws."""
        queries = self.queries
        if queries is None or len(queries.points) != sum(path.nodes.shape[1] for path in paths):
            return ()
        velocities = queries.velocities(self.lattice, [self._heads(law) for law in rho], [m.weights for m in rho])

        def one(i: int) -> QueryPath:
            points = queries.points[BLOCK * i : BLOCK * (i + 1)]
            return follow(self.transport, fields, velocities, paths[i], points, BLOCK * i)

        return tuple(self._blocks(one, len(paths), None))

    def _table_error(self, rho: tuple[Measure, ...], path: Path, size: int) -> float:
        worst = 0.0
        for edge in checked_edges(path):
            weights = seen_weights(self.transport.grid, path.nodes[edge])
            reach = self._reach(rho[min(edge, len(rho) - 1)])
            worst = float(np.maximum(worst, self.tables.error(size, reach, weights)))
        return worst

    def path_bytes(self, rho: tuple[Measure, ...], batch: int, size: int | None) -> PathBytes:
        """The most that the path of ``batch`` laws takes under heads rho, with ``size`` table nodes."""
        grid = self.transport.grid
        if self.attention.is_mean:
            # means stay in the box, so |V| <= sum of rho |W| |y|: the count of steps is bounded before the first one
            reach = max(max(abs(a), abs(b)) for a, b in zip(grid.lower, grid.upper, strict=True))
            speed = max(self._heads(law).speed(law.weights, reach) for law in rho)
        else:
            speed = 2.0 * max(fastest(self.transport, one, self.mu0) for one in self.assemble(rho, None))
        numbers = self.tables.moment_numbers(size)
        if self.attention.name == "sinkhorn":
            heads = [self._heads(law) for law in rho]
            numbers *= 1 + max(len(one.scores) for one in heads if isinstance(one, HeadMatrices))
        return path_bytes(self.transport, self.edges, batch, speed, numbers)

    def keeps_stages(self, rho: tuple[Measure, ...], batch: int, size: int | None) -> bool:
        """Whether the stages of a sweep fit the budget. Raises: MeanFieldError if not even its steps do."""
        if isinstance(self.transport.control, ErrorSteps):
            return True  # their number is not known before; they are dropped when they grow beyond the budget
        return stages_fit(self.path_bytes(rho, batch, size), self.budget)

    def backward(self, sweep: Sweep, p_end: FloatArray) -> Costate:
        """Carry p (B, *cells) back; the gradient is the mean over sequences, summed over blocks in a fixed order."""
        count, size, fields = len(sweep.paths), sweep.table_size, sweep.fields
        queries = self.queries
        costates = [] if queries is None else query_costates(self.transport, queries, sweep.paths, sweep.queries)

        def back(i: int) -> WayBack:
            sources = costates[i].back if costates else None
            return carry_back(self.transport, fields, sweep.paths[i], p_end[BLOCK * i : BLOCK * (i + 1)], sources)

        ways = self._blocks(back, count, size)

        def gradient(at: int) -> FloatArray:
            start: FloatArray | None = None
            for way in ways:
                begun = way.gradient[at]
                if begun is not None:
                    start = begun if start is None else start + begun
            return contracted(fields[at], [pair for way in ways for pair in way.left[at]], start)

        found = np.stack(self._blocks(gradient, len(fields), size))
        for costate in costates:
            found += costate.gradient
        return Costate(np.concatenate([way.nodes for way in ways], axis=1), found / len(p_end))

    def terminal(self, final: FloatArray) -> tuple[float, FloatArray]:
        """Mean loss at final laws (B, *cells), and p_T of each sequence's own loss, raw, (B, *cells).

        Raises: MeanFieldError when the problem has no objective.
        """
        if self.objective is None:
            raise MeanFieldError("there is no loss to differentiate: give the problem an [objective]")
        weights = final.reshape(len(final), -1) * self.transport.grid.cell_volume
        losses, variation = self.objective.value_and_variation(weights, self.targets)
        return float(losses.mean()), variation.reshape(final.shape)

    @property
    def has_loss(self) -> bool:
        """Whether there is a loss of the final laws or of the queries."""
        return self.objective is not None or (self.queries is not None and self.queries.weight > 0.0)

    def value(self, sweep: Sweep) -> tuple[float, FloatArray]:
        """Mean loss of a sweep, that of the queries included, and p_T of the final laws' share, (B, *cells)."""
        queries, final = self.queries, sweep.final
        if queries is None or not queries.weight > 0.0:
            return self.terminal(final)
        loss, p_end = (0.0, np.zeros_like(final)) if self.objective is None else self.terminal(final)
        return loss + float(queries.loss(sweep.query_nodes[-1]).mean()), p_end

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The mean loss over the sequences."""
        return self.value(self.forward(rho))[0]

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss, δL/δrho by the dual, and what the two sweeps measured."""
        sweep = self.forward(rho)
        loss, p_end = self.value(sweep)
        costate = self.backward(sweep, p_end)
        lengths = np.ones(1) if self.shared else np.diff(self.edges)
        return FirstVariation(loss, costate.gradient / lengths[:, None], self.report(sweep, costate))

    def report(self, sweep: Sweep, costate: Costate | None) -> TokenReport:
        """Masses, minima, Courant number, table error and the invariants of the costate."""
        return token_report(self.transport, sweep, costate, self.outside_mass, paired=self.attention.is_mean)


def grid_lattice(grid: Grid, attention: Attention) -> Lattice:
    """The cells of a token grid as a velocity sees them; one periodic axis is the unit circle."""
    axes = tuple(grid.centers(axis) for axis in range(grid.dim))
    circle = grid.dim == 1 and grid.periodic[0]
    filters = grid.filters() if attention.uses_samples(circle) else ()
    return Lattice(axes, np.array(grid.spacing), filters, circle)
