"""Whether the path of mu in depth fits into memory, known before the first step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.depth_control import FixedSteps
from meanfield_pde.equations.mu_continuity import Transport, face_velocity
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.field import AssembledField


def fastest(transport: Transport, field: AssembledField, u: FloatArray) -> float:
    """Largest |V| at the faces for laws u (B, *cells)."""
    return max(float(np.abs(v).max(initial=0.0)) for v in face_velocity(transport, field, u)[1])


class PathBytes(NamedTuple):
    """The most steps of a sweep through depth, the bytes of mu before each, and of all their stages when kept."""

    steps: float
    starts: float
    stages: float


def path_bytes(transport: Transport, edges: FloatArray, batch: int, speed: float, moments: int) -> PathBytes:
    """What the path of mu takes at most.

    Meaning: ``speed`` bounds |V| without the drift, ``moments`` counts the numbers a stage keeps of one law.
    """
    grid = transport.grid
    rate = sum(speed / h for h in grid.spacing) + transport.drift_rate(float(edges[0]), float(edges[-1]))
    if isinstance(transport.control, FixedSteps):
        steps = float(np.maximum(np.ceil(np.diff(edges) / transport.control.dt - 1e-9), 1.0).sum())
    else:
        steps = len(edges) - 1 + rate * transport.longest * float(edges[-1] - edges[0]) / transport.cfl
    one = 8.0 * batch * grid.size
    # a stage is its input, a velocity per axis, and the moments
    stage = one * (1 + grid.dim) + 8.0 * batch * moments
    pieces = len(transport.splitting.shares("transport"))
    return PathBytes(steps, steps * one, steps * pieces * transport.stepper.stages * stage)


def stages_fit(path: PathBytes, budget: float) -> bool:
    """Whether the stages of a sweep fit the budget of bytes; its steps must. Raises: MeanFieldError if they do not."""
    if path.starts > budget:
        raise MeanFieldError(
            f"the path of mu needs up to {path.starts:.3g} bytes ({path.steps:.3g} steps of "
            f"{path.starts / path.steps:.3g}), over the budget of {budget:.3g}: take fewer cells, a smaller box or "
            "fewer sequences, or give more with --memory"
        )
    return path.stages <= budget
