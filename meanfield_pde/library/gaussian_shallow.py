"""One layer of attention on Gaussian tokens: heads stay Gaussian, and the loss is convex in their law."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, head_samples
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.gaussian_closure import J, at_time, packed, unpacked
from meanfield_pde.library.gaussian_tokens import gaussian_sequences
from meanfield_pde.library.parameters import Interval, Parameter, at, vector, widened
from meanfield_pde.problem import Problem, Sequence, Shallow

PARAMETERS: dict[str, Parameter] = {
    "m0": at("sequences.0.initial.mean.0"),
    "s0": at("sequences.0.initial.covariance.0.0"),
    "target": at("sequences.0.target", vector(2)),
    "eta0": at("heads.initial.mean", vector(2)),
    "C0": at("heads.initial.covariance", lambda value: ((value[0], value[1]), (value[1], value[2]))),
}


@dataclass(frozen=True, slots=True)
class ShallowClosure:
    """The closed system of rho = N(η, C), ordered (w, a), for tokens N(m0, s0) and the target y0 + y1 (x − m0).

    Formula: L = ½[(α − y0)² + s0 (κ s0 − y1)²], α = m0 (E w + κ s0), κ = E[wa];
    δL/δrho = c1 w + c2 w a + const, c1 = (α − y0) m0, c2 = c1 s0 + s0² (κ s0 − y1).
    Source: docs/mathematics.md 5.3.
    """

    m0: float
    s0: float
    y0: float
    y1: float
    beta: float
    weight_decay: float
    eta0: tuple[float, float]
    C0: tuple[float, float, float]

    def _gaps(self, eta: FloatArray, C: FloatArray) -> tuple[float, float]:
        """α − y0 and κ s0 − y1."""
        kappa = float(C[0, 1] + eta[0] * eta[1])
        return self.m0 * (float(eta[0]) + kappa * self.s0) - self.y0, kappa * self.s0 - self.y1

    def loss_of(self, eta: FloatArray, C: FloatArray) -> float:
        """L of N(eta, C); eta (2,), C (2, 2)."""
        level, slope = self._gaps(eta, C)
        return 0.5 * (level**2 + self.s0 * slope**2)

    def gradient(self, eta: FloatArray, C: FloatArray) -> tuple[float, float]:
        """c1 and c2."""
        level, slope = self._gaps(eta, C)
        c1 = level * self.m0
        return c1, c1 * self.s0 + self.s0**2 * slope

    def free_energy(self, eta: FloatArray, C: FloatArray) -> float:
        """L + (λ/2)(|η|² + tr C) − (β/2) log((2πe)² det C)."""
        out = self.loss_of(eta, C) + 0.5 * self.weight_decay * float((eta**2).sum() + np.trace(C))
        if self.beta:
            out -= 0.5 * self.beta * float(2.0 * np.log(2.0 * np.pi * np.e) + np.linalg.slogdet(C)[1])
        return out

    def rate(self, y: FloatArray) -> FloatArray:
        """Right-hand side for y (5,): η_w, η_a, C_ww, C_wa, C_aa."""
        eta, C = unpacked(y)
        c1, c2 = self.gradient(eta[0], C[0])
        matrix = self.weight_decay * np.eye(2) + c2 * J
        eta_rate = -eta @ matrix
        eta_rate[:, 0] -= c1
        return packed(eta_rate, -matrix @ C - C @ matrix + 2.0 * self.beta * np.eye(2))

    def state(self, s: float) -> tuple[FloatArray, FloatArray]:
        """η (2,) and C (2, 2) at training time s, ∞ too, integrated to relative 1e-12."""
        return _state(self, float(s))


@lru_cache(maxsize=256)
def _state(closure: ShallowClosure, s: float) -> tuple[FloatArray, FloatArray]:
    eta, C = at_time(closure.rate, np.array([*closure.eta0, *closure.C0]), closure.weight_decay, s)
    return eta[0], C[0]


def closure_of(problem: Problem) -> ShallowClosure:
    """The closed system of a shallow problem.

    Raises: MeanFieldError when the problem no longer has one: softmax, one Gaussian training sequence, the squared
    loss, a target of degree 1, a Gaussian law of heads.
    """
    require(problem.kind == "shallow", problem, f"kind = '{problem.kind}'", "kind = 'shallow'")
    require(problem.attention == "softmax", problem, f"attention = '{problem.attention}'", "attention = 'softmax'")
    loss = (problem.shallow or Shallow()).loss
    require(loss == "squared", problem, f"shallow.loss = '{loss}'", "shallow.loss = 'squared'")
    laws = gaussian_sequences(problem)
    require(len(laws) == 1, problem, f"{len(laws)} sequences train", "one training sequence")
    given = next(entry.target for entry in problem.sequences if isinstance(entry, Sequence) and entry.role == "train")
    row = given if isinstance(given, tuple) else (given,)
    require(not any(row[2:]), problem, f"target = {list(row)} of degree {len(row) - 1}", "a target of degree 1")
    t0, t1 = (*row, 0.0)[:2]
    assert problem.heads is not None
    assert problem.training is not None
    initial = problem.heads.initial
    require(isinstance(initial, Gaussian), problem, "heads.initial is not gaussian", "a gaussian law of heads")
    assert isinstance(initial, Gaussian)
    m0, s0 = laws[0]
    return ShallowClosure(
        m0,
        s0,
        float(t0) + float(t1) * m0,
        float(t1),
        float(problem.training.beta),
        float(problem.training.weight_decay),
        (float(initial.mean[0]), float(initial.mean[1])),
        (float(initial.covariance[0][0]), float(initial.covariance[0][1]), float(initial.covariance[1][1])),
    )


def exact(problem: Problem) -> Exact:
    """Loss, free energy, law of the heads and gradient at any training time, and at rest (s = ∞).

    Raises: MeanFieldError when the problem no longer has this form.
    Source: docs/mathematics.md 5.3.
    """
    closure = closure_of(problem)

    def observables(s: float) -> dict[str, float]:
        eta, C = closure.state(s)
        names = {f"mean_{j}": float(eta[j]) for j in range(2)}
        names |= {f"covariance_{j}{k}": float(C[j, k]) for j in range(2) for k in range(j, 2)}
        return {"loss": closure.loss_of(eta, C), "free_energy": closure.free_energy(eta, C), **names}

    def rho(s: float, grid: Grid) -> FloatArray:
        eta, C = closure.state(s)
        return head_samples(Gaussian((eta[0], eta[1]), tuple(map(tuple, C.tolist()))), grid)[None]

    def first_variation(s: float, grid: Grid) -> FloatArray:
        c1, c2 = closure.gradient(*closure.state(s))
        w, a = grid.centers(0)[:, None], grid.centers(1)[None, :]
        return np.asarray((c1 * w + c2 * w * a)[None])

    return Exact(observables, "docs/mathematics.md 5.3", rho=rho, first_variation=first_variation)


def fitted(problem: Problem, given: Collection[str]) -> Problem:
    """The problem with boxes that hold tokens and heads at every training time."""
    assert problem.training is not None
    closure = closure_of(problem)
    heads: tuple[list[Interval], list[Interval]] = ([], [])
    for s in np.linspace(0.0, problem.training.s_end, 9).tolist():
        eta, C = closure.state(s)
        for k in range(2):
            heads[k].append((float(eta[k]), float(C[k, k]) ** 0.5, 5.3))
    problem = widened(problem, "tokens", "", given, [[(closure.m0, closure.s0**0.5, 6.5)]])
    return widened(problem, "heads", "head_", given, list(heads))
