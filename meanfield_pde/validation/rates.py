"""Rates of convergence from errors of repeated runs: a log-log slope, its bootstrap interval, and a floor taken off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import f as f_law
from scipy.stats import norm
from scipy.stats import t as student

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.validation.rate_floors import fitted_floor

# with fewer runs at a size nothing is said of noise
LEAST_RUNS = 4
RESAMPLES = 4000
# a line and a floor are three numbers
LEAST_SIZES, LEAST_FOR_FLOOR = 2, 4
# below this level the points are said not to lie on one line
BENT = 0.01


@dataclass(frozen=True, slots=True)
class Rate:
    """error ≈ factor · size^slope above a floor, from ``runs`` independent runs at each of the ``sizes``.

    Shapes: sizes, errors (k,).
    Meaning: ``errors`` are root mean squares over the runs, the floor still in them; ``lower`` and ``upper`` bound the
    slope at ``level``, None where a size has fewer than 4 runs. ``straight`` is the p-value of the points lying on one
    line, None where it is not measured: the interval is that of the noise alone and says nothing of a bend.
    """

    sizes: FloatArray
    errors: FloatArray
    runs: tuple[int, ...]
    slope: float
    lower: float | None
    upper: float | None
    level: float
    factor: float
    floor: float
    fitted: bool
    straight: float | None

    @property
    def above(self) -> FloatArray:
        """The errors without the floor: (errors² − floor²)^{1/2}, 0 where a fitted floor is higher."""
        return np.asarray(np.sqrt(np.maximum(self.errors**2 - self.floor**2, 0.0)))

    def words(self, size: str = "N") -> str:
        """One or two sentences."""
        low, high = (f"{int(n)}" if n == int(n) else f"{n:g}" for n in (self.sizes.min(), self.sizes.max()))
        runs = f"{min(self.runs)}" if len(set(self.runs)) == 1 else f"{min(self.runs)} to {max(self.runs)}"
        said = f"error ~ {size}^{self.slope:.4g}"
        if self.lower is not None and self.upper is not None:
            said += f", {100 * self.level:g} % interval [{self.lower:.4g}, {self.upper:.4g}]"
        said += f", from {len(self.sizes)} sizes {size} = {low} to {high} with {runs} runs each"
        if self.lower is None:
            said += f" (no interval: it takes {LEAST_RUNS} runs at each size)"
        if self.fitted or self.floor > 0:
            said += f"; a floor of {self.floor:.2e}{' (fitted)' if self.fitted else ''} is taken off in quadrature"
        if self.straight is not None and self.straight < BENT:
            said += f". The points are not on one line (p = {self.straight:.1e}): the slope changes over these sizes"
        return said + "."


def fit_rate(
    sizes: Sequence[float] | FloatArray,
    errors: Sequence[FloatArray] | FloatArray,
    *,
    floor: float | str = 0.0,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    paired: bool = False,
) -> Rate:
    """The slope a of log E(n) = log C + a log n, E(n)² = mean over runs of error² − floor², with its interval.

    Formula: least squares with a weight of one a run; the interval is the percentile bootstrap over runs, at levels
    Φ(√(r/(r−1)) t) for t the quantile of Student's law, which makes up for few runs r. The floor, what the error would
    be at infinite size (grid, layers), comes off **in quadrature**: for a distance ‖X − Q‖ of L2 kind such as W2 on a
    line, ‖X − Q′‖² = ‖X − Q‖² + ‖Q − Q′‖² + 2⟨X − Q, Q − Q′⟩, and over runs the last term is of the order of the bias
    E X − Q, smaller than the rest. ``floor = "fit"`` takes E² = C² n^{2a} + floor² with all three fitted.
    Shapes: errors[k] (runs_k,) at sizes[k]. ``paired``: entry j is the same run at every size (the same tokens, say),
    and runs are resampled as wholes.
    Raises: MeanFieldError for sizes or errors that do not fit, and where an error is not clear of the floor.
    Source: Efron and Tibshirani 1993, chapter 13 (percentiles); Hesterberg 2015, section 4.2 (few runs).
    """
    size, given = _checked(sizes, errors, paired)
    if not 0.0 < level < 1.0:
        raise MeanFieldError(f"level = {level} must be between 0 and 1, such as 0.95")
    fitted = isinstance(floor, str)
    if isinstance(floor, str) and floor != "fit":
        raise MeanFieldError(f"floor = '{floor}': give a number ≥ 0, or 'fit'")
    if fitted and len(size) < LEAST_FOR_FLOOR:
        raise MeanFieldError(f"a floor is fitted from at least {LEAST_FOR_FLOOR} sizes, not {len(size)}: give it")
    if not isinstance(floor, str) and not (np.isfinite(floor) and floor >= 0):
        raise MeanFieldError(f"floor = {floor} must be a finite number ≥ 0, or 'fit'")
    runs = np.array([len(one) for one in given])
    enough = int(runs.min()) >= LEAST_RUNS
    squares = np.array([[np.mean(one**2) for one in given]])
    if enough:
        squares = np.concatenate([squares, _resampled(given, resamples, seed, paired)])
    if isinstance(floor, str):
        slopes, logs, below = fitted_floor(size, squares, runs)
    else:
        below = np.full(len(squares), float(floor) ** 2)
        _check_clear(size, squares, float(floor))
        slopes, logs = _lines(np.log(size), 0.5 * np.log(squares - below[:, None]), runs)
    lower = upper = straight = None
    if enough:
        least, freedom = int(runs.min()), int(runs[0] - 1 if paired else (runs - 1).sum())
        wide = np.sqrt(least / (least - 1)) * student.ppf([0.5 * (1 - level), 0.5 * (1 + level)], freedom)
        lower, upper = (float(end) for end in np.quantile(slopes[1:], norm.cdf(wide)))
        if not fitted and len(size) > LEAST_SIZES:
            straight = _straight(np.log(size), 0.5 * np.log(squares - below[:, None]), runs, least, freedom)
    return Rate(
        size, np.sqrt(squares[0]), tuple(runs.tolist()), float(slopes[0]), lower, upper, level,
        float(np.exp(logs[0])), float(np.sqrt(below[0])), fitted, straight,
    )  # fmt: skip


def _checked(
    sizes: Sequence[float] | FloatArray, errors: Sequence[FloatArray] | FloatArray, paired: bool
) -> tuple[FloatArray, list[FloatArray]]:
    """Sizes in rising order with the errors at each."""
    size = np.asarray(sizes, dtype=float)
    given = [np.asarray(one, dtype=float) for one in errors]
    if size.ndim != 1 or len(size) != len(given):
        raise MeanFieldError(f"{len(given)} lists of errors for sizes of shape {size.shape}: give one for each size")
    if len(size) < LEAST_SIZES or len(np.unique(size)) != len(size) or not (np.isfinite(size) & (size > 0)).all():
        raise MeanFieldError(f"sizes = {size.tolist()} must be at least {LEAST_SIZES} different numbers > 0")
    for n, one in zip(size, given, strict=True):
        if one.ndim != 1 or not len(one):
            raise MeanFieldError(f"errors at size {n:g} have shape {one.shape}: give one number a run")
        if not (np.isfinite(one) & (one >= 0)).all():
            raise MeanFieldError(f"errors at size {n:g} must be finite and ≥ 0: {one[~(one >= 0)][:3].tolist()}")
        if not one.any():
            raise MeanFieldError(f"all errors at size {n:g} are 0: there is no rate to fit, leave this size out")
    if paired and len({len(one) for one in given}) > 1:
        raise MeanFieldError(f"paired runs must be as many at each size, not {[len(one) for one in given]}")
    order = np.argsort(size)
    return size[order], [given[k] for k in order]


def _resampled(given: list[FloatArray], resamples: int, seed: int, paired: bool) -> FloatArray:
    """Mean squares (resamples, k) of runs drawn with replacement."""
    if isinstance(resamples, bool) or resamples < 100:
        raise MeanFieldError(f"resamples = {resamples}: at least 100 are needed")
    rng = np.random.default_rng(seed)
    out = np.empty((resamples, len(given)))
    counts = None
    for k, one in enumerate(given):
        if counts is None or not paired:
            counts = rng.multinomial(len(one), np.full(len(one), 1.0 / len(one)), size=resamples)
        out[:, k] = counts @ (one**2) / len(one)
    return out


def _check_clear(size: FloatArray, squares: FloatArray, floor: float) -> None:
    low = np.flatnonzero((squares <= floor**2).any(axis=0))
    if len(low):
        k = int(low[0])
        known = f" of {floor:.2e}" if floor > 0 else ", which is 0"
        raise MeanFieldError(
            f"the error {np.sqrt(squares[0, k]):.2e} at size {size[k]:g} is not clear of the floor{known}, or would "
            "not be with other runs: leave this size out, take more runs, or lower the floor (a finer grid)"
        )


def _lines(x: FloatArray, y: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes and values at x = 0 of weighted lines through every row of y."""
    share = weights / weights.sum()
    across = share * (x - share @ x)
    slope = y @ across / (across @ x)
    return slope, y @ share - slope * (share @ x)


def _straight(x: FloatArray, y: FloatArray, weights: FloatArray, least: int, freedom: int) -> float:
    """p-value of row 0 of y lying on a line, from the scatter of the other rows: Hotelling's test of the residuals."""
    share = weights / weights.sum()
    basis = np.stack([np.ones(len(x)), x], axis=1)
    rest = np.eye(len(x)) - basis @ np.linalg.solve(basis.T * share @ basis, basis.T * share)
    scatter = rest @ np.atleast_2d(np.cov(y[1:], rowvar=False)) @ rest.T * (least / (least - 1))
    left = len(x) - 2
    # the residuals live in a space of two dimensions less
    values, vectors = (part[..., -left:] for part in np.linalg.eigh(scatter))
    inner = vectors.T @ (rest @ y[0])
    if not values.min() > 0:
        return 1.0 if not inner.any() else 0.0
    return float(f_law.sf((inner**2 / values).sum() / left, left, freedom))
