"""From a shallow problem to its token side: where the rows of the kernel are, and what they are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations import shallow_kernels as kernels
from meanfield_pde.equations.shallow import BUDGET, ShallowModel, check_memory
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.problem import DataFile, Problem, Shallow, TwoGaussians, given
from meanfield_pde.sample_files import finite_table, read_arrays
from meanfield_pde.sequences import SequenceBatch


class Rows(NamedTuple):
    """Where predictions are compared: ``places`` (tokens, inputs or lengths), weights and targets, (rows,) each."""

    places: FloatArray
    weights: FloatArray
    targets: FloatArray


def shallow_model(
    problem: Problem, theta: FloatArray, batch: SequenceBatch | None, memory: float = BUDGET
) -> ShallowModel:
    """The token side of a shallow problem for heads at ``theta`` (K, q), its kernel in at most ``memory`` bytes.

    Raises: MeanFieldError over the memory budget, or for targets outside [0, 1] under the logistic loss; FileError.
    """
    keys = problem.shallow or Shallow()
    places, weights, targets = rows_of(problem, batch)
    check_memory(len(places), len(theta), memory)
    if keys.loss == "logistic":
        if isinstance(problem.data, TwoGaussians):
            targets = 0.5 * (targets + 1.0)
        outside = (targets < 0.0) | (targets > 1.0)
        if outside.any():
            worst = int(np.argmax(np.maximum(-targets, targets - 1.0)))
            raise MeanFieldError(
                f"the target {targets[worst]:g} at {places[worst]:g} is no probability: shallow.loss = 'logistic' "
                "needs targets in [0, 1], or take 'squared'"
            )
    name = keys.activation or ""
    if isinstance(problem.data, TwoGaussians):
        kernel = kernels.radial_kernel(name, places, theta[:, 0], problem.data.dimension)
    elif problem.attention == "none":
        kernel = kernels.neuron_kernel(name, places, theta)
    else:
        kernel = kernels.attention_kernel(given(problem.tokens, "tokens").grid(), given(batch, "sequences").mu, theta)
    return ShallowModel(kernel, weights, targets, keys.loss, None if batch is None else batch.outside_mass)


def rows_of(problem: Problem, batch: SequenceBatch | None) -> Rows:
    """The rows of a shallow problem: the tokens of its sequences, the samples of its file, or lengths of samples."""
    if isinstance(problem.data, TwoGaussians):
        return Rows(*kernels.two_gaussian_rows(problem.data.dimension, problem.data.difference))
    if isinstance(problem.data, DataFile):
        return _samples(problem.data, Path(problem.base))
    grid, batch = given(problem.tokens, "tokens").grid(), given(batch, "sequences")
    x = grid.centers(0)
    weights = kernels.token_weights(grid, batch.mu) / len(batch.mu)
    polynomials = [target if isinstance(target, tuple) else (target,) for target in batch.targets]
    targets = np.stack([np.polynomial.polynomial.polyval(x, np.array(row, dtype=float)) for row in polynomials])
    return Rows(np.tile(x, len(batch.mu)), weights.ravel(), targets.ravel())


def _samples(data: DataFile, base: Path) -> Rows:
    path = base / data.file
    arrays = read_arrays(path)
    for name in (data.inputs, data.targets):
        if name not in arrays:
            raise FileError(f"{path} has no array '{name}': it holds {', '.join(sorted(arrays))}")
    inputs = finite_table(arrays[data.inputs], path, data.inputs)
    targets = finite_table(arrays[data.targets], path, data.targets)
    for name, table in ((data.inputs, inputs), (data.targets, targets)):
        if table.shape[1] != 1:
            raise FileError(f"{path}: {name} has {table.shape[1]} columns, but neurons (w, a, c) take one")
    if len(inputs) != len(targets):
        raise FileError(f"{path}: {len(inputs)} {data.inputs} and {len(targets)} {data.targets} do not fit")
    return Rows(inputs[:, 0], np.full(len(inputs), 1.0 / len(inputs)), targets[:, 0])
