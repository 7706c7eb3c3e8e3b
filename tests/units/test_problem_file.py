from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.laws import Density, Gaussian, Mixture, Samples, cell_averages
from meanfield_pde.problem import Problem, Sequence
from meanfield_pde.problem_file import absolute_paths, dump_problem, load_problem, parse_problem
from meanfield_pde.sequences import SequenceBatch, sequence_batch

TEXT = """
kind = "training"
attention = "softmax"

[tokens]
lower = [-5.0]
upper = [6.0]
cells = [64]

[heads]
family = "scalar"
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [16, 16]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.04, 0.0], [0.0, 0.04]] }

[depth]

[[sequences]]
initial = { law = "gaussian", mean = [0.5], covariance = [[0.4]] }
target = 1

[[sequences]]
file = "many.npz"
train_every = 3

[[sequences]]
initial = { law = "samples", file = "one.csv" }
target = 0
role = "held-out"

[objective]
kind = "cross-entropy"
features = [{ kind = "polynomial", coefficients = [0.0, 1.0] }]
readout = [[2.0]]

[training]
beta = 0.05
ds = 0.05
s_end = 1.0
"""
POINTS = np.array([[-1.0], [0.25], [1.5]])
WEIGHTS = np.array([[1.0, 2.0, 1.0], [0.0, 1.0, 0.0], [3.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
LABELS = np.array([0, 1, 1, 0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.toml").write_text(TEXT)
    np.savez(tmp_path / "many.npz", points=POINTS, weights=WEIGHTS, labels=LABELS)
    (tmp_path / "one.csv").write_text("0.5\n-0.5\n")
    return tmp_path


def batch(problem: Problem, role: str | None = None) -> SequenceBatch:
    assert problem.tokens is not None
    return sequence_batch(problem, problem.tokens.grid(), role)


def test_a_loaded_problem_is_dumped_and_loaded_to_an_equal_one(folder: Path) -> None:
    problem = load_problem(folder / "p.toml", ["training.beta=0.1", "tokens.drift.leak=0.3"])
    assert problem.training is not None
    assert problem.training.beta == 0.1
    assert problem.base == str(folder)
    text = dump_problem(problem)
    assert str(folder) not in text
    assert parse_problem(text) == problem
    assert dump_problem(parse_problem(text)) == text


def test_sequences_are_expanded_in_order_with_targets_roles_and_names(folder: Path) -> None:
    problem = load_problem(folder / "p.toml")
    every = batch(problem)
    assert every.mu.shape == (6, 64)
    assert every.targets == (1, 0, 1, 1, 0, 0)
    assert all(type(target) is int for target in every.targets)
    assert every.roles == ("train", "train", "held-out", "held-out", "train", "held-out")
    assert every.names == (
        "sequences[0]", "many.npz[0]", "many.npz[1]", "many.npz[2]", "many.npz[3]", "sequences[2]",
    )  # fmt: skip
    np.testing.assert_allclose(every.mu.sum(axis=1) * 11 / 64, 1.0, atol=1e-14)
    means = every.mu @ (-5 + 11 / 64 * (np.arange(64) + 0.5)) * 11 / 64
    np.testing.assert_allclose(means, [0.5, 0.25, 0.25, -0.375, 0.25, 0.0], atol=1e-14)
    for role in ("train", "held-out"):
        part = batch(problem, role)
        chosen = [k for k, r in enumerate(every.roles) if r == role]
        assert np.array_equal(part.mu, every.mu[chosen])
        assert part.names == tuple(every.names[k] for k in chosen)
        assert set(part.roles) == {role}
    with pytest.raises(MeanFieldError, match="role = 'test' is not known"):
        batch(problem, "test")


def test_a_bandwidth_makes_each_item_a_mixture_of_gaussians(folder: Path) -> None:
    problem = load_problem(folder / "p.toml", ["sequences.1.bandwidth=0.4"])
    assert problem.tokens is not None
    gaussians = tuple(Gaussian((float(x),), ((0.4**2,),)) for x in POINTS[:, 0])
    exact = cell_averages(Mixture((3.0, 0.0, 1.0), gaussians), problem.tokens.grid())[0]
    np.testing.assert_allclose(batch(problem).mu[3], exact, atol=1e-14)


def test_regression_labels_may_have_several_columns(folder: Path) -> None:
    np.savez(folder / "many.npz", points=POINTS, weights=WEIGHTS, labels=np.array([[1, 2], [3, 4], [5, 6], [7, 8.5]]))
    problem = load_problem(
        folder / "p.toml",
        ["objective.kind=regression", "objective.readout=[[1.0], [2.0]]", "sequences.0.target=[0.0, 1.0]",
         "sequences.2.target=[0.0, 1.0]"],
    )  # fmt: skip
    assert batch(problem).targets[1:5] == ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.5))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.array([0, 1, 2, 0])}, r"many\.npz: labels\[2\] = 2 must be a label, an integer from 0 to 1"),
        ({"labels": np.array([0, 1])}, r"many\.npz: labels has 2 rows, but weights has 4"),
        ({"weights": np.where(WEIGHTS == 3, np.nan, WEIGHTS)}, r"many\.npz \[weights\] has nan in row 3, column 1"),
        ({"weights": WEIGHTS - 1}, r"many\.npz: row 2 of weights must be >= 0"),
        ({"weights": WEIGHTS[:, :2]}, r"weights \(4, 2\) and points \(3, 1\) do not fit"),
        ({"points": np.zeros((3, 2))}, "points has dimension 2, but the tokens have 1"),
        ({"points": POINTS + 6}, r"sequences\[1\]: .*many\.npz, row 1: law has 0\.75 of its mass outside the box"),
        ({"weights": None}, "no array 'weights'; allowed: labels, points"),
    ],
)
def test_sequence_files_that_cannot_be_used_are_refused(
    folder: Path, arrays: dict[str, np.ndarray | None], message: str
) -> None:
    content = {"points": POINTS, "weights": WEIGHTS, "labels": LABELS} | arrays
    np.savez(folder / "many.npz", **{name: array for name, array in content.items() if array is not None})
    problem = load_problem(folder / "p.toml")
    with pytest.raises(MeanFieldError, match=message):
        batch(problem)


def test_mass_outside_the_box_names_the_sequence(folder: Path) -> None:
    problem = load_problem(folder / "p.toml", ["tokens.lower=[-0.2]"])
    with pytest.raises(MeanFieldError, match=r"sequences\[0\]\.initial: the gaussian law has 0\.134 of its mass"):
        batch(problem)


def test_a_nan_in_a_token_file_names_file_row_and_column(folder: Path) -> None:
    (folder / "one.csv").write_text("0.5\nnan\n")
    problem = load_problem(folder / "p.toml")
    with pytest.raises(FileError, match=r"sequences\[2\]\.initial: .*one\.csv has nan in row 2, column 1"):
        batch(problem)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("beta = 0.05", "betta = 0.05", r"unknown key training\.betta; did you mean 'beta'"),
        ("beta = 0.05", "beta = -0.1", r"training\.beta = -0\.1 must be finite and >= 0"),
        ("[depth]", '[depth]\nscheme = "weno"', r"depth\.scheme = 'weno' is not known; did you mean 'weno5z'"),
        ("cells = [64]", "cells = [64]\nperodic = [true]", r"unknown key tokens\.perodic; did you mean 'periodic'"),
        ("cells = [64]", "cells = [64.5]", r"tokens\.cells = \[64\.5\] must be a list of integers"),
        ("cells = [64]", "n = 64.5", r"unknown key tokens\.n; "),
        ("[training]", "[trainig]", "unknown key trainig; did you mean 'training'"),
        ('attention = "softmax"', 'attention = "causal"', "attention = 'causal' is not covered yet"),
        ('attention = "softmax"', '[attention]\nmask = "causal"', r"attention\.mask: .* not covered yet"),
        ('attention = "softmax"', 'attention = "softmax"\nlayer_norm = true', "layer_norm: .*not covered yet"),
        ("[depth]", "[depth]\nlayer_norm = true", r"depth\.layer_norm: .*not covered yet"),
        ("[depth]", "[depth]\nmlp = 4", r"depth\.mlp: MLP blocks are not covered yet"),
        ("[depth]", "[depth]\n[mlp]\nwidth = 4", "mlp: MLP blocks are not covered yet"),
        ("[depth]", "[depth", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_key(folder: Path, old: str, new: str, message: str) -> None:
    path = folder / "bad.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(MeanFieldError, match=rf"bad\.toml: {message}"):
        load_problem(path)


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.toml is missing: give the path"):
        load_problem(tmp_path / "none.toml")
    with pytest.raises(FileError, match="is a folder"):
        load_problem(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not UTF-8"):
        load_problem(tmp_path / "binary.toml")


def test_a_python_density_solves_but_cannot_be_dumped(folder: Path) -> None:
    law = Density(lambda x: np.exp(-(x[:, 0] ** 2)))
    problem = replace(load_problem(folder / "p.toml"), sequences=(Sequence(law, 1),))
    assert batch(problem).mu.shape == (1, 64)
    with pytest.raises(MeanFieldError, match=r"sequences\[0\]\.initial\.function is a Python function"):
        dump_problem(problem)


def test_absolute_paths_hold_in_any_folder(folder: Path) -> None:
    targets = ["objective={kind='energy-distance'}", "sequences.1={initial={law='samples',file='one.csv'}}"]
    for k, law in enumerate(("{law='samples',file='one.csv'}",) * 3):
        targets.append(f"sequences.{k}.target={law}")
    problem = load_problem(folder / "p.toml", targets)
    moved = parse_problem(dump_problem(absolute_paths(problem)))
    assert moved.base == "."
    assert np.array_equal(batch(moved).mu, batch(problem).mu)
    assert all(isinstance(t, Samples) and Path(t.file) == folder / "one.csv" for t in batch(moved).targets)
    files = parse_problem(dump_problem(absolute_paths(load_problem(folder / "p.toml"))))
    assert batch(files).mu.shape == (6, 64)


def test_sample_paths_stay_relative_in_the_dump(folder: Path) -> None:
    problem = load_problem(folder / "p.toml")
    assert isinstance(problem.sequences[2], Sequence)
    assert problem.sequences[2].initial == Samples("one.csv")
    assert 'file = "one.csv"' in dump_problem(problem)
