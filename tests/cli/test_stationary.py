"""The command `stationary`, and a shallow problem from `run` to `show`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.cli.main import main


def test_json_has_the_state_its_stability_and_the_exact_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stationary", "desai_zwanzig", "--critical", "0.3", "0.6", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["moments"]["mean_0"] == pytest.approx(0.447106426663, abs=1e-10)
    assert facts["exact"]["mean_0"] == pytest.approx(0.447106426663, abs=1e-10)
    assert facts["critical_beta"] == pytest.approx(0.456946581044464, abs=1e-12)
    assert facts["residual"] <= 1e-10
    assert facts["eigenvalue"] < 1.0


def test_words_say_how_far_and_how_stable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stationary", "noisy_kuramoto"]) == 0
    out = capsys.readouterr().out
    assert "neutral" in out
    assert "0.7241587176" in out
    assert main(["stationary", "noisy_kuramoto", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moments"]["order_0"] == pytest.approx(0.72415871762635, abs=1e-10)
    assert main(["stationary", "slab"]) == 0
    assert "stable" in capsys.readouterr().out
    assert main(["stationary", "two_gaussians"]) == 2
    assert "beta > 0" in capsys.readouterr().err
    assert main(["stationary", "desai_zwanzig", "--critical", "0.5", "0.6"]) == 2
    assert "passes 1 nowhere" in capsys.readouterr().err


def test_the_coupled_problem_rests_where_its_closed_system_does(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--set", "heads.cells=[40, 40]", "--set", "tokens.cells=[64]", "--set", "depth.layers=5"]
    assert main(["stationary", "gaussian_coupled", "--json", *few]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["moments"]["free_energy"] == pytest.approx(facts["exact"]["free_energy"], abs=1e-5)


def test_a_shallow_problem_runs_resumes_and_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--set", "training.s_end=1.0", "--set", "heads.cells=[40, 40]", "-q"]
    assert main(["run", "shallow_gaussian", "-o", str(tmp_path / "out"), *few]) == 0
    assert main(["resume", str(tmp_path / "out"), "--set", "training.s_end=1.5", "-q"]) == 0
    capsys.readouterr()
    assert main(["show", str(tmp_path / "out"), "--json", "-f"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kind"] == "shallow"
    assert facts["sequences"] == 1
    errors = {row["quantity"]: row["error"] for row in facts["exact"]}
    assert {"loss", "free_energy", "mean_0", "covariance_01", "rho_l1"} <= set(errors)
    assert all(np.isfinite(error) and abs(error) < 0.05 for error in errors.values())
    # nothing of the tokens moves, so nothing of them is measured
    assert facts["mass_error_mu"] is None
    assert facts["costate_drift"] is None
    assert facts["outside_mass_mu"] < 1e-12
    assert {Path(path).name for path in facts["figures"]} == {
        "rho.png", "prediction.png", "training.png", "certificates.png"
    }
    assert main(["show", str(tmp_path / "out")]) == 0
    words = capsys.readouterr().out
    assert "(shallow)" in words
    assert "softmax table" not in words
