"""The problems that peers are compared on, each with the answer it is measured by; numpy alone, no package of ours.

Transport: a Gaussian in the plane turns once around the middle of [-1, 1]²; it ends where it began.
Fokker-Planck: ∂_s rho = ∇·(rho ∇U) + beta Δ rho on [-3, 3]² without flux at the walls, U a double well that no rotation
of axes separates, from a Gaussian; the answer at s = 1 is a spectral solution, independent of every code compared.
Attention: the velocity of 64 softmax heads on a line and in the plane; the answer is the direct sum.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt
from typing import NamedTuple

import numpy as np

# --- transport ------------------------------------------------------------------------------------------------------

RADIUS, DEVIATION = 0.5, 0.075  # it starts at (RADIUS, 0)
TURN = 1.0  # the depth of one revolution


def centres(half: float, n: int) -> np.ndarray:
    """Cell centres of [-half, half] in n cells."""
    return half * (2.0 * np.arange(n) + 1.0 - n) / n


def edges(half: float, n: int) -> np.ndarray:
    """Cell edges of [-half, half] in n cells, (n + 1,)."""
    return half * (2.0 * np.arange(n + 1) - n) / n


def gaussian_masses(x: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    """Masses of N(mean, deviation²) between neighbouring edges x."""
    return np.diff([0.5 * erf((value - mean) / (deviation * sqrt(2.0))) for value in x])


def rotated_gaussian(n: int, depth: float = TURN) -> np.ndarray:
    """Cell averages at a depth, (n, n) indexed by x, then y: the Gaussian is round, so it only moves."""
    angle = 2.0 * pi * depth / TURN
    x, y = RADIUS * np.cos(angle), RADIUS * np.sin(angle)
    e, h = edges(1.0, n), 2.0 / n
    return np.outer(gaussian_masses(e, x, DEVIATION), gaussian_masses(e, y, DEVIATION)) / h**2


def rotation(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The velocity 2π (−y, x), once around in `TURN`."""
    return -2.0 * pi / TURN * y, 2.0 * pi / TURN * x


def relative_l1(found: np.ndarray, exact: np.ndarray) -> float:
    """sum |found − exact| / sum |exact|."""
    return float(np.abs(found - exact).sum() / np.abs(exact).sum())


# --- Fokker-Planck --------------------------------------------------------------------------------------------------

BETA, HALF, END = 0.25, 3.0, 1.0
COUPLING = 0.3
START_MEAN, START_DEVIATION = (-0.5, 0.8), 0.25
TARGET = 4e-4  # the L1 error that is asked for
DEGREE = 56


def potential(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """U = (x² − 1)²/4 + y²/2 + .3 x y."""
    return 0.25 * (x**2 - 1.0) ** 2 + 0.5 * y**2 + COUPLING * x * y


def slope(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∇U."""
    return x * (x**2 - 1.0) + COUPLING * y, y + COUPLING * x


def start(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The density at s = 0."""
    square = (x - START_MEAN[0]) ** 2 + (y - START_MEAN[1]) ** 2
    return np.exp(-0.5 * square / START_DEVIATION**2) / (2.0 * pi * START_DEVIATION**2)


def head_grid(n: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y at the cell centres, (n, n) each."""
    x = centres(HALF, n)
    return tuple(np.meshgrid(x, x, indexing="ij"))


def normalised(samples: np.ndarray) -> np.ndarray:
    """Samples at the centres scaled to mass 1: what every code starts from and is compared with."""
    return samples / (samples.sum() * (2.0 * HALF / len(samples)) ** 2)


def l1_distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """∫ |found − wanted| over the box, by the midpoint rule."""
    return float(np.abs(found - wanted).sum() * (2.0 * HALF / len(wanted)) ** 2)


def fokker_planck_reference(n: int, end: float = END, degree: int = DEGREE) -> np.ndarray:
    """rho at s = end at the centres of n² cells, normalised.

    Formula: rho = e^{−U/(2 beta)} h turns the equation into h_s = −beta (G_xᵀ G_x + G_yᵀ G_y) h with
    G = ∇ + ∇U/(2 beta), symmetric, and no flux is its natural boundary condition. h in Legendre polynomials up to
    ``degree`` on both axes; G raises the degree by 3 at most, so nothing else is cut off.
    Source: Risken, The Fokker-Planck Equation (1989), section 5.4.
    """
    size, wide = degree + 1, degree + 4
    node, weight = np.polynomial.legendre.leggauss(2 * wide)
    scale = np.sqrt((2.0 * np.arange(wide) + 1.0) / (2.0 * HALF))  # to orthonormal polynomials on [-3, 3]
    value = np.polynomial.legendre.legvander(node, wide - 1) * scale
    raised = np.polynomial.legendre.legder(np.diag(scale)[:, :size])
    slopes = np.polynomial.legendre.legval(node, raised).T / HALF
    x, w = HALF * node, HALF * weight
    test = (w[:, None] * value).T
    embed = np.eye(wide, size)
    well = test @ (slopes + (x * (x**2 - 1.0) / (2.0 * BETA))[:, None] * value[:, :size])
    bowl = test @ (slopes + (x / (2.0 * BETA))[:, None] * value[:, :size])
    mixed = test @ ((COUPLING * x / (2.0 * BETA))[:, None] * value[:, :size])
    both = np.meshgrid(x, x, indexing="ij")
    begun = start(*both) * np.exp(potential(*both) / (2.0 * BETA))
    h = test[:size] @ begun @ test[:size].T
    # G_x and G_y as sums of two products over the axes
    g_x, g_y = ((well, embed), (embed, mixed)), ((mixed, embed), (embed, bowl))

    def squared(h: np.ndarray) -> np.ndarray:
        out = np.zeros_like(h)
        for terms in (g_x, g_y):
            image = sum(a @ h @ b.T for a, b in terms)
            for a, b in terms:
                out += a.T @ image @ b
        return out

    # ‖G‖² <= the sum of what each product can do
    bound = sum(sum(np.linalg.norm(a, 2) * np.linalg.norm(b, 2) for a, b in terms) ** 2 for terms in (g_x, g_y))
    h = _decayed(squared, h, float(bound), BETA * end)
    place = np.polynomial.legendre.legvander(centres(HALF, n) / HALF, degree) * scale[:size]
    return normalised(np.exp(-potential(*head_grid(n)) / (2.0 * BETA)) * (place @ h @ place.T))


def _decayed(apply: Callable[[np.ndarray], np.ndarray], h: np.ndarray, bound: float, s: float) -> np.ndarray:
    """e^{−s A} h of a symmetric A with spectrum in [0, bound], by Chebyshev polynomials of A."""
    terms = 40 + int(sqrt(80.0 * s * bound))
    angle = pi * (np.arange(terms) + 0.5) / terms
    values = np.exp(-0.5 * s * bound * (1.0 + np.cos(angle)))
    # 2/terms sum_j values_j cos(k angle_j), by a transform of the even extension
    turned = np.exp(-0.5j * pi * np.arange(terms) / terms)
    weight = (turned * np.fft.fft(np.concatenate([values, values[::-1]]))[:terms]).real / terms
    before, now = h, 2.0 / bound * apply(h) - h
    out = 0.5 * weight[0] * before + weight[1] * now
    for k in range(2, terms):
        before, now = now, 2.0 * (2.0 / bound * apply(now) - now) - before
        out += weight[k] * now
    return out


# --- attention ------------------------------------------------------------------------------------------------------


class AttentionCase(NamedTuple):
    """Tokens and heads: V(x) = sum_h rho_h ∑_j y_j mu_j e^{⟨A_h x, y_j⟩} / ∑_j mu_j e^{⟨A_h x, y_j⟩} at every token.

    Shapes: axes one (n_k,) a dimension, points (n, d), masses (n,), scores (heads, d, d), weights (heads,).
    """

    axes: tuple[np.ndarray, ...]
    points: np.ndarray
    masses: np.ndarray
    scores: np.ndarray
    weights: np.ndarray


def _two_bumps(axes: tuple[np.ndarray, ...], bumps: tuple) -> np.ndarray:
    mass = 0.0
    for mean, deviation in bumps:
        factors = [np.exp(-0.5 * ((x - m) / s) ** 2) / s for x, m, s in zip(axes, mean, deviation, strict=True)]
        product = factors[0]
        for factor in factors[1:]:
            product = np.multiply.outer(product, factor)
        mass = mass + product
    return (mass / mass.sum()).ravel()


def attention_case(dim: int) -> AttentionCase:
    """On a line 1024 tokens in [-4, 4], 64 scores |a| < 2; in the plane 64² tokens in [-2, 2]², 64 scores a R(phi)."""
    if dim == 1:
        axes = (centres(4.0, 1024),)
        masses = _two_bumps(axes, (((-1.0,), (0.3,)), ((1.2,), (0.2,))))
        a = centres(2.0, 64)
        return AttentionCase(axes, axes[0][:, None], masses, a[:, None, None], _head_weights(a))
    x = centres(2.0, 64)
    points = np.stack([m.ravel() for m in np.meshgrid(x, x, indexing="ij")], axis=1)
    masses = _two_bumps((x, x), (((-0.5, 0.2), (0.3, 0.35)), ((0.6, -0.3), (0.25, 0.3))))
    a, angle = (m.ravel() for m in np.meshgrid(np.linspace(0.25, 1.5, 8), np.arange(8) * pi / 4, indexing="ij"))
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return AttentionCase((x, x), points, masses, (a * turned).transpose(2, 0, 1), _head_weights(a))


def _head_weights(a: np.ndarray) -> np.ndarray:
    rho = np.exp(-((a - 0.3) ** 2))
    return rho / rho.sum()


def log_masses(case: AttentionCase) -> np.ndarray:
    """log mu for a softmax, at least −200: what is less adds nothing, and its exponentials would be slow subnormals."""
    return np.log(np.maximum(case.masses, np.exp(-200.0)))


def direct_velocity(case: AttentionCase, targets: np.ndarray) -> np.ndarray:
    """V at some of the points, (len(targets), d), by direct sums."""
    out = np.zeros((len(targets), case.points.shape[1]))
    for score, weight in zip(case.scores, case.weights, strict=True):
        logits = targets @ score.T @ case.points.T
        e = case.masses * np.exp(logits - logits.max(axis=1, keepdims=True))
        out += weight * (e @ case.points) / e.sum(axis=1, keepdims=True)
    return out


def velocity_error(case: AttentionCase, found: np.ndarray, every: int) -> float:
    """Largest error of V (n, d) over every so-manyth token, relative to the largest |V|."""
    exact = direct_velocity(case, case.points[::every])
    return float(np.abs(found[::every] - exact).max() / np.abs(exact).max())
