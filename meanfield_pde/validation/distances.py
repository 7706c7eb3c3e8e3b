"""All distances that suit a law on a grid, by name."""

from __future__ import annotations

from meanfield_pde.arrays import FloatArray
from meanfield_pde.grid import Grid
from meanfield_pde.validation.circle_distances import circle_energy, circle_kuiper, circle_w1, circle_w2
from meanfield_pde.validation.line_distances import line_energy, line_ks, line_w1, line_w2
from meanfield_pde.validation.line_laws import LineLaw, grid_line
from meanfield_pde.validation.pair_energy import PairReference, pair_energy, pair_reference
from meanfield_pde.validation.projections import Projections, project
from meanfield_pde.validation.sliced_distances import sliced_energy, sliced_w2

Readable = LineLaw | Projections | PairReference
LINE = {"W1": line_w1, "W2": line_w2, "KS": line_ks, "energy": line_energy}
CIRCLE = {"W1": circle_w1, "W2": circle_w2, "Kuiper": circle_kuiper, "energy": circle_energy}
SLICED = {"sliced W2": sliced_w2, "energy": sliced_energy}


def readable(density: FloatArray, grid: Grid) -> Readable:
    """The law of cell averages as distances read it, made once for many samples."""
    if len(set(grid.periodic)) > 1:
        return pair_reference(density, grid)
    return grid_line(density, grid) if grid.dim == 1 else project(density, grid)


def distances(points: FloatArray, law: Readable, weights: FloatArray | None = None) -> dict[str, float]:
    """The distances of a weighted sample to a law: W1, W2, KS (Kuiper on a ring) and energy, or sliced W2 and energy.

    Shapes: points (n,) or (n, d), weights (n,).
    """
    if isinstance(law, PairReference):
        return {"energy": pair_energy(points, law, weights)}
    if isinstance(law, Projections):
        return {name: distance(points, law, weights) for name, distance in SLICED.items()}
    return {name: distance(points, law, weights) for name, distance in (CIRCLE if law.ring else LINE).items()}
