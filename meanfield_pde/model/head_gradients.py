"""How the matrices A and W of a head change with theta: cotangents of them carried to theta."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.heads import HeadFunction, head_matrices

# central difference of order 6: f' = Σ c_k (f(k h) − f(−k h))/h, k = 1, 2, 3 (Fornberg 1988, table 1)
SIXTH = (3.0 / 4.0, -3.0 / 20.0, 1.0 / 60.0)
# where its error h^6 and the rounding eps/h are alike
STEP = 6e-3


def to_theta(
    family: str | HeadFunction, theta: FloatArray, to_scores: FloatArray, to_values: FloatArray
) -> FloatArray:
    """∂/∂theta of Σ_k <to_scores_k, A(theta_k)> + <to_values_k, W(theta_k)> for each head, (K, q).

    Formula: for the families of `heads.axes_of` in closed form; for a user's own function by the central difference of
    order 6 with the step 6e-3 max(1, |theta_i|).
    Shapes: theta (K, q), to_scores and to_values (K, d, d).
    Raises: MeanFieldError for families that have no A and W.
    """
    if callable(family):
        return _by_differences(family, theta, to_scores, to_values)
    out = np.empty(theta.shape)
    if family == "matrix":
        return np.concatenate([to_values.reshape(len(theta), -1), to_scores.reshape(len(theta), -1)], axis=1)
    out[:, 0] = np.trace(to_values, axis1=1, axis2=2)
    if family == "scalar":
        out[:, 1] = np.trace(to_scores, axis1=1, axis2=2)
    elif family == "diagonal":
        out[:, 1:] = np.diagonal(to_scores, axis1=1, axis2=2)
    elif family == "rotation":
        a, c, s = theta[:, 1], np.cos(theta[:, 2]), np.sin(theta[:, 2])
        even, odd = np.trace(to_scores, axis1=1, axis2=2), to_scores[:, 1, 0] - to_scores[:, 0, 1]
        out[:, 1], out[:, 2] = c * even + s * odd, a * (c * odd - s * even)
    else:
        raise MeanFieldError(f"heads of family {family!r} have no score and value matrices to differentiate")
    return out


def stencil(theta: FloatArray) -> FloatArray:
    """The points theta ± k h e_i, k = 1, 2, 3, that `by_stencil` takes values at, (6 q, K, q) for theta (K, q)."""
    q = theta.shape[1]
    out = np.repeat(theta[None], 6 * q, axis=0)
    for axis in range(q):
        step = STEP * np.maximum(1.0, np.abs(theta[:, axis]))
        for k in range(3):
            out[6 * axis + 2 * k, :, axis] += (k + 1) * step
            out[6 * axis + 2 * k + 1, :, axis] -= (k + 1) * step
    return out


def by_stencil(theta: FloatArray, values: FloatArray) -> FloatArray:
    """The central difference of order 6 of a function with ``values`` (6 q, K) at the stencil of theta, (K, q)."""
    pairs = values.reshape(theta.shape[1], 3, 2, -1)
    slopes = np.einsum("k,akn->na", np.array(SIXTH), pairs[:, :, 0] - pairs[:, :, 1])
    return np.asarray(slopes / (STEP * np.maximum(1.0, np.abs(theta))))


def _by_differences(
    family: HeadFunction, theta: FloatArray, to_scores: FloatArray, to_values: FloatArray
) -> FloatArray:
    points = stencil(theta)
    made = head_matrices(family, points.reshape(-1, theta.shape[1]), to_scores.shape[1])
    shape = (len(points), *to_scores.shape)
    scores, values = made.scores[made.index].reshape(shape), made.values.reshape(shape)
    return by_stencil(theta, (to_scores * scores + to_values * values).sum(axis=(2, 3)))
