"""What is wrong with a sample that the mean-field limit does not explain: alternatives fitted to smooth statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.validation.effects import Effect

# an alternative with a smaller p-value does not explain the data
LEVEL = 0.01
# principal components of the correlations with less than this part of the largest variance are left out: the fine ones
# tell alternatives apart, but the errors of effects, of order 1/N and of interpolation, may be larger than their noise
RESOLUTIONS, GRID = (1e-5, 1e-4, 1e-3), 61


@dataclass(frozen=True, slots=True)
class StatisticalFit:
    """An alternative with what it leaves over.

    Meaning: ``p`` is the chance that noise leaves as much, χ² with ``freedom`` degrees; ``criterion`` is −2 log
    likelihood + 2 a parameter (Akaike 1974), up to a constant.
    """

    name: str
    words: str
    value: float | None
    left: float
    freedom: int
    p: float
    criterion: float


@dataclass(frozen=True, slots=True)
class StatisticalDiagnosis:
    """All fits, best first: those that explain (p ≥ .01) before others, each by their likelihood."""

    fits: tuple[StatisticalFit, ...]
    words: str

    @property
    def best(self) -> StatisticalFit | None:
        """The explanation; None if there is none."""
        return self.fits[0] if self.fits and self.fits[0].p >= LEVEL else None


def diagnose_by_statistics(
    difference: FloatArray, covariance: FloatArray, effects: tuple[Effect, ...]
) -> StatisticalDiagnosis:
    """The alternative that explains how observed statistics differ from predicted ones, or none of these.

    Formula: r = d − e(c), C(c) = D covariance D + noise of e(c), D = diag(spreads), in principal components of the
    correlations; −2 log likelihood = rᵀ C⁻¹ r + log det C is least over c, and rᵀ C⁻¹ r is χ² with as many degrees of
    freedom as components, one less for a parameter.
    Meaning: p-values are those of the finest resolution (components with 1e-5, 1e-4, 1e-3 of the largest variance) at
    which an alternative explains the difference; the order is that of the likelihoods at the finest one.
    Shapes: difference (K,), covariance (K, K) of the observed statistics if nothing is wrong; effects as by
    `effects_of`.
    Raises: MeanFieldError for shapes that do not fit.
    """
    count = len(difference)
    if covariance.shape != (count, count) or any(one.changes.shape[1] != count for one in effects):
        raise MeanFieldError(f"{count} statistics need a covariance ({count}, {count}) and effects of as many")
    fits: list[StatisticalFit] = []
    order: list[float] = []
    for resolution in RESOLUTIONS:
        parts = _components(covariance, resolution)
        fits = [_fit(difference, covariance, one, parts) for one in effects]
        order = order or [fit.criterion for fit in fits]
        if any(fit.p >= LEVEL for fit in fits):
            break
    ranked = sorted(zip(fits, order, strict=True), key=lambda pair: (pair[0].p < LEVEL, pair[1]))
    fits = [fit for fit, _ in ranked]
    return StatisticalDiagnosis(tuple(fits), _words(fits))


def _components(covariance: FloatArray, resolution: float) -> FloatArray:
    """Rows that give the principal components which are looked at, (components, K), whatever the units."""
    scale = np.sqrt(np.diag(covariance))
    if not scale.any():
        raise MeanFieldError("the covariance of the statistics is 0: take statistics that fluctuate")
    over = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0)
    values, vectors = np.linalg.eigh(over[:, None] * covariance * over)
    kept = values > resolution * values[-1]
    return np.asarray(vectors[:, kept].T * over)


def _fit(difference: FloatArray, covariance: FloatArray, effect: Effect, parts: FloatArray) -> StatisticalFit:
    def cost(value: float | None) -> tuple[float, float]:
        change, noise, spread = effect.at(value)
        r = parts @ (difference - change)
        matrix = parts @ (spread[:, None] * covariance * spread + noise) @ parts.T
        # an alternative may bring tokens together until nothing fluctuates
        factor = np.linalg.cholesky(matrix + 1e-12 * np.eye(len(matrix)))
        return float((np.linalg.solve(factor, r) ** 2).sum()), 2.0 * float(np.log(np.diag(factor)).sum())

    value = None
    if effect.interval is not None:
        grid = np.linspace(*effect.interval, GRID)
        k = int(np.argmin([sum(cost(float(c))) for c in grid]))
        around = (float(grid[max(k - 1, 0)]), float(grid[min(k + 1, GRID - 1)]))
        value = float(minimize_scalar(lambda c: sum(cost(float(c))), bounds=around, method="bounded").x)
    left, log_det = cost(value)
    freedom, fitted = len(parts) - (value is not None), 2.0 * (value is not None)
    p = float(chi2.sf(left, freedom)) if freedom > 0 else 1.0
    return StatisticalFit(effect.name, effect.words, value, left, freedom, p, left + log_det + fitted)


def _words(fits: list[StatisticalFit]) -> str:
    if not fits:
        return "There is no alternative to compare with."
    best = fits[0]
    value = "" if best.value is None else f", c = {best.value:.3g}"
    if best.p >= LEVEL:
        others = dict.fromkeys(fit.name for fit in fits[1:] if fit.p >= LEVEL and fit.name != best.name)
        more = f" Explained as well by: {', '.join(others)}." if others else ""
        return f"{best.name}: {best.words}{value}; it explains the statistics with p = {best.p:.2g}.{more}"
    return f"None of these: the nearest is {best.name} ({best.words}{value}), with p = {best.p:.1e}."
