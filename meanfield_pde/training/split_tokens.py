"""A token side whose sequences are carried by many workers, with the bits that one worker would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from meanfield_pde.equations import token_shares as shares
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.model.attention import Reach
from meanfield_pde.model.sides import FirstVariation


class Hands(Protocol):
    """Whoever computes: what is submitted may be given on to what is submitted later, before it is there."""

    def submit(self, function: Callable[..., Any], *given: Any) -> Any:
        """Have ``function(*given)`` computed; a promise of it."""
        ...

    def gather(self, promises: Sequence[Any]) -> list[Any]:
        """What was promised, in the same order. Raises: what was raised there."""
        ...


class Here:
    """Everything computed at once, in this process."""

    def submit(self, function: Callable[..., Any], *given: Any) -> Any:
        """The value itself."""
        return function(*given)

    def gather(self, promises: Sequence[Any]) -> list[Any]:
        """The values."""
        return list(promises)


@dataclass(frozen=True, slots=True)
class SplitTokens:
    """The token side of ``tokens`` with its sequences in fixed shares, each carried by one of ``hands``.

    Meaning: loss, gradient and report are added in the order of the shares, so their bits do not depend on who carried
    which; all shares take the table that all sequences need. Against ``tokens`` itself the gradient differs by the
    rounding of one more sum where there is more than one share.
    """

    tokens: GridTokens
    hands: Hands
    sides: tuple[Any, ...] = field(init=False)
    starts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = shares.slices(len(self.tokens.mu0))
        sides = tuple(self.hands.submit(_same, shares.share_of(self.tokens, part)) for part in parts)
        object.__setattr__(self, "sides", sides)
        object.__setattr__(self, "starts", tuple(part.start for part in parts))

    def first_variation(self, rho: tuple[Measure, ...]) -> FirstVariation:
        """Loss, δL/δrho by the dual, and what the sweeps measured."""
        found = self._evaluated(rho, gradient=True)
        loss, gradient = shares.summed(found)
        assert gradient is not None
        lengths = np.ones(1) if self.tokens.shared else np.diff(self.tokens.edges)
        report = shares.joined([share.report for share in found if share.report is not None])
        return FirstVariation(loss, gradient / lengths[:, None], report)

    def loss(self, rho: tuple[Measure, ...]) -> float:
        """The mean loss over the sequences."""
        return shares.summed(self._evaluated(rho, gradient=False))[0]

    def _evaluated(self, rho: tuple[Measure, ...], gradient: bool) -> list[shares.Share]:
        """All shares with one table, chosen as `GridTokens.forward` chooses it."""
        tokens, tables = self.tokens, self.tokens.tables
        if not all(law.points is tokens.head_points for law in rho):
            raise MeanFieldError("the heads of a law are not those of the token side: give laws on its head_points")
        heads = shares.Heads(tuple(law.weights for law in rho), rho[0].widths)
        reach, size = tokens.first_size(rho, tokens.mu0) if tables.sizes else ((), None)
        while True:
            given = [
                self.hands.submit(shares.evaluate, side, heads, size, start, gradient)
                for side, start in zip(self.sides, self.starts, strict=True)
            ]
            found: list[shares.Share] = self.hands.gather(given)
            if size is None:
                return found
            worst = float(np.max([share.table_error for share in found]))
            if tables.suffices(size, worst, reach):
                return found
            size = self._larger(heads, reach, size)

    def _larger(self, heads: shares.Heads, reach: Reach, size: int) -> int:
        """The least larger table that resolves what all sequences met with that of ``size``, or the last one."""
        tables = self.tokens.tables
        met = [self.hands.submit(shares.met, side, heads, size) for side in self.sides]
        for larger in tables.larger(size):
            errors = self.hands.gather(
                [self.hands.submit(shares.error_at, side, m, reach, larger)
                 for side, m in zip(self.sides, met, strict=True)]
            )  # fmt: skip
            if tables.resolves(float(np.max(errors))):
                return larger
        return tables.sizes[-1]


def _same(side: GridTokens) -> GridTokens:
    return side
