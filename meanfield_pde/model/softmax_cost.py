"""Which way softmax means are taken in two and three dimensions: counts of operations and bytes, known beforehand.

The unit is one multiply-add in a product of matrices, about 0.1 ns a core. Nothing here looks at rho or mu, so that a
problem keeps its way, and its bits, from the first step to the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, prod, sqrt

import numpy as np

from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.separable import separable
from meanfield_pde.model.softmax_matrix import mixed_means
from meanfield_pde.model.tensor_table import CHEBYSHEV_SIZES, POINTS, UNIFORM_SIZES

# multiply-adds that an exponential is worth, a byte of M read from memory, a point and the weights
# of the local interpolation, and a cardinal function
EXPONENTIAL, BYTE, POINT, KEY, BASIS = 15.0, 1.0, 3.0, 100.0, 30.0
# stages that a field is used for before the heads move, forward; the way back doubles them
STAGES = 30
# laws of a batch that share one reading of M
BATCH = 8
# bytes that the matrices of all layers may take
MATRIX_BYTES = 1e9
# relative error of the means that is asked for unless said, by dimension
TOLERANCE = {1: 1e-10, 2: 1e-8, 3: 1e-6}


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How means are taken: the ``way``, direct, separable, line (one axis), keys or matrix, and sizes of its table.

    Meaning: ``bytes`` is the most that tables and matrices of all fields hold at the largest size.
    """

    way: str
    sizes: tuple[int, ...] = ()
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """Multiply-adds a law and stage, with what is built before shared out, and bytes held by all fields."""

    operations: float
    bytes: float


def chebyshev_size(growth: float, tolerance: float) -> int:
    """Chebyshev nodes that resolve e^{growth t} on [-1, 1], relative to its largest value.

    Formula: its coefficients are Bessel functions I_k(growth) ~ e^{growth - k²/(2 growth)}, for large k rather 1/k!.
    """
    digits = log(1.0 / tolerance)
    return ceil(sqrt(2.0 * growth * digits + 0.25 * digits**2)) + 2


def uniform_size(growth: float, tolerance: float) -> int:
    """Uniform nodes that resolve it by local interpolation with eight points, error 1e-3 (spacing · growth)^8."""
    return ceil(2.0 * growth * float((1e3 * tolerance) ** (-1.0 / POINTS))) + POINTS


def works(
    lattice: Lattice, targets: tuple[Target, ...], heads: HeadMatrices, laws: int, fields: int, tolerance: float
) -> dict[str, Work]:
    """What each way costs, for ``fields`` fields (one a layer) that each carry ``laws`` token laws.

    Formula: n cells, F targets of all components, n_A score matrices, P_c means mixed into component c, Q = q^d nodes:
    direct n F n_A (15 + d); separable 2 d n n_A sum n_k, for diagonal A alone; keys F n_A (3 · 8^d + 100) and
    the table; matrix sum_c P_c Q F_c (1 + 8 bytes / laws that share a reading) and the table and the build.
    """
    dim, n, count = len(lattice.axes), len(lattice.points), len(heads.scores)
    faces = sum(len(t.points) for t in targets)
    out = {"direct": Work(n * faces * count * (EXPONENTIAL + dim), 0.0)}
    if separable(heads, targets):
        out["separable"] = Work(2.0 * dim * n * count * sum(lattice.shape), 0.0)
    box = np.array([np.abs(axis).max() for axis in lattice.axes])
    reach = np.array([np.abs(t.points).max(axis=0, initial=0.0) for t in targets]).max(axis=0)
    growth = max(float((np.abs(heads.scores) @ reach * box).max()), 1e-6)
    size = _at_least(UNIFORM_SIZES[dim], uniform_size(growth, tolerance))
    mixing = float(count * size**dim * dim)
    out["keys"] = Work(
        _table(lattice, size) + faces * count * (POINT * POINTS**dim + KEY) + mixing, 8.0 * laws * (dim + 2) * size**dim
    )
    size = _at_least(CHEBYSHEV_SIZES[dim], chebyshev_size(growth, tolerance))
    entries = _entries(targets, heads) * size**dim
    shared = min(laws, BATCH)
    build = count * (entries + BASIS * dim * faces * size)
    out["matrix"] = Work(
        _table(lattice, size) + entries * (1.0 + 8.0 * BYTE / shared) + build / STAGES * (1.0 / laws + 1.0 / shared),
        8.0 * entries * fields,
    )
    return out


def table_plan(
    lattice: Lattice, targets: tuple[Target, ...], heads: HeadMatrices, laws: int, fields: int, tolerance: float
) -> TablePlan:
    """The way of fewest operations whose matrices fit; sizes of a matrix end where the bytes do."""
    dim = len(lattice.axes)
    costs = works(lattice, targets, heads, max(laws, 1), fields, tolerance)
    if costs["matrix"].bytes > MATRIX_BYTES:
        del costs["matrix"]
    way = min(costs, key=lambda name: costs[name].operations)
    if way == "keys":
        sizes = UNIFORM_SIZES[dim]
        return TablePlan(way, sizes, 8.0 * laws * (dim + 2) * sizes[-1] ** dim)
    if way == "matrix":
        entries = 8.0 * fields * _entries(targets, heads)
        sizes = tuple(q for q in CHEBYSHEV_SIZES[dim] if entries * q**dim <= MATRIX_BYTES)
        return TablePlan(way, sizes, entries * sizes[-1] ** dim if sizes else 0.0)
    return TablePlan(way)


def line_plan(lattice: Lattice, targets: tuple[Target, ...], sizes: tuple[int, ...], fields: int) -> TablePlan:
    """The one table on a line, its exponentials and one matrix M a field."""
    faces = sum(len(t.points) for t in targets)
    return TablePlan("line", sizes, 8.0 * sizes[-1] * (3.0 * len(lattice.points) + float(faces) * fields))


def _entries(targets: tuple[Target, ...], heads: HeadMatrices) -> int:
    """Entries of M for each node."""
    return sum(len(t.points) * len(mixed_means(heads, t.component)) for t in targets)


def _table(lattice: Lattice, size: int) -> float:
    """Products of the exponentials with a law, axis by axis, for its mass and first moments."""
    shape = lattice.shape
    return float(sum((k + 2) * size ** (k + 1) * prod(shape[k:]) for k in range(len(shape))))


def _at_least(sizes: tuple[int, ...], size: int) -> int:
    return next((q for q in sizes if q >= size), size)
