"""Small whole files of every kind the package reads: what the mutations start from."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import h5py
import numpy as np

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
        "result": [path / "result.h5" for path in runs],
        "checkpoint": [path for one in runs for path in sorted((one / "checkpoints").iterdir())],
        "segment": [path for one in runs for path in sorted((one / "segments").iterdir())],
        "text": [path / "problem.toml" for path in runs],
    }
