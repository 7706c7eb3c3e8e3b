"""Sliced distances in two and three dimensions between a weighted sample and the projections of a law."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.validation.circle_distances import circle_energy, circle_w2
from meanfield_pde.validation.line_distances import line_energy, line_w2
from meanfield_pde.validation.line_laws import LineLaw
from meanfield_pde.validation.projections import Projections
from meanfield_pde.validation.weighted import weighted

# 1/E|u|, u the first coordinate of a uniform direction
ENERGY_FACTOR = {2: pi / 2, 3: 2.0}


def sliced_w2(points: FloatArray, law: Projections, weights: FloatArray | None = None) -> float:
    """Sliced W2: (1/K Σ_k W2²(⟨v_k, X⟩, ⟨v_k, Y⟩))^{1/2} over the fixed directions of ``law``.

    Every term is exact for the sample (no bins), on rings with the geodesic distance. SW2 ≤ W2, and between isotropic
    normal laws W2²/d.
    Shapes: points (n, d), weights (n,). Source: Rabin, Peyré, Delon and Bernot 2012; Bonneel et al. 2015.
    """
    terms = [(circle_w2 if one.ring else line_w2)(x, one, w) ** 2 for x, one, w in _slices(points, law, weights)]
    return float(np.sqrt(np.mean(terms)))


def sliced_energy(points: FloatArray, law: Projections, weights: FloatArray | None = None) -> float:
    """Energy distance 2E|X − Y| − E|X − X′| − E|Y − Y′| in R^d, from projections: c_d E_v[2 ∫ (F_v − G_v)² dx].

    |x| = c_d E|⟨v, x⟩| over uniform directions v, c_2 = π/2 and c_3 = 2. On rings it is the mean of `circle_energy`
    over the covectors, without a factor.
    Shapes: points (n, d), weights (n,). Source: Baringhaus and Franz 2004; Székely and Rizzo 2013.
    """
    terms = [(circle_energy if one.ring else line_energy)(x, one, w) for x, one, w in _slices(points, law, weights)]
    return float(np.mean(terms) * (1.0 if law.laws[0].ring else ENERGY_FACTOR[law.dim]))


def _slices(
    points: FloatArray, law: Projections, weights: FloatArray | None
) -> Iterator[tuple[FloatArray, LineLaw, FloatArray]]:
    given, share = weighted(points, weights)
    if given.shape[1] != law.dim:
        raise MeanFieldError(f"a sample of dimension {given.shape[1]} is compared with a law on {law.dim} axes")
    for values, one in zip(law.of(given), law.laws, strict=True):
        yield values, one, share
