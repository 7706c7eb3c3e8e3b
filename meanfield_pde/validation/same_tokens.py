"""The first tokens of recorded runs, ready to be carried by our own particles, and how far they end from the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.alternatives import head_points
from meanfield_pde.particles.of_problem import drift_of, particle_tokens
from meanfield_pde.particles.tokens import ParticleTokens
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.trajectory import Trajectory

# our own table of softmax means, and how near matrices are the same
TOLERANCE, SAME = 1e-12, 1e-6
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

    Meaning: heads are the matrices A and W of the data where it holds them, equally weighted, else the points of the
    problem. Where the problem has points as well, and A is the transpose of theirs, the file's scores are ⟨x, A y⟩ and
    A is read so.
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
    tokens, heads = given(problem.tokens, "tokens"), problem.heads
    if tokens.noise > 0.0:
        raise MeanFieldError(f"tokens.noise = {tokens.noise:g}: noisy tokens are no function of the first ones")
    points = heads is not None and bool(heads.points)
    if data.A is None or data.W is None:
        if heads is not None and not points:
            raise MeanFieldError("the heads of the problem are a law: save the matrices A and W of the heads as well")
        words = "heads of the problem" if points else "no heads"
        return particle_tokens(problem, tolerance=TOLERANCE), words
    scores, words = data.A, "heads of the data"
    if points:
        scores, words = _read(particle_tokens(problem), data.A, data.W)
    grid = tokens.grid()
    law = Measure.particles(head_points(scores, data.W))
    box = grid if any(grid.periodic) else None
    attention = problem.attention or "none"
    drift = drift_of(tokens)
    return ParticleTokens(attention, "matrix", (law,), grid.dim, box, drift, tolerance=TOLERANCE), words


def _read(ours: ParticleTokens, A: FloatArray, W: FloatArray) -> tuple[FloatArray, str]:
    """A of the data as exp⟨A x, y⟩, decided by the heads of the problem, and words for it."""
    made, turned = ours.made[0], A.transpose(0, 2, 1)
    if not isinstance(made, HeadMatrices):
        return A, "heads of the data"
    scores = made.scores[made.index]
    if W.shape != made.values.shape or not _near(W, made.values):
        return A, "heads of the data, which are not those of the problem"
    if _near(A, scores):
        return A, "heads of the data, those of the problem"
    if _near(turned, scores):
        return turned, "heads of the data, those of the problem with scores ⟨x, A y⟩"
    return A, "heads of the data, which are not those of the problem"


def _near(one: FloatArray, other: FloatArray) -> bool:
    return one.shape == other.shape and bool(np.abs(one - other).max() <= SAME * float(np.abs(other).max()))
