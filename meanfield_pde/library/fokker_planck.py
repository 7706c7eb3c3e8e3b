"""Heads alone in a given potential: Ornstein-Uhlenbeck with interaction, the slab, the double well."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Density, Gaussian, Uniform, head_samples
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.parameters import Changes, Interval, Parameter, at, itself, vector, widened
from meanfield_pde.problem import Potential, Problem

MODES = 400  # of the slab: the first one left out is below e^{-1.5e6 s}
NODES = 2001  # of the trapezoidal rule for the Gibbs state, spectral on a decaying integrand


def _sections(problem: Problem) -> tuple[Potential, Any]:
    kind = problem.kind
    require(kind == "fokker-planck", problem, f"kind = '{kind}'", "kind = 'fokker-planck'")
    assert problem.potential is not None
    assert problem.training is not None
    return problem.potential, problem.training


def _gaussian(problem: Problem) -> tuple[FloatArray, FloatArray]:
    assert problem.heads is not None
    law = problem.heads.initial
    require(isinstance(law, Gaussian), problem, "heads.initial is not gaussian", "a gaussian law")
    assert isinstance(law, Gaussian)
    require(not any(problem.heads.periodic), problem, "heads.periodic is set", "walls")
    return np.array(law.mean, float), np.array(law.covariance, float)


def moment_names(mean: FloatArray, covariance: FloatArray) -> dict[str, float]:
    """mean_0, .., covariance_00, covariance_01, .. as named numbers."""
    d = len(mean)
    out = {f"mean_{j}": float(mean[j]) for j in range(d)}
    return out | {f"covariance_{j}{k}": float(covariance[j, k]) for j in range(d) for k in range(j, d)}


def _rows(value: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in value)


# --- Ornstein-Uhlenbeck ---------------------------------------------------------------------------------------------

OU_PARAMETERS: dict[str, Parameter] = {
    "m0": at("heads.initial.mean", vector(1)),
    "s0": at("heads.initial.covariance", lambda value: ((float(value),),)),
    "alpha": lambda value: {("potential", "coefficients"): ((0.0, 0.0, 0.5 * float(value)),)},
    "interaction": at("potential.interaction"),
    "coefficients": at("potential.coefficients", _rows),
    "initial": at("heads.initial", itself),
}


def ou_exact(problem: Problem) -> Exact:
    """Gaussian law in a quadratic potential with quadratic interaction, on any number of axes.

    Formula: with psi = c0 + c1 x + (α/2) x² per axis (weight decay included) and interaction κ,
    m = m0 e^{−αs} − c1 (1 − e^{−αs})/α, C_jk = C0_jk e^{−r s} + 2β δ_jk (1 − e^{−r s})/r, r = α_j + α_k + 2κ.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.4.
    """
    potential, training = _sections(problem)
    degree = max(len(row) for row in potential.coefficients)
    require(degree <= 3, problem, f"potential.coefficients of degree {degree - 1}", "degree 2 at most on every axis")
    m0, C0 = _gaussian(problem)
    c = np.array([(*row, 0.0, 0.0, 0.0)[:3] for row in potential.coefficients])
    kappa, beta, decay = potential.interaction, training.beta, training.weight_decay
    alpha = 2.0 * c[:, 2] + decay
    rates = alpha[:, None] + alpha[None, :] + 2.0 * kappa

    def moments(s: float) -> tuple[FloatArray, FloatArray]:
        mean = m0 * np.exp(-alpha * s) - c[:, 1] * _decayed(alpha, s)
        covariance = C0 * np.exp(-rates * s) + 2.0 * beta * np.eye(len(m0)) * _decayed(rates, s)
        return mean, covariance

    def observables(s: float) -> dict[str, float]:
        mean, covariance = moments(s)
        spread = np.diag(covariance)
        loss = float((c[:, 0] + c[:, 1] * mean + c[:, 2] * (mean**2 + spread)).sum() + 0.5 * kappa * spread.sum())
        energy = loss + 0.5 * decay * float((mean**2 + spread).sum())
        if beta:
            energy -= 0.5 * beta * float(len(mean) * np.log(2.0 * np.pi * np.e) + np.linalg.slogdet(covariance)[1])
        return {"loss": loss, "free_energy": energy, **moment_names(mean, covariance)}

    def rho(s: float, grid: Grid) -> FloatArray:
        mean, covariance = moments(s)
        return head_samples(Gaussian(tuple(mean.tolist()), _rows(covariance)), grid)[None]

    return Exact(observables, "docs/mathematics.md 5.4, Ornstein-Uhlenbeck", rho=rho)


def _decayed(rate: FloatArray, s: float) -> FloatArray:
    """(1 − e^{−rate s})/rate, s where the rate is 0."""
    return np.divide(-np.expm1(-rate * s), rate, out=np.full_like(rate, s), where=rate != 0.0)


def ou_fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with a box that holds its law at every time."""
    assert problem.training is not None
    known = ou_exact(problem)
    assert problem.heads is not None
    axes: list[list[Interval]] = [[] for _ in problem.heads.cells]
    for s in np.linspace(0.0, problem.training.s_end, 9).tolist():
        values = known.observables(s)
        for k, axis in enumerate(axes):
            axis.append((values[f"mean_{k}"], values[f"covariance_{k}{k}"] ** 0.5, 6.0))
    return widened(problem, "heads", "", given, axes)


# --- slab -----------------------------------------------------------------------------------------------------------


def _slab_pull(g: Any) -> Changes:
    return {("potential", "coefficients"): ((0.0, -float(g)),)}


SLAB_PARAMETERS: dict[str, Parameter] = {"g": _slab_pull, "initial": at("heads.initial", itself)}


@dataclass(frozen=True, slots=True)
class SlabMode:
    """The first mode on top of the Gibbs state, e^{gx/2}(π cos πx + (g/2) sin πx) + π e^{g(x−½)}: an initial law."""

    g: float = 1.0

    def __call__(self, points: FloatArray) -> FloatArray:
        """The density, not normalised, at points (n, 1)."""
        x, g = points[:, 0], self.g
        wave = np.pi * np.cos(np.pi * x) + 0.5 * g * np.sin(np.pi * x)
        return np.asarray(np.exp(0.5 * g * x) * wave + np.pi * np.exp(g * (x - 0.5)))


def slab_exact(problem: Problem) -> Exact:
    """Diffusion between two walls under a constant pull: V = −gx on [0, 1], by modes.

    Formula: rho = gibbs + Σ a_n e^{−α_n βs} e^{gx/2}(nπ cos nπx + (g/2) sin nπx), α_n = n²π² + g²/4, g in units of
    beta; a_n = 2gnπ(1 − (−1)^n e^{−g/2})/α_n² for the uniform law, a_1 alone for a density `SlabMode`.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.4; the modes by separation of variables.
    """
    potential, training = _sections(problem)
    heads = problem.heads
    assert heads is not None
    row = (*potential.coefficients[0], 0.0, 0.0)
    linear = len(potential.coefficients) == 1 and not any(row[2:])
    require(linear, problem, f"potential.coefficients = {potential.coefficients}", "V = -g x on one axis")
    require(potential.interaction == 0, problem, f"potential.interaction = {potential.interaction:g}", "none")
    require(training.weight_decay == 0, problem, f"training.weight_decay = {training.weight_decay:g}", "none")
    require(training.beta > 0, problem, f"training.beta = {training.beta:g}", "beta > 0")
    box = (heads.lower[0], heads.upper[0], any(heads.periodic))
    require(box == (0.0, 1.0, False), problem, f"heads lie in [{box[0]:g}, {box[1]:g}]", "walls at 0 and 1")
    beta = float(training.beta)
    g = -row[1] / beta
    n = np.arange(1, MODES + 1)
    alpha = (n * np.pi) ** 2 + 0.25 * g * g
    law = heads.initial
    if isinstance(law, Density) and isinstance(law.function, SlabMode) and law.function.g == g:
        mass = np.pi * (2.0 * np.sinh(0.5 * g) / g if g else 1.0)
        a = np.where(n == 1, 1.0 / mass, 0.0)
    else:
        uniform = isinstance(law, Uniform) and (*law.lower, *law.upper) == (0.0, 1.0)
        require(uniform, problem, "heads.initial is another law", f"uniform on [0, 1], or a density SlabMode({g:g})")
        a = 2.0 * g * n * np.pi * (1.0 - np.where(n % 2, -1.0, 1.0) * np.exp(-0.5 * g)) / alpha**2

    def rho(s: float, grid: Grid) -> FloatArray:
        x = grid.edges(0)
        waves = np.exp(0.5 * g * x)[:, None] * np.sin(np.pi * np.outer(x, n))
        waves[[0, -1]] = 0.0
        gibbs = np.expm1(g * x) / np.expm1(g) if g else x
        return np.asarray(np.diff(gibbs + waves @ (a * np.exp(-alpha * beta * s)))[None] / grid.spacing[0])

    def observables(s: float) -> dict[str, float]:
        # ∫ x^k rho by parts from the primitive of each mode, e^{gx/2} sin nπx
        decay = a * np.exp(-alpha * beta * s)
        k, e, sign = n * np.pi, np.exp(0.5 * g), np.where(n % 2, -1.0, 1.0)
        area = k * (1.0 - sign * e) / alpha  # ∫ e^{gx/2} sin kx
        moment = (-k * sign * e - g * area) / alpha  # ∫ x e^{gx/2} sin kx
        first, second = _gibbs_moments(g)
        mean = first - float(decay @ area)
        square = second - 2.0 * float(decay @ moment)
        return {"loss": -beta * g * mean, "mean_0": mean, "covariance_00": square - mean * mean}

    return Exact(observables, "docs/mathematics.md 5.4, slab", rho=rho, cell_averaged=True)


def _gibbs_moments(g: float) -> tuple[float, float]:
    """First two moments of the density proportional to e^{gx} on [0, 1], by Gauss-Legendre."""
    node, weight = np.polynomial.legendre.leggauss(60)
    x = 0.5 * (node + 1.0)
    density = weight * np.exp(g * (x - max(np.sign(g), 0.0)))
    return float(density @ x / density.sum()), float(density @ x**2 / density.sum())


# --- double well ----------------------------------------------------------------------------------------------------

WELL_PARAMETERS: dict[str, Parameter] = {
    "m0": at("heads.initial.mean", vector(1)),
    "s0": at("heads.initial.covariance", lambda value: ((float(value),),)),
    "interaction": at("potential.interaction"),
    "coefficients": at("potential.coefficients", _rows),
}


def well_exact(problem: Problem) -> Exact:
    """The stationary law that a Gaussian in an even quartic potential with attraction comes to rest in.

    Formula: rho ∝ exp(−(V + (κ/2)(x − m)²)/β) with m = ∫ x rho the root of largest modulus on the side of the
    initial mean (an attraction κ >= 0 keeps the law on that side), 0 when it starts at 0 or none is left.
    Meaning: there is no closed form in s, so nothing is given before s_end.
    Raises: MeanFieldError when the problem no longer has this form.
    Source: Desai and Zwanzig 1978; docs/mathematics.md 5.4.
    """
    potential, training = _sections(problem)
    m0, _ = _gaussian(problem)
    row = (*potential.coefficients[0], 0.0, 0.0, 0.0, 0.0)
    even = len(potential.coefficients) == 1 and row[1] == 0 and row[3] == 0 and not any(row[5:]) and row[4] > 0
    require(even, problem, f"potential.coefficients = {potential.coefficients}", "c2 x² + c4 x⁴, c4 > 0, on one axis")
    kappa, beta, decay = potential.interaction, training.beta, training.weight_decay
    require(kappa >= 0, problem, f"potential.interaction = {kappa:g}", "an attraction, >= 0")
    require(beta > 0, problem, f"training.beta = {beta:g}", "beta > 0")

    def density(m: float, x: FloatArray) -> FloatArray:
        psi = np.polynomial.polynomial.polyval(x, row) + 0.5 * decay * x**2 + 0.5 * kappa * (x - m) ** 2
        return np.asarray(np.exp(-(psi - psi.min()) / beta))

    # half the width at which x⁴ c4 alone is 60 beta above the bottom of the well
    depth = max(0.0, -(row[2] + 0.5 * decay)) / row[4]
    reach = np.sqrt(depth + np.sqrt(depth**2 + 60.0 * beta / row[4]))
    x = np.linspace(-reach, reach, NODES)

    def moment(m: float, power: int) -> float:
        weights = density(m, x)
        return float(weights @ x**power / weights.sum())

    m = float(np.sign(m0[0])) * _rest(lambda value: moment(value, 1), float(reach)) if m0[0] else 0.0
    spread = moment(m, 2) - m * m
    loss = row[0] + row[2] * moment(m, 2) + row[4] * moment(m, 4) + 0.5 * kappa * spread

    def observables(s: float) -> dict[str, float]:
        at_rest = s >= training.s_end
        return {"loss": loss, "mean_0": m, "covariance_00": spread} if at_rest else {}

    def rho(s: float, grid: Grid) -> FloatArray:
        values = density(m, grid.centers(0))
        return np.asarray(values / (values.sum() * grid.cell_volume))[None]

    return Exact(observables, "docs/mathematics.md 5.4, Desai-Zwanzig", rho=rho, limit=True)


def _rest(response: Any, reach: float) -> float:
    """The largest root of response(m) = m on (0, reach), 0 if there is none."""
    from scipy.optimize import brentq

    grid = np.linspace(1e-4 * reach, reach, 400)
    above = np.flatnonzero(np.array([response(m) - m for m in grid]) > 0.0)
    if not len(above):
        return 0.0
    last = int(above[-1])
    return float(brentq(lambda m: response(m) - m, grid[last], grid[last + 1], xtol=1e-15, rtol=1e-14))
