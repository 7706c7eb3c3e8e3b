"""Softmax attention of N tokens in the plane at the cost O(N): two tables of tensor Chebyshev polynomials.

m(z) of the tokens, common to all heads, is summed at tensor nodes of a box of keys, where e^{<z,y>} is a product over
axes; V(x) = Σ_a W̄_a m(A_a x) is put together from it at tensor nodes of the box of the tokens, and then evaluated.
"""

from __future__ import annotations

from math import asinh, ceil, isfinite, log, pi

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.kernels.token_tables import tensor_sums, tensor_values
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.kernel_sums import UNDERFLOW
from meanfield_pde.model.softmax_cost import EXPONENTIAL
from meanfield_pde.particles.velocity import attention_velocity

# positions at which V is compared with direct sums, and nodes an axis
CHECKS, LARGEST = 13, 128
# multiples of powers of the root of x³ = x + 1 spread evenly over the angles of both axes and fall on no nodes
SPREAD = (0.7548776662466927, 0.5698402909980532)
# multiply-adds of a table that a pair of tokens costs in direct sums
PAIR = 10.0
# a range of scores along an axis that exponentials stand
WIDEST = 700.0
TINY = float(np.finfo(float).tiny)


def nodes_for(width: float, tolerance: float) -> float:
    """Chebyshev nodes that resolve softmax means to a relative tolerance on an interval of keys: a first guess.

    Formula: log(e/tolerance)/asinh(π/(2.1 width)), width = half the interval times the deviation σ of the tokens.
    Meaning: the next poles of m are zeros of Z, for two equal clumps at ±σ at the distance π/(2 σ) from the real axis;
    for other tokens of that deviation they are seldom nearer.
    Source: Trefethen (2013), theorem 8.2, on the ellipse whose semi-axis is that distance.
    """
    return (1.0 + log(1.0 / tolerance)) / asinh(pi / max(2.1 * width, TINY))


def growth(error: float, tolerance: float) -> float:
    """The factor by which a table of this error grows: errors fall geometrically with its size."""
    return min(max(log(tolerance) / log(error), 1.05), 2.0) if 0.0 < error < 1.0 else 2.0


def operations(heads: int, tokens: int, targets: int, size: int, places: int) -> float:
    """Multiply-adds of the tables with ``size`` nodes of keys and ``places`` of positions an axis."""
    at_nodes = tokens * (3.0 * size**2 + 2.0 * size * EXPONENTIAL) + 2.0 * heads * (places * size) ** 2
    return at_nodes + 2.0 * targets * places**2 + CHECKS * heads * tokens * EXPONENTIAL


def plane_velocity(
    heads: HeadMatrices,
    weights: FloatArray,
    points: FloatArray,
    masses: FloatArray,
    at: FloatArray,
    tolerance: float,
    cheaper: bool,
) -> tuple[FloatArray, float]:
    """V at ``at`` (m, 2) and its largest error at 13 positions of their box, over the largest speed.

    Meaning: sizes go up until that error is within ``tolerance``; beyond the largest, or with ``cheaper`` the largest
    that takes less than half the operations of direct sums, it is given as it is, inf if there was no table.
    Shapes: as `attention_velocity`, d = 2.
    Cost: q (3 q + 30) N + 2 n_A (p q)² + 2 p² m multiply-adds, q nodes of keys and p of positions an axis.
    """
    values, count = heads.mean_values(weights), len(heads.scores)
    mass = float(masses.sum())
    # no products of BLAS that sum over the tokens: they depend on its threads
    centre = np.array([float((masses * column).sum()) for column in points.T]) / mass
    y_t = np.ascontiguousarray((points - centre).T)
    place, reach = _box(*(np.array([f(column) for column in at.T]) for f in (np.min, np.max)))
    middles, halves = heads.scores @ place, np.abs(heads.scores) @ reach
    middle, half = _box((middles - halves).min(axis=0), (middles + halves).max(axis=0))
    spread = np.array([[float((masses * one * two).sum()) for one in y_t] for two in y_t]) / mass
    turned = np.einsum("aki,kl,ali->ai", heads.scores, spread, heads.scores).max(axis=0)
    many = max(nodes_for(width, tolerance) for width in half * np.sqrt(np.diag(spread)))
    few = max(nodes_for(width, tolerance) for width in reach * np.sqrt(turned))
    wide = float(((np.abs(middle) + half) * np.ptp(y_t, axis=1)).max())
    check = place + reach * np.cos(np.pi * np.stack([(np.arange(1, CHECKS + 1) * r) % 1.0 for r in SPREAD], axis=1))
    exact = attention_velocity("softmax", heads, weights, points, masses, check)
    unit = np.concatenate([(at - place) / reach, (check - place) / reach])
    most = 0.5 * count * len(masses) * len(at) * PAIR if cheaper else np.inf
    found, error, part = np.full(at.shape, np.nan), np.inf, 1.0
    while wide < WIDEST:
        size, places = (2 * max(ceil(0.5 * part * nodes), 2) for nodes in (many, few))
        if max(size, places) > LARGEST or operations(count, len(masses), len(at), size, places) > most:
            break
        mean = _coefficients(_means(y_t, masses, middle[:, None] + half[:, None] * _unit_nodes(size)))
        x = place + reach * np.stack(np.meshgrid(_unit_nodes(places), _unit_nodes(places), indexing="ij"), -1)
        keys = (x.reshape(-1, 2) @ heads.scores.transpose(0, 2, 1) - middle) / half
        means = _evaluated(mean, keys.reshape(-1, 2)).reshape(count, -1, 2)
        velocity = np.einsum("aij,anj->in", values, means).reshape(2, places, places)
        both = _evaluated(_coefficients(velocity), unit) + values.sum(axis=0) @ centre
        found = both[: len(at)]
        error = float(np.abs(both[len(at) :] - exact).max()) / max(float(np.abs(found).max()), TINY)
        if error <= tolerance:
            break
        part *= growth(error, tolerance)
    return found, error if isfinite(error) else np.inf


def _box(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Middle and half widths, which are kept from 0."""
    return 0.5 * (low + high), np.maximum(0.5 * (high - low), 1e-9)


def _unit_nodes(size: int) -> FloatArray:
    """Chebyshev nodes of the first kind."""
    return np.asarray(np.cos(np.pi * (np.arange(size) + 0.5) / size))


def _means(y_t: FloatArray, masses: FloatArray, nodes: FloatArray) -> FloatArray:
    """m at tensor nodes (2, q), (2, q, q); NaN where the partition sum underflows."""
    size = nodes.shape[1]
    sums = np.empty((size // 2, size, 2, 3))
    tensor_sums(nodes, y_t, masses, sums)
    total, first, second = sums.transpose(3, 0, 2, 1).reshape(3, size, size)
    total = np.where(total > UNDERFLOW, total, np.nan)
    return np.stack([first / total, second / total])


def _coefficients(values: FloatArray) -> FloatArray:
    """Chebyshev coefficients of two functions by their values at tensor nodes, (2, q, q) both."""
    size = values.shape[1]
    rows = 2.0 / size * np.cos(np.arange(size)[:, None] * (np.pi * (np.arange(size) + 0.5) / size))
    rows[0] *= 0.5
    return np.asarray(rows @ values @ rows.T)


def _evaluated(coefficients: FloatArray, unit: FloatArray) -> FloatArray:
    """Both functions at (n, 2) positions in [-1, 1]², (n, 2)."""
    out = np.empty(unit.shape)
    tensor_values(np.ascontiguousarray(coefficients), np.clip(unit, -1.0, 1.0), out)
    return out
