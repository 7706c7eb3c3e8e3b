"""Tokens or heads drawn from a law: independent, stratified, at quantiles, or quasi-random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import ndtri

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.grid import Grid
from meanfield_pde.law_classics import ClassicLaw, SlottedDisk
from meanfield_pde.law_rings import RingLaw
from meanfield_pde.laws import Atoms, Density, Gaussian, Law, Mixture, Samples, Uniform, check_law
from meanfield_pde.measure import Measure
from meanfield_pde.particles.marginals import Cloud, Marginal, classic_marginal, cloud_marginal, marginal, mixture
from meanfield_pde.problem_particles import ON_ONE_AXIS, SAMPLINGS
from meanfield_pde.sample_files import read_samples

Leaf = Gaussian | Uniform | RingLaw | Cloud | ClassicLaw | Density
# uniform numbers stay this far from 0 and 1
EDGE = 2.0**-54
BITS = 52


def sample(
    law: Law, count: int, box: Grid, way: str = "iid", seed: int | tuple[int, ...] = 0, base: Path = Path(".")
) -> Measure:
    """``count`` equally weighted points of a law.

    Formula: `iid` independent draws; on one axis, with F the distribution function (on a ring from the lower end of
    the box on), `stratified` F^{-1}((i + U_i)/N) with U_i uniform and `quantile` F^{-1}((i + ½)/N), i = 0..N−1; `sobol`
    the first N points of a scrambled Sobol sequence, by F^{-1} on one axis, else by the map of Rosenblatt (1952): one
    coordinate chooses the part of a mixture, and a normal law takes the Cholesky factor of its covariance.
    Meaning: ``box`` says which axes are rings; its walls cut nothing off. The points depend on law, count, way and
    ``seed`` alone. F is inverted in closed form or to rounding.
    Raises: MeanFieldError for a way that the law does not allow.
    Source: Owen (1995) for the scrambling.
    """
    _check(law, count, box, way)
    leaves = parts(law, base, box.dim)
    rng = np.random.default_rng(seed)
    if way in ON_ONE_AXIS:
        if box.dim > 1:
            raise MeanFieldError(f"sampling = '{way}' is for one axis, not {box.dim}: take 'sobol' or 'iid'")
        within = rng.random(count) if way == "stratified" else 0.5
        points = _line(leaves, box).quantile(_inside((np.arange(count) + within) / count))[:, None]
    elif way == "sobol" and box.dim == 1:
        points = _line(leaves, box).quantile(_sobol(count, 1, rng)[:, 0])[:, None]
    elif way == "sobol":
        for _, leaf in leaves:
            if isinstance(leaf, SlottedDisk | Density):
                raise MeanFieldError(
                    f"sampling = 'sobol' needs a law that is a map of the unit cube; the {leaf.law} law in {box.dim} "
                    "dimensions is not covered: take 'iid'" + (" of another law" if isinstance(leaf, Density) else "")
                )
        points = _mapped(leaves, _sobol(count, box.dim + 1, rng), box, rng)
    else:
        points = _mapped(leaves, _inside(rng.random((count, box.dim + 1))), box, rng)
    return Measure.particles(wrapped(points, box))


def support(law: Law, box: Grid, base: Path = Path(".")) -> Measure:
    """The points of a law of atoms or samples themselves, with their weights.

    Raises: MeanFieldError for a law with a density.
    """
    _check(law, 1, box, "iid")
    points, weights = [], []
    for share, leaf in parts(law, base, box.dim):
        if not isinstance(leaf, Cloud) or leaf.bandwidth is not None:
            raise MeanFieldError(f"the {law.law} law has a density, so no tokens of its own: say how many to draw")
        points.append(leaf.points)
        weights.append(share * leaf.weights)
    return Measure.particles(wrapped(np.concatenate(points), box), np.concatenate(weights))


def wrapped(points: FloatArray, box: Grid) -> FloatArray:
    """Positions (..., d) with those on rings brought into the box."""
    out = points.copy()
    for axis, ring in enumerate(box.periodic):
        if ring:
            low, length = box.lower[axis], box.upper[axis] - box.lower[axis]
            turned = low + np.mod(out[..., axis] - low, length)
            # what is inside stays as it is, to the last bit
            inside = (out[..., axis] >= low) & (out[..., axis] < low + length)
            out[..., axis] = np.where(inside, out[..., axis], turned)
    return out


def parts(law: Law, base: Path, dim: int) -> list[tuple[float, Leaf]]:
    """The laws that a law is mixed from, with shares > 0 of sum 1; atoms and sample files as clouds of points."""
    if isinstance(law, Mixture):
        whole = sum(law.weights)
        return [
            (weight / whole * share, leaf)
            for weight, component in zip(law.weights, law.components, strict=True)
            if weight > 0
            for share, leaf in parts(component, base, dim)
        ]
    if isinstance(law, Atoms):
        weights = np.array(law.weights or [1.0] * len(law.points), dtype=float)
        return [(1.0, Cloud(np.array(law.points, dtype=float), weights / weights.sum()))]
    if isinstance(law, Samples):
        points = read_samples(base / law.file)
        if points.shape[1] != dim:
            raise MeanFieldError(f"{base / law.file} has samples of dimension {points.shape[1]}; the box has {dim}")
        return [(1.0, Cloud(points, np.full(len(points), 1.0 / len(points)), law.bandwidth))]
    return [(1.0, law)]


def _check(law: Law, count: int, box: Grid, way: str) -> None:
    check_law(law, box.dim)
    if way not in SAMPLINGS:
        raise MeanFieldError(f"sampling = {way!r} is not known; {nearest(str(way), SAMPLINGS)}")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise MeanFieldError(f"{count!r} tokens cannot be drawn: take an integer of at least 1")


def _inside(u: FloatArray) -> FloatArray:
    return np.clip(u, EDGE, 1.0 - 2.0 * EDGE)


def _sobol(count: int, dim: int, rng: np.random.Generator) -> FloatArray:
    from scipy.stats import qmc  # imported late: it is slow

    points = qmc.Sobol(dim, scramble=True, bits=BITS, seed=rng).random_base2(max(count - 1, 0).bit_length())
    return _inside(points[:count])


def _line(leaves: list[tuple[float, Leaf]], box: Grid) -> Marginal:
    found = [_leaf_marginal(leaf, box) for _, leaf in leaves]
    return mixture(np.array([share for share, _ in leaves]), found)


def _leaf_marginal(leaf: Leaf, box: Grid) -> Marginal:
    if isinstance(leaf, Cloud):
        return cloud_marginal(leaf, box)
    if isinstance(leaf, Gaussian | Uniform | RingLaw):
        _check_rings(leaf, box)
        return marginal(leaf, box, 0)
    assert not isinstance(leaf, SlottedDisk)
    return classic_marginal(leaf, box)


def _check_rings(leaf: Leaf, box: Grid) -> None:
    if isinstance(leaf, RingLaw) and not all(box.periodic):
        raise MeanFieldError(f"a {leaf.law} law lives on rings: set periodic = true on every axis, or use a gaussian")


def _mapped(leaves: list[tuple[float, Leaf]], u: FloatArray, box: Grid, rng: np.random.Generator) -> FloatArray:
    """Points of a mixture from uniform numbers (n, 1 + d): the first chooses the part, and a point of a cloud."""
    ends = np.cumsum([share for share, _ in leaves])
    chosen = np.minimum(np.searchsorted(ends, u[:, 0], side="right"), len(leaves) - 1)
    out = np.empty((len(u), box.dim))
    for k, (share, leaf) in enumerate(leaves):
        rows = np.flatnonzero(chosen == k)
        if len(rows):
            again = _inside((u[rows, 0] - (ends[k] - share)) / share)
            out[rows] = _leaf_points(leaf, again, u[rows, 1:], box, rng)
    return out


def _leaf_points(leaf: Leaf, first: FloatArray, u: FloatArray, box: Grid, rng: np.random.Generator) -> FloatArray:
    if isinstance(leaf, Gaussian):
        root = np.asarray(np.linalg.cholesky(np.array(leaf.covariance, dtype=float)))
        return np.asarray(np.array(leaf.mean, dtype=float) + ndtri(u) @ root.T)
    if isinstance(leaf, Cloud):
        which = np.minimum(np.searchsorted(np.cumsum(leaf.weights), first, side="right"), len(leaf.points) - 1)
        return np.asarray(leaf.points[which] + (0.0 if leaf.bandwidth is None else leaf.bandwidth * ndtri(u)))
    if isinstance(leaf, Uniform | RingLaw):
        _check_rings(leaf, box)
        return np.stack([marginal(leaf, box, axis).quantile(u[:, axis]) for axis in range(box.dim)], axis=1)
    if isinstance(leaf, SlottedDisk):
        return _disk(leaf, len(u), rng)
    if box.dim > 1:
        raise MeanFieldError(f"no tokens are drawn from a {leaf.law} law in {box.dim} dimensions: give a sample file")
    return classic_marginal(leaf, box).quantile(u[:, 0])[:, None]


def _disk(law: SlottedDisk, count: int, rng: np.random.Generator) -> FloatArray:
    """Uniform in the disk, drawn again where the slot is."""
    out = np.empty((0, 2))
    while len(out) < count:
        u = rng.random((2 * count + 16, 2))
        angle, radius = 2.0 * np.pi * u[:, 0], law.radius * np.sqrt(u[:, 1])
        x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        slot = (np.abs(x[:, 0]) < 0.5 * law.width) & (x[:, 1] < law.top)
        out = np.concatenate([out, x[~slot]])
    return np.asarray(out[:count] + np.array(law.center, dtype=np.float64))
