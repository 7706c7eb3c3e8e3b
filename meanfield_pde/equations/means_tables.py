"""The tables of softmax means that a token side has made, and the size that its laws need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import NotConvergedError
from meanfield_pde.model.attention import Reach, make_table
from meanfield_pde.model.field import MeansTable
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.softmax_cost import TablePlan

# a table that errs by more at its largest size is no answer; NaN is not either
HOPELESS = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class MeansTables:
    """Tables by size and reach, of the kind and sizes that ``plan`` allows.

    Meaning: ``tolerance`` bounds the relative error. What is kept is dear to make, and is a function of its key and,
    for ``first_sizes``, of the laws of the problem alone.
    """

    lattice: Lattice
    plan: TablePlan
    tolerance: float
    made: dict[tuple[int, Reach], MeansTable] = field(default_factory=dict)
    first_sizes: dict[Reach, int] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that may be taken, ascending; () where nothing is tabulated."""
        return self.plan.sizes

    def table(self, size: int, reach: Reach) -> MeansTable:
        """The table of a size for keys up to ``reach``, made once."""
        if (size, reach) not in self.made:
            self.made[size, reach] = make_table(self.plan.way, self.lattice, reach, size)
        return self.made[size, reach]

    def least_size(self, reach: Reach, weights: FloatArray, sizes: Sequence[int]) -> int:
        """The least of ``sizes`` that resolves the masses (B, n) of seen cells, or the last one."""
        for size in sizes:
            if self.resolves(self.error(size, reach, weights)):
                return size
        return sizes[-1]

    def resolves(self, error: float) -> bool:
        """Whether a table with that error may be begun with: there is a margin for the laws to come and for the sum
        over heads.
        """
        return error <= 0.25 * self.tolerance

    def first_size(self, reach: Reach, weights: FloatArray) -> int:
        """The least size that resolves the laws of the problem, found once."""
        if reach not in self.first_sizes:
            self.first_sizes[reach] = self.least_size(reach, weights, self.sizes)
        return self.first_sizes[reach]

    def error(self, size: int, reach: Reach, weights: FloatArray) -> float:
        """Relative error of the means and of their first variation between the nodes."""
        table = self.table(size, reach)
        return table.error(weights, table.moments(weights))

    def suffices(self, size: int, error: float | None, reach: Reach) -> bool:
        """Whether a sweep may be kept: within the tolerance, or the largest size and an error that is of use.

        Raises: NotConvergedError at the largest size beyond 1e-3.
        """
        if error is None or error <= self.tolerance:
            return True
        if size == self.sizes[-1] and not error <= HOPELESS:
            raise NotConvergedError(
                f"the softmax table errs by {error:.1e} at its largest size of {size} nodes an axis for "
                f"keys up to |A x| = {max(reach):.3g}: take more tokens.cells if the law is narrow for "
                "them, else make the box of the heads smaller or the laws smoother"
            )
        return size == self.sizes[-1]

    def larger(self, size: int) -> tuple[int, ...]:
        """The sizes beyond one."""
        return self.sizes[self.sizes.index(size) + 1 :]

    def moment_numbers(self, size: int | None) -> int:
        """Numbers that the moments of a law take at a stage."""
        dim = len(self.lattice.axes)
        return len(self.lattice.points) if size is None else (dim + 2) * size**dim
