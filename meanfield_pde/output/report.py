"""A run in numbers: what is said of a solution in words, in JSON and beside its figures."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde.errors import FileError
from meanfield_pde.output.checkpoints import RESULT, checkpoint_files, newest
from meanfield_pde.output.file_schema import read_result
from meanfield_pde.output.run import PROBLEM
from meanfield_pde.output.solution import Solution
from meanfield_pde.problem import Problem
from meanfield_pde.problem_checks import ROLES
from meanfield_pde.problem_file import load_problem
from meanfield_pde.sequences import sequence_batch

EMPTY = np.empty(0)
# what is certified about the tokens and about the heads of a run: name in the summary -> what it says
TOKEN_CERTIFICATES = {
    "mass_error_mu": "largest |∫mu − 1|",
    "min_mu": "least value of mu",
    "undershoot_mu": "largest −min(mu)/max(mu)",
    "peak_mass_mu": "largest share of the mass of mu in one cell",
    "outside_mass_mu": "mass of an initial law outside the box",
    "wall_mass_mu": "mass of mu at the walls",
    "courant": "largest Courant number in depth",
    "table_error": "error of the softmax table (relative)",
    "table_size": "nodes of the softmax table",
    "costate_drift": "largest change of ∫p dmu over depth",
    "dual": "p is the dual of the very steps",
    "limited": "faces of mu limited for positivity",
}
HEAD_CERTIFICATES = {
    "mass_error_rho": "largest |∫rho − 1|",
    "min_rho": "least value of rho",
    "wall_mass_rho": "mass of rho at the walls",
    "energy_rise": "largest rise of the free energy in a step",
    "step_error": "largest error of a step of rho (L1)",
    "limited_rho": "L1 moved to keep rho positive (a step)",
    "rejected": "trial steps cut",
}
# what of them there is when tokens are particles
TOKEN_PARTICLES = ("table_error", "table_size", "dual")
COUNTS = ("table_size", "limited", "rejected")
# the normal quantile of a two-sided interval of 95 %
Z95 = 1.959963984540054


def summary(solution: Solution) -> dict[str, Any]:
    """What a run came to, ready for JSON; None stands for what the kind has not or was not measured.

    Meaning: ``s`` is the training time reached and ``loss``, ``free_energy`` the values there, ``loss_first`` the
    loss at the start; certificates are the worst of the run; ``accuracy`` has train and held-out for cross-entropy.
    """
    history, problem = solution.history, solution.problem
    worst = solution.certificates
    certified = {
        name: _count(worst.get(name)) if name in COUNTS else worst.get(name)
        for name in (*TOKEN_CERTIFICATES, *HEAD_CERTIFICATES)
    }
    notes = list(solution.warnings)
    try:
        accuracy = accuracies(solution)
    except FileError as error:
        # the token file may have been moved since; the rest of the result is whole
        accuracy = None
        notes.append(f"accuracy is not measured: {error}")
    out = {
        "outcome": solution.outcome,
        "kind": problem.kind,
        "title": problem.title or None,
        "reference": problem.reference,
        "s": _end(history, "s", -1),
        "steps": _count(_end(history, "step", -1)),
        "depth_steps": _count(worst.get("depth_steps")),
        "sequences": len(solution.names) or None,
        "loss_first": _end(history, "loss", 0) if problem.training is not None else None,
        "loss": _end(history, "loss", -1),
        "free_energy": _end(history, "free_energy", -1),
        "penalised_loss": _end(history, "penalised_loss", -1),
        "particles": _particles(problem),
        **certified,
        "accuracy": accuracy,
        "warnings": notes,
    }
    cleaned = clean(out)
    assert isinstance(cleaned, dict)
    return cleaned


def _particles(problem: Problem) -> dict[str, int | None] | None:
    """How many tokens a sequence and heads a layer a run takes as particles; None when it takes none."""
    if not problem.sides:
        return None
    return {side: getattr(problem.particles, side) for side in problem.sides}


def certificates_of(solution: Solution) -> dict[str, str]:
    """The certificates that the kind of problem has, with what they say."""
    sides = solution.problem.sides
    if sides:
        seen: tuple[str, ...] = TOKEN_PARTICLES if "tokens" in sides else tuple(TOKEN_CERTIFICATES)
        return {name: TOKEN_CERTIFICATES[name] for name in seen} | ({} if "heads" in sides else HEAD_CERTIFICATES)
    # without depth nothing of the tokens moves that could be certified but what their box leaves out
    known = ("outside_mass_mu",) if solution.problem.kind == "shallow" else tuple(TOKEN_CERTIFICATES)
    tokens = {name: TOKEN_CERTIFICATES[name] for name in known} if solution.problem.tokens is not None else {}
    return {**tokens, **(HEAD_CERTIFICATES if solution.problem.training is not None else {})}


def spelled(value: float | bool | None) -> str:
    """A certificate in a few characters."""
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def accuracies(solution: Solution) -> dict[str, dict[str, float | int]] | None:
    """Accuracy of each role with its interval of 95 %; None unless the objective is cross-entropy and heads are there.

    A role without sequences is absent.
    """
    objective = solution.problem.objective
    known = len(solution.snapshots) or solution.problem.kind == "tokens"
    if objective is None or objective.kind != "cross-entropy" or not known:
        return None
    grid = solution.token_grid
    assert grid is not None
    roles = np.array(sequence_batch(solution.problem, grid).roles)
    prediction = solution.predict()
    assert prediction.labels is not None
    right = prediction.classes == prediction.labels
    out: dict[str, dict[str, float | int]] = {}
    for role in ROLES:
        chosen = right[roles == role]
        if len(chosen):
            low, high = wilson(int(chosen.sum()), len(chosen))
            share = float(chosen.mean())
            out[role] = {"correct": int(chosen.sum()), "total": len(chosen), "share": share, "low": low, "high": high}
    return out


def wilson(correct: int, total: int, z: float = Z95) -> tuple[float, float]:
    """Interval of a binomial share that keeps its level at shares near 0 and 1.

    Formula: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n), p = correct/n.
    Source: Wilson, J. Amer. Statist. Assoc. 22 (1927), 209.
    """
    share, over = correct / total, z * z / total
    centre = share + 0.5 * over
    half = z * sqrt(share * (1.0 - share) / total + 0.25 * over / total)
    # at a share of 0 or 1 the end is 0 or 1, not a rounding beside it
    low = 0.0 if correct == 0 else (centre - half) / (1.0 + over)
    high = 1.0 if correct == total else (centre + half) / (1.0 + over)
    return low, high


def clean(value: Any) -> Any:
    """The same tree for JSON: NumPy numbers as plain ones, what is not finite as None."""
    if isinstance(value, Mapping):
        return {key: clean(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [clean(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value


def read_run(path: str | Path) -> Solution:
    """The solution of a run folder or a result file; of an unfinished run what its newest checkpoint holds.

    Raises: FileError naming the path.
    """
    path = Path(path)
    if path.is_file():
        return read_result(path)
    if not (path / PROBLEM).exists():
        if (path / RESULT).exists():
            return read_result(path / RESULT)
        raise FileError(f"{path} holds no run ({PROBLEM} is missing): give the folder named with `run PROBLEM -o`")
    problem = load_problem(path / PROBLEM)
    files = checkpoint_files(path)
    if (path / RESULT).exists():
        result = read_result(path / RESULT)
        reached = -1 if result.state is None else result.state.step
        # that of a shorter run stays until a longer one is done, but it is not the longer one's
        if result.problem == problem and (not files or files[-1][0] <= reached):
            return result
    found = newest(path)
    if found.checkpoint is None:
        how = "run it again into another folder" if problem.training is None else f"go on with `resume {path}`"
        raise FileError(f"{path} has no result and no checkpoint yet: {how}")
    state = found.checkpoint.state
    record = found.record
    end = "" if problem.training is None else f" of {problem.training.s_end:g}"
    outcome = "; ".join((f"not finished: s = {state.s:g}{end}; go on with `resume {path}`", *found.notes))
    times, snapshots = record.snapshot_s, record.snapshots
    if not len(times) or times[-1] < state.s:
        times, snapshots = np.append(times, state.s), np.array([*snapshots, state.rho])
    return Solution(problem, outcome, state, record.history, times, snapshots, EMPTY, EMPTY, EMPTY, EMPTY)


def _end(history: Mapping[str, Any], name: str, index: int) -> float | None:
    series = history.get(name, EMPTY)
    return float(series[index]) if len(series) else None


def _count(value: float | bool | None) -> int | None:
    return None if value is None else int(value)
