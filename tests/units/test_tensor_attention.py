"""Softmax attention in two and three dimensions: tables, matrix and keys against direct sums and quadrature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.law_cells import gaussian_masses
from meanfield_pde.model.field import Target
from meanfield_pde.model.heads import HeadMatrices, head_matrices
from meanfield_pde.model.lattice import Lattice
from meanfield_pde.model.softmax_cost import TOLERANCE, chebyshev_size, table_plan, uniform_size, works
from meanfield_pde.model.softmax_direct import DirectField, SoftmaxSums
from meanfield_pde.model.softmax_keys import KeyField
from meanfield_pde.model.softmax_matrix import MatrixField
from meanfield_pde.model.softmax_table import table_reach
from meanfield_pde.model.tensor_table import TensorTable

Field = MatrixField | KeyField
CELLS = {2: (18, 15), 3: (11, 10, 12)}
SIZE = {("matrix", 2): 36, ("matrix", 3): 22, ("keys", 2): 64, ("keys", 3): 36}
# the local interpolation is of order 8, and in space the tables of a test are coarse
NEAR = {("matrix", 2): 1e-10, ("matrix", 3): 1e-8, ("keys", 2): 1e-7, ("keys", 3): 1e-5}
WAYS = ("matrix", "keys")


def place(dim: int, cells: tuple[int, ...] | None = None, half: float = 2.0) -> tuple[Lattice, tuple[Target, ...]]:
    grid = Grid((-half,) * dim, (half + 0.2,) * dim, cells or CELLS[dim], (False,) * dim)
    lattice = Lattice(tuple(grid.centers(k) for k in range(dim)), np.array(grid.spacing))
    targets = tuple(Target(grid.face_points(k), k, grid.face_axes(k)) for k in range(dim))
    # in space every 23rd face does
    return lattice, targets if dim == 2 or cells else tuple(Target(t.points[::23], t.component) for t in targets)


def some_heads(dim: int, count: int = 3) -> tuple[HeadMatrices, np.ndarray]:
    """Full A and W, two more heads sharing the first A, and weights."""
    rng = np.random.default_rng(dim)
    scores = (0.5 if dim == 2 else 0.3) * rng.normal(size=(count, dim, dim))
    index = np.r_[np.arange(count), 0, 0]
    weights = rng.random(count + 2)
    return HeadMatrices(scores, index, rng.normal(size=(count + 2, dim, dim))), weights / weights.sum()


def some_laws(points: np.ndarray, count: int = 2) -> np.ndarray:
    """Two bumps each, the second law with empty cells."""
    out = [
        np.exp(-((points - 0.4 + 0.1 * b) ** 2).sum(axis=1)) + 0.6 * np.exp(-((points + 0.5) ** 2).sum(axis=1) / 0.7)
        for b in range(count)
    ]
    out[-1][::5] = 0.0
    return np.array([row / row.sum() for row in out])


def assembled(
    way: str, size: int, lattice: Lattice, targets: tuple[Target, ...], heads: HeadMatrices, weights: np.ndarray
) -> Field:
    reach = table_reach(heads, targets)
    if way == "matrix":
        return MatrixField.assemble(TensorTable.chebyshev(lattice, reach, size), heads, weights, targets)
    return KeyField.assemble(TensorTable.uniform(lattice, reach, size), heads, weights, targets)


def both(way: str, dim: int) -> tuple[Field, DirectField]:
    lattice, targets = place(dim)
    heads, weights = some_heads(dim)
    field = assembled(way, SIZE[way, dim], lattice, targets, heads, weights)
    return field, DirectField(heads, weights, targets, lattice.points, lattice.widths)


def pairing(g: tuple[np.ndarray, ...], v: tuple[np.ndarray, ...]) -> float:
    return float(sum((a * b).sum() for a, b in zip(g, v, strict=True)))


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", ["chebyshev", "uniform"])
def test_means_at_the_nodes_are_those_of_direct_sums(kind: str, dim: int) -> None:
    lattice, _ = place(dim)
    table = getattr(TensorTable, kind)(lattice, (3.0, 5.0, 4.0)[:dim], 9)
    for law, found in zip(some_laws(lattice.points), table.moments(some_laws(lattice.points)), strict=True):
        mean, log_z = SoftmaxSums(lattice.points, law, lattice.widths).means(np.ascontiguousarray(table.keys.T))
        np.testing.assert_allclose(found[:dim].T, mean, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found[dim + 1], log_z, rtol=0, atol=1e-12)
        # 1/Z in the units of the shifted exponentials
        np.testing.assert_allclose(np.log(found[dim]), table.shift - log_z, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_velocity_and_transposes_are_near_those_of_direct_sums(way: str, dim: int) -> None:
    field, direct = both(way, dim)
    laws = some_laws(direct.points)
    rng = np.random.default_rng(1)
    g = tuple(rng.normal(size=(2, len(t.points))) for t in direct.targets)
    moments = field.moments(laws)
    near = NEAR[way, dim]
    for found, wanted in zip(field.velocity(moments), direct.velocity(laws), strict=True):
        assert np.abs(found - wanted).max() <= near * np.abs(wanted).max()
    found, wanted = np.where(laws > 0, field.to_mu(g, moments), 0.0), direct.to_mu(g, laws)
    assert np.abs(found - wanted).max() <= 20 * near * np.abs(wanted).max()
    found, wanted = field.to_rho(g, moments), direct.to_rho(g, laws)
    assert np.abs(found - wanted).max() <= near * np.abs(wanted).max()


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_a_gaussian_in_cells_has_the_affine_means_of_the_gaussian(way: str, dim: int) -> None:
    grid = Grid((-6.0,) * dim, (6.0,) * dim, (48,) * dim, (False,) * dim)
    lattice = Lattice(tuple(grid.centers(k) for k in range(dim)), np.array(grid.spacing))
    mean = np.array([0.3, -0.2, 0.1])[:dim]
    covariance = np.array([[0.45, 0.1, 0.05], [0.1, 0.35, -0.05], [0.05, -0.05, 0.4]])[:dim, :dim]
    law = gaussian_masses(mean, covariance, grid).reshape(1, -1)
    heads, weights = some_heads(dim)
    x = np.random.default_rng(2).uniform(-0.7, 0.7, (40, dim))
    targets = tuple(Target(x, c) for c in range(dim))
    size = {("matrix", 2): 24, ("matrix", 3): 18, ("keys", 2): 64, ("keys", 3): 32}[way, dim]
    field = assembled(way, size, lattice, targets, heads, weights)
    for c, found in enumerate(field.velocity(field.moments(law))):
        wanted = sum(
            share * (mean + x @ heads.scores[a].T @ covariance) @ w.T
            for share, a, w in zip(weights, heads.index, heads.values, strict=True)
        )
        np.testing.assert_allclose(found[0], wanted[:, c], rtol=0, atol=1e-8 if dim == 2 else 1e-6)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_transposes_are_those_of_the_field_itself(way: str, dim: int) -> None:
    # small tables, far from exact: the transposes are exact all the same
    lattice, targets = place(dim)
    heads, weights = some_heads(dim)
    field = assembled(way, 9, lattice, targets, heads, weights)
    rng = np.random.default_rng(3)
    laws = some_laws(lattice.points)
    g = tuple(rng.normal(size=(2, len(t.points))) for t in targets)
    moments = field.moments(laws)
    change = rng.normal(size=laws.shape) * laws
    # a complex step is not to be had, so two central differences and one extrapolation (error h⁴)
    slopes = [
        (pairing(g, field.velocity(field.moments(laws + e * change)))
         - pairing(g, field.velocity(field.moments(laws - e * change)))) / (2 * e)
        for e in (2e-3, 1e-3)
    ]  # fmt: skip
    found = float((field.to_mu(g, moments) * change).sum())
    assert found == pytest.approx((4 * slopes[1] - slopes[0]) / 3, rel=1e-8)
    # degree 0 in mu
    size = np.abs(field.to_mu(g, moments) * laws).sum()
    assert np.abs((field.to_mu(g, moments) * laws).sum(axis=1)).max() <= 1e-12 * size
    gradient = field.to_rho(g, moments)
    for k in range(len(weights)):
        one = np.zeros(len(weights))
        one[k] = 1.0
        alone = pairing(g, assembled(way, 9, lattice, targets, heads, one).velocity(moments))
        assert abs(gradient[k] - alone) <= 1e-12 * sum(np.abs(a).sum() for a in g)


@pytest.mark.parametrize("dim", [2, 3])
def test_where_the_shifted_sums_underflow_they_are_redone(dim: int) -> None:
    lattice, _ = place(dim, (12,) * dim, 20.0)
    # all mass near one corner of a large box, where the shift of the other corners leaves nothing
    law = np.where((lattice.points > 14.0).all(axis=1), 1.0, 0.0)[None]
    law /= law.sum()
    table = TensorTable.chebyshev(lattice, (9.0,) * dim, 8)
    found = table.moments(law)
    lost = found[0, dim] == 0.0
    assert lost.any()
    assert not lost.all()
    mean, log_z = SoftmaxSums(lattice.points, law[0], lattice.widths).means(np.ascontiguousarray(table.keys.T))
    np.testing.assert_allclose(found[0, :dim].T, mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[0, dim + 1], log_z, rtol=1e-13)
    rng = np.random.default_rng(4)
    g = rng.normal(size=(1, dim, len(log_z)))
    sums = SoftmaxSums(lattice.points, law[0], lattice.widths)
    wanted = sums.to_weights(np.ascontiguousarray(table.keys.T), np.ascontiguousarray(g[0].T))
    transposed = np.where(law[0] > 0, table.to_weights(g, found)[0], 0.0)
    np.testing.assert_allclose(transposed, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())
    assert np.isfinite(table.to_weights(g, found)).all()


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_the_error_between_nodes_is_measured(way: str, dim: int) -> None:
    field, direct = both(way, dim)
    laws = some_laws(direct.points)
    errors = []
    for size in (9, SIZE[way, dim]):
        kind = TensorTable.chebyshev if way == "matrix" else TensorTable.uniform
        table = kind(field.table.lattice, field.table.reach, size)
        errors.append(table.error(laws, table.moments(laws)))
        made = assembled(way, size, field.table.lattice, direct.targets, direct.heads, direct.weights)
        gap = max(
            np.abs(a - b).max() / np.abs(b).max()
            for a, b in zip(made.velocity(made.moments(laws)), direct.velocity(laws), strict=True)
        )
        # the heads mix the means, and the first variation is harder than they are
        assert gap <= 3 * errors[-1]
    assert errors[0] > 1e-3 > 100 * errors[1]
    broken = field.moments(laws)
    broken[0, 0, 5] = np.nan
    assert np.isnan(field.table.error(laws, broken))


@pytest.mark.parametrize("way", WAYS)
def test_bits_of_a_law_do_not_depend_on_its_batch(way: str) -> None:
    field, direct = both(way, 2)
    laws = np.concatenate([some_laws(direct.points, 3), some_laws(direct.points, 4)])
    rng = np.random.default_rng(5)
    g = tuple(rng.normal(size=(len(laws), len(t.points))) for t in direct.targets)
    moments = field.moments(laws)
    velocity, back = field.velocity(moments), field.to_mu(g, moments)
    for chosen in ([4], [2, 5], [6, 0, 1]):
        alone = field.moments(laws[chosen])
        np.testing.assert_array_equal(alone, moments[chosen])
        for a, b in zip(field.velocity(alone), velocity, strict=True):
            np.testing.assert_array_equal(a, b[chosen])
        np.testing.assert_array_equal(field.to_mu(tuple(a[chosen] for a in g), alone), back[chosen])


def test_only_the_means_that_some_head_mixes_are_in_the_matrix() -> None:
    lattice, targets = place(2)
    turned = head_matrices("rotation", np.array([[0.5, 1.0, 0.3], [1.0, 0.7, 2.0]]), 2)
    field = assembled("matrix", 12, lattice, targets, turned, np.array([0.4, 0.6]))
    assert isinstance(field, MatrixField)
    assert field.columns == ((0,), (1,))
    assert field.matrices[0].shape == (len(targets[0].points), 144)
    heads, weights = some_heads(2)
    full = assembled("matrix", 12, lattice, targets, heads, weights)
    assert isinstance(full, MatrixField)
    assert full.columns == ((0, 1), (0, 1))


@pytest.mark.parametrize("dim", [2, 3])
def test_a_key_on_a_node_takes_what_is_there(dim: int) -> None:
    lattice, _ = place(dim)
    heads, weights = some_heads(dim)
    # of an odd number of nodes one is 0, but for rounding; with A = 0 every key is
    still = HeadMatrices(0.0 * heads.scores[:1], np.zeros(len(weights), int), heads.values)
    table = replace(TensorTable.chebyshev(lattice, (1.0,) * dim, 7))
    exact = tuple(np.where(np.abs(z) < 1e-15, 0.0, z) for z in table.nodes)
    table = replace(table, nodes=exact)
    targets = tuple(Target(np.ones((2, dim)), c) for c in range(dim))
    laws = some_laws(lattice.points)
    field = MatrixField.assemble(table, still, weights, targets)
    direct = DirectField(still, weights, targets, lattice.points, lattice.widths)
    for a, b in zip(field.velocity(field.moments(laws)), direct.velocity(laws), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)


def test_tables_of_the_wrong_kind_are_refused() -> None:
    lattice, targets = place(2)
    heads, weights = some_heads(2)
    table = TensorTable.uniform(lattice, (2.0, 2.0), 12)
    with pytest.raises(MeanFieldError, match="Chebyshev nodes"):
        MatrixField.assemble(table, heads, weights, targets)
    with pytest.raises(MeanFieldError, match="uniform nodes"):
        KeyField.assemble(TensorTable.chebyshev(lattice, (2.0, 2.0), 12), heads, weights, targets)


# ---- the choice ----------------------------------------------------------------------------------------------------


def test_the_cost_model_takes_the_cheapest_way() -> None:
    lattice, targets = place(2, (28, 28), 1.0)
    axes = (np.linspace(-1.0, 1.0, 8), np.linspace(0.3, 3.0, 6), np.arange(12) * np.pi / 6)
    theta = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=1)
    many = head_matrices("rotation", theta, 2)
    plan = table_plan(lattice, targets, many, 50, 6, TOLERANCE[2])
    assert plan.way == "matrix"
    # a single full A has few keys
    one, _ = some_heads(2, 1)
    assert table_plan(lattice, targets, one, 1, 1, TOLERANCE[2]).way == "keys"
    space, faces = place(3, (48, 48, 48))
    assert table_plan(space, faces, some_heads(3, 1)[0], 1, 1, TOLERANCE[3]).way == "keys"
    # diagonal scores need no table
    scalar = head_matrices("scalar", theta[:, :2], 2)
    assert table_plan(*place(2, (64, 64)), scalar, 1, 1, TOLERANCE[2]).way == "separable"
    # on a handful of cells sums are cheapest
    assert table_plan(*place(2, (4, 4)), one, 1, 1, TOLERANCE[2]).way == "direct"


def test_matrices_stay_in_their_bytes() -> None:
    lattice, targets = place(2, (28, 28), 1.0)
    theta = np.random.default_rng(0).uniform(0.2, 3.0, (40, 3))
    heads = head_matrices("rotation", theta, 2)
    few = table_plan(lattice, targets, heads, 50, 6, TOLERANCE[2]).sizes
    many = table_plan(lattice, targets, heads, 50, 20, TOLERANCE[2]).sizes
    assert max(many) < max(few)
    assert works(lattice, targets, heads, 50, 20, TOLERANCE[2])["matrix"].bytes <= 1e9
    assert table_plan(lattice, targets, heads, 50, 3000, TOLERANCE[2]).way != "matrix"


@pytest.mark.parametrize("growth", [2.0, 8.0, 20.0])
@pytest.mark.parametrize("tolerance", [1e-6, 1e-8])
def test_estimated_sizes_resolve_an_exponential(growth: float, tolerance: float) -> None:
    t = np.linspace(-1.0, 1.0, 2001)
    size = chebyshev_size(growth, tolerance)
    nodes = np.cos(np.pi * (np.arange(size) + 0.5) / size)
    fit = np.polynomial.chebyshev.chebfit(nodes, np.exp(growth * (nodes - 1)), size - 1)
    found = np.polynomial.chebyshev.chebval(t, fit)
    assert np.abs(found - np.exp(growth * (t - 1))).max() <= 3 * tolerance
    lattice = Lattice((np.array([growth]),) * 2, np.zeros(2))
    size = uniform_size(growth, tolerance)
    nodes = TensorTable.uniform(lattice, (1.0, 1.0), size).nodes[0]
    spacing = nodes[1] - nodes[0]
    # in the middle of a step, away from the walls
    weights = np.array([-5, 49, -245, 1225, 1225, -245, 49, -5]) / 2048
    for k in range(3, size - 4):
        z = nodes[k - 3 : k + 5]
        exact = np.exp(growth * (nodes[k] + 0.5 * spacing - 1))
        assert abs(weights @ np.exp(growth * (z - 1)) - exact) <= 2 * tolerance
