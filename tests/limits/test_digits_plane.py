"""The images of digits as laws in the plane: a short training of a few of them on coarse grids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import SequenceFile
from meanfield_pde.sequences import sequence_batch


@pytest.mark.filterwarnings("ignore:(mu|rho) touches the wall", "ignore:mu is under-resolved")
def test_two_steps_on_few_images_make_the_loss_fall() -> None:
    few = {"cells": 12, "layers": 2, "head_cells": (24, 7, 4), "T": 1.0, "s_end": 0.4, "ds": 0.2}
    problem, exact = library.get(
        "digits_plane", head_lower=(-5.0, -1.0, -np.pi), head_upper=(5.0, 2.0, np.pi), **few
    )
    assert exact is None
    (entry,) = problem.sequences
    assert isinstance(entry, SequenceFile)
    problem = replace(problem, sequences=(replace(entry, train_every=134, bandwidth=0.18),))
    solution = solve(problem)
    loss = solution.history["loss"]
    assert len(solution.names) == 5
    assert (np.diff(loss) < 0.0).all()
    assert loss[-1] < 0.9 * loss[0]
    assert solution.certificates["mass_error_mu"] is not None
    assert solution.certificates["mass_error_mu"] < 1e-12


def test_images_stand_upright_in_the_plane() -> None:
    # a law keeps the mean and, but for the bandwidth, the covariance of the pixels it was made of
    problem, _ = library.get("digits_plane", cells=48)
    assert problem.tokens is not None
    grid = problem.tokens.grid()
    batch = sequence_batch(problem, grid, "train")
    (entry,) = problem.sequences
    assert isinstance(entry, SequenceFile)
    assert entry.bandwidth is not None
    with np.load(f"{problem.base}/{entry.file}") as digits:
        images = digits["weights"][::9].reshape(-1, 8, 8).astype(float)
        labels = digits["labels"][::9]
    assert [int(t) for t in batch.targets if isinstance(t, int | float)] == labels.tolist()
    # columns go to the right, rows downwards
    centres = (np.arange(8) + 0.5) / 4.0 - 1.0
    ink = images.sum(axis=(1, 2))
    right = np.einsum("bij,j->b", images, centres) / ink
    up = -np.einsum("bij,i->b", images, centres) / ink
    for k in range(len(images)):
        law = grid.measure(batch.mu[k])
        np.testing.assert_allclose(law.mean(), [right[k], up[k]], atol=1e-6)
        mixed = -np.einsum("ij,i,j->", images[k], centres, centres) / ink[k] - right[k] * up[k]
        assert law.covariance()[0, 1] == pytest.approx(mixed, abs=1e-6)
        wide = np.einsum("ij,j->", images[k], centres**2) / ink[k] - right[k] ** 2 + entry.bandwidth**2
        assert law.covariance()[0, 0] == pytest.approx(wide, abs=1e-6)
