"""Heads that attract each other along a ring: the noisy Kuramoto model of equal oscillators, at rest."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, VonMises, head_samples
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.parameters import Parameter, at, itself
from meanfield_pde.problem import Problem

KURAMOTO_PARAMETERS: dict[str, Parameter] = {
    "K": at("potential.cosine"),
    "initial": at("heads.initial", itself),
}


def order_parameter(ratio: float) -> float:
    """r >= 0 at rest for ratio = K/beta: the root of r = I1(ratio r)/I0(ratio r), 0 up to ratio = 2.

    Source: Sakaguchi, Prog. Theor. Phys. 79 (1988), 39.
    """
    if ratio <= 2.0:
        return 0.0
    # imported late: listing problems needs none of it
    from scipy.optimize import brentq
    from scipy.special import ive

    def gap(r: float) -> float:
        return float(ive(1, ratio * r) / ive(0, ratio * r)) - r

    # I1(x)/I0(x) = x/2 − x³/16 + ..: the root is near sqrt(8 (ratio − 2)/ratio³) just above the threshold
    low = 0.5 * min(1.0, float(np.sqrt(8.0 * (ratio - 2.0) / ratio**3)))
    return float(brentq(gap, low, 1.0, xtol=1e-15, rtol=1e-14))


def kuramoto_exact(problem: Problem) -> Exact:
    """The stationary law that a unimodal symmetric law on a ring comes to rest in: von Mises of concentration K r/beta.

    Formula: rho ∝ exp((K r/beta) cos(theta − mean)), r = I1(K r/beta)/I0(K r/beta); uniform for K <= 2 beta.
    Meaning: there is no closed form in s, so nothing is given before s_end. ``order_0`` is r = |∫ e^{i theta} drho|.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: Sakaguchi 1988; docs/mathematics.md 5.4.
    """
    kind = problem.kind
    require(kind == "fokker-planck", problem, f"kind = '{kind}'", "kind = 'fokker-planck'")
    potential, training, heads = problem.potential, problem.training, problem.heads
    assert potential is not None
    assert training is not None
    assert heads is not None
    flat = not any(any(row[1:]) for row in potential.coefficients) and not any(potential.harmonics)
    require(flat and len(heads.cells) == 1, problem, "the potential is not constant on one ring", "one ring, no V")
    law = heads.initial
    require(isinstance(law, VonMises | Gaussian), problem, "heads.initial is another law", "von-mises or gaussian")
    assert isinstance(law, VonMises | Gaussian)
    require(potential.cosine > 0, problem, f"potential.cosine = {potential.cosine:g}", "an attraction, > 0")
    require(training.beta > 0, problem, f"training.beta = {training.beta:g}", "beta > 0")
    ratio = potential.cosine / training.beta
    # a uniform start has no mean to come to rest at
    flat_start = isinstance(law, VonMises) and not np.atleast_1d(law.concentration)[0] > 0
    require(not flat_start or ratio <= 2.0, problem, "heads.initial is uniform", "a concentration above 0")
    r = order_parameter(ratio)
    mean = float(np.atleast_1d(law.mean)[0])
    loss = potential.coefficients[0][0] - 0.5 * potential.cosine * r * r

    def observables(s: float) -> dict[str, float]:
        return {"loss": loss, "order_0": r} if s >= training.s_end else {}

    def rho(s: float, grid: Grid) -> FloatArray:
        return head_samples(VonMises(mean, ratio * r), grid)[None]

    return Exact(observables, "docs/mathematics.md 5.4, noisy Kuramoto", rho=rho, limit=True)
