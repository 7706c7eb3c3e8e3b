"""Solve a problem of any kind: drive the loop, let observers look, gather the solution."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.forward_backward import laws_at
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import TokenReport, TokenSide
from meanfield_pde.output.background import interruptible
from meanfield_pde.output.diagnostics import row, token_history
from meanfield_pde.output.record import Observer, Recorder
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem, given
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.assembled import Assembled
from meanfield_pde.training.memory_plan import MEMORY
from meanfield_pde.training.state import Moment, TrainingState
from meanfield_pde.training.stopping import UNLIMITED, Stop, Watch

EMPTY = np.empty(0)
Split = Callable[[GridTokens], TokenSide]
"""Gives the token side that carries the sequences of another one in training, such as `SplitTokens`."""


class _Depth(NamedTuple):
    """What a last look through depth gives."""

    mu: FloatArray
    costate_t: FloatArray
    p: FloatArray
    queries: FloatArray
    report: TokenReport
    loss: float | None


def output_times(problem: Problem, end: float) -> tuple[float, ...]:
    """Requested times and the equally spaced snapshots up to ``end``, first and last always, in order."""
    spaced = np.linspace(0.0, end, max(problem.output.snapshots, 2)) if end > 0 else np.zeros(1)
    return tuple(sorted({*problem.output.times, *spaced.tolist()}))


def solve(
    problem: Problem,
    *,
    observers: Iterable[Observer] = (),
    threads: int | None = None,
    start: TrainingState | None = None,
    recorder: Recorder | None = None,
    on_moment: Callable[[Moment], None] | None = None,
    stop: Stop = UNLIMITED,
    memory: float = MEMORY,
    on_ready: Callable[[Assembled], None] | None = None,
    split: Split | None = None,
) -> Solution:
    """Solve ``problem``; a training problem goes on from ``start`` when given (with what was recorded before it).

    ``on_moment`` is called after each moment has been recorded (checkpoints and progress hang there); ``stop`` may end
    the run before its end time, and `Solution.outcome` then says so; ``memory`` bounds its bytes, and ``on_ready`` is
    called before the first step, with the plan of them; ``split`` gives another token side that carries the sequences
    in training.
    Raises: MeanFieldError for a problem that cannot be run; NotFiniteError naming field, cell and time.
    Warns: what `Solution.warnings` says.
    """
    _check_means(threads, memory)
    with threadpool_limits(limits=1, user_api="blas"):
        ready = interruptible(lambda: assemble(problem, threads, memory))
        if on_ready is not None:
            on_ready(ready)
        if split is not None:
            ready = _split(ready, split)
        if problem.kind == "tokens":
            solution = interruptible(lambda: _solve_tokens(ready))
        else:
            solution = _solve_training(ready, tuple(observers), start, recorder or Recorder(), on_moment, stop)
    for text in solution.warnings:
        warnings.warn(text, stacklevel=2)
    return solution


def _check_means(threads: object, memory: object) -> None:
    """Refuse numbers of threads and bytes that are none."""
    whole = isinstance(threads, int) and not isinstance(threads, bool) and threads >= 1
    if threads is not None and not whole:
        raise MeanFieldError(f"threads = {threads!r} must be an integer of at least 1, or None for all processors")
    if isinstance(memory, bool) or not isinstance(memory, int | float) or not 0.0 < memory < np.inf:
        raise MeanFieldError(f"memory = {memory!r} must be a positive number of bytes, such as 2e9")


def _split(ready: Assembled, split: Split) -> Assembled:
    if ready.problem.sides:
        raise MeanFieldError("particles.sides are not covered with a scheduler of workers: run without --scheduler")
    if ready.training is None or ready.tokens is None:
        raise MeanFieldError(
            f"kind = '{ready.problem.kind}' trains by no sequences in depth that could be divided among workers: "
            "run it without a scheduler"
        )
    return replace(ready, training=replace(ready.training, tokens=split(ready.tokens)))


def _solve_tokens(ready: Assembled) -> Solution:
    problem, tokens = ready.problem, given(ready.tokens, "tokens")
    times = np.array(output_times(problem, given(problem.depth, "depth").T))
    found = _depth(tokens, given(ready.fixed_heads, "heads"), times)
    history = token_history(found.report)
    if found.loss is not None:
        history["loss"] = np.array([found.loss])
    names = () if ready.batch is None else ready.batch.names
    fields = (found.mu, found.costate_t, found.p, names, found.queries)
    return Solution(problem, "finished", None, history, EMPTY, EMPTY, times, *fields)


def _depth(tokens: GridTokens, rho: tuple[Measure, ...], times: FloatArray) -> _Depth:
    sweep = tokens.forward(rho)
    mu = np.concatenate([laws_at(tokens.transport, sweep.fields, path, times) for path in sweep.paths], axis=1)
    queries = EMPTY if tokens.queries is None else tokens.queries.shown(sweep.query_nodes)
    if not tokens.has_loss:
        return _Depth(mu, EMPTY, EMPTY, queries, tokens.report(sweep, None), None)
    loss, p_end = tokens.value(sweep)
    costate = tokens.backward(sweep, p_end)
    p = tokens.transport.grid.refilter(costate.nodes)
    return _Depth(mu, tokens.edges, p, queries, tokens.report(sweep, costate), loss)


def _solve_training(
    ready: Assembled,
    observers: tuple[Observer, ...],
    start: TrainingState | None,
    recorder: Recorder,
    on_moment: Callable[[Moment], None] | None,
    stop: Stop,
) -> Solution:
    problem, training = ready.problem, given(ready.training, "training")
    keys = given(problem.training, "training")
    kept = output_times(problem, keys.s_end)
    asked = set(kept)
    watch = Watch(stop, keys.rest)
    moments = training.run(given(start or ready.state, "training"), keys.s_end, kept)
    outcome, state, final = "finished", None, None
    while True:
        moment = interruptible(lambda: next(moments, None))
        if moment is None:
            break
        final, s = moment, moment.state.s
        if s in asked or moment.state.step % problem.output.every == 0:
            recorder.add_row(row(moment, training.heads))
        if s in asked:
            recorder.add_snapshot(s, moment.state.rho)
        for observer in observers:
            observer(moment)
        if not moment.side:
            state = moment.state
        if on_moment is not None:
            on_moment(moment)
        why = watch.reason(moment)
        if why is not None:
            outcome = why
            break
    last = given(final, "training")
    return _trained(ready, outcome, given(state, "training"), last, recorder)


def _trained(ready: Assembled, outcome: str, state: TrainingState, last: Moment, recorder: Recorder) -> Solution:
    """The solution at the last moment, which is its last row and snapshot whether it was asked for or not."""
    heads = given(ready.training, "training").heads
    closing = Recorder.resumed(recorder.freeze())
    closing.add_row(row(last, heads))
    closing.add_snapshot(last.state.s, last.state.rho)
    record = closing.freeze()
    times, mu, costate_t, p, queries = EMPTY, EMPTY, EMPTY, EMPTY, EMPTY
    points = EMPTY
    tokens, particles = ready.tokens, ready.particles
    rho = heads.measure(last.state.rho)
    if tokens is not None:
        times = tokens.edges
        mu, costate_t, p, queries, _, _ = interruptible(lambda: _depth(tokens, rho, times))
    elif particles is not None:
        times = particles.layers.edges
        points = interruptible(lambda: particles.sweep(rho)[1].nodes)
    kept_rho = (record.history, record.snapshot_s, record.snapshots)
    return Solution(ready.problem, outcome, state, *kept_rho, times, mu, costate_t, p, ready.names, queries, points)
