"""The token side with N tokens a sequence: its loss and derivatives in the heads, by exact backpropagation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.measure import Measure
from meanfield_pde.model.head_gradients import to_theta
from meanfield_pde.model.heads import HeadFunction, HeadMatrices, head_matrices
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.particles.backpropagation import Layers, Path, TokenField, carry, carry_back
from meanfield_pde.particles.direct_field import DirectField
from meanfield_pde.particles.final_loss import FinalLoss
from meanfield_pde.particles.line_field import LineField, sizes_from

WAYS = ("auto", "direct", "table")
# tokens times score matrices from which on `auto` takes the table
FEW = 512
TOLERANCE = 1e-13


@dataclass(frozen=True, slots=True)
class ParticleTokenSide:
    """N tokens a sequence in softmax attention, carried through layers; the loss is the mean over the sequences.

    Meaning: ``start`` (B, n, d) with ``masses`` (B, n); heads are one measure, or one for each of some equal parts of
    the depth, whose ``lengths`` are (1.0,) when heads are shared over depth. With ``heads_move`` heads are points of
    weight > 0, and the gradient of the first variation by theta is made as well. ``way``: `direct` sums, a `table` for
    tokens on a line whose means err by at most ``tolerance``, or `auto`: the table where there is one and it pays and
    reaches its tolerance.
    Raises: MeanFieldError for a way that does not exist.
    """

    family: str | HeadFunction
    start: FloatArray
    masses: FloatArray
    layers: Layers
    loss_of: FinalLoss
    lengths: tuple[float, ...] = (1.0,)
    heads_move: bool = False
    way: str = "auto"
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise MeanFieldError(f"way = {self.way!r} is not known; {nearest(str(self.way), WAYS)}")
        if self.way == "table" and self.dim != 1:
            raise MeanFieldError("way = 'table' is for tokens on a line: take way = 'direct'")
        if self.layers.count % len(self.lengths):
            raise MeanFieldError(
                f"{self.layers.count} layers of tokens do not share the heads of {len(self.lengths)} layers evenly: "
                "take a multiple"
            )

    @property
    def dim(self) -> int:
        """Dimension of the tokens."""
        return int(self.start.shape[2])

    def heads(self, rho: Measure) -> HeadMatrices:
        """The matrices of heads; where they move, each with a score matrix of its own."""
        made = head_matrices(self.family, rho.points, self.dim)
        if not self.heads_move:
            return made
        return HeadMatrices(made.scores[made.index], np.arange(len(made.index)), made.values)

    def sweep(self, rho: tuple[Measure, ...]) -> tuple[list[TokenField], Path]:
        """The tokens through all layers under heads rho, with the fields that moved them.

        Raises: NotFiniteError when tokens run away.
        """
        if len(rho) != len(self.lengths):
            raise MeanFieldError(f"{len(rho)} head measures given where the depth has {len(self.lengths)}: one a layer")
        made = [self.heads(law) for law in rho]
        most = max(len(one.scores) for one in made)
        if self.way == "table" or (self.way == "auto" and self.dim == 1 and self.start.shape[1] * most >= FEW):
            widest = max(made, key=lambda one: float(np.abs(one.scores).max()))
            for size in sizes_from(widest, self.start, self.tolerance):
                tables: list[TokenField] = [
                    LineField.build(one, law.weights, size) for one, law in zip(made, rho, strict=True)
                ]
                path = carry(tables, self.layers, self.start, self.masses, self.tolerance)
                if path is not None:
                    return tables, path
            if self.way == "table":
                raise MeanFieldError(
                    f"no table of softmax means reaches tolerance = {self.tolerance:.1e}: take way = 'direct', or a "
                    "larger tolerance"
                )
        fields: list[TokenField] = [DirectField(one, law.weights) for one, law in zip(made, rho, strict=True)]
        path = carry(fields, self.layers, self.start, self.masses, np.inf)
        assert path is not None
        return fields, path

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The mean loss over the sequences."""
        with threadpool_limits(limits=1, user_api="blas"):
            path = self.sweep(rho)[1]
            return float(self.loss_of.value_and_gradient(path.nodes[-1], self.masses)[0].mean())

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss, δL/δrho at every head, and where heads move its gradient by theta."""
        # the sums of BLAS depend on the number of its threads
        with threadpool_limits(limits=1, user_api="blas"):
            fields, path = self.sweep(rho)
            losses, g = self.loss_of.value_and_gradient(path.nodes[-1], self.masses)
            _, found = carry_back(fields, self.layers, path, self.masses, g / len(losses))
        potential = np.stack([one.weight / length for one, length in zip(found, self.lengths, strict=True)])
        gradient = None
        if self.heads_move:
            gradient = np.stack([
                to_theta(self.family, law.points, one.scores / length, one.values / length)
                for law, one, length in zip(rho, found, self.lengths, strict=True)
            ])
        return FirstVariation(float(losses.mean()), potential, self.report(fields, path), gradient)

    def report(self, fields: list[TokenField], path: Path) -> TokenReport:
        """The error and size of the table, where there is one; p is the dual of the very steps."""
        table = fields[0] if isinstance(fields[0], LineField) else None
        error, size = (None, None) if table is None else (path.error, table.size)
        return TokenReport(table_error=error, table_size=size, dual=True, steps=self.layers.count)
