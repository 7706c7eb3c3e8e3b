"""What an exact solution is, and how a problem that lost its form is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.problem import Problem


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact solution of a problem, for its own numbers.

    Meaning: ``observables`` maps a time (training time s, or depth t when tokens alone move) to named numbers:
    ``loss``, ``free_energy``, ``mean_0``, .., ``covariance_01``, .. of the heads' law averaged over depth,
    ``token_mean`` and ``token_variance`` of the final token law; for tokens alone ``mean_b0``, ``variance_b0``, ..
    one pair a training sequence, in several axes ``mean_b0_0``, .., ``covariance_b0_01``, .. ``mu`` (t, grid) gives
    cell averages, ``rho`` (s, grid) samples normalised on the grid (cell averages where ``cell_averaged``),
    ``first_variation`` (s, grid) the samples of δL/δrho, ``p`` (t, grid) those of the costate of each sequence's own
    loss; None is not known. ``limit`` says that the solution is known
    for s → ∞ alone: it is given from s_end on. ``order`` is the highest order that a scheme can show on it, where the
    law is not smooth or the attention is taken to a lower order: 0 asks no scheme for any, None asks each for its own.
    Shapes: mu and p (B, *cells), rho and first_variation (layers, *cells).
    """

    observables: Callable[[float], dict[str, float]]
    source: str
    mu: Callable[[float, Grid], FloatArray] | None = None
    rho: Callable[[float, Grid], FloatArray] | None = None
    first_variation: Callable[[float, Grid], FloatArray] | None = None
    p: Callable[[float, Grid], FloatArray] | None = None
    cell_averaged: bool = False
    limit: bool = False
    order: int | None = None


def require(holds: bool, problem: Problem, given: str, needed: str) -> None:
    """Refuse a problem whose form is not that of its reference.

    Raises: MeanFieldError naming what was given, what the exact solution needs, and the remedy.
    """
    if not holds:
        raise MeanFieldError(
            f"{given}, but the exact solution of reference = '{problem.reference}' needs {needed}: "
            "change it back, or remove the key reference"
        )


def token_moments(b: int, mean: FloatArray, covariance: FloatArray) -> dict[str, float]:
    """Mean (d,) and covariance (d, d) of the law of sequence b by the names of ``observables``."""
    d = len(mean)
    if d == 1:
        return {f"mean_b{b}": float(mean[0]), f"variance_b{b}": float(covariance[0, 0])}
    out = {f"mean_b{b}_{k}": float(mean[k]) for k in range(d)}
    return out | {f"covariance_b{b}_{k}{j}": float(covariance[k, j]) for k in range(d) for j in range(k, d)}
