"""What a run has recorded so far: the history and the snapshots of rho, growing with the run, frozen on demand."""

from __future__ import annotations

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
    """Gathers rows and snapshots; begun empty, or from the record of a checkpoint."""

    rows: dict[str, list[float]] = field(default_factory=dict)
    snapshot_s: list[float] = field(default_factory=list)
    snapshots: list[FloatArray] = field(default_factory=list)

    @classmethod
    def resumed(cls, record: Record) -> Recorder:
        """Go on from a record."""
        rows = {name: series.tolist() for name, series in record.history.items()}
        return cls(rows, record.snapshot_s.tolist(), list(record.snapshots))

    def add_row(self, row: dict[str, float]) -> None:
        """One more row; a time already there is not written twice."""
        if self.rows and self.rows["s"] and self.rows["s"][-1] >= row["s"]:
            return
        for name, value in row.items():
            self.rows.setdefault(name, []).append(value)

    def add_snapshot(self, s: float, rho: FloatArray) -> None:
        """One more snapshot; a time already there is not written twice."""
        if not self.snapshot_s or self.snapshot_s[-1] < s:
            self.snapshot_s.append(s)
            self.snapshots.append(rho)

    def freeze(self, until: float = np.inf) -> Record:
        """The record so far, or what of it came by time ``until``."""
        rows = bisect_right(self.rows.get("s", []), until)
        history = {name: np.array(values[:rows]) for name, values in self.rows.items()}
        kept = bisect_right(self.snapshot_s, until)
        return Record(history, np.array(self.snapshot_s[:kept]), np.array(self.snapshots[:kept]))
