"""Do recorded tokens move exactly as ours do? The same first tokens, carried by our own particles, up to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.precision import precision_of
from meanfield_pde.validation.rounding_bound import rounding_bounds
from meanfield_pde.validation.same_tokens import SameTokens, same_tokens
from meanfield_pde.validation.step_search import Steps, integrators_of, layers_tried, search
from meanfield_pde.validation.trajectory import Trajectory

# identity tells something if its bound is below this part of how far tokens move
TELLING = 1e-2


@dataclass(frozen=True, slots=True)
class IdentityVerdict:
    """Whether recorded tokens are those of our own particles, and by how much they differ.

    Shapes: times, largest and bounds (snapshots,), empty where it does not apply.
    Meaning: ``passed`` is None where it does not apply; ``largest`` is the largest distance of a coordinate over tokens
    and runs; ``declared`` says that integrator and layers were given, else they were searched for: those found, or the
    nearest. ``words`` is a sentence or two.
    """

    applies: bool
    passed: bool | None
    times: FloatArray
    largest: FloatArray
    bounds: FloatArray
    integrator: str | None
    layers: int | None
    declared: bool
    words: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The largest distances of all runs at each time, and their bounds; distances are inf where our tokens run away."""

    largest: FloatArray
    bounds: FloatArray
    failing: tuple[int, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all are within."""
        return bool((self.largest <= self.bounds).all())

    @property
    def worst(self) -> int:
        """The time at which a distance is largest in terms of its bound."""
        return int((self.largest / np.maximum(self.bounds, np.finfo(float).tiny)).argmax())


def identity_verdict(problem: Problem, data: Trajectory) -> IdentityVerdict:
    """The identity of recorded tokens with our own particles from the same first tokens on.

    Formula: max |x_i(t) − X_i(t)| ≤ the bound of `rounding_bounds`, for every run at every time.
    Meaning: integrator and layers are those of [particles], an integrator that is not declared is searched for, and so
    is the number of layers if there is neither an integrator nor [particles] layers.
    """
    case = same_tokens(problem, data)
    if isinstance(case, str):
        return _without(f"Identity does not apply: {case}.")
    integrators, layers, declared = steps_allowed(problem, case)
    if not layers:
        stated = given(problem.depth, "depth").layers
        return _without(f"Identity does not apply: the snapshots are no edges of {stated} equal layers.")
    nearest = Steps(integrators[0], layers[0], np.inf)
    if not declared:
        first = Motion(case.model, integrators[0], layers[0])
        found, nearest = search(case, integrators, layers, first_bound(case, first))
        nearest = nearest if found is None else found
    result = compare(case, Motion(case.model, nearest.integrator, nearest.layers))
    m = result.worst
    moves = np.array([float(np.abs(case.apart(0, np.repeat(case.points[0, :1], len(case.times), axis=0))[k]).max())
                      for k in range(len(case.times))])  # fmt: skip
    if result.passed and not (result.bounds[1:] <= TELLING * moves[1:]).any():
        precision = precision_of(case.points[:, 1:]).words
        return _without(
            f"Identity cannot tell: rounding ({precision}) explains {result.bounds[-1]:.1e}, over a hundredth of how "
            f"far tokens move ({moves[-1]:.1e}): save them in higher precision."
        )
    named = "declared" if declared else "found by search" if result.passed else "the nearest of a search"
    how = f"{nearest.integrator}, {nearest.layers} layers, {named}; {case.heads}"
    size = f"{result.largest[m]:.1e} at t = {case.times[m]:g}, where rounding explains {result.bounds[m]:.1e}"
    if result.passed:
        words = f"The recorded tokens are those of our own particles ({how}): they differ by {size}."
    else:
        words = f"The recorded tokens are not those of our own particles ({how}): they differ by {size}."
        if len(case.points) > 1:
            off = ", ".join(str(run) for run in result.failing)
            words += f" Runs that differ (counted from 0): {off} of {len(case.points)}."
        if not declared:
            words += " If the code has other steps, declare integrator and layers in [particles]."
    steps = (nearest.integrator, nearest.layers, declared)
    return IdentityVerdict(True, result.passed, case.times, result.largest, result.bounds, *steps, words)


def steps_allowed(problem: Problem, case: SameTokens) -> tuple[tuple[str, ...], tuple[int, ...], bool]:
    """Integrators and numbers of layers that a problem leaves open, and whether it declares both."""
    said, depth = problem.particles, given(problem.depth, "depth")
    stated = depth.layers if said is None else said.layers_in(depth)
    known = said is not None and (said.layers is not None or said.integrator is not None)
    layers = ((stated,) if case.edges(stated) is not None else ()) if known else layers_tried(case, stated)
    if said is not None and said.integrator is not None:
        return (said.integrator,), layers, known
    return integrators_of(case), layers, False


def first_bound(case: SameTokens, motion: Motion) -> float:
    """The rounding bound of the first run at its first snapshot after 0; 0 where our tokens run away."""
    try:
        return float(compare(case, motion, snapshots=2, runs=1).bounds[1])
    except MeanFieldError:
        return 0.0


def compare(case: SameTokens, motion: Motion, snapshots: int | None = None, runs: int | None = None) -> Compared:
    """Distances of the recorded tokens from our own and their bounds: first ``snapshots`` of first ``runs``, or all."""
    edges = case.edges(motion.layers, snapshots)
    if edges is None:
        raise MeanFieldError(f"the snapshots are no edges of {motion.layers} equal layers: take another number")
    largest, bounds = np.zeros(len(edges)), np.full(len(edges), np.inf)
    failing: tuple[int, ...] = ()
    for run in range(len(case.points) if runs is None else runs):
        start = case.start(run)
        data = precision_of(case.points[run, 1:])
        try:
            own = motion.run(start, case.T, edges)
        except NotFiniteError:
            return Compared(np.where(np.array(edges) > 0.0, np.inf, 0.0), np.zeros(len(edges)))
        here = np.abs(case.apart(run, own.x)).max(axis=(1, 2))
        allowed = rounding_bounds(motion, start, case.T, own, data)
        failing = (*failing, run) if (here > allowed).any() else failing
        largest, bounds = np.maximum(largest, here), np.minimum(bounds, allowed)
    return Compared(largest, bounds, failing)


def _without(words: str) -> IdentityVerdict:
    none = np.empty(0)
    return IdentityVerdict(False, None, none, none, none, None, None, False, words)
