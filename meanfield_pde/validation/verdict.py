"""Does a particle code agree with the limit? The verdicts on a trajectory, and what is wrong where one fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.particles.of_problem import particle_tokens
from meanfield_pde.problem import Particles, Problem, given
from meanfield_pde.validation.data_heads import with_heads_of
from meanfield_pde.validation.detectable import Detectable, detectable
from meanfield_pde.validation.diagnosis import Diagnosis, diagnose
from meanfield_pde.validation.effects import effects_of
from meanfield_pde.validation.head_noise import PreparedHeads, prepare_heads
from meanfield_pde.validation.identity import IdentityVerdict, identity_verdict
from meanfield_pde.validation.limit_law import check_one_law
from meanfield_pde.validation.limit_verdict import LEVEL, LimitVerdict, limit_verdict
from meanfield_pde.validation.own_runs import TOLERANCE, ParticleCode, Said, paired_tokens
from meanfield_pde.validation.sampling_noise import RUNS, Prepared, check_own, prepare
from meanfield_pde.validation.statistical_diagnosis import StatisticalDiagnosis, diagnose_by_statistics
from meanfield_pde.validation.trajectory import Trajectory
from meanfield_pde.validation.trajectory_checks import check_against

VERDICTS = ("identity", "limit")
CONSISTENT, REJECTED, NOT_ENOUGH = 0, 3, 4
# what is assumed where a code does not say how it takes a layer, and its tokens do not tell; if it does not say how
# many layers there are either, the exact flow, near enough
ASSUMED, EXACT, EXACT_LAYERS, MOST_EXACT, CLOSE = "euler", "rk4", 32, 4096, 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was asked of a trajectory and what came out.

    Meaning: a verdict is None where it was not asked for or does not apply, and ``without`` says why the limit does
    not. ``diagnosis`` is that of the verdict that rejects, of identity if both do; ``detectable`` what the limit could
    have seen; ``evidence`` the limit and its noise, for figures.
    """

    data: Trajectory
    code: ParticleCode
    identity: IdentityVerdict | None
    limit: LimitVerdict | None
    without: str | None
    diagnosis: Diagnosis | StatisticalDiagnosis | None
    detectable: tuple[Detectable, ...]
    notes: tuple[str, ...]
    evidence: Prepared | PreparedHeads | None

    @property
    def passed(self) -> bool | None:
        """Whether no applicable verdict rejects; None if none applies."""
        found = [one.passed for one in (self.identity, self.limit) if one is not None and one.passed is not None]
        return all(found) if found else None

    @property
    def exit_code(self) -> int:
        """0 consistent, 3 an applicable verdict rejects, 4 not enough data for any."""
        return NOT_ENOUGH if self.passed is None else CONSISTENT if self.passed else REJECTED


def validate(
    problem: Problem,
    data: Trajectory,
    *,
    asked: tuple[str, ...] = VERDICTS,
    level: float = LEVEL,
    own: int = RUNS,
    threads: int = 1,
    said: Said | None = None,
) -> Verdict:
    """Compare a trajectory with a problem: identity with our own particles, and the limit within its noise.

    Meaning: ``asked`` are the verdicts wanted, ``level`` the chance that the limit rejects what is right, ``own`` the
    number of our own runs by which its noise is known, with ``said`` told of each.
    Raises: MeanFieldError or FileError for what cannot be compared.
    """
    for name in asked:
        if name not in VERDICTS:
            raise MeanFieldError(f"verdict = {name!r} is not known; {nearest(str(name), VERDICTS)}")
    if not 0.0 < level < 1.0:
        raise MeanFieldError(f"level = {level} must be between 0 and 1, such as 0.05")
    if "limit" in asked:
        check_own(own, level)
    check_against(data, problem)
    if data.kind == "heads":
        return _of_heads(problem, data, asked, level, own, threads, said)
    check_one_law(problem)
    identity = identity_verdict(problem, data) if "identity" in asked else None
    problem, note = with_heads_of(problem, data)
    notes = [] if note is None else [note]
    code, assumed = _code(problem, data, identity)
    if assumed and "limit" in asked:
        notes.append(f"no integrator is declared or found: the limit takes {code.integrator}, {code.layers} layers")
    without = why_not(problem, data, code) if "limit" in asked else None
    by_identity = diagnose(problem, data, identity) if identity is not None and identity.passed is False else None
    if "limit" not in asked or without is not None:
        return Verdict(data, code, identity, None, without, by_identity, (), tuple(notes), None)
    ready = prepare(problem, code, data.times, data.runs, own, threads=threads, said=said)
    limit = limit_verdict(ready.noise, ready.observed.mean(data.points), level)
    seen, by_statistics = _faults(problem, data, code, ready, limit, threads)
    return Verdict(data, code, identity, limit, None, by_identity or by_statistics, seen, tuple(notes), ready)


def why_not(problem: Problem, data: Trajectory, code: ParticleCode) -> str | None:
    """Why there is no limit verdict on data, or None."""
    if not np.allclose(data.weights, 1.0 / data.count, rtol=1e-9, atol=0.0):
        return "the weights of the tokens differ, and how they were drawn is not known: only equal weights have one"
    if code.sampling == "quantile" and data.kind != "heads":
        return "tokens at quantiles have no noise: the identity verdict is the one for them"
    if problem.tokens is not None and problem.tokens.noise > 0.0:
        return "token noise is not covered for particles"
    for k in range(1, data.runs):
        if (data.points[k] == data.points[:k]).all(axis=(1, 2, 3)).any():
            return f"run {k} (counted from 0) is the same as one before it: independent runs need seeds of their own"
    return None


def _code(problem: Problem, data: Trajectory, identity: IdentityVerdict | None) -> tuple[ParticleCode, bool]:
    """The code as it is declared, or found by identity, and whether its integrator is merely assumed."""
    said, depth = problem.particles or Particles(), given(problem.depth, "depth")
    layers = said.layers_in(depth)
    integrator, known = said.integrator, said.integrator is not None
    if identity is not None and identity.passed and identity.integrator and identity.layers:
        integrator, layers, known = identity.integrator, identity.layers, True
    elif identity is not None and said.layers is None and identity.layers:
        # the nearest of a search
        integrator, layers = integrator or identity.integrator, identity.layers
    elif said.layers is None and not known:
        integrator, layers = EXACT, _fine(data.times, depth.T)
    law = problem.heads is not None and not problem.heads.points
    heads = said.heads if law else None
    return ParticleCode(data.count, layers, integrator or ASSUMED, said.sampling, heads), not known


def _fine(times: FloatArray, T: float) -> int:
    """The least number of layers, at least 32, with all times as edges; 32 if there is none up to 4096."""
    for layers in range(EXACT_LAYERS, MOST_EXACT + 1):
        places = times * layers / T if T > 0.0 else np.zeros(1)
        if np.abs(places - np.rint(places)).max() <= CLOSE * layers:
            return layers
    return EXACT_LAYERS


class _Faults(NamedTuple):
    seen: tuple[Detectable, ...]
    diagnosis: StatisticalDiagnosis | None


def _faults(
    problem: Problem, data: Trajectory, code: ParticleCode, ready: Prepared, limit: LimitVerdict, threads: int
) -> _Faults:
    """What could have been seen, and what explains the statistics if the limit rejects."""
    model = particle_tokens(problem, code.heads, seed=problem.seed, tolerance=TOLERANCE)
    T, times = given(problem.depth, "depth").T, tuple(ready.law.times.tolist())
    effects = effects_of(code.motion(model), paired_tokens(problem, code), T, times, ready.observed.statistics, threads)
    noise = ready.noise
    seen = detectable(noise, effects, limit.level)
    if limit.passed:
        return _Faults(seen, None)
    difference = (ready.observed.mean(data.points).smooth - noise.center)[noise.judged]
    judged = tuple(one.among(noise.judged) for one in effects)
    return _Faults(seen, diagnose_by_statistics(difference, noise.covariance, judged))


def _of_heads(
    problem: Problem,
    data: Trajectory,
    asked: tuple[str, ...],
    level: float,
    own: int,
    threads: int,
    said: Said | None,
) -> Verdict:
    particles, depth = problem.particles or Particles(), given(problem.depth, "depth")
    if particles.tokens is None:
        raise MeanFieldError("particles.tokens is missing: say how many tokens a sequence the heads were trained with")
    layers = particles.layers_in(depth)
    code = ParticleCode(particles.tokens, layers, particles.integrator or ASSUMED, particles.sampling, data.count)
    notes = ["identity is for tokens: recorded heads do not hold the noise of their gradient steps"]
    without = why_not(problem, data, code)
    if "limit" not in asked or without is not None:
        return Verdict(data, code, None, None, without, None, (), tuple(notes), None)
    ready = prepare_heads(problem, data, code, own, threads=threads, said=said)
    limit = limit_verdict(ready.noise, ready.found(data), level)
    return Verdict(data, code, None, limit, None, None, (), tuple(notes if "identity" in asked else ()), ready)
