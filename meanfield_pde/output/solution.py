"""The result of a run, and what a trained state says about sequences it has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.output.diagnostics import certificates, warnings_of
from meanfield_pde.problem import Problem, Sequence, SequenceFile
from meanfield_pde.sequences import SequenceBatch, sequence_batch
from meanfield_pde.training.grid_side import fixed_heads, grid_tokens
from meanfield_pde.training.state import TrainingState
from meanfield_pde.training.stopping import AT_REST


@dataclass(frozen=True, slots=True)
class Prediction:
    """Final laws (B, *cells) of sequences under trained heads, their pooled features, logits and probabilities.

    Where sequences have queries, ``outputs["queries"]`` (B, Q, d) is where they end. ``labels`` holds the targets
    of the sequences where they have one each. What the objective has not is absent from ``outputs``.
    """

    mu: FloatArray
    outputs: Mapping[str, FloatArray]
    labels: FloatArray | None

    @property
    def classes(self) -> FloatArray:
        """The likeliest class of each sequence, (B,). Raises: MeanFieldError when there are no probabilities."""
        if "probabilities" not in self.outputs:
            raise MeanFieldError("classes need an objective of kind 'cross-entropy'")
        return np.asarray(self.outputs["probabilities"].argmax(axis=1))

    @property
    def accuracy(self) -> float:
        """Share of sequences whose likeliest class is their label."""
        if self.labels is None:
            raise MeanFieldError("accuracy needs a target for every sequence")
        return float((self.classes == self.labels).mean())


@dataclass(frozen=True, slots=True)
class Solution:
    """Everything a run produced; what its kind does not have is None or empty.

    Shapes: ``depth_t`` (n_t,) with ``mu`` (n_t, B, *cells); ``costate_t`` (n_e,) with ``p`` (n_e, B, *cells), the
    reported (filtered) costate of each sequence's own loss; ``snapshot_s`` (S,) with ``snapshots`` (S, layers, *cells);
    ``history`` one series (rows,) a diagnostic; ``queries`` (layers + 1, B, Q, d), where the query points are at the
    layer edges, NaN where a sequence has fewer than others. Where tokens are particles there are ``points``
    (n_t, B, N, d) and no mu or p; where heads are, snapshots are (S, layers, H, q).
    Meaning: ``outcome`` is "finished" or says why the run ended; ``state`` is the last training state (a step
    short of s_end when s_end is no step), the last snapshot is rho at s_end.
    """

    problem: Problem
    outcome: str
    state: TrainingState | None
    history: Mapping[str, FloatArray]
    snapshot_s: FloatArray
    snapshots: FloatArray
    depth_t: FloatArray
    mu: FloatArray
    costate_t: FloatArray
    p: FloatArray
    names: tuple[str, ...] = ()
    queries: FloatArray = field(default_factory=lambda: np.empty(0))
    points: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def heads_are_points(self) -> bool:
        """Whether snapshots hold H heads a layer rather than their law."""
        return "heads" in self.problem.sides

    @property
    def token_grid(self) -> Grid | None:
        """The grid of mu and p."""
        return None if self.problem.tokens is None else self.problem.tokens.grid()

    @property
    def head_grid(self) -> Grid | None:
        """The grid of rho; None where heads are points."""
        heads = self.problem.heads
        return None if heads is None or heads.points or self.heads_are_points else heads.grid()

    @property
    def is_done(self) -> bool:
        """Whether the run came to its end, rather than being stopped on the way or not finished yet."""
        return self.outcome.split(";")[0] == "finished" or self.outcome.startswith(AT_REST)

    @property
    def certificates(self) -> dict[str, float | bool | None]:
        """The worst of every diagnostic over the run."""
        return certificates(self.history)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before trusting the numbers."""
        worst = self.certificates
        steps, depth = worst.get("depth_steps"), self.problem.depth
        if steps and depth is not None and depth.control != "error":
            worst["depth_step"] = depth.T / steps
        if self.problem.kind == "fokker-planck":
            # its walls are part of the problem
            worst["wall_mass_rho"] = None
        if self.problem.training is not None and self.problem.training.flow is not None:
            # no free energy knows a flow of the user's, which may raise it
            worst["energy_rise"] = None
        grid = self.token_grid
        said = warnings_of(worst, 1 if grid is None else grid.dim)
        training, state = self.problem.training, self.state
        if training is not None and state is not None and state.step == 0 and self.snapshot_s[-1] > state.s:
            said += (
                f"training.ds = {training.ds:g} goes beyond the end, which was reached by one shorter step: what it "
                "errs is not measured; take a smaller ds",
            )
        return said

    @property
    def rho(self) -> FloatArray:
        """The last law of the heads, (layers, *cells), or the last heads, (layers, H, q).

        Raises: MeanFieldError for a problem of tokens alone.
        """
        if not len(self.snapshots):
            raise MeanFieldError("this problem has no law of heads that moves; its heads are given")
        return np.asarray(self.snapshots[-1])

    def predict(
        self,
        sequences: Iterable[Sequence | SequenceFile] | Sequence | SequenceFile | None = None,
        role: str | None = None,
        threads: int | None = None,
    ) -> Prediction:
        """Carry new input laws (or the problem's own, of one role) through the trained heads; no targets needed.

        Raises: MeanFieldError for laws that do not fit the token box; FileError for files that cannot be read.
        """
        grid = self.token_grid
        if grid is None or self.problem.depth is None:
            raise MeanFieldError(f"a problem of kind '{self.problem.kind}' carries no tokens to predict on")
        if isinstance(sequences, Sequence | SequenceFile):
            sequences = (sequences,)
        batch = sequence_batch(self.problem, grid, role, None if sequences is None else tuple(sequences))
        if not len(batch.mu):
            raise MeanFieldError(
                f"there are no sequences{'' if role is None else ' of role ' + repr(role)} to predict on"
            )
        with threadpool_limits(limits=1, user_api="blas"):
            tokens, rho = self._side(batch, threads)
            sweep = tokens.forward(rho)
        final = sweep.final
        outputs: dict[str, FloatArray] = {}
        if tokens.queries is not None:
            outputs["queries"] = tokens.queries.shown(sweep.query_nodes[-1])
        if tokens.objective is not None:
            weights = final.reshape(len(final), -1) * grid.cell_volume
            outputs |= tokens.objective.predict(weights)
        known = all(isinstance(t, int | float) for t in batch.targets)
        labels = np.array(batch.targets, dtype=float) if known else None
        return Prediction(final, outputs, labels)

    def _side(self, batch: SequenceBatch, threads: int | None) -> tuple[GridTokens, tuple[Measure, ...]]:
        head_grid = self.head_grid
        if self.heads_are_points and len(self.snapshots):
            heads = tuple(Measure.particles(layer) for layer in self.rho)
            return grid_tokens(self.problem, batch, heads[0].points, threads), heads
        if head_grid is None or not len(self.snapshots):
            fixed = fixed_heads(self.problem)
            return grid_tokens(self.problem, batch, fixed[0].points, threads), fixed
        points = head_grid.points()
        rho = tuple(Measure.particles(points, layer.ravel() * head_grid.cell_volume) for layer in self.rho)
        return grid_tokens(self.problem, batch, rho[0].points, threads), rho
