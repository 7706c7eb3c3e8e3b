"""What a run has recorded so far: the history and the snapshots of rho, growing with the run, frozen on demand."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.training.state import Moment


@dataclass(frozen=True, slots=True)
class Observer:
    """What × when × sink: ``sink(s, what(moment))`` is called at moments for which ``when(moment)`` holds.

    Observers look and never touch, so a run has the same bits with and without them.
    """

    what: Callable[[Moment], Any]
    when: Callable[[Moment], bool]
    sink: Callable[[float, Any], None]

    def __call__(self, moment: Moment) -> None:
        """Look at a moment."""
        if self.when(moment):
            self.sink(moment.state.s, self.what(moment))


@dataclass(frozen=True, slots=True)
class Record:
    """History by column, each (rows,), and snapshots of rho (S, layers, *cells) at ``snapshot_s`` (S,)."""

    history: dict[str, FloatArray]
    snapshot_s: FloatArray
    snapshots: FloatArray


@dataclass(slots=True)
class Recorder:
    """Gathers rows and snapshots; begun empty, or from the record of a run that is gone on with."""

    rows: dict[str, array[float]] = field(default_factory=dict)
    snapshot_s: list[float] = field(default_factory=list)
    snapshots: list[FloatArray] = field(default_factory=list)

    @classmethod
    def resumed(cls, record: Record) -> Recorder:
        """Go on from a record."""
        rows = {name: array("d", series) for name, series in record.history.items()}
        return cls(rows, record.snapshot_s.tolist(), list(record.snapshots))

    def add_row(self, row: dict[str, float]) -> None:
        """One more row; a time already there is not written twice."""
        series = self.rows.get("s")
        if series and series[-1] >= row["s"]:
            return
        for name, value in row.items():
            self.rows.setdefault(name, array("d")).append(value)

    def add_snapshot(self, s: float, rho: FloatArray) -> None:
        """One more snapshot; a time already there is not written twice."""
        if not self.snapshot_s or self.snapshot_s[-1] < s:
            self.snapshot_s.append(s)
            self.snapshots.append(rho)

    def counts(self, until: float = np.inf) -> tuple[int, int]:
        """How many rows and snapshots came by time ``until``."""
        # a row that an interrupt broke off is no row
        whole = min((len(series) for series in self.rows.values()), default=0)
        return min(bisect_right(self.rows.get("s", ()), until), whole), bisect_right(self.snapshot_s, until)

    def part(self, rows: slice, snapshots: slice) -> Record:
        """Some of the rows and snapshots as a record."""
        history = {name: np.array(series[rows]) for name, series in self.rows.items()}
        return Record(history, np.array(self.snapshot_s[snapshots]), np.array(self.snapshots[snapshots]))

    def freeze(self) -> Record:
        """The record so far."""
        rows, snapshots = self.counts()
        return self.part(slice(rows), slice(snapshots))
