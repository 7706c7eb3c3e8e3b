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


def _by_differences(
    family: HeadFunction, theta: FloatArray, to_scores: FloatArray, to_values: FloatArray
) -> FloatArray:
    dim = to_scores.shape[1]

    def paired(points: FloatArray) -> FloatArray:
        made = head_matrices(family, points, dim)
        return np.asarray((to_scores * made.scores[made.index] + to_values * made.values).sum(axis=(1, 2)))

    out = np.zeros(theta.shape)
    for axis in range(theta.shape[1]):
        step = STEP * np.maximum(1.0, np.abs(theta[:, axis]))
        for k, share in enumerate(SIXTH, start=1):
            for sign in (1.0, -1.0):
                moved = theta.copy()
                moved[:, axis] += sign * k * step
                out[:, axis] += sign * share / step * paired(moved)
    return out
