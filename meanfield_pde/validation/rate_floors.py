"""A rate and a floor fitted together: mean squares C² n^{2a} + floor²."""

from __future__ import annotations

import numpy as np

from meanfield_pde.arrays import FloatArray, IntArray

# slopes that are looked for, and how the search narrows: 0.1, 0.01, 0.001, 0.0001
STEEPEST, FINEST, POINTS = 6.0, 4, 10
# a slope nearer to 0 cannot be told from a floor
FLATTEST = 0.02


def fitted_floor(size: FloatArray, squares: FloatArray, runs: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Slopes a, log C and floor² for every row of ``squares`` (rows, k): least relative misfit of C² n^{2a} + floor².

    Formula: for a given slope the model is linear in C² and floor² ≥ 0 (variable projection, Golub and Pereyra 1973);
    misfits are relative to the model of the round before, first to the squares themselves, with a weight of one a run.
    """
    x = np.log(size / np.exp(np.log(size).mean()))
    centre, weight = np.zeros(len(squares)), runs / squares**2
    step = STEEPEST / POINTS / 6
    tries = np.concatenate([-step * np.arange(1, 61)[::-1], step * np.arange(1, 61)])
    for _ in range(FINEST):
        slope, top, floor = _best(x, squares, weight, centre[:, None] + tries)
        weight = runs / (top[:, None] * np.exp(2 * slope[:, None] * x) + floor[:, None]) ** 2
        centre, step = slope, step / POINTS
        tries = step * np.arange(-POINTS, POINTS + 1)
    logs = 0.5 * np.log(top) - slope * np.log(size).mean()
    return slope, logs, floor


def _best(
    x: FloatArray, squares: FloatArray, weight: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The slope of each row with the least misfit, and its C² and floor²."""
    power = np.exp(2 * slopes[:, :, None] * x)
    one, two, mixed = weight.sum(axis=1)[:, None], _sum(power * power, weight), _sum(power, weight)
    right, right_power = (weight * squares).sum(axis=1)[:, None], _sum(power, weight * squares)
    determinant = one * two - mixed * mixed
    flat = np.abs(slopes) < FLATTEST
    safe = np.where(flat, 1.0, determinant)
    top = np.where(flat, -1.0, (one * right_power - mixed * right) / safe)
    floor = np.where(flat, -1.0, (two * right - mixed * right_power) / safe)
    # outside of the quadrant the best is on its edge without a floor; one without a slope is not looked for
    bare = (floor < 0) | (top <= 0)
    top, floor = np.where(bare, right_power / two, top), np.where(bare, 0.0, floor)
    gap = top[:, :, None] * power + floor[:, :, None] - squares[:, None, :]
    pick = np.argmin((gap * gap * weight[:, None, :]).sum(axis=2), axis=1)[:, None]
    found = (np.take_along_axis(one, pick, axis=1)[:, 0] for one in (slopes, top, floor))
    slope, best, least = found
    return slope, best, least


def _sum(values: FloatArray, weight: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("rsk,rk->rs", values, weight))
