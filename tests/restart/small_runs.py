"""A run of a few milliseconds, and when two runs are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import parse_problem

TEXT = """
kind = "fokker-planck"
[heads]
lower = [-3.0]
upper = [3.0]
cells = [24]
initial = { law = "gaussian", mean = [0.7], covariance = [[0.2]] }
[potential]
coefficients = [[0.0, 0.0, -0.5, 0.0, 0.25]]
interaction = 0.3
[training]
beta = 0.3
ds = 0.05
s_end = 1.0
[output]
times = [0.33]
snapshots = 3
every = 3
checkpoint_every = 4
"""
# tokens and heads that move each other
COUPLED = """
kind = "training"
attention = "softmax"
[tokens]
lower = [-3.0]
upper = [3.0]
cells = [32]
[heads]
family = "scalar"
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [16, 15]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.1, 0.0], [0.0, 0.1]] }
[depth]
T = 0.4
layers = 2
scheme = "linear5"
[[sequences]]
initial = { law = "gaussian", mean = [0.4], covariance = [[0.2]] }
[[sequences]]
initial = { law = "gaussian", mean = [-0.3], covariance = [[0.15]] }
[objective]
kind = "potential"
potential = { kind = "polynomial", coefficients = [0.5, -1.0, 0.5] }
[training]
beta = 0.1
weight_decay = 0.5
ds = 0.02
s_end = 1.6
tolerance = 2e-3
[output]
times = [0.333, 0.7]
snapshots = 4
checkpoint_every = 3
"""



def problem(**changes: str) -> Problem:
    """The problem with some settings changed, two underscores for a dot."""
    return parse_problem(TEXT, "small.toml", [f"{key.replace('__', '.')}={value}" for key, value in changes.items()])


def assert_same(a: Solution, b: Solution) -> None:
    """Equal bits in fields, times, counters, rows and snapshots."""
    assert list(a.history) == list(b.history)
    for name, series in a.history.items():
        np.testing.assert_array_equal(series, b.history[name], err_msg=name)
    np.testing.assert_array_equal(a.snapshot_s, b.snapshot_s)
    np.testing.assert_array_equal(a.snapshots, b.snapshots)
    assert a.state is not None
    assert b.state is not None
    np.testing.assert_array_equal(a.state.rho, b.state.rho)
    # every digit of a float is in its words, and NaN, not measured, is NaN there
    assert repr(replace(a.state, rho=np.empty(0))) == repr(replace(b.state, rho=np.empty(0)))
