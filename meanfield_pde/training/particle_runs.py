"""Training with finitely many tokens and heads, from Python: noisy gradient descent recorded at a few times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Particles, Problem, given
from meanfield_pde.training.assemble_particles import assemble_particles
from meanfield_pde.training.memory_plan import MEMORY


@dataclass(frozen=True, slots=True)
class HeadTrajectory:
    """Heads at training times ``s`` (S,): ``theta`` (S, H, q), or (S, layers, H, q) where layers have their own.

    Meaning: ``loss`` (steps + 1,) is the mean over the sequences at every step, at the times ``loss_s``.
    """

    s: FloatArray
    theta: FloatArray
    loss_s: FloatArray
    loss: FloatArray


def run_training(
    problem: Problem,
    heads: int | None = None,
    tokens: int | None = None,
    layers: int | None = None,
    *,
    integrator: str | None = None,
    sampling: str | None = None,
    head_sampling: str | None = None,
    seed: int | None = None,
    head_start: FloatArray | None = None,
    times: Sequence[float] = (),
) -> HeadTrajectory:
    """Train H heads by N tokens a sequence with noisy gradient descent, in steps training.ds up to training.s_end.

    Formula: theta_k ← theta_k − ds ∇psi(theta_k) + sqrt(2 beta ds) xi_k, psi = δL/δrho + (weight_decay/2)|theta|².
    Meaning: what is not given is that of [particles]; ``head_start`` (H, q), or (layers, H, q) where layers have their
    own, takes the place of drawn heads; 0, s_end and ``times`` are kept, and a time between steps is reached by a
    shorter step that is then discarded. Order, splitting and step control of [training] are not looked at. Same
    arguments, same bits.
    Raises: MeanFieldError for what particles do not have.
    """
    given_here = problem.particles or Particles()
    if head_start is not None:
        start = np.asarray(head_start, dtype=float)
        count = start.shape[-2] if start.ndim > 1 else None
        if heads not in (None, count):
            raise MeanFieldError(f"heads = {heads}, but head_start has the shape {start.shape}: leave heads out")
        heads = count
    training = replace(
        given(problem.training, "training"), order=1, control="fixed", splitting="gibbs", flow=None, rest=None
    )
    particles = Particles(
        given_here.tokens if tokens is None else tokens,
        given_here.heads if heads is None else heads,
        given_here.layers if layers is None else layers,
        given_here.integrator if integrator is None else integrator,
        given_here.sampling if sampling is None else sampling,
        given_here.head_sampling if head_sampling is None else head_sampling,
        ("tokens", "heads"),
    )
    own_seed = problem.seed if seed is None else seed
    problem = replace(problem, particles=particles, training=training, seed=own_seed)
    with threadpool_limits(limits=1, user_api="blas"):
        ready = assemble_particles(problem, None, MEMORY)
        state, loop = given(ready.state, "training"), given(ready.training, "training")
        if head_start is not None:
            state = replace(state, rho=_started(start, state.rho))
        kept: dict[float, FloatArray] = {}
        losses: list[tuple[float, float]] = []
        asked = {0.0, training.s_end, *times}
        for moment in loop.run(state, training.s_end, tuple(times)):
            if moment.state.s in asked:
                kept[moment.state.s] = moment.state.rho
            if not moment.side:
                losses.append((moment.state.s, moment.variation.loss))
    theta = np.stack(list(kept.values()))
    shared = given(problem.depth, "depth").shared
    loss_s, loss = np.array(losses).T
    return HeadTrajectory(np.array(list(kept)), theta[:, 0] if shared else theta, loss_s.copy(), loss.copy())


def _started(start: FloatArray, drawn: FloatArray) -> FloatArray:
    """Given heads in the shape of drawn ones. Raises: MeanFieldError."""
    whole = start[None] if start.ndim == 2 and len(drawn) == 1 else start
    if whole.shape != drawn.shape:
        wanted = drawn.shape[1:] if len(drawn) == 1 else drawn.shape
        raise MeanFieldError(f"head_start has the shape {start.shape}: give {wanted}, the heads with their axes")
    if not np.isfinite(whole).all():
        raise MeanFieldError("head_start holds NaN or inf: give finite heads")
    return np.ascontiguousarray(whole)
