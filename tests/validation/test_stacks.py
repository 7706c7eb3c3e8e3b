"""Stacks of blocks recorded on a problem's tokens, through a stand-in for PyTorch that has the few parts in use."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meanfield_pde import library
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.particles.of_problem import initial_tokens, run_tokens
from meanfield_pde.validation.reading import read_trajectory
from meanfield_pde.validation.torch_adapter import record
from meanfield_pde.validation.trajectory import Trajectory
from meanfield_pde.validation.writing import write_trajectory


class Tensor(np.ndarray):
    """An array with the methods of a tensor."""

    def detach(self) -> Tensor:
        assert TORCH.quiet, "gradients would be kept"
        return self

    def to(self, device: str, dtype: Any) -> Tensor:
        assert device == "cpu"
        return self.astype(dtype)

    def numpy(self) -> np.ndarray:
        return np.asarray(self)

    def is_floating_point(self) -> bool:
        return self.dtype.kind == "f"


def as_tensor(values: np.ndarray, dtype: Any, device: str) -> Tensor:
    TORCH.devices.add(device)
    return np.array(values, dtype=dtype).view(Tensor)


@contextmanager
def no_grad() -> Any:
    TORCH.quiet = True
    try:
        yield
    finally:
        TORCH.quiet = False


TORCH: Any = SimpleNamespace(
    quiet=False, devices=set(), float64=np.float64, finfo=np.finfo, as_tensor=as_tensor, no_grad=no_grad
)


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    TORCH.devices.clear()
    monkeypatch.setitem(sys.modules, "torch", TORCH)


class Module:
    """What the adapter asks of an nn.Module."""

    def __init__(self, *inner: Module, **attributes: Any) -> None:
        self.training, self.inner, self.calls = True, inner, 0
        self.weights: list[Any] = []
        vars(self).update(attributes)

    def modules(self) -> Any:
        yield self
        for one in self.inner:
            yield from one.modules()

    def parameters(self) -> list[Any]:
        return self.weights

    def buffers(self) -> list[Tensor]:
        return []

    def __call__(self, x: Tensor) -> Any:
        self.calls += 1
        assert not any(one.training for one in self.modules())
        assert x.ndim == 3
        assert len(x) == 1
        return self.forward(x)

    def forward(self, x: Tensor) -> Any:
        return x


class Attention(Module):
    """Softmax attention by the definition, all pairs at once; with ``dt`` the residual block."""

    def forward(self, x: Tensor) -> Tensor:
        total = np.zeros_like(x)
        for w, a in self.heads:
            scores = np.exp(a * np.einsum("bid,bjd->bij", x, x))
            total += w * (scores @ x) / scores.sum(axis=2, keepdims=True)
        velocity = total / len(self.heads)
        return velocity if self.dt is None else x + self.dt * velocity

    heads: Any = ()
    dt: float | None = None


def heads_of(problem: Any) -> list[tuple[float, float]]:
    return [(w, a) for w, a in problem.heads.points]


def line() -> Any:
    return library.get("torch_line")[0]


@pytest.mark.parametrize("way", ["list", "velocity"])
def test_a_stack_is_the_residual_network_of_its_heads(way: str) -> None:
    problem, layers = line(), 20
    heads = heads_of(problem)
    if way == "list":
        blocks: Any = [Attention(heads=heads, dt=1.0 / layers) for _ in range(layers)]
        found = record(blocks, problem, 150, runs=2, seed=5)
    else:
        blocks = Attention(heads=heads)
        found = record(blocks, problem, 150, runs=2, seed=5, residual=True, layers=layers)
    np.testing.assert_array_equal(found.times, [0.0, 0.25, 0.5, 0.75, 1.0])
    assert (found.runs, found.count, found.dim, found.kind) == (2, 150, 1, "tokens")
    for run in range(2):
        ours = run_tokens(problem, 150, layers, "euler", seed=5 + run, way="direct", times=tuple(found.times.tolist()))
        np.testing.assert_allclose(found.points[run], ours.x, rtol=0, atol=1e-13)
    assert np.abs(found.points[0] - found.points[1]).max() > 0.1


@pytest.mark.parametrize("residual", [False, True])
def test_on_the_circle_blocks_see_points_and_angles_are_recorded(residual: bool) -> None:
    problem, layers = library.get("torch_circle")[0], 12
    field = Attention(heads=[(1.0, 4.0)])
    dt = problem.depth.T / layers

    class Projected(Module):
        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[2] == 2
            v = field.forward(x)
            v = v - (v * x).sum(axis=2)[..., None] * x
            if residual:
                return v
            moved = x + dt * v
            return moved / np.sqrt((moved**2).sum(axis=2))[..., None]

    blocks: Any = Projected() if residual else [Projected() for _ in range(layers)]
    found = record(blocks, problem, 80, seed=2, residual=residual, layers=layers if residual else None)
    ours = run_tokens(problem, 80, layers, "renormalised", seed=2, times=tuple(found.times.tolist()))
    assert found.kind == "angles"
    assert found.points.shape == (1, len(found.times), 80, 1)
    gap = np.abs(found.points[0] - ours.x)
    assert np.minimum(gap, 2 * np.pi - gap).max() < 1e-13


def test_tokens_take_the_type_and_the_place_of_the_first_parameter() -> None:
    seen = []

    class Watching(Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.dtype)
            return x

    block = Watching()
    whole = SimpleNamespace(is_floating_point=lambda: False)
    block.weights = [whole, SimpleNamespace(is_floating_point=lambda: True, dtype=np.float32, device="elsewhere")]
    found = record([block], line(), 30)
    assert set(seen) == {np.dtype(np.float32)}
    start = initial_tokens(line(), 30).points
    np.testing.assert_array_equal(found.points[0, 0], start.astype(np.float32))
    assert found.points.dtype == np.float64
    assert TORCH.devices == {"elsewhere"}
    record([Module()], line(), 30)
    assert TORCH.devices == {"elsewhere", "cpu"}


def test_modules_are_put_into_eval_mode_and_back_each_as_it_was() -> None:
    inner = Module(training=False)
    block = Module(inner)
    record([block], line(), 30)
    assert (block.training, inner.training) == (True, False)
    broken = Module(inner)
    broken.forward = lambda x: x[:, 1:]
    with pytest.raises(MeanFieldError):
        record([broken], line(), 30)
    assert (broken.training, inner.training, TORCH.quiet) == (True, False, False)


class Dropout(Module):
    p = 0.1


def test_dropout_that_is_switched_off_is_said() -> None:
    with pytest.warns(UserWarning, match=r"dropout \(Dropout, Module\) is off while tokens are recorded"):
        record([Module(Dropout(), dropout=0.2)], line(), 30)
    # no dropout, or none in use: no word
    record([Module(Dropout(p=0.0), dropout=0.0)], line(), 30)
    record([Module(Dropout(training=False))], line(), 30)


class Placed(Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-3 * np.arange(x.shape[1])[None, :, None]


class Random(Module):
    rng = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-3 * self.rng.normal(size=x.shape)


class Weights(Module):
    def forward(self, x: Tensor) -> Any:
        return x, None


class Growing(Module):
    def forward(self, x: Tensor) -> Tensor:
        return 100.0 * x


FAULTS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "places": ([Module(), Placed()], {}, r"block 1 looks at the places of tokens.*positional encodings and causal"),
    "noise": ([Random()], {}, "block 0 gives other tokens at a second call"),
    "tuple": ([Weights()], {}, r"block 0 gives a tuple for tokens of shape \(1, 40, 1\)"),
    "no layers": (Module(), {}, "layers = None: say how often.*model.layers"),
    "no layer": (Module(), {"layers": 0}, "layers = 0: say how often"),
    "layers of a list": ([Module()], {"layers": 3}, "a list of blocks has a length of its own"),
    "empty": ([], {}, "list of blocks is empty"),
    "no block": ([Module(), 3], {}, "block 1 is of type int, which cannot be called"),
    "batch second": ([Module(Module(batch_first=False))], {}, "Module takes tokens as .*with batch_first=True"),
    "times": ([Module(), Module()], {"times": (0.0, 0.3)}, "time 0.3 is no edge of the 2 layers"),
    "no run": ([Module()], {"runs": 0}, "runs = 0: at least one"),
    "sequence": ([Module()], {"sequence": 7}, "sequence = 7: the problem has 1"),
    "out of the box": ([Growing()], {}, r"recorded \[tokens\] has \d+ of 80 points outside the box"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_stacks_without_a_limit_are_refused(fault: str) -> None:
    blocks, keys, words = FAULTS[fault]
    with pytest.raises(MeanFieldError, match=words):
        record(blocks, line(), 40, **keys)


def test_an_error_of_a_block_is_its_own_with_a_word_where() -> None:
    def block(x: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2")

    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        record([block], line(), 30)
    assert caught.value.__notes__ == ["block 0 was called on tokens of shape (1, 30, 1), (batch, N, d)"]


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MeanFieldError, match=r'needs PyTorch.*pip install "meanfield-pde\[torch\]"'):
        record([Module()], line(), 30)


def test_no_part_of_the_package_imports_torch_by_itself() -> None:
    import ast

    root = Path(library.__file__).parents[1]
    inside = {root / "validation" / "torch_adapter.py"}
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        outer = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        nodes = outer if path in inside else ast.walk(tree)
        names = {
            name.split(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert "torch" not in names, path


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("kind", ["tokens", "angles", "heads"])
def test_what_is_written_is_read_back(tmp_path: Path, kind: str, runs: int) -> None:
    rng = np.random.default_rng(runs)
    dim = 1 if kind == "angles" else 2
    more: dict[str, Any] = {"A": rng.normal(size=(4, dim, dim)), "W": rng.normal(size=(4, dim, dim))}
    if kind == "heads":
        more = {"loss": rng.random(5), "loss_times": np.arange(5.0)}
    equal = runs == 1
    weights = np.full((runs, 12), 1 / 12) if equal else rng.random((runs, 12))
    whole = Trajectory(
        kind, np.array([0.0, 0.5, 1.0]), rng.uniform(-3, 3, (runs, 3, 12, dim)), weights / weights.sum(axis=1)[:, None],
        **more,
    )  # fmt: skip
    path = write_trajectory(tmp_path / "run.npz", whole)
    with np.load(path) as arrays:
        assert ("weights" in arrays.files) != equal
        assert arrays[kind].ndim == (4 if runs > 1 else 3) - (kind == "angles")
        assert ("s" if kind == "heads" else "t") in arrays.files
    read = read_trajectory(path)
    assert read.kind == kind
    for name in ("times", "points", "A", "W", "loss", "loss_times"):
        np.testing.assert_array_equal(getattr(read, name), getattr(whole, name))
    np.testing.assert_allclose(read.weights, whole.weights, rtol=1e-15)


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    one = Trajectory("tokens", np.zeros(1), np.zeros((1, 1, 12, 1)), np.full((1, 12), 1 / 12))
    with pytest.raises(FileError, match=r"run.csv: trajectories are written as .npz, not '.csv'"):
        write_trajectory(tmp_path / "run.csv", one)
    with pytest.raises(FileError, match=r"run.npz cannot be written: No such file"):
        write_trajectory(tmp_path / "nowhere" / "run.npz", one)
