"""Attention whose weights are those of the first stage of a layer in all its stages: a fault that codes have.

v(x_i) = W Σ_j P_ij y_j, P_ij = w_j e^{s_ij}/Σ_k w_k e^{s_ik}: s at the first stage, y_j the tokens of now.
"""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.particles.table import certified
from meanfield_pde.particles.velocity import NO_TILT, softmax_means


def frozen_velocity(
    attention: str, heads: HeadMatrices, weights: FloatArray, first: FloatArray, now: FloatArray, masses: FloatArray
) -> FloatArray:
    """V at the tokens by direct sums, softmax or l2: the means of points (first, now) at keys (A x, 0).

    Shapes: weights (K,), first and now (n, d), the tokens at the first stage and at this one, masses (n,).
    Cost: n² exponentials for each distinct A.
    """
    dim = now.shape[1]
    both, out = np.concatenate([first, now], axis=1), np.zeros(now.shape)
    for score, value in zip(heads.scores, heads.mean_values(weights), strict=True):
        tilt = -0.5 * np.einsum("ni,ij,nj->n", first, score, first) if attention == "l2" else NO_TILT
        keys = np.concatenate([first @ score.T, np.zeros(now.shape)], axis=1)
        out += softmax_means(keys, both, masses, tilt)[0][:, dim:] @ value.T
    return out


def frozen_line(
    heads: HeadMatrices, weights: FloatArray, first: FloatArray, now: FloatArray, masses: FloatArray, tolerance: float
) -> tuple[FloatArray, float]:
    """V at tokens on a line by tables, softmax, and the largest error found between their nodes.

    Formula: V_i = Σ_A W̄ g(a x_i) at the x of the first stage, g(z) = Σ_j w_j y_j e^{z x_j}/Σ_j w_j e^{z x_j}.
    Cost: q n exponentials.
    """
    scales, values = heads.scores[:, 0, 0], heads.mean_values(weights)[:, 0, 0]
    low, high = float(first.min()), float(first.max())
    corners = np.outer(scales, [low, high])
    mass = float(masses.sum())
    centres = [float((masses * x[:, 0]).sum()) / mass for x in (first, now)]
    both = np.concatenate([first - centres[0], now - centres[1]], axis=1)
    growth = 0.5 * float(corners.max() - corners.min()) * float(np.abs(both[:, 0]).max())

    def mean(z: FloatArray) -> FloatArray:
        return centres[1] + softmax_means(np.stack([z, np.zeros(len(z))], axis=1), both, masses)[0][:, 1]

    of_key, error = certified(mean, float(corners.min()), float(corners.max()), growth, tolerance)

    def velocity(x: FloatArray) -> FloatArray:
        return np.asarray(values @ of_key(np.outer(scales, x).ravel()).reshape(len(scales), -1))

    found, more = certified(velocity, low, high, growth, tolerance)
    return found(first[:, 0])[:, None], max(error, more)
