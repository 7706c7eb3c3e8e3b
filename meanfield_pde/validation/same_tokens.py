"""The first tokens of recorded runs, ready to be carried by our own particles, and how far they end from the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.particles.of_problem import particle_tokens
from meanfield_pde.particles.tokens import ParticleTokens
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.data_heads import with_heads_of
from meanfield_pde.validation.trajectory import Trajectory

# of our own table of softmax means
TOLERANCE = 1e-12
# a time may be off a layer edge by this part of the depth: the rounding of a float32
OFF = 1e-6


@dataclass(frozen=True, slots=True)
class SameTokens:
    """A model with the recorded tokens of each run: what identity is asked of.

    Shapes: times (snapshots,) from 0 on, points (runs, snapshots, N, d), weights (runs, N), period (d,), 0 between
    walls.
    Meaning: ``heads`` says where the heads come from.
    """

    model: ParticleTokens
    T: float
    times: FloatArray
    points: FloatArray
    weights: FloatArray
    period: FloatArray
    heads: str

    def start(self, run: int) -> Measure:
        """The first tokens of a run."""
        return Measure.particles(self.points[run, 0], self.weights[run])

    def apart(self, run: int, x: FloatArray) -> FloatArray:
        """Own tokens (snapshots, N, d) minus those of the first snapshots of a run, the short way round a ring."""
        gap = x - self.points[run, : len(x)]
        turns = np.divide(gap, self.period, out=np.zeros_like(gap), where=np.broadcast_to(self.period > 0, gap.shape))
        return np.asarray(gap - np.rint(turns) * self.period)

    def edges(self, layers: int, snapshots: int | None = None) -> tuple[float, ...] | None:
        """The first ``snapshots`` times (all if None) as edges of equal layers; None if they are none."""
        places = self.times[:snapshots] * layers / self.T
        if (np.abs(places - np.rint(places)) > OFF * layers).any() or np.unique(np.rint(places)).size < len(places):
            return None
        return tuple(float(self.T * edge / layers) for edge in np.rint(places))


def same_tokens(problem: Problem, data: Trajectory) -> SameTokens | str:
    """The recorded tokens with the problem's model, or the reason why there is nothing to carry.

    Meaning: heads are those of `with_heads_of`: the points of the problem, or the matrices of the data for a law.
    """
    if data.kind == "heads":
        return "the data are heads, which are compared by their law"
    if problem.kind != "tokens":
        return f"the problem is of kind = '{problem.kind}', and tokens are carried for kind = 'tokens'"
    if len(data.times) < 2:
        return "the data hold one snapshot: record the first tokens (t = 0) and later ones"
    T = given(problem.depth, "depth").T
    if not (T > 0.0 and data.times[0] <= 1e-12 * T):
        return f"the data begin at t = {data.times[0]:g}, without the first tokens: record the tokens at t = 0"
    try:
        model, heads = _model(problem, data)
    except MeanFieldError as refusal:
        return str(refusal)
    grid = given(problem.tokens, "tokens").grid()
    lengths = np.array(grid.upper) - np.array(grid.lower)
    period = np.where(np.array(grid.periodic), lengths, 0.0)
    return SameTokens(model, T, data.times, data.points, data.weights, period, heads)


def _model(problem: Problem, data: Trajectory) -> tuple[ParticleTokens, str]:
    tokens = given(problem.tokens, "tokens")
    if tokens.noise > 0.0:
        raise MeanFieldError(f"tokens.noise = {tokens.noise:g}: noisy tokens are no function of the first ones")
    problem, note = with_heads_of(problem, data)
    if problem.heads is None:
        return particle_tokens(problem, tolerance=TOLERANCE), "no heads"
    if not problem.heads.points:
        raise MeanFieldError("the heads of the problem are a law: save the matrices A and W of the heads as well")
    return particle_tokens(problem, tolerance=TOLERANCE), note or "heads of the problem"
