"""Attention whose weights are normalised over the queries instead of the keys: a fault that codes have.

v(x_i) = W Σ_j y_j w_j e^{s_ij}/D_j, D_j = Σ_i w_i e^{s_ij}; s_ij = <A x_i, y_j>, for l2 −<A(x_i − y_j), x_i − y_j>/2.
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.table import certified
from meanfield_pde.particles.velocity import NO_TILT, softmax_means


def over_queries(
    attention: str, heads: HeadMatrices, weights: FloatArray, points: FloatArray, masses: FloatArray
) -> FloatArray:
    """V at the tokens by direct sums, softmax or l2.

    Formula: with q_i = 0 (l2: −<A x_i, x_i>/2) and S_j = Σ_i w_i e^{<A x_i, y_j> + q_i}, Σ_A W̄ e^{q_i} Σ_j w_j y_j
    e^{<A x_i, y_j>}/S_j: what depends on y_j alone cancels.
    Shapes: weights (K,), points (n, d), masses (n,); result (n, d).
    Cost: 2 n² exponentials for each distinct A.
    """
    out = np.zeros(points.shape)
    for score, value in zip(heads.scores, heads.mean_values(weights), strict=True):
        own = -0.5 * np.einsum("ni,ij,nj->n", points, score, points) if attention == "l2" else NO_TILT
        log_sums = softmax_means(points @ score, points, masses, own)[1]
        means, log_z = softmax_means(points @ score.T, points, masses, -log_sums)
        size = np.exp(log_z + own) if attention == "l2" else np.exp(log_z)
        out += (size[:, None] * means) @ value.T
    return out


def over_queries_line(
    heads: HeadMatrices, weights: FloatArray, points: FloatArray, masses: FloatArray, tolerance: float
) -> tuple[FloatArray, float]:
    """V at tokens on a line by tables, softmax, and the largest error found between their nodes.

    Formula: log D_j = a c y_j + Λ(a y_j), Λ(z) = log Σ_i w_i e^{z (x_i − c)}, c the mean; Λ and V are polynomials.
    Cost: n_A q n exponentials instead of 2 n_A n².
    """
    x, y = points[:, 0], points
    scales, values = heads.scores[:, 0, 0], heads.mean_values(weights)[:, 0, 0]
    low, high = float(x.min()), float(x.max())
    corners = np.outer(scales, [low, high])
    centre = float((masses * x).sum()) / float(masses.sum())
    centred = points - centre
    growth = 0.5 * float(corners.max() - corners.min()) * float(np.abs(centred).max())

    def log_laplace(z: FloatArray) -> FloatArray:
        return softmax_means(z[:, None], centred, masses)[1]

    log_sums, error = certified(log_laplace, float(corners.min()), float(corners.max()), growth, tolerance, 1.0)
    tilts = [-log_sums(a * x) for a in scales]

    def velocity(at: FloatArray) -> FloatArray:
        out = np.zeros(at.shape)
        for a, w, tilt in zip(scales, values, tilts, strict=True):
            means, log_z = softmax_means(a * (at[:, None] - centre), y, masses, tilt)
            out += w * means[:, 0] * np.exp(log_z)
        return out

    found, more = certified(velocity, low, high, growth, tolerance)
    return found(x)[:, None], max(error, more)


