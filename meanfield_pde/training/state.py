"""The training state: a frozen value whose fields are the checkpoint schema."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import NamedTuple

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.sides import FirstVariation


@dataclass(frozen=True, slots=True)
class TrainingState:
    """All that the next step depends on, and the counters of the run so far.

    Shapes: ``rho`` (layers, *head_cells), or (layers, H, q) where heads are points; one layer when heads are shared.
    Meaning: ``s`` training time, ``step`` accepted steps, ``ds`` the next step, ``rejected`` trials cut so far,
    ``energy_rise`` the largest change of the free energy over one step so far, at least 0; NaN before
    the first step; ``step_error`` L1 distance of the last step to that of the other order, NaN before the first;
    ``limited`` largest L1 distance that keeping rho positive moved a step by. The noise of a step is a function of the
    seed and ``step``, so there is no generator to keep.
    """

    s: float
    step: int
    ds: float
    rho: FloatArray
    rejected: int = 0
    energy_rise: float = nan
    step_error: float = nan
    limited: float = 0.0


class Moment(NamedTuple):
    """A state with what was computed there.

    Meaning: ``slope`` is ‖∇psi + beta ∇log rho‖ in L2(rho), the root of the rate at which the free energy falls;
    both are NaN where heads are points, which have no entropy; ``side`` marks a time between steps, reached by a step
    then discarded.
    """

    state: TrainingState
    variation: FirstVariation
    free_energy: float
    slope: float
    side: bool
