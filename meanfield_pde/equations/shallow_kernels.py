"""The kernels K (rows, heads) of shallow models: one layer of attention, neurons at samples, isotropic neurons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import betainc, erf, expit, gammaln

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.shallow import check_memory
from meanfield_pde.grid import Grid
from meanfield_pde.model.softmax_direct import SoftmaxSums

# the ramp: value below its first knot, value above its second one, linear between them
RAMP_KNOTS, RAMP_VALUES = (0.5, 1.5), (-2.5, 7.5)
# nodes and half width, in units of the classes' deviation, of the quadrature over lengths of samples
LENGTHS, REACH = 128, 8.0
# entries of the kernel made at once
BLOCK = 1 << 22


def activation(name: str) -> Callable[[FloatArray], FloatArray]:
    """sigma of a name: tanh, relu, sigmoid, erf, or the ramp −2.5 up to .5, 7.5 from 1.5 on, linear between.

    Source: the ramp is of the kind used by Mei, Montanari and Nguyen 2018 for classes that differ in variance.
    """
    functions: dict[str, Callable[[FloatArray], FloatArray]] = {
        "tanh": np.tanh,
        "relu": lambda t: np.maximum(t, 0.0),
        "sigmoid": expit,
        "erf": erf,
        "ramp": lambda t: np.interp(t, RAMP_KNOTS, RAMP_VALUES),
    }
    return functions[name]


def attention_kernel(grid: Grid, mu: FloatArray, theta: FloatArray) -> FloatArray:
    """K (B n, K) of one layer of softmax attention at the tokens x_j of B sequences: w m_b(a x_j) for theta = (w, a).

    Meaning: m_b is the softmax mean of sequence b with the box filter of its cells inverted.
    Shapes: mu (B, n) cell averages on a line, theta (K, 2).
    Raises: MeanFieldError over the memory budget.
    """
    check_memory(mu.size, len(theta))
    x = grid.centers(0)
    scores, index = np.unique(theta[:, 1], return_inverse=True)
    keys = np.ascontiguousarray(np.multiply.outer(x, scores).reshape(-1, 1))
    out = np.empty((*mu.shape, len(theta)))
    for row, density in zip(out, mu, strict=True):
        sums = SoftmaxSums(grid.points(), density * grid.cell_volume, np.array(grid.spacing))
        means = sums.means(keys)[0].reshape(len(x), len(scores))
        for j in range(len(x)):
            np.multiply(theta[:, 0], means[j, index], out=row[j])
    return out.reshape(mu.size, len(theta))


def neuron_kernel(name: str, inputs: FloatArray, theta: FloatArray) -> FloatArray:
    """K (N, K) of neurons w sigma(a x + c) at inputs x (N,), theta = (w, a, c).

    Raises: MeanFieldError over the memory budget.
    """
    check_memory(len(inputs), len(theta))
    sigma, out = activation(name), np.empty((len(inputs), len(theta)))
    step = max(1, BLOCK // len(theta))
    for start in range(0, len(inputs), step):
        rows = slice(start, start + step)
        np.multiply(theta[:, 0], sigma(np.multiply.outer(inputs[rows], theta[:, 1]) + theta[:, 2]), out=out[rows])
    return out


def token_weights(grid: Grid, mu: FloatArray) -> FloatArray:
    """Weights q (B, n) with Σ_j q_j f(x_j) = ∫ f dmu_b to high order: the inverse box filter moved to the masses.

    Where a law is rough they are kept at half the mass at least, so that none is negative.
    """
    masses = mu * grid.cell_volume
    filters = grid.filters()
    if not filters:
        return masses
    return np.asarray(np.maximum(np.stack([row @ filters[0] for row in masses]), 0.5 * masses))


def radial_kernel(name: str, lengths: FloatArray, radii: FloatArray, dimension: int) -> FloatArray:
    """K (rows, K) of neurons sigma(<w, x>) with |x| = R, |w| = r, the mean over all directions of w in R^dimension.

    Formula: K(R, r) = E sigma(R r u), u = <w, x>/(R r) with density c (1 − u²)^{(d−3)/2} on [−1, 1]; for ``relu`` and
    ``ramp``, which are sums of kinks, from E (u − v)_+ = c (1 − v²)^{(d−1)/2}/(d − 1) − v P(u > v).
    Source: the radial reduction is that of Mei, Montanari and Nguyen 2018; docs/mathematics.md 5.3.
    """
    check_memory(len(lengths), len(radii))
    scale = np.multiply.outer(lengths, radii)
    if name == "relu":
        return _mean_of_kink(scale, 0.0, dimension)
    (low, high), (first, last) = RAMP_KNOTS, RAMP_VALUES
    slope = (last - first) / (high - low)
    rise = _mean_of_kink(scale, low, dimension) - _mean_of_kink(scale, high, dimension)
    return np.asarray(first + slope * rise)


def _mean_of_kink(scale: FloatArray, knot: float, dimension: int) -> FloatArray:
    """E (scale u − knot)_+ for u the first coordinate of a uniform direction in R^dimension, knot >= 0."""
    half = 0.5 * (dimension - 1)
    # density of u at 0, c = Gamma(d/2)/(sqrt(pi) Gamma((d−1)/2))
    log_c = gammaln(0.5 * dimension) - gammaln(half) - 0.5 * np.log(np.pi)
    v = np.divide(knot, scale, out=np.full_like(scale, np.inf), where=scale > 0)
    inside = np.minimum(v, 1.0)
    rest = (1.0 - inside) * (1.0 + inside)
    tail = 0.5 * betainc(half, 0.5, rest)
    return np.asarray(scale * (np.exp(log_c) / (2.0 * half) * rest**half - inside * tail))


def two_gaussian_rows(dimension: int, difference: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lengths |x| of samples of the two classes, their weights and labels 1 and −1: quadrature of the chi laws.

    Formula: |x| = (1 ± difference) R, R with density ∝ R^{d−1} e^{−R²/2}, by Gauss-Legendre.
    Shapes: each (2 · 128,).
    """
    node, weight = np.polynomial.legendre.leggauss(LENGTHS)
    middle = np.sqrt(dimension)
    low, high = max(0.0, middle - REACH), middle + REACH
    R = 0.5 * (high - low) * (node + 1.0) + low
    log_density = (dimension - 1) * np.log(R) - 0.5 * R**2
    chi = weight * np.exp(log_density - log_density.max())
    chi = 0.5 * chi / chi.sum()
    lengths = np.concatenate([(1.0 + difference) * R, (1.0 - difference) * R])
    return lengths, np.tile(chi, 2), np.repeat([1.0, -1.0], LENGTHS)
