"""Heads at rest: rho = Gibbs(psi[rho]), found as a fixed point for any token side, and how stable it is.

Two parts. A descent, rho ← (1 − τ) rho + τ g with g = Gibbs(psi[rho]), in which τ is halved until the free energy falls
(it does for small τ: dF = −beta ∫ (log rho − log g)(rho − g) <= 0); it decides which of several states is reached. Then
Newton's method with Krylov solves on the potential psi, whose fixed points are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import NoConvergence, newton_krylov
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.model.sides import FirstVariation, TokenSide

NEAR = 1e-3  # residual at which the descent hands over to Newton's method
SMALLEST_STEP = 2.0**-20
NEWTON_STEPS = 60
PROBE = 1e-3  # L1 size of the perturbation that the linearised map is measured with
ROUNDING = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Stationary:
    """A law of heads at rest.

    Shapes: ``rho`` and ``psi`` (layers, *cells).
    Meaning: ``residual`` is ‖rho − Gibbs(psi[rho])‖_1 in the worst layer, ``iterations`` the steps of the descent,
    ``evaluations`` the first variations taken in all; ``loss`` and ``free_energy`` are those of ``rho``.
    """

    rho: FloatArray
    psi: FloatArray
    loss: float
    free_energy: float
    residual: float
    iterations: int
    evaluations: int


@dataclass(slots=True)
class _Map:
    """psi[rho] with a count of how often it was asked for."""

    tokens: TokenSide
    heads: FokkerPlanckHeads
    evaluations: int = 0

    def variation(self, rho: FloatArray) -> FirstVariation:
        self.evaluations += 1
        return self.tokens.first_variation(self.heads.measure(rho))

    def at(self, rho: FloatArray) -> tuple[FloatArray, float, float]:
        """psi, loss and free energy of a law."""
        found = self.variation(rho)
        return self.heads.potential(found.potential), found.loss, found.loss + self.heads.regularisation(rho)


def stationary_state(
    tokens: TokenSide,
    heads: FokkerPlanckHeads,
    rho: FloatArray,
    tolerance: float = 1e-10,
    most_iterations: int = 2000,
) -> Stationary:
    """The law at rest that the free energy descends to from ``rho``, rho = Gibbs(psi[rho]) to ``tolerance`` in L1.

    Raises: NotConvergedError with the residual reached; MeanFieldError for beta = 0, which has no Gibbs state.
    Source: Chen, Ren and Wang 2023 (entropic fictitious play, the descent); Knoll and Keyes 2004 (Newton-Krylov).
    """
    if heads.beta <= 0:
        raise MeanFieldError("a law at rest is looked for as a Gibbs state, which needs training.beta > 0")
    ask = _Map(tokens, heads)
    rho, iterations, residual = _descend(ask, rho, max(tolerance, NEAR), most_iterations)
    if residual > tolerance:
        rho, iterations, residual = _polish(ask, rho, iterations, tolerance, most_iterations)
    psi, loss, energy = ask.at(rho)
    residual = heads.distance(rho, heads.gibbs_state(psi))
    if not residual <= tolerance:
        raise NotConvergedError(
            f"no law at rest was reached: ‖rho − Gibbs‖_1 = {residual:.2e} after {iterations} steps, "
            f"{tolerance:.1e} is asked for: raise the tolerance, or start nearer (heads.initial)"
        )
    return Stationary(rho, psi, loss, energy, residual, iterations, ask.evaluations)


def _descend(ask: _Map, rho: FloatArray, enough: float, most: int) -> tuple[FloatArray, int, float]:
    """Damped steps towards the Gibbs state until the residual is ``enough``, τ by halving, doubled after a success."""
    psi, _, energy = ask.at(rho)
    step, iterations = 1.0, 0
    while True:
        gibbs = ask.heads.gibbs_state(psi)
        residual = ask.heads.distance(rho, gibbs)
        if residual <= enough or iterations >= most:
            return rho, iterations, residual
        while True:
            trial = (1.0 - step) * rho + step * gibbs
            new_psi, _, new_energy = ask.at(trial)
            if new_energy <= energy + ROUNDING * max(1.0, abs(energy)):
                break
            step *= 0.5
            if step < SMALLEST_STEP:
                # the free energy is flat to rounding: nothing is left to descend
                return rho, iterations, residual
        rho, psi, energy = trial, new_psi, new_energy
        iterations += 1
        step = min(1.0, 2.0 * step)


def _polish(
    ask: _Map, rho: FloatArray, iterations: int, tolerance: float, most: int
) -> tuple[FloatArray, int, float]:
    """Newton steps on psi, kept if they do not lead up in free energy; else the descent goes on to the end."""
    start, _, before = ask.at(rho)
    scale = ask.heads.beta

    def gap(phi: Any) -> Any:
        return _centred(ask.at(ask.heads.gibbs_state(scale * phi))[0] / scale - phi)

    newton: Any = newton_krylov  # its stubs know scalar equations alone
    try:
        # the L1 distance of two Gibbs states is below the largest difference of their log-densities
        phi = newton(gap, _centred(start / scale), f_tol=0.1 * tolerance, maxiter=NEWTON_STEPS, method="lgmres")
        found = ask.heads.gibbs_state(scale * np.asarray(phi, dtype=float))
        _, _, after = ask.at(found)
        if after <= before + 1e-10 * max(1.0, abs(before)):
            return found, iterations, ask.heads.distance(found, rho)
    except (NoConvergence, ValueError, FloatingPointError):
        pass
    rho, more, residual = _descend(ask, rho, tolerance, most)
    return rho, iterations + more, residual


def _centred(psi: FloatArray) -> FloatArray:
    """psi less its mean over each layer: potentials are the same up to a constant."""
    axes = tuple(range(1, psi.ndim))
    return np.asarray(psi - psi.mean(axis=axes, keepdims=True))


def largest_eigenvalue(tokens: TokenSide, heads: FokkerPlanckHeads, rho: FloatArray) -> float:
    """The largest eigenvalue of the linearised map psi ↦ psi[Gibbs(psi)] at a Gibbs state; stable is below 1.

    Formula: T = −(1/beta) H (diag(rho) − rho rhoᵀ), H = δ²L/δrho² by differences of δL/δrho (exact where L is
    quadratic in rho); T is similar to the symmetric −S H S/beta, S = diag(√rho) less its mean, taken by Lanczos.
    Raises: MeanFieldError for layerwise heads; NotConvergedError.
    """
    if len(rho) != 1:
        raise MeanFieldError("stability is measured for heads shared over depth: set depth.shared = true")
    volume, root = heads.grid.cell_volume, np.sqrt(rho.ravel() * heads.grid.cell_volume)

    def potential(weights: FloatArray) -> FloatArray:
        law = (weights / volume).reshape(rho.shape)
        return tokens.first_variation(heads.measure(law)).potential.ravel()

    mass = root**2

    def apply(vector: FloatArray) -> FloatArray:
        change = root * vector.ravel()
        change = change - mass * change.sum()
        size = float(np.abs(change).sum())
        if size == 0.0:
            return np.zeros_like(root)
        h = PROBE / size
        slope = (potential(mass + h * change) - potential(mass - h * change)) / (2.0 * h)
        return np.asarray(root * (slope - float(mass @ slope)) / -heads.beta)

    operator = LinearOperator((len(root), len(root)), matvec=apply, dtype=np.float64)
    # any start with a share of every mode; fixed, so that the digits are those of any other run
    begin = np.random.default_rng(0).standard_normal(len(root)) * root
    if not apply(begin).any():
        return 0.0  # psi does not depend on rho
    try:
        values = eigsh(operator, k=1, which="LA", v0=begin, return_eigenvectors=False, tol=1e-13)
    except ArpackNoConvergence as error:
        raise NotConvergedError(f"the largest eigenvalue of the linearised map was not found: {error}") from None
    return float(values[0])


def critical_beta(
    side: Callable[[float], tuple[TokenSide, FokkerPlanckHeads, FloatArray]], lower: float, upper: float
) -> float:
    """The beta in [lower, upper] at which the state that begins at the uniform law loses stability: eigenvalue 1.

    ``side`` gives tokens, heads and the start for a beta.
    Raises: MeanFieldError unless the eigenvalue passes 1 between the two; NotConvergedError.
    """
    from scipy.optimize import brentq

    if not 0.0 < lower < upper:
        raise MeanFieldError(f"the critical beta is looked for between {lower:g} and {upper:g}: give 0 < lower < upper")

    def excess(beta: float) -> float:
        tokens, heads, start = side(beta)
        return largest_eigenvalue(tokens, heads, stationary_state(tokens, heads, start).rho) - 1.0

    ends = excess(lower), excess(upper)
    if ends[0] * ends[1] > 0:
        raise MeanFieldError(
            f"the largest eigenvalue of the linearised map is {1 + ends[0]:.6g} at beta = {lower:g} and "
            f"{1 + ends[1]:.6g} at {upper:g}: it passes 1 nowhere between them; take a wider interval"
        )
    return float(brentq(excess, lower, upper, xtol=1e-13, rtol=1e-13))
