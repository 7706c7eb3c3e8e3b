"""How packages are asked and compared: failures are reported and stop nothing, and every ratio is that of two rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "peers"
BEFORE = f"import json, sys\nfrom pathlib import Path\nsys.path.insert(0, {str(FOLDER)!r})\n"


def said(code: str) -> Any:
    """What code run beside the scripts prints as JSON."""
    command = [sys.executable, "-c", BEFORE + code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    code = f"from results import ratios\nprint(json.dumps(ratios(json.loads({json.dumps(rows)!r}))))"
    found: list[dict[str, Any]] = said(code)
    return found


def row(peer: str, method: str, seconds: float, error: float | None, **more: Any) -> dict[str, Any]:
    return {"problem": "fokker_planck", "peer": peer, "method": method, "seconds": seconds, "error": error, **more}


def test_the_best_row_within_the_error_is_taken() -> None:
    rows = [
        row("meanfield-pde", "long steps", 0.1, 5e-4),
        row("meanfield-pde", "short steps", 0.2, 3e-4),
        row("scipy", "quick", 1.0, 9e-4),
        row("scipy", "slow", 8.0, 1e-4),
        row("scipy", "less slow", 4.0, 4e-4),
        {"problem": "fokker_planck", "peer": "fplanck", "method": "expm", "failed": "not installed: no"},
    ]
    found = {entry["name"]: entry for entry in ratios(rows)}
    assert set(found) == {
        "Fokker-Planck at the error 0.0004 against scipy",
        "Fokker-Planck against scipy where it misses that error",
    }
    best = found["Fokker-Planck at the error 0.0004 against scipy"]
    assert (best["ours"], best["peer"]) == ("meanfield-pde short steps", "scipy less slow")
    assert best["ratio"] == pytest.approx(20.0)


def test_rates_count_cells_times_stages() -> None:
    about = {"problem": "transport", "steps": 10}
    rows = [
        row("meanfield-pde", "weno5z+ssprk104", 2.0, 1e-6, stages=10, cell_steps=4e6) | about,
        row("pyclaw", "sharpclaw", 10.0, 1e-6, stages=5, cell_steps=1e6) | about,
    ]
    found = {entry["quantity"]: entry["ratio"] for entry in ratios(rows)}
    assert found == {"cell-stages a second": pytest.approx(40.0), "time": pytest.approx(5.0)}


def test_what_fails_is_a_row_with_the_last_line() -> None:
    code = """
from peers import Case; import run
ends = Case("transport", "numpy", "split MC", {"cells": 4000}, 2.0)
raises = Case("transport", "numpy", "split MC", {"cells": "many"})
works = Case("transport", "numpy", "split MC", {"cells": 24})
print(json.dumps([run.run_case(case, Path(sys.executable), Path(".")) for case in (ends, raises, works)]))
"""
    ended, raised, worked = said(code.strip())
    assert ended["failed"] == "ended after 2 s"
    assert raised["failed"].startswith("TypeError")
    assert "failed" not in worked
    assert worked["cell_steps"] == 24 * 24 * worked["steps"]
    assert worked["error"] > 0.0
    assert set(worked["versions"]) == {"numpy"}


def test_a_package_that_pip_cannot_install_is_named_with_its_reason(tmp_path: Path) -> None:
    code = f"""
import run; from peers import PEERS, Peer
run.ENVIRONMENTS = Path({str(tmp_path)!r})
PEERS["nowhere"] = Peer("none.py", ("./no/such/folder",), "")
print(json.dumps(run.environment("nowhere")[1]))
"""
    reason = said(code.strip())
    assert reason.startswith("ERROR")
    assert "no/such/folder" in reason
    assert not (tmp_path / "nowhere" / "requirements.txt").exists()


def test_every_case_has_a_script_and_a_title() -> None:
    code = """
import peers, results
print(json.dumps([[case.peer, peers.PEERS[case.peer].script, case.problem in results.TITLES] for case in peers.CASES]))
"""
    for peer, script, titled in said(code.strip()):
        assert (FOLDER / script).is_file(), peer
        assert titled, peer


# --- what the last run wrote ------------------------------------------------------------------------------------------


def last_run() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "RESULTS.json").read_text(encoding="utf-8"))
    return found


def test_rows_say_what_they_are_or_why_they_are_not() -> None:
    run = last_run()
    assert {"date", "processor", "processors", "python", "threads", "rows", "ratios"} <= set(run)
    for entry in run["rows"]:
        assert {"problem", "peer", "method", "licence"} <= set(entry)
        if "failed" in entry:
            assert entry["failed"]
            continue
        assert entry["seconds"] > 0.0
        assert entry["error"] is not None or entry["extrapolated_from"]
        assert entry["versions"]


def test_ratios_are_those_of_the_rows_they_name() -> None:
    run = last_run()
    assert run["ratios"]
    for entry in run["ratios"]:
        sides = []
        for name in (entry["ours"], entry["peer"]):
            peer, method = name.split(" ", 1)
            fits = [r for r in run["rows"] if (r["peer"], r["method"]) == (peer, method) and "failed" not in r]
            rates = []
            for one in fits:
                work = {"time": 1.0, "cell-steps a second": one.get("cell_steps")}
                work["cell-stages a second"] = one.get("cell_steps", 0) * one.get("stages", 0)
                rates.append((one["problem"], work[entry["quantity"]] / one["seconds"]))
            sides.append(dict(rates))
        possible = [sides[0][problem] / sides[1][problem] for problem in sides[0] if problem in sides[1]]
        assert any(entry["ratio"] == pytest.approx(value, rel=1e-12) for value in possible), entry["name"]
    assert run["ratios"] == ratios(run["rows"])


def test_the_page_is_that_of_the_numbers() -> None:
    page = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    for entry in last_run()["rows"]:
        line = next(one for one in page.splitlines() if one.startswith(f"| {entry['peer']} | {entry['method']} |"))
        assert entry.get("failed", f"{entry.get('seconds', 0.0):.4g}") in page, line
