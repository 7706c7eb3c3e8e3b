"""What is wrong with recorded tokens that are not our own particles: alternatives, each fitted to the same tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.particles.alternatives import Alternative, alternatives_of
from meanfield_pde.problem import Problem, given
from meanfield_pde.validation.identity import IdentityVerdict, compare, steps_allowed
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.same_tokens import SameTokens, same_tokens
from meanfield_pde.validation.step_search import integrators_of, layers_tried, moved, search
from meanfield_pde.validation.trajectory import Trajectory

# a fit explains the data within so many rounding bounds: its parameter is known to rounding only
WITHIN = 10.0
# what is left of a motion that explains cannot be more than so many bounds of the right one
FAR = 1e4
STEPS, FIRST, LEAST_STEP = 14, 1e-3, 0.5
# a fit is given up when two small steps in turn leave more than this part of what there was
SMALL_STEP, STALLED = 0.1, 0.3
OTHER_STEPS = "other steps"


@dataclass(frozen=True, slots=True)
class Fit:
    """An alternative with what it leaves over.

    Meaning: ``residual`` is the largest distance of a coordinate that is left, ``bound`` what rounding explains of it,
    both at the snapshot where they are furthest apart; where it does not explain the data, of the first run at the
    first snapshot after 0. ``value`` is the fitted parameter, None where there is none.
    """

    name: str
    words: str
    value: float | None
    residual: float
    bound: float
    explains: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All fits, best first: those that explain, without a parameter before those with one, then by what is left."""

    fits: tuple[Fit, ...]
    words: str

    @property
    def best(self) -> Fit | None:
        """The explanation; None if there is none."""
        return self.fits[0] if self.fits and self.fits[0].explains else None


def diagnose(problem: Problem, data: Trajectory, verdict: IdentityVerdict) -> Diagnosis:
    """The fault that explains recorded tokens which identity rejects, out of a list, or none of these.

    Formula: the parameter c of a scale minimises Σ |x_i(c) − X_i|² of the first run at the first snapshot after 0, by
    Gauss and Newton with the difference of the last two runs as the derivative.
    Meaning: the alternatives are those of `particles.alternatives` for the problem's model, and other integrators and
    numbers of layers; scales are fitted only where nothing without a parameter explains the data. One explains the
    data if it is within 10 rounding bounds for all runs and times. Where the integrator is not declared, each is tried
    with the layers of the problem.
    Raises: MeanFieldError for a verdict that does not apply.
    """
    case = same_tokens(problem, data)
    if isinstance(case, str) or verdict.integrator is None or verdict.layers is None:
        raise MeanFieldError("there is no verdict of identity to explain: diagnose by statistics instead")
    right = Motion(case.model, verdict.integrator, verdict.layers)
    bound = max(float(verdict.bounds[1]), np.finfo(float).tiny)
    fits = _fits(case, right, bound)
    if verdict.declared and not any(fit.explains for fit in fits):
        fits.append(_other_steps(case, right, given(problem.depth, "depth").layers, bound))
    integrators, layers, _ = steps_allowed(problem, case)
    for name in () if verdict.declared else integrators:
        if any(fit.explains for fit in fits):
            break
        # what a search finds nearest to wrong tokens says nothing: the layers of the problem are the best guess
        fits += _fits(case, Motion(case.model, name, layers[0]), bound)
    fits.sort(key=lambda fit: (not fit.explains, fit.explains and fit.value is not None, fit.residual / fit.bound))
    return Diagnosis(tuple(fits), _words(fits))


def _fits(case: SameTokens, right: Motion, bound: float) -> list[Fit]:
    """All alternatives to one motion; those with a parameter only if no other explains the data."""
    out: list[Fit] = []
    for one in sorted(alternatives_of(case.model, right.integrator), key=lambda one: one.value is not None):
        if one.value is None or not any(fit.explains for fit in out):
            out.append(_fit(case, replace(right, alternative=one), bound))
    return out


def _fit(case: SameTokens, motion: Motion, bound: float) -> Fit:
    alternative = motion.alternative
    if alternative is None:
        raise MeanFieldError("a fit needs an alternative")
    if alternative.value is not None:
        alternative = alternative.at(_scale(case, motion, alternative, bound))
        motion = replace(motion, alternative=alternative)
    return _judged(case, motion, alternative.name, alternative.words, alternative.value, bound)


def _judged(case: SameTokens, motion: Motion, name: str, words: str, value: float | None, bound: float) -> Fit:
    """The fit of a motion, looked at for all runs and times if the first snapshot is near enough."""
    gap = moved(case, motion)
    left = np.inf if gap is None else float(np.abs(gap).max())
    # bounds of another motion may be larger, by much if it spreads tokens out
    own = _bound(case, motion, bound) if WITHIN * bound < left <= FAR * bound else bound
    if not left <= WITHIN * own:
        return Fit(name, words, value, left, own, False)
    result = compare(case, motion)
    m = max(result.worst, 1)
    residual, limit = float(result.largest[m]), float(result.bounds[m])
    return Fit(name, words, value, residual, limit, residual <= WITHIN * limit)


def _bound(case: SameTokens, motion: Motion, least: float) -> float:
    try:
        return max(float(compare(case, motion, snapshots=2, runs=1).bounds[1]), least)
    except MeanFieldError:
        return least


def _scale(case: SameTokens, motion: Motion, alternative: Alternative, bound: float) -> float:
    """The c that fits best, 1 where our tokens run away near it."""

    def gap(c: float) -> np.ndarray | None:
        try:
            return moved(case, replace(motion, alternative=alternative.at(c)))
        except MeanFieldError:
            return None

    before, c = 1.0, 1.0 + FIRST
    old, new = gap(before), gap(c)
    if old is None or new is None:
        return 1.0
    stalled = 0
    for _ in range(STEPS):
        slope = (new - old) / (c - before)
        steep = float((slope**2).sum())
        if not steep > 0.0:
            break
        step = -float((slope * new).sum()) / steep
        if abs(step) * float(np.abs(slope).max()) <= 1e-2 * bound:
            break
        least = float(np.abs(new + step * slope).max())
        small = abs(step) <= SMALL_STEP * abs(c) and least > max(STALLED * float(np.abs(new).max()), FAR * bound)
        stalled = stalled + 1 if small else 0
        if stalled == 2:
            break
        most = max(abs(c), LEAST_STEP)
        step = min(max(step, -most), most)
        trial = gap(c + step)
        while trial is None and abs(step) > 1e-6:
            step *= 0.5
            trial = gap(c + step)
        if trial is None:
            break
        before, old, c, new = c, new, c + step, trial
    best = c if float(np.abs(new).max()) <= float(np.abs(old).max()) else before
    return best


def _other_steps(case: SameTokens, right: Motion, stated: int, bound: float) -> Fit:
    layers = layers_tried(case, stated) or (right.layers,)
    found, nearest = search(case, integrators_of(case), layers, WITHIN * bound)
    best = nearest if found is None else found
    motion = Motion(case.model, best.integrator, best.layers)
    words = f"the steps are {best.integrator} in {best.layers} layers"
    return _judged(case, motion, OTHER_STEPS, words, None, bound)


def _words(fits: list[Fit]) -> str:
    if not fits:
        return "The model has no heads, so there is nothing to vary."
    best = fits[0]
    value = "" if best.value is None else f", c = {best.value:.6g}"
    left = f"{best.residual:.1e} is left, where rounding explains {best.bound:.1e}"
    if best.explains:
        return f"{best.name}: {best.words}{value}; {left}."
    return f"None of these: the nearest is {best.name} ({best.words}{value}), but {left}."
