"""Small whole files of every kind the package reads: what the mutations start from."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meanfield_pde.output.run import run
from meanfield_pde.problem_file import load_problem

TRAINING = """
kind = "training"
title = "a small one"
attention = "softmax"
[tokens]
lower = [-3.0]
upper = [3.0]
cells = [16]
[heads]
family = "scalar"
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [10, 11]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.1, 0.0], [0.0, 0.1]] }
[depth]
T = 0.2
layers = 2
shared = false
scheme = "linear5"
[[sequences]]
file = "tokens.npz"
bandwidth = 0.3
train_every = 2
[objective]
kind = "cross-entropy"
features = [{ kind = "bump", center = [0.0], width = 0.8 }]
readout = [[1.0]]
[training]
beta = 0.1
weight_decay = 0.5
ds = 0.02
s_end = 0.08
[output]
times = [0.033]
snapshots = 3
checkpoint_every = 2
"""
TOKENS = """
kind = "tokens"
attention = "unnormalised"
[tokens]
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [10, 12]
drift = { leak = 0.3, constant = [0.1, 0.0] }
noise = 0.05
[heads]
family = "rotation"
points = [[0.5, 0.4, 1.0], [-0.3, 0.2, 0.0]]
weights = [1.0, 2.0]
[depth]
T = 0.1
positivity = true
[[sequences]]
role = "train"
initial.law = "mixture"
initial.weights = [1, 3.0]
initial.components = [
  { law = "gaussian", mean = [0.1, 0.2], covariance = [[0.2, 0.0], [0.0, 0.3]] },
  { law = "samples", file = "samples.npy", bandwidth = 0.4 },
]
"""
RINGS = """
kind = "fokker-planck"
[heads]
lower = [-3.141592653589793]
upper = [3.141592653589793]
cells = [24]
periodic = [true]
initial = { law = "von-mises", mean = [0.4], concentration = [1.5] }
[potential]
coefficients = [[0.0]]
harmonics = [[[0.3, -0.1], [0.05, 0.0]]]
cosine = 0.7
[training]
beta = 0.2
ds = 0.05
s_end = 0.2
control = "error"
tolerance = 1e-3
"""

NAMES = """
kind = "tokens"
points = "where"
times = [0.0, 0.5, 1.0]
weights = "mass"
A = "keys"
W = "values"
axes = ["particles", "snapshots", "dimension"]
columns = [1, 0]
degrees = false
"""


def _bytes_of(write: str, **arrays: np.ndarray) -> bytes:
    memory = io.BytesIO()
    if write == "h5":
        with h5py.File(memory, "w") as file:
            for name, values in arrays.items():
                file.create_dataset(name, data=values, chunks=values.shape, compression="gzip")
            file["more/words"] = "not looked at"
    else:
        getattr(np, write)(memory, **arrays)
    return memory.getvalue()


def make(folder: Path) -> dict[str, list[Path]]:
    """Whole files in ``folder`` by kind; those of runs stand where the run put them."""
    rng = np.random.default_rng(5)
    points, weights = np.linspace(-1.0, 1.0, 9)[:, None], rng.random((6, 9))
    table = rng.normal(0.0, 0.4, (12, 2))
    (folder / "tokens.npz").write_bytes(
        _bytes_of("savez_compressed", points=points, weights=weights, labels=np.arange(6) % 2)
    )
    (folder / "plain.npz").write_bytes(_bytes_of("savez", samples=table, other=np.zeros(3)))
    (folder / "samples.npy").write_bytes(_bytes_of("save", arr=table))
    (folder / "whole.npy").write_bytes(_bytes_of("save", arr=np.arange(24).reshape(12, 2, order="F")))
    (folder / "samples.csv").write_text("x, y\n" + "\n".join(",".join(repr(v) for v in row) for row in table.tolist()))
    (folder / "samples.h5").write_bytes(_bytes_of("h5", samples=table))
    with h5py.File(folder / "plain.hdf5", "w") as file:
        file["samples"] = table
    for name, text in (("training", TRAINING), ("tokens", TOKENS), ("rings", RINGS)):
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    _trajectories(folder, rng)
    # that its little boxes touch their walls is no matter here
    warnings.simplefilter("ignore", UserWarning)
    for name in ("training", "rings"):
        run(load_problem(folder / f"{name}.toml"), folder / f"run-{name}", threads=1)
    runs = sorted(folder.glob("run-*"))
    return {
        "problem": sorted(folder.glob("*.toml")),
        "tokens": [folder / "tokens.npz"],
        "samples": [folder / name for name in ("plain.npz", "samples.npy", "whole.npy", "samples.csv")],
        "hdf5": [folder / "samples.h5", folder / "plain.hdf5"],
        "trajectory": [folder / f"run.{suffix}" for suffix in ("npz", "npy", "csv")],
        "foreign": [folder / f"run.{suffix}" for suffix in ("h5", "parquet")],
        "names": [folder / "names.txt"],
        "result": [path / "result.h5" for path in runs],
        "checkpoint": [path for one in runs for path in sorted((one / "checkpoints").iterdir())],
        "segment": [path for one in runs for path in sorted((one / "segments").iterdir())],
        "text": [path / "problem.toml" for path in runs],
    }


def _trajectories(folder: Path, rng: np.random.Generator) -> None:
    """One trajectory in every kind of file, and names for its arrays."""
    where, t = rng.normal(0.0, 0.6, (3, 12, 2)), np.array([0.0, 0.5, 1.0])
    arrays = {"tokens": where, "t": t, "weights": rng.random(12), "A": np.eye(2)[None], "W": np.eye(2)[None]}
    columns = {"t": np.repeat(t, 12), "particle": np.tile(np.arange(12.0), 3), "x1": where[..., 0].ravel()}
    columns["x2"] = where[..., 1].ravel()
    (folder / "run.npz").write_bytes(_bytes_of("savez_compressed", **arrays))
    (folder / "run.npy").write_bytes(_bytes_of("save", arr=where))
    (folder / "run.h5").write_bytes(_bytes_of("h5", **arrays))
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = "\n".join(",".join(repr(v) for v in line) for line in lines)
    (folder / "run.csv").write_text(",".join(columns) + "\n" + rows, encoding="utf-8")
    parquet.write_table(pa.table(columns), folder / "run.parquet")
    # not among the problems, which are all .toml here
    (folder / "names.txt").write_text(NAMES, encoding="utf-8")
