from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanfield_pde.errors import FileError
from meanfield_pde.model.softmax_table import SIZES
from meanfield_pde.output.report import accuracies, clean, read_run, spelled, summary, wilson
from meanfield_pde.output.run import run
from meanfield_pde.output.solve import solve
from meanfield_pde.problem_file import parse_problem

HEADS = """
kind = "fokker-planck"
heads = { lower = [-4.0], upper = [4.0], cells = [32], \
initial = { law = "gaussian", mean = [0.5], covariance = [[0.2]] } }
potential = { coefficients = [[0.0, 0.0, 0.5]] }
training = { beta = 0.1, ds = 0.1, s_end = 0.3 }
"""
CLASSES = """
kind = "tokens"
attention = "softmax"
tokens = { lower = [-4.0], upper = [4.0], cells = [32] }
heads = { family = "scalar", points = [[0.0, 0.0]] }
depth = {}
objective = { kind = "cross-entropy", features = [{ kind = "polynomial", coefficients = [0.0, 1.0] }], \
readout = [[5.0]] }
sequences = [
    { initial = { law = "gaussian", mean = [1.0], covariance = [[0.1]] }, target = 1 },
    { initial = { law = "gaussian", mean = [-1.0], covariance = [[0.1]] }, target = 0 },
    { initial = { law = "gaussian", mean = [1.0], covariance = [[0.1]] }, target = 1, role = "held-out" },
    { initial = { law = "gaussian", mean = [-0.5], covariance = [[0.1]] }, target = 1, role = "held-out" },
    { initial = { law = "gaussian", mean = [-1.0], covariance = [[0.1]] }, target = 0, role = "held-out" },
]
"""


def strict(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_wilson_interval_in_closed_form() -> None:
    z2 = 1.959963984540054**2
    assert wilson(0, 10) == pytest.approx((0.0, z2 / (10 + z2)), abs=1e-15)
    assert wilson(10, 10) == pytest.approx((10 / (10 + z2), 1.0), abs=1e-15)
    half = 0.5 * np.sqrt(z2 / (10 + z2))
    assert wilson(5, 10) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-15)


def test_wilson_ends_solve_the_score_equation() -> None:
    for correct, total in ((1, 7), (317, 320)):
        for end in wilson(correct, total):
            score = (correct / total - end) / np.sqrt(end * (1 - end) / total)
            assert abs(score) == pytest.approx(1.959963984540054, abs=1e-9)


def test_heads_alone_have_no_values_of_tokens() -> None:
    facts = strict(summary(solve(parse_problem(HEADS))))
    for name in ("mass_error_mu", "min_mu", "dual", "table_error", "courant", "costate_drift", "wall_mass_mu",
                 "accuracy", "sequences", "depth_steps"):  # fmt: skip
        assert facts[name] is None, name
    assert facts["s"] == 0.3
    assert facts["steps"] == 3
    assert facts["min_rho"] > 0.0
    assert facts["loss"] < facts["loss_first"]


def test_tokens_alone_have_no_values_of_heads_and_accuracy_by_role() -> None:
    facts = strict(summary(solve(parse_problem(CLASSES))))
    assert facts["table_size"] in SIZES
    assert type(facts["table_size"]) is int
    for name in ("s", "steps", "free_energy", "loss_first", "mass_error_rho", "min_rho", "energy_rise"):
        assert facts[name] is None, name
    assert facts["mass_error_mu"] < 1e-13
    assert facts["accuracy"]["train"] == {"correct": 2, "total": 2, "share": 1.0, "high": 1.0,
                                          "low": pytest.approx(0.3423802)}  # fmt: skip
    held_out = facts["accuracy"]["held-out"]
    assert (held_out["correct"], held_out["total"]) == (2, 3)
    assert held_out["share"] == pytest.approx(2 / 3)
    assert held_out["low"] < 2 / 3 < held_out["high"]


def test_a_role_without_sequences_is_absent() -> None:
    text = CLASSES.replace(', role = "held-out"', "")
    shares = accuracies(solve(parse_problem(text)))
    assert shares is not None
    assert list(shares) == ["train"]
    assert shares["train"]["correct"] == 4


def test_a_token_file_that_is_gone_costs_the_accuracy_alone(tmp_path: Path) -> None:
    file = tmp_path / "many.npz"
    np.savez(
        file, points=np.array([[-1.0], [1.0]]), weights=np.array([[1.0, 3.0], [3.0, 1.0]]), labels=np.array([1, 0])
    )
    start, end = CLASSES.index("sequences = "), len(CLASSES)
    text = CLASSES[:start] + f'sequences = [{{ file = "{file}", bandwidth = 0.3 }}]\n' + CLASSES[end:]
    solution = solve(parse_problem(text))
    shares = summary(solution)["accuracy"]
    assert shares["train"]["correct"] == 2
    file.unlink()
    facts = strict(summary(solution))
    assert facts["accuracy"] is None
    assert any("many.npz is missing" in text for text in facts["warnings"])
    assert facts["loss"] > 0.0


def test_json_has_no_nan() -> None:
    given = {"a": np.float64("nan"), "b": [np.inf, np.int64(3)], "c": np.array([1.0, np.nan]), "d": (True, None, "x")}
    assert strict(clean(given)) == {"a": None, "b": [None, 3], "c": [1.0, None], "d": [True, None, "x"]}


def test_certificates_in_a_few_characters() -> None:
    assert [spelled(value) for value in (None, 1024, 1.23456e-7)] == ["not measured", "1024", "1.23e-07"]
    assert (spelled(True), spelled(False), spelled(0), spelled(0.0)) == ("yes", "no", "0", "0")


def test_an_unfinished_run_is_read_from_its_newest_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def stop(moment: Any) -> None:
        if moment.state.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(parse_problem(HEADS + "output = { snapshots = 2 }"), folder, progress=stop)
    solution = read_run(str(folder))
    assert solution.outcome.startswith("not finished: s = 0.2 of 0.3")
    assert "resume" in solution.outcome
    facts = summary(solution)
    assert facts["steps"] == 2
    assert solution.snapshot_s.tolist() == [0.0, 0.2]
    assert solution.state is not None
    np.testing.assert_array_equal(solution.rho, solution.state.rho)


def test_a_folder_without_anything_to_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"holds no run .*problem\.toml"):
        read_run(tmp_path)
    (tmp_path / "problem.toml").write_text(HEADS, encoding="utf-8")
    with pytest.raises(FileError, match="no checkpoint yet"):
        read_run(tmp_path)
    with pytest.raises(FileError, match=r"problem\.toml"):
        read_run(tmp_path / "problem.toml")
