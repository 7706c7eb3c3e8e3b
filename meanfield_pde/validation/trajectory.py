"""What a particle code has recorded, and the names under which its file holds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.config import from_toml
from meanfield_pde.foreign_files import foreign_text

# kinds of points, and the names under which they and the rest are found when nothing else is said
KINDS = {
    "tokens": ("tokens", "x", "points", "particles", "samples"),
    "angles": ("angles", "phi"),
    "heads": ("heads",),
}
TIMES, WEIGHTS, LOSS, LOSS_TIMES = ("t", "times", "time", "s"), ("weights",), ("loss",), ("loss_times", "s")
AXES = ("runs", "snapshots", "particles", "dimension")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Snapshots of tokens, of angles on the circle, or of heads, from one run or several independent ones.

    Shapes: times (snapshots,), points (runs, snapshots, N, d), weights (runs, N) with sum 1 in each run, A and W
    (heads, d, d), loss and loss_times (k,).
    Meaning: times are depths t, for heads training times s. Angles are in radians, d = 1. What the file does not hold
    is None. ``source`` names the file in messages.
    """

    kind: str
    times: FloatArray
    points: FloatArray
    weights: FloatArray
    A: FloatArray | None = None
    W: FloatArray | None = None
    loss: FloatArray | None = None
    loss_times: FloatArray | None = None
    source: str = "data"

    @property
    def runs(self) -> int:
        """Number of independent runs: the unit of every estimate of noise."""
        return int(self.points.shape[0])

    @property
    def count(self) -> int:
        """Number N of particles in a run."""
        return int(self.points.shape[2])

    @property
    def dim(self) -> int:
        """Dimension d of a particle."""
        return int(self.points.shape[3])

    def at(self, time: float) -> FloatArray:
        """The points (runs, N, d) of the snapshot nearest to a time."""
        return np.asarray(self.points[:, int(np.abs(self.times - time).argmin())])


@dataclass(frozen=True, slots=True)
class ArrayNames:
    """Under which names a file holds a trajectory; a short TOML file, every key of which may be left out.

    Meaning: ``kind`` is tokens, angles or heads; ``points`` and the like name arrays (columns of a .csv or .parquet
    file); ``times`` and ``loss_times`` may be numbers too. ``axes`` says what the axes of the points are, in their
    order: of runs, snapshots, particles, dimension. ``columns`` puts coordinates in the order of the problem, counted
    from 0. ``degrees`` turns angles into radians.
    """

    kind: str | None = None
    points: str | tuple[str, ...] | None = None
    times: str | tuple[float, ...] | None = None
    weights: str | None = None
    A: str | None = None
    W: str | None = None
    loss: str | None = None
    loss_times: str | tuple[float, ...] | None = None
    run: str | None = None
    particle: str | None = None
    axes: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()
    degrees: bool = False


def read_names(path: str | Path) -> ArrayNames:
    """The names that a TOML file gives. Raises: FileError, or MeanFieldError naming file and key."""
    return from_toml(foreign_text(Path(path), "file of array names in TOML"), ArrayNames, str(path))
