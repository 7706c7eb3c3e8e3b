from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

# long computations: the lines that they run are counted in quicker tests
LONG = (
    "fuzz",
    "limits",
    "laws/test_long_runs.py",
    "laws/test_mu_laws.py",
    "laws/test_whole_problems.py",
    "orders/test_mu_orders.py",
    "orders/test_orders_study.py",
    "orders/test_step_orders.py",
    "particles/test_four_corners.py",
    "particles/test_propagation_of_chaos.py",
    "particles/test_sampling.py",
    "restart/test_cluster.py",
    "restart/test_not_finite.py",
    "restart/test_particle_runs.py",
    "restart/test_restart.py",
    "restart/test_stopping.py",
    "restart/test_torture.py",
    "validation/test_verdict.py",
)
TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tracer out of long computations, which it slows by half."""
    for item in items:
        place = item.path.relative_to(TESTS).as_posix()
        if place.split("/")[0] in LONG or place in LONG:
            item.add_marker("no_cover")


TINY = """
kind = "training"
attention = "softmax"
reference = "gaussian_coupled"

[tokens]
lower = [-6.0]
upper = [7.0]
cells = [20]

[heads]
family = "scalar"
lower = [-2.2, -2.2]
upper = [2.2, 2.2]
cells = [12, 12]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.06, 0.0], [0.0, 0.06]] }

[depth]
layers = 2
scheme = "linear3"

[[sequences]]
initial = { law = "gaussian", mean = [0.5], covariance = [[0.4]] }

[objective]
kind = "potential"
potential = { kind = "polynomial", coefficients = [0.5, -1.0, 0.5] }

[training]
beta = 0.05
weight_decay = 0.5
ds = 0.05
s_end = 0.2

[output]
checkpoint_every = 2
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the tiny problem, after replacements of its text, and gives the path."""

    def make(*replacements: tuple[str, str], name: str = "tiny.toml") -> Path:
        text = TINY
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return make
