"""The velocity of a head law at any points, for tokens that are a measure of width 0: direct sums, memory O(N)."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.kernels.token_means import token_means
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import LARGEST
from meanfield_pde.model.perceptron import PerceptronField, Perceptrons

ALLOWED = ("softmax", "linear", "l2", "unnormalised", "none")
ON_CIRCLE = ("softmax", "unnormalised", "none")
NO_TILT = np.empty(0)


def softmax_means(
    keys: FloatArray, points: FloatArray, masses: FloatArray, tilt: FloatArray = NO_TILT
) -> tuple[FloatArray, FloatArray]:
    """m(z) = Σ y e^{<z,y> + tilt} w/Σ e^{<z,y> + tilt} w at keys (K, d), and log of the denominator, (K,).

    Shapes: points (n, d), masses (n,) >= 0, tilt (n,) or none.
    """
    means, log_z = np.empty(keys.shape), np.empty(len(keys))
    token_means(np.ascontiguousarray(keys), np.ascontiguousarray(points.T), masses, tilt, means, log_z)
    return means, log_z


def attention_velocity(
    attention: str,
    heads: HeadMatrices,
    weights: FloatArray,
    points: FloatArray,
    masses: FloatArray,
    at: FloatArray,
) -> FloatArray:
    """V(x) = Σ_k rho_k v(x, theta_k; mu) at points ``at`` (m, d) for mu = Σ masses δ_points, (m, d).

    Formula: with W̄ the mean of W over the heads that share a score matrix A, softmax Σ_A W̄ m(A x), linear
    Σ_A W̄ M2 A x, l2 Σ_A W̄ m̃(A x) with the tilt −<Ay, y>/2, unnormalised Σ_A W̄ Z(A x) m(A x).
    Shapes: weights (K,) of the heads, points (n, d), masses (n,) >= 0 with a positive sum.
    Cost: n m exponentials for each distinct A, in memory O(n + m); linear O(n + m).
    Raises: MeanFieldError for an unnormalised kernel beyond e^600.
    """
    values = heads.mean_values(weights)
    if attention == "linear":
        # no product of BLAS over the tokens: its sums depend on its threads
        second = np.stack([(masses * column * points.T).sum(axis=1) for column in points.T])
        return np.asarray(at @ np.einsum("aij,jk,akl->li", values, second, heads.scores))
    out = np.zeros(at.shape)
    for score, value in zip(heads.scores, values, strict=True):
        keys = at @ score.T
        tilt = -0.5 * np.einsum("ni,ij,nj->n", points, score, points) if attention == "l2" else NO_TILT
        means, log_z = softmax_means(keys, points, masses, tilt)
        if attention == "unnormalised":
            largest = float(log_z.max())
            if not largest <= LARGEST:
                raise MeanFieldError(
                    f"attention = 'unnormalised' reaches e^{largest:.0f} on these tokens, at most e^{LARGEST:.0f} is "
                    "summed: take smaller heads or tokens, or attention = 'softmax'"
                )
            means *= np.exp(log_z)[:, None]
        out += means @ value.T
    return out


def perceptron_velocity(heads: Perceptrons, weights: FloatArray, at: FloatArray, dim: int) -> FloatArray:
    """Σ_k rho_k w_k tanh(<a_k, x> + c_k) at points ``at`` (m, d), (m, d)."""
    field = PerceptronField(heads, weights, tuple(Target(at, c) for c in range(dim)))
    return np.stack(field.given, axis=1)


def check_attention(attention: str, circle: bool) -> None:
    """Refuse attentions that particles do not have."""
    allowed = ON_CIRCLE if circle else ALLOWED
    if attention not in allowed:
        place = " on the circle" if circle else ""
        raise MeanFieldError(
            f"attention = {attention!r} is not covered for particles{place}: allowed: {', '.join(allowed)}"
        )
