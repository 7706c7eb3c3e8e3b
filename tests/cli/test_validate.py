"""The command validate: words, JSON, a figure, exit codes, examples by name, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from meanfield_pde.cli.main import main

QUICK = ["--set", "tokens.cells=[96]", "--set", "particles.layers=10", "--runs", "39"]
LINE = ["validate", "torch_line"]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    from meanfield_pde import library
    from meanfield_pde.particles.of_problem import run_tokens

    run = run_tokens(library.get("torch_line")[0], 300, 10, seed=8, times=(0.0, 1.0), way="direct")
    np.savez(tmp_path / "mine.npz", tokens=run.x, t=run.t)
    return tmp_path / "mine.npz"


def test_words_say_both_verdicts_and_what_could_have_been_seen(
    tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LINE, str(tokens), *QUICK]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"CONSISTENT: {tokens}")
    for word in ("identity: agrees", "limit: agrees at level 0.05", "39 own runs (euler, 10 layers", "score scale"):
        assert word in out
    assert "own runs: 39 of 39" in err


def test_a_folder_gets_the_numbers_and_a_figure(
    tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "verdict"
    assert main([*LINE, str(tokens), *QUICK, "--json", "-o", str(folder)]) == 0
    out, err = capsys.readouterr()
    tree = json.loads(out)
    assert tree == json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
    assert tree["verdict"] == "consistent"
    assert tree["identity"]["passed"] is True
    assert 0.05 < tree["limit"]["p"] <= 1.0
    assert err == ""
    with Image.open(folder / "verdict.png") as picture:
        assert picture.width > 1000
        colours = picture.convert("RGB").getcolors(2**24)
    assert colours is not None
    assert len(colours) > 50
    # a second verdict does not take the place of the first
    assert main([*LINE, str(tokens), *QUICK, "-o", str(folder)]) == 2
    assert "holds verdict.json already" in capsys.readouterr().err


def test_a_fault_ends_with_3_and_its_name(tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(tokens) as arrays:
        x, t = arrays["tokens"], arrays["t"]
    np.savez(tokens, tokens=np.stack([x[0], x[0] + 1.1 * (x[1] - x[0])]), t=t)
    assert main([*LINE, str(tokens), *QUICK, "--verdict", "identity"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("REJECTED")
    assert "what is wrong" in out


def test_an_example_goes_by_its_name_and_planted_faults_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "heun_plane", "right", "--verdict", "identity"]) == 0
    assert main(["validate", "heun_plane", "wrong_transpose_w", "--verdict", "identity"]) == 3
    out = capsys.readouterr().out
    assert "transpose of W" in out
    assert main(["validate", "heun_plane", "wrng"]) == 2
    assert "right, " in capsys.readouterr().err


def test_too_little_data_end_with_4(tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(tokens) as arrays:
        np.savez(tokens, tokens=arrays["tokens"][1:], t=arrays["t"][1:])
    assert main([*LINE, str(tokens), *QUICK, "--verdict", "identity"]) == 4
    assert capsys.readouterr().out.startswith("NOT ENOUGH DATA")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--verdict", "both"], "verdict = 'both'"),
        (["--level", "2"], "level = 2"),
        (["--runs", "5"], "runs = 5: take 39 to 100000"),
        (["--level", "0.001"], "runs = 39: take 999"),
        (["--names", "nothing.toml"], "nothing.toml"),
        (["--set", "particles.integrator=renormalised"], "circle"),
    ],
)
def test_wrong_options_are_refused_by_name(
    tokens: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = [part for part in QUICK if part not in ("--runs", "39")] if "--runs" in arguments else QUICK
    assert main([*LINE, str(tokens), *quick, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_problem_beside_the_data_is_no_file_of_names(tokens: Path) -> None:
    from meanfield_pde import library
    from meanfield_pde.problem_file import dump_problem

    problem = tokens.with_suffix(".toml")
    problem.write_text(dump_problem(library.get("torch_line")[0]), encoding="utf-8")
    assert main(["validate", str(problem), str(tokens), *QUICK, "--verdict", "identity"]) == 0


def test_the_problem_of_the_documentation_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "validate.md").read_text(encoding="utf-8")
    (tmp_path / "my.toml").write_text(text.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    x = np.random.default_rng(4).normal(0.3, 0.4**0.5, (200, 1))
    np.savez(tmp_path / "mine.npz", tokens=np.stack([x]), t=[0.0])
    assert main(["validate", str(tmp_path / "my.toml"), str(tmp_path / "mine.npz"), "--runs", "39", "-q"]) == 0
    assert "limit: agrees" in capsys.readouterr().out


def test_names_beside_the_data_are_taken_and_said(tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(tokens) as arrays:
        np.savez(tokens, cloud=arrays["tokens"], depth=arrays["t"])
    tokens.with_suffix(".toml").write_text('kind = "tokens"\npoints = "cloud"\ntimes = "depth"\n', encoding="utf-8")
    assert main([*LINE, str(tokens), *QUICK, "--verdict", "identity"]) == 0
    assert "mine.toml" in capsys.readouterr().out
