"""Sinkhorn attention: v(x, theta; mu) = W E_π[y | x], π = e^{φ(x) + <Ax,y> + χ(y)} mu⊗mu with both marginals mu.

At any x the conditional mean is the softmax mean of e^χ mu at the key A x. Source: Sander, Ablin, Blondel & Peyré
(2022), sec. 3; Sinkhorn & Knopp (1967) for the iteration, Schmitzer (2019), sec. 3.3, for absorbing the potentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotConvergedError
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import shares
from meanfield_pde.model.lattice import Lattice

# largest |log of a marginal's ratio| left by the iteration, weighted as mass is
TOLERANCE = 1e-13
ITERATIONS, ABSORB = 20000, 20
SOLVES = 1000
# the coupling of a law is one dense matrix over its cells
MOST_CELLS = 4096


def scaled_coupling(score: FloatArray, phi: FloatArray, chi: FloatArray, q: FloatArray) -> FloatArray:
    """S = √q_i e^{φ_i + s_ij + χ_j} √q_j: the coupling over √(q_i q_j), whose entries are at most 1 at a solution."""
    half = 0.5 * np.log(q)
    return np.asarray(np.exp(score + (phi + half)[:, None] + (chi + half)[None, :]))


def potentials(score: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """φ and χ on cells of weight q > 0 with Σ_j e^{φ_i + s_ij + χ_j} q_j = 1 = Σ_i q_i e^{φ_i + s_ij + χ_j}.

    Meaning: a symmetric score has φ = χ, found by averaging each step with the one before; else steps alternate.
    Shapes: score (n, n), q (n,), potentials (n,).
    Raises: NotConvergedError when the marginals do not come within 1e-13.
    """
    symmetric = bool((score == score.T).all())
    log_q, root = np.log(q), np.sqrt(q)
    chi = -0.5 * np.diagonal(score).clip(min=0.0)
    phi = -_log_sum(score + (chi + log_q)[None, :])
    if symmetric:
        phi = chi = 0.5 * (phi + chi)
        phi = chi = 0.5 * (chi - _log_sum(score + (chi + log_q)[None, :]))
    else:
        chi = -_log_sum(score.T + (phi + log_q)[None, :])
    gap = np.inf
    # a coupling so strong that rows of it vanish ends in a gap that is not finite
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for _ in range(ITERATIONS // ABSORB):
            s = scaled_coupling(score, phi, chi, q)
            # multipliers stay near 1 between two absorptions, so nothing over- or underflows
            a, b = np.ones_like(q), np.ones_like(q)
            for _ in range(ABSORB):
                if symmetric:
                    now = root / (s @ (root * a))
                    gap = float((q * np.abs(np.log(now / a))).sum())
                    a = b = np.sqrt(a * now)
                else:
                    a = root / (s @ (root * b))
                    now = root / (a * root @ s)
                    gap = float((q * np.abs(np.log(now / b))).sum())
                    b = now
                if not gap > TOLERANCE * q.sum():
                    break
            phi, chi = phi + np.log(a), chi + np.log(b)
            if gap <= TOLERANCE * q.sum():
                return phi, chi
            if not np.isfinite(gap):
                break
    raise NotConvergedError(
        f"the potentials of Sinkhorn attention miss their marginals by {gap:.1e} after at most {ITERATIONS} iterations "
        f"at scores from {score.min():.3g} to {score.max():.3g}: "
        "make the box of the heads smaller (a weaker coupling), or take more token cells"
    )


def _log_sum(values: FloatArray) -> FloatArray:
    """log Σ_j e^{values_ij}."""
    top = values.max(axis=1)
    return np.asarray(top + np.log(np.exp(values - top[:, None]).sum(axis=1)))


def variation(s: FloatArray, q: FloatArray, c: FloatArray) -> FloatArray:
    """What a functional of χ and log q with the derivative q c in both changes by per weight q at the fixed point.

    Formula: P, R the conditional means of the coupling given the first and the second token; β solves
    (I - R P) β = c, the result is β - P β. Differentiate Σ_j P_ij (dχ_j + d log q_j) = -dφ_i and its mirror image.
    Shapes: s (n, n) of `scaled_coupling`, q and c (n,) with Σ q c = 0.
    Raises: NotConvergedError when conjugate gradients do not reach 1e-13.
    """
    root = np.sqrt(q)
    # R P is symmetric once scaled by √q; its eigenvalue 1 belongs to constants, which c and β - P β do not see: it is
    # moved to 0
    rhs = root * c
    unit = root / np.sqrt(q.sum())
    solution, residual = np.zeros_like(q), rhs - unit * (unit @ rhs)
    direction, square = residual.copy(), float(residual @ residual)
    target = (1e-15 * float(np.sqrt((rhs * rhs).sum()))) ** 2
    for _ in range(SOLVES):
        if not square > target:
            break
        image = direction - (s @ direction) @ s + unit * (unit @ direction)
        step = square / float(direction @ image)
        solution += step * direction
        residual -= step * image
        before, square = square, float(residual @ residual)
        direction = residual + (square / before) * direction
    if not square <= 1e4 * target:
        raise NotConvergedError(
            "the first variation of Sinkhorn attention does not converge: the coupling is nearly deterministic, make "
            "the box of the heads smaller"
        )
    # once through the fixed point, so that thin tails are as accurate as the bulk
    beta = c + (s.T @ (s @ solution)) / root
    return np.asarray(beta - (s @ (root * beta)) / root)


@dataclass(frozen=True, slots=True)
class SinkhornField:
    """The assembled field of Sinkhorn attention, for any A, on the sample weights of the lattice.

    Meaning: `moments` (B, 1 + n_A, n) holds the masses and, for each distinct A, χ on the cells with mass.
    Cost: about 50 n² multiply-adds and n² + n n_target exponentials a law, distinct A and stage: meant for a line,
    and for coarse grids in the plane.
    Raises: MeanFieldError for more than 4096 cells.
    """

    heads: HeadMatrices
    weights: FloatArray
    targets: tuple[Target, ...]
    lattice: Lattice
    rows: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.lattice.points)
        if n > MOST_CELLS:
            raise MeanFieldError(
                f"attention = 'sinkhorn' couples all pairs of {n} token cells, at most {MOST_CELLS} are covered: "
                "take fewer cells"
            )
        values = self.heads.mean_values(self.weights)
        object.__setattr__(self, "rows", tuple(values[:, t.component, :] for t in self.targets))

    def _score(self, head: int, x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(x @ self.heads.scores[head].T @ y.T)

    def _pairs(self, head: int, y: FloatArray) -> FloatArray:
        """Scores between cells; rounding must not hide that those of a symmetric A are symmetric."""
        score, a = self._score(head, y, y), self.heads.scores[head]
        return 0.5 * (score + score.T) if (a == a.T).all() else score

    def moments(self, weights: FloatArray) -> FloatArray:
        """Masses and potentials χ, (B, 1 + n_A, n)."""
        out = np.zeros((len(weights), 1 + len(self.heads.scores), weights.shape[1]))
        out[:, 0] = weights
        for law, q in enumerate(self.lattice.samples(weights)):
            on = q > 0.0
            if not on.any():
                raise MeanFieldError("Sinkhorn attention of a law without mass: give at least one positive weight")
            for head in range(len(self.heads.scores)):
                score = self._pairs(head, self.lattice.points[on])
                out[law, 1 + head, on] = potentials(score, q[on])[1]
        return out

    def _shares(self, which: int, head: int, q: FloatArray, chi: FloatArray) -> FloatArray:
        """e^{<Ax,y> + χ(y)}/Z at each point of a target, (n_target, n)."""
        return shares(self._score(head, self.targets[which].points, self.lattice.points) + chi, q)

    def velocity(self, moments: FloatArray) -> tuple[FloatArray, ...]:
        """Σ_A (W̄_A E_π[y | x])_c at each target, (B, n_target)."""
        out = tuple(np.zeros((len(moments), len(t.points))) for t in self.targets)
        y = self.lattice.points
        for law, q in enumerate(self.lattice.samples(moments[:, 0])):
            for which, rows in enumerate(self.rows):
                for head, row in enumerate(rows):
                    out[which][law] += self._shares(which, head, q, moments[law, 1 + head]) @ (q * (y @ row))
        return out

    def to_mu(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the masses, (B, n), by implicit differentiation of the potentials."""
        laws = self.lattice.samples(moments[:, 0])
        out, y = np.zeros_like(laws), self.lattice.points
        for law, q in enumerate(laws):
            on = q > 0.0
            for head in range(len(self.heads.scores)):
                chi = moments[law, 1 + head]
                pulled = np.zeros(len(q))
                for which, rows in enumerate(self.rows):
                    share = self._shares(which, head, q, chi)
                    along, g = y @ rows[head], cotangents[which][law]
                    pulled += along * (g @ share) - (g * (share @ (q * along))) @ share
                score = self._pairs(head, y[on])
                phi = -_log_sum(score + (chi[on] + np.log(q[on]))[None, :])
                out[law, on] += variation(scaled_coupling(score, phi, chi[on], q[on]), q[on], pulled[on])
        return self.lattice.samples_transpose(moments[:, 0], out)

    def to_rho(self, cotangents: tuple[FloatArray, ...], moments: FloatArray) -> FloatArray:
        """Transpose in the head weights, (K,): <W_k, Σ_x g(x) e_c ⊗ E_π[y | x]>."""
        gradient = np.zeros_like(self.heads.scores)
        y = self.lattice.points
        for law, q in enumerate(self.lattice.samples(moments[:, 0])):
            for which, target in enumerate(self.targets):
                for head in range(len(gradient)):
                    share = self._shares(which, head, q, moments[law, 1 + head])
                    gradient[head, target.component] += ((cotangents[which][law] @ share) * q) @ y
        return self.heads.contract(gradient)
