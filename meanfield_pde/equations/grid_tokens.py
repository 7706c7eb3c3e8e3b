"""The token side on a grid: (mu, p) of a batch of sequences, its loss and its derivative in the law of the heads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import Costate, Path, backward, check_laws, forward
from meanfield_pde.equations.mu_continuity import Transport, seen_weights
from meanfield_pde.equations.schemes import DualReconstruction
from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Attention, Reach, assemble_field, make_table, table_sizes
from meanfield_pde.model.field import AssembledField, Target
from meanfield_pde.model.heads import HeadFunction, HeadMatrices, head_matrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.objective import Objective
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.model.softmax_table import SoftmaxTable, TabulatedField, table_reach

# sequences a block: fixed, so that the number of threads never changes a bit
BLOCK = 8
# the table is checked at the layer edges that cut the depth into so many parts
CHECK_EDGES = 2
# table entries a block from which on threads pay (measured: 512 cells, 64 nodes, 8 sequences)
THREADS_PAY = 2**18
# a table that errs by more at its largest size is no answer; NaN is not either
HOPELESS = 1e-3
T_ = TypeVar("T_")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A forward solve of all sequences: fields per layer, one path a block, and what was measured."""

    fields: tuple[AssembledField, ...]
    paths: tuple[Path, ...]
    table_size: int | None
    table_error: float | None

    @property
    def final(self) -> FloatArray:
        """mu at the last depth, (B, *cells)."""
        return np.concatenate([p.nodes[-1] for p in self.paths])

    @property
    def nodes(self) -> FloatArray:
        """mu at the layer edges, (layers + 1, B, *cells)."""
        return np.concatenate([p.nodes for p in self.paths], axis=1)


@dataclass(frozen=True, slots=True)
class GridTokens:
    """Tokens in the limit N = ∞ on a grid.

    Meaning: laws ``mu0`` (B, *cells) are carried through layers between ``edges`` (layers + 1,); heads are shared
    over depth or one measure a layer; ``objective`` with ``targets`` makes the loss, the mean over sequences.
    ``tolerance`` bounds the relative error of the softmax table where there is one;
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
    tolerance: float = 1e-10
    budget: float = 2e9
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    heads: HeadMatrices = field(init=False)
    lattice: Lattice = field(init=False)
    field_targets: tuple[Target, ...] = field(init=False)
    sizes: tuple[int, ...] = field(init=False)
    # kept because they are dear to make: each is a function of its key and of the laws of the problem alone
    tables: dict[tuple[int, Reach], SoftmaxTable] = field(init=False, default_factory=dict, repr=False, compare=False)
    first_sizes: dict[Reach, int] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        grid = self.transport.grid
        lattice = grid_lattice(grid, self.attention)
        heads = head_matrices(self.family, self.head_points, lattice.dim)
        targets = tuple(Target(grid.face_points(axis), axis, grid.face_axes(axis)) for axis in range(grid.dim))
        object.__setattr__(self, "lattice", lattice)
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "field_targets", targets)
        object.__setattr__(self, "sizes", table_sizes(self.attention, lattice, targets, heads, len(self.mu0)))
        laws = self.mu0.copy()
        laws.setflags(write=False)  # what is remembered of them must stay true
        object.__setattr__(self, "mu0", laws)

    def _matrices(self, rho: Measure) -> HeadMatrices:
        if rho.points is self.head_points:
            return self.heads
        return head_matrices(self.family, rho.points, self.lattice.dim)

    def _table(self, size: int, reach: Reach) -> SoftmaxTable:
        if (size, reach) not in self.tables:
            self.tables[size, reach] = make_table(self.lattice, reach, size)
        return self.tables[size, reach]

    def assemble(self, rho: tuple[Measure, ...], size: int | None) -> tuple[AssembledField, ...]:
        """One field a layer (one in all when shared): tabulated with ``size`` nodes, or direct when size is None."""
        wanted = 1 if self.shared else len(self.edges) - 1
        if len(rho) != wanted:
            raise MeanFieldError(f"{len(rho)} head measures given where the depth has {wanted}: give one a layer")
        out: list[AssembledField] = []
        for law in rho:
            heads = self._matrices(law)
            table = None if size is None else self._table(size, table_reach(heads, self.field_targets))
            out.append(assemble_field(self.attention, self.lattice, self.field_targets, heads, law.weights, table))
        return tuple(out)

    def _blocks(self, run: Callable[[int], T_], count: int, size: int | None) -> list[T_]:
        # between short kernels threads only wait for the interpreter; the bits are the same either way
        short = size is not None and BLOCK * self.transport.grid.size * size < THREADS_PAY
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
        if not self.sizes:
            return self._sweep(rho, starts, None)
        reaches = [table_reach(self._matrices(law), self.field_targets) for law in rho]
        reach = tuple(max(axis) for axis in zip(*reaches, strict=True))
        own = laws is self.mu0 and all(law.points is self.head_points for law in rho)
        size = self._first_size(reach) if own else self._least_size(reach, laws, self.sizes)
        while True:
            sweep = self._sweep(rho, starts, size)
            if sweep.table_error is None or sweep.table_error <= self.tolerance:
                return sweep
            if size == self.sizes[-1]:
                if sweep.table_error <= HOPELESS:
                    return sweep
                raise NotConvergedError(
                    f"the softmax table errs by {sweep.table_error:.1e} at its largest size of {size} nodes for "
                    f"keys up to |A x| = {max(reach):.3g}: make the box of the heads or of the tokens "
                    "smaller, or the laws smoother"
                )
            seen_so_far = np.concatenate([path.nodes[edge] for path in sweep.paths for edge in _checked(path)])
            size = self._least_size(reach, seen_so_far, self.sizes[self.sizes.index(size) + 1 :])

    def _sweep(self, rho: tuple[Measure, ...], starts: list[FloatArray], size: int | None) -> Sweep:
        keep = self._keep_stages(rho, sum(len(start) for start in starts), size)
        fields = self.assemble(rho, size)
        count = len(starts)
        paths = self._blocks(
            lambda i: forward(self.transport, fields, starts[i], self.edges, keep, BLOCK * i), count, size
        )
        errors = None if size is None else self._blocks(lambda i: self._table_error(fields, paths[i]), count, size)
        return Sweep(fields, tuple(paths), size, None if errors is None else float(np.max(errors)))

    def _first_size(self, reach: Reach) -> int:
        """The least table size that resolves the laws of the problem, found once."""
        if reach not in self.first_sizes:
            self.first_sizes[reach] = self._least_size(reach, self.mu0, self.sizes)
        return self.first_sizes[reach]

    def _least_size(self, reach: Reach, laws: FloatArray, sizes: Sequence[int]) -> int:
        weights = seen_weights(self.transport.grid, laws)
        for size in sizes:
            table = self._table(size, reach)
            # a margin for the laws to come and for the sum over heads
            if table.error(weights, table.moments(weights)) <= 0.25 * self.tolerance:
                return size
        return sizes[-1]

    def _table_error(self, fields: tuple[AssembledField, ...], path: Path) -> float:
        worst = 0.0
        for edge in _checked(path):
            field_there = fields[min(edge, len(fields) - 1)]
            if isinstance(field_there, TabulatedField):
                weights = seen_weights(self.transport.grid, path.nodes[edge])
                worst = float(np.maximum(worst, field_there.table.error(weights, field_there.moments(weights))))
        return worst

    def _keep_stages(self, rho: tuple[Measure, ...], batch: int, size: int | None) -> bool:
        """Whether the stages of a sweep fit the budget. Raises: MeanFieldError if not even its steps do."""
        grid, stages = self.transport.grid, self.transport.stepper.stages
        # means stay in the box, so |V| <= sum of rho |W| |y|: the count of steps is bounded before the first one
        reach = max(max(abs(a), abs(b)) for a, b in zip(grid.lower, grid.upper, strict=True))
        speed = max(float(law.weights @ np.abs(self._matrices(law).values).max(axis=(1, 2))) for law in rho) * reach
        rate = sum(speed / h for h in grid.spacing)
        rate += self.transport.drift_rate(float(self.edges[0]), float(self.edges[-1]))
        steps = len(self.edges) - 1 + rate * float(self.edges[-1] - self.edges[0]) / self.transport.cfl
        one = 8.0 * batch * grid.size
        if steps * one > self.budget:
            raise MeanFieldError(
                f"the path of mu needs up to {steps * one:.3g} bytes ({steps:.3g} steps of {one:.3g}), "
                f"over the budget of {self.budget:.3g}: take fewer cells, a smaller box or fewer sequences"
            )
        # a stage is its input, a velocity and a reconstruction per axis, and the moments
        stage = one * (1 + 2 * grid.dim) + (one if size is None else 24.0 * batch * size)
        return bool(steps * stages * stage <= self.budget)

    def backward(self, sweep: Sweep, p_end: FloatArray) -> Costate:
        """Carry p (B, *cells) back; the gradient is the mean over sequences, summed over blocks in a fixed order."""
        bounds = [(i, i + BLOCK) for i in range(0, len(p_end), BLOCK)]
        parts = self._blocks(
            lambda i: backward(self.transport, sweep.fields, sweep.paths[i], p_end[slice(*bounds[i])]),
            len(bounds),
            sweep.table_size,
        )
        gradient = parts[0].gradient.copy()
        for part in parts[1:]:
            gradient += part.gradient
        return Costate(np.concatenate([part.nodes for part in parts], axis=1), gradient / len(p_end))

    def terminal(self, final: FloatArray) -> tuple[float, FloatArray]:
        """Mean loss at final laws (B, *cells), and p_T of each sequence's own loss, raw, (B, *cells).

        Raises: MeanFieldError when the problem has no objective.
        """
        if self.objective is None:
            raise MeanFieldError("there is no loss to differentiate: give the problem an [objective]")
        weights = final.reshape(len(final), -1) * self.transport.grid.cell_volume
        losses, variation = self.objective.value_and_variation(weights, self.targets)
        return float(losses.mean()), variation.reshape(final.shape)

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The mean loss over the sequences."""
        return self.terminal(self.forward(rho).final)[0]

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss, δL/δrho by the dual, and what the two sweeps measured."""
        sweep = self.forward(rho)
        loss, p_end = self.terminal(sweep.final)
        costate = self.backward(sweep, p_end)
        lengths = np.ones(1) if self.shared else np.diff(self.edges)
        return FirstVariation(loss, costate.gradient / lengths[:, None], self.report(sweep, costate))

    def report(self, sweep: Sweep, costate: Costate | None) -> TokenReport:
        """Masses, minima, Courant number, table error and the invariants of the costate."""
        grid = self.transport.grid
        nodes = sweep.nodes
        flat = nodes.reshape(*nodes.shape[:2], -1)
        drift = None
        if costate is not None:
            pairing = np.asarray([grid.integral(p * mu) for p, mu in zip(costate.nodes, nodes, strict=True)])
            drift = float(np.abs(pairing - pairing[-1]).max())
        limited = sum(p.limited for p in sweep.paths)
        exact = isinstance(self.transport.reconstruction, DualReconstruction) and not limited
        return TokenReport(
            mass_error=float(np.abs(grid.integral(nodes) - 1.0).max()),
            minimum=float(nodes.min()),
            undershoot=float(max(0.0, (-flat.min(axis=2) / flat.max(axis=2)).max())),
            peak_mass=float(flat.max()) * grid.cell_volume,
            outside_mass=self.outside_mass,
            courant=max(p.courant for p in sweep.paths),
            table_error=sweep.table_error,
            table_size=sweep.table_size,
            costate_drift=drift,
            wall_mass=float(grid.wall_mass(nodes).max()),
            limited=limited if self.transport.positivity else None,
            dual=exact if costate is not None else None,
            steps=max(sum(len(part.starts) for part in p.layers) for p in sweep.paths),
        )


def grid_lattice(grid: Grid, attention: Attention) -> Lattice:
    """The cells of a token grid as a velocity sees them; one periodic axis is the unit circle."""
    axes = tuple(grid.centers(axis) for axis in range(grid.dim))
    circle = grid.dim == 1 and grid.periodic[0] and attention.name != "none"
    filters = grid.filters() if attention.uses_samples(circle) else ()
    return Lattice(axes, np.array(grid.spacing), filters, circle)


def _checked(path: Path) -> list[int]:
    last = len(path.nodes) - 1
    return sorted({round(last * k / CHECK_EDGES) for k in range(CHECK_EDGES + 1)})
