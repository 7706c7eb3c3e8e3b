"""Scores that overflow any exponential, in every attention: finite means inside the law, or a refusal in words."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.model.attention import ATTENTIONS, Attention, assemble_field
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice

# aggregation and "none" have no scores
SCORED = tuple(name for name in ATTENTIONS if name not in ("aggregation", "none"))
# those that are a mean of tokens
MEANS = ("softmax", "windowed", "l2", "sinkhorn")
REMEDY = {
    "unnormalised": "box of the heads or of the tokens smaller",
    "l2": "at least 1 can be summed: take more token cells",
    "sinkhorn": "make the box of the heads smaller",
    "softmax": "never",
    "windowed": "never",
    "linear": "never",
}
SHAPES = {1: (36,), 2: (11, 10)}


def field_of(name: str, grid: Grid, score: float, window: float) -> Any:
    """One head with A = score I and W = I: the velocity at a face is the mean that a token there sees."""
    cells = Lattice(tuple(grid.centers(k) for k in range(grid.dim)), np.array(grid.spacing), grid.filters())
    targets = tuple(Target(grid.face_points(k), k, grid.face_axes(k)) for k in range(grid.dim))
    heads = HeadMatrices(score * np.eye(grid.dim)[None], np.array([0]), np.eye(grid.dim)[None])
    attention = Attention(name, window if name == "windowed" else None)
    return assemble_field(attention, cells, targets, heads, np.ones(1), None)


def velocity(field: Any, mu: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(v[0] for v in field.velocity(field.moments(mu[None])))


def law(grid: Grid, empty: bool) -> np.ndarray:
    x = grid.points()
    mu = 0.2 + np.random.default_rng(4).random(len(x))
    if empty:
        mu[x[:, 0] > 0.1] = 0.0
    return mu / mu.sum()


@pytest.mark.parametrize("empty", [False, True], ids=["everywhere", "half empty"])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("score", [1e3, 1e4, 1e6, -1e3, -1e4, -1e6])
@pytest.mark.parametrize("name", SCORED)
def test_huge_scores_give_means_inside_the_law_or_are_refused(name: str, score: float, dim: int, empty: bool) -> None:
    grid = Grid((-2.0,) * dim, (2.2,) * dim, SHAPES[dim], (False,) * dim)
    mu = law(grid, empty)
    refused = ""
    try:
        found = velocity(field_of(name, grid, score, 1.1), mu)
    except MeanFieldError as error:
        found, refused = (), str(error)
    # no other may refuse, and these say what to do
    assert not refused or re.search(REMEDY[name], refused)
    for k, v in enumerate(found):
        assert np.isfinite(v).all()
        if name not in MEANS:
            continue
        # within the cells that hold mass
        edge = 0.5 * grid.spacing[k]
        if name == "windowed":
            # where no mass is in the window nothing moves
            v = v[v != 0.0] if empty else v
        x = grid.points()[mu > 0, k]
        assert v.min() >= x.min() - edge - 1e-12
        assert v.max() <= x.max() + edge + 1e-12


@pytest.mark.parametrize("score", [1e3, 1e4, 1e6])
@pytest.mark.parametrize("name", ["softmax", "windowed"])
def test_the_limit_of_huge_scores_is_the_farthest_token_that_is_seen(name: str, score: float) -> None:
    grid = Grid((-2.0,), (2.2,), (36,), (False,))
    for empty in (False, True):
        mu = law(grid, empty)
        (v,) = velocity(field_of(name, grid, score, 1.1), mu)
        x, h = grid.faces(0), grid.spacing[0]
        occupied = grid.centers(0)[mu > 0]
        far = np.where(x > 0, occupied.max(), occupied.min())
        if name == "windowed":
            seen = np.clip(far, x - 1.1, x + 1.1)
            far = np.where(x > 0, np.minimum(far, seen), np.maximum(far, seen))
            # a cell that the window cuts counts by its part, and its mean is that of the whole cell
            np.testing.assert_allclose(v, far, rtol=0, atol=h)
            continue
        # for atoms the farthest itself; with cells the box filter is removed, half a cell less 1/slope
        slope = score * np.abs(x)
        sure = slope * h > 50
        inward = np.sign(x) * (0.5 * h - 1.0 / slope)
        np.testing.assert_allclose(v[sure], (far - inward)[sure], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MEANS)
def test_scores_that_are_all_far_below_zero_weigh_alike(name: str) -> None:
    # every score is -1e4 to within 1e-4: a shift by max(0, ·) would leave nothing
    grid = Grid((1.0,), (1.0 + 1e-8,), (24,), (False,))
    mu = np.full(24, 1.0 / 24)
    (v,) = velocity(field_of(name, grid, -1e4, 0.5), mu)
    np.testing.assert_allclose(v - 1.0, 0.5e-8, rtol=0, atol=1e-11)


def test_distances_far_from_the_origin_are_those_near_it() -> None:
    # the scores of l2 are differences of numbers of size 1e6
    near, there = (Grid((x - 2.0,), (x + 2.2,), (36,), (False,)) for x in (0.0, 1e3))
    mu = np.exp(-(near.centers(0) ** 2))
    mu /= mu.sum()
    (a,), (b,) = (velocity(field_of("l2", grid, 1.0, 0.0), mu) for grid in (near, there))
    np.testing.assert_allclose(b - 1e3, a, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", MEANS)
def test_a_law_without_any_mass_has_no_mean_and_is_refused(name: str) -> None:
    grid = Grid((-2.0,), (2.2,), (36,), (False,))
    field = field_of(name, grid, 1.0, 1.1)
    for mu in (np.zeros(36), np.full(36, np.nan)):
        with pytest.raises(MeanFieldError):
            velocity(field, mu)
