"""Scalar heads trained by one Gaussian sequence and a quadratic loss stay Gaussian: the closed system in s.

rho_s(. | t) = N(η, C), ordered (w, a), one pair a layer or one in all. With c1, c2 of the layer,
η' = −(λI + c2 J)η − c1 e_w and C' = −(λI + c2 J)C − C(λI + c2 J) + 2βI, J = [[0, 1], [1, 0]] (docs/mathematics.md 5.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.library.gaussian_flow import flow, growth

RTOL, ATOL = 1e-12, 1e-14
SETTLED = 60.0  # in units of 1/weight_decay: from here on Newton finds the state at rest
J = np.array([[0.0, 1.0], [1.0, 0.0]])


@dataclass(frozen=True, slots=True)
class GaussianClosure:
    """The data of the closed system.

    Meaning: tokens start as N(m0, s0) and leak with rate ``leak``; the loss is ∫ (q0 + q1 x + q2 x²) dmu_T with
    ``loss`` = (q0, q1, q2); ``edges`` (groups + 1,) are the depths between which rho is the same: both ends alone
    when heads are ``shared``; ``eta0`` (2,) and ``C0`` = (C_ww, C_wa, C_aa) are those of every layer at s = 0.
    """

    m0: float
    s0: float
    leak: float
    loss: tuple[float, float, float]
    edges: tuple[float, ...]
    shared: bool
    beta: float
    weight_decay: float
    eta0: tuple[float, float]
    C0: tuple[float, float, float]

    @property
    def groups(self) -> int:
        """Laws of heads: one, or one a layer."""
        return len(self.edges) - 1

    @property
    def lengths(self) -> FloatArray:
        """Weight of each law in the free energy: 1, or its depth."""
        return np.ones(1) if self.shared else np.diff(self.edges)

    def tokens(self, eta: FloatArray, C: FloatArray, t: float | None = None) -> tuple[float, float]:
        """Mean and variance of the tokens at depth t (the last by default); eta (groups, 2), C (groups, 2, 2)."""
        end = self.edges[-1] if t is None else t
        m, s = self.m0, self.s0
        for k in range(self.groups):
            length = min(self.edges[k + 1], end) - self.edges[k]
            if length > 0.0:
                kappa = float(C[k, 0, 1] + eta[k, 0] * eta[k, 1])
                m, s = flow(m, s, float(eta[k, 0]), kappa, self.leak, length)
        return m, s

    def loss_of(self, eta: FloatArray, C: FloatArray) -> float:
        """q0 + q1 m_T + q2 (m_T² + s_T)."""
        m, s = self.tokens(eta, C)
        q0, q1, q2 = self.loss
        return q0 + q1 * m + q2 * (m * m + s)

    def gradient(self, eta: FloatArray, C: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (c1, c2) of δL/δrho = c1 w + c2 w a + const, each (groups,).

        Formula: layerwise c1 = m_T L_m and c2 = <e^{2ℓ(T−t)}> (m_T L_m s_T + 2 q2 s_T²), L_m = q1 + 2 q2 m_T, the
        bracket being the exact mean over the layer; shared heads have their integrals over depth.
        """
        m, s = self.tokens(eta, C)
        slope = m * (self.loss[1] + 2.0 * self.loss[2] * m)
        edges = np.array(self.edges)
        integral = np.array([growth(self.leak, edges[-1] - t) for t in edges])
        weights = -np.diff(integral)
        lengths = np.diff(edges)
        scale = lengths if self.shared else np.ones(self.groups)
        c2 = np.divide(scale * weights, lengths, out=np.ones_like(lengths), where=lengths > 0.0)
        return scale * slope, c2 * (slope * s + 2.0 * self.loss[2] * s * s)

    def state(self, s: float) -> tuple[FloatArray, FloatArray]:
        """eta (groups, 2) and C (groups, 2, 2) at training time s, ∞ too, integrated to relative 1e-12."""
        return _state(self, float(s))

    def free_energy(self, eta: FloatArray, C: FloatArray) -> float:
        """L + Σ Δt [(λ/2)(|η|² + tr C) − (β/2) log((2πe)² det C)], Δt = 1 for shared heads."""
        square = (eta**2).sum(axis=1) + np.trace(C, axis1=1, axis2=2)
        out = 0.5 * self.weight_decay * square
        if self.beta:
            out = out - 0.5 * self.beta * (2.0 * np.log(2.0 * np.pi * np.e) + np.linalg.slogdet(C)[1])
        return self.loss_of(eta, C) + float(self.lengths @ out)

    def rate(self, y: FloatArray) -> FloatArray:
        """Right-hand side for y (groups * 5,): η_w, η_a, C_ww, C_wa, C_aa of each law."""
        eta, C = unpacked(y)
        c1, c2 = self.gradient(eta, C)
        matrix = self.weight_decay * np.eye(2) + c2[:, None, None] * J
        eta_rate = -np.einsum("gij,gj->gi", matrix, eta)
        eta_rate[:, 0] -= c1
        C_rate = -matrix @ C - C @ matrix + 2.0 * self.beta * np.eye(2)
        return packed(eta_rate, C_rate)


def packed(eta: FloatArray, C: FloatArray) -> FloatArray:
    """(groups, 2) and (groups, 2, 2) as one vector."""
    return np.concatenate([eta, C[:, 0, :1], C[:, 0, 1:], C[:, 1, 1:]], axis=1).ravel()


def unpacked(y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The inverse of `packed`."""
    rows = y.reshape(-1, 5)
    return rows[:, :2].copy(), rows[:, [2, 3, 3, 4]].reshape(-1, 2, 2)


@lru_cache(maxsize=256)
def _state(closure: GaussianClosure, s: float) -> tuple[FloatArray, FloatArray]:
    C_ww, C_wa, C_aa = closure.C0
    return at_time(closure.rate, np.tile([*closure.eta0, C_ww, C_wa, C_aa], closure.groups), closure.weight_decay, s)


def at_time(
    rate: Callable[[FloatArray], FloatArray], y: FloatArray, weight_decay: float, s: float
) -> tuple[FloatArray, FloatArray]:
    """η (groups, 2) and C (groups, 2, 2) at training time s, ∞ too, from the packed start y; not to be written to."""
    if s == np.inf:
        y = at_rest(rate, y, weight_decay)
    elif s > 0.0:
        y = integrated(rate, y, s)
    eta, C = unpacked(y)
    eta.setflags(write=False)
    C.setflags(write=False)
    return eta, C


def integrated(rate: Callable[[FloatArray], FloatArray], y: FloatArray, s: float) -> FloatArray:
    """y at time s of y' = rate(y), to relative 1e-12. Raises: MeanFieldError if it cannot be reached."""
    from scipy.integrate import solve_ivp  # imported late: listing problems needs none of it

    found: Any = solve_ivp(lambda _, y: rate(y), (0.0, s), y, method="DOP853", t_eval=[s], rtol=RTOL, atol=ATOL)
    if not found.success:
        raise MeanFieldError(f"the closed system of the heads cannot be integrated to s = {s:g}: {found.message}")
    return np.asarray(found.y[:, -1])


def at_rest(rate: Callable[[FloatArray], FloatArray], y: FloatArray, weight_decay: float) -> FloatArray:
    """The state at rest that y' = rate(y) comes to. Raises: MeanFieldError if there is none near."""
    from scipy.optimize import root

    if not weight_decay > 0:
        raise MeanFieldError("without weight decay the closed system of the heads comes to no rest")
    found: Any = root(rate, integrated(rate, y, SETTLED / weight_decay), tol=1e-14)
    # a start at rest to rounding ends the search at once, as "no progress": only the rates count
    if not np.abs(found.fun).max() <= 1e-11:
        raise MeanFieldError(f"the closed system of the heads has no state at rest near {y}: {found.message}")
    return np.asarray(found.x)
