"""One number that turns bad, in mu, in p or in rho: the run stops within that step, and what was saved stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher
from small_runs import COUPLED

from meanfield_pde.equations import depth_layers, forward_backward
from meanfield_pde.equations.grid_tokens import GridTokens
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.kernels._jit import jit, jit_sum
from meanfield_pde.output.checkpoints import newest
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import parse_problem
from meanfield_pde.training.scheduler import Training
from meanfield_pde.training.state import Moment

pytestmark = pytest.mark.filterwarnings("ignore:.*touches the wall", "ignore:.*free energy rose")


def problem(control: str = "fixed", scheme: str = "linear5") -> Problem:
    changes = ["tokens.cells=[24]", "heads.cells=[10, 9]", "depth.shared=false", f"depth.scheme='{scheme}'",
               "training.ds=0.05", "training.s_end=0.5", f"training.control='{control}'", "training.tolerance=1e-2",
               "output.times=[]", "output.snapshots=11", "output.checkpoint_every=1"]  # fmt: skip
    return parse_problem(COUPLED, "not_finite.toml", changes)


def spoil(values: np.ndarray, bad: float) -> np.ndarray:
    out = np.array(values)
    out.flat[out.size // 2] = bad
    return out


def in_mu(patch: pytest.MonkeyPatch, when: Callable[[], bool], bad: float) -> str:
    step = depth_layers.step

    def poisoned(transport: Any, field: Any, u: np.ndarray, t: float, *rest: Any) -> Any:
        after, *more = step(transport, field, u, t, *rest)
        return (spoil(after, bad) if when() and t > 0.1 else after, *more)

    patch.setattr(depth_layers, "step", poisoned)
    return r"mu is not finite at depth 0\.[1-4]\d* \(layer [01]\), sequence [01], cell \(\d+,\)"


def in_p(patch: pytest.MonkeyPatch, when: Callable[[], bool], bad: float) -> str:
    back = forward_backward.step_transpose

    def poisoned(*arguments: Any) -> Any:
        p, cotangents = back(*arguments)
        return (spoil(p, bad) if when() else p), cotangents

    patch.setattr(forward_backward, "step_transpose", poisoned)
    return r"p is not finite at depth 0\.\d+, sequence [01] of its block, cell \(\d+,\)"


def at_the_end_of_p(patch: pytest.MonkeyPatch, when: Callable[[], bool], bad: float) -> str:
    terminal = GridTokens.terminal

    def poisoned(self: GridTokens, final: np.ndarray) -> tuple[float, np.ndarray]:
        loss, p = terminal(self, final)
        return loss, spoil(p, bad) if when() else p

    patch.setattr(GridTokens, "terminal", poisoned)
    return r"p is not finite at depth 0\.4, sequence [01] of its block, cell \(\d+,\)"


def in_rho(patch: pytest.MonkeyPatch, when: Callable[[], bool], bad: float) -> str:
    step = Training.step

    def poisoned(self: Training, moment: Moment, ds: float) -> Any:
        trial = step(self, moment, ds)
        if when():
            trial.rho.flat[trial.rho.size // 2] = bad
        return trial

    patch.setattr(Training, "step", poisoned)
    return r"rho is not finite in layer and cell|rho = "


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("control", ["fixed", "error", "energy"])
@pytest.mark.parametrize("place", [in_mu, in_p, at_the_end_of_p, in_rho])
def test_a_run_stops_within_the_step_and_goes_on_from_the_last_good_one(
    place: Callable[..., str], control: str, bad: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this, folder = problem(control), tmp_path / "r"
    whole = solve(this)
    assert whole.state is not None
    asked = []

    def when() -> bool:
        # from the third checkpoint on, in every trial
        found = len(list(folder.glob("checkpoints/step-*.h5"))) >= 2 and (
            max(folder.glob("checkpoints/step-*.h5")).name >= "step-0000000003.h5"
        )
        asked.extend([1] * found)
        return found

    with monkeypatch.context() as patch:
        message = place(patch, when, bad)
        with pytest.raises(NotFiniteError, match=message):
            run(this, folder, threads=1)
    # within a step: a fixed one is not tried again, others are cut a hundred times at most
    assert len(asked) <= (40 if control == "fixed" else 400)
    found = newest(folder)
    assert not found.notes
    assert found.checkpoint is not None
    assert np.isfinite(found.checkpoint.state.rho).all()
    assert found.checkpoint.state.step >= 3
    on, _ = resume(folder)
    assert on.state is not None
    np.testing.assert_array_equal(on.state.rho, whole.state.rho)


def test_a_law_that_turns_bad_under_a_drift_alone_ends_in_that_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # the velocity does not feel it, so nothing else would tell before the end of the layer
    text = """
kind = "tokens"
[tokens]
lower = [0.0]
upper = [1.0]
cells = [20]
drift = { constant = [0.3] }
[depth]
T = 1.0
[[sequences]]
initial = { law = "uniform", lower = [0.1], upper = [0.4] }
"""
    step, count = depth_layers.step, []

    def poisoned(transport: Any, field: Any, u: np.ndarray, t: float, *rest: Any) -> Any:
        after, *more = step(transport, field, u, t, *rest)
        count.append(t)
        return (spoil(after, np.nan) if len(count) == 3 else after, *more)

    monkeypatch.setattr(depth_layers, "step", poisoned)
    with pytest.raises(NotFiniteError, match="mu is not finite at depth"):
        solve(parse_problem(text))
    assert len(count) == 3


def test_a_loss_that_overflows_on_the_box_is_refused_without_a_warning_before_any_step() -> None:
    text = COUPLED.replace("coefficients = [0.5, -1.0, 0.5]", "coefficients = [0.5, 1e308, 1e308]")
    with pytest.raises(MeanFieldError, match="every feature must be finite on the token box"):
        solve(parse_problem(text))


@pytest.mark.parametrize("compiled", [jit, jit_sum], ids=["jit", "jit_sum"])
def test_a_guard_in_a_kernel_sees_what_is_not_finite(compiled: Callable[[Any], Any]) -> None:
    def guards(x: np.ndarray) -> tuple[int, int, int, float]:
        bad = unequal = beyond = 0
        total = 0.0
        for i in range(x.size):
            total += x[i] * 0.5
            if not np.isfinite(x[i]):
                bad += 1
            if x[i] != x[i]:
                unequal += 1
            if not (x[i] <= 1e300):
                beyond += 1
        return bad, unequal, beyond, total

    kernel = compiled(guards)
    assert isinstance(kernel, CPUDispatcher)
    x = np.ones(67)
    x[[3, 40, 66]] = np.nan, np.inf, np.nan
    assert kernel(x)[:3] == (3, 2, 3)
    assert np.isnan(kernel(x)[3])
    assert kernel(np.ones(67))[:3] == (0, 0, 0)
