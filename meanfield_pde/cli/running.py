"""Running and resuming from the command line: where a problem comes from, what is said, how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meanfield_pde.cli.interrupts import heard_once
from meanfield_pde.cli.terminal import say
from meanfield_pde.errors import MeanFieldError, nearest

if TYPE_CHECKING:
    from meanfield_pde.output.run import Progress
    from meanfield_pde.output.solution import Solution
    from meanfield_pde.problem import Problem
    from meanfield_pde.training.stopping import Stop

INTERRUPTED = 130


class Interrupted(Exception):
    """The run was asked to stop and has stopped."""


def find_problem(name: str, overrides: Sequence[str] = ()) -> Problem:
    """The problem of a TOML file or of the library, after overrides.

    Raises: MeanFieldError when there is neither, naming the nearest library problem.
    """
    from meanfield_pde import library
    from meanfield_pde.problem_file import dump_problem, load_problem, parse_problem

    path = Path(name)
    if path.is_file() or path.suffix == ".toml" or len(path.parts) > 1:
        problem = load_problem(path, overrides)
        if problem.reference is not None and problem.reference not in library.NAMES:
            raise MeanFieldError(
                f"{path}: reference = '{problem.reference}' is no problem of the library; "
                f"{nearest(problem.reference, library.NAMES)}"
            )
        return problem
    if name not in library.NAMES:
        raise MeanFieldError(f"'{name}' is neither a TOML file nor a problem of the library; "
                             f"{nearest(name, library.NAMES)}")  # fmt: skip
    problem = library.get(name)[0]
    if not overrides:
        return problem
    return replace(parse_problem(dump_problem(problem), name, overrides), base=problem.base)


def run_folder(problem: Problem, folder: Path, threads: int | None, quiet: bool, stop: Stop | None = None) -> Solution:
    """Solve in a new folder with progress. Raises: Interrupted with the state saved, MeanFieldError."""
    from meanfield_pde.output.run import run
    from meanfield_pde.training.stopping import UNLIMITED

    end = problem.training.s_end if problem.training is not None else None
    limits = stop or UNLIMITED
    return _watched(
        end, folder, quiet, lambda progress: run(problem, folder, threads=threads, progress=progress, stop=limits)
    )


def resume_folder(
    folder: Path,
    overrides: Sequence[str],
    threads: int | None,
    quiet: bool,
    step: int | None = None,
    stop: Stop | None = None,
) -> Solution:
    """Go on with the run of a folder, with progress. Raises: as `run_folder`."""
    from meanfield_pde.output.run import PROBLEM, resume
    from meanfield_pde.problem_file import load_problem
    from meanfield_pde.training.stopping import UNLIMITED

    end = None
    if (folder / PROBLEM).exists():
        training = load_problem(folder / PROBLEM, overrides).training
        end = None if training is None else training.s_end

    def go(progress: Progress) -> Solution:
        return resume(
            folder,
            overrides,
            step=step,
            threads=threads,
            progress=progress,
            stop=stop or UNLIMITED,
            said=None if quiet else lambda note: say(f"resumed {note}"),
        )[0]

    return _watched(end, folder, quiet, go)


def limits(steps: int | None, minutes: float | None) -> Stop:
    """How much of a run to do now. Raises: MeanFieldError for numbers that are not positive."""
    from meanfield_pde.training.stopping import Stop

    return Stop(steps, None if minutes is None else 60.0 * minutes)


def _watched(end: float | None, folder: Path, quiet: bool, go: Callable[[Progress], Solution]) -> Solution:
    from meanfield_pde.output.checkpoints import checkpoint_files
    from meanfield_pde.output.progress import Progress as Shown

    try:
        with heard_once(), Shown(end, quiet=quiet) as shown:
            solution = go(shown)
            shown.outcome = solution.outcome
    except KeyboardInterrupt:
        saved = bool(checkpoint_files(folder))
        if end is None:
            say(f"tokens alone have no state to save: remove {folder}, or run into another folder, to start again")
        else:
            say(f"{'state saved: ' if saved else ''}go on with `meanfield-pde resume {folder}`")
        raise Interrupted from None
    if not solution.is_done:
        say(f"{solution.outcome}; state saved: go on with `meanfield-pde resume {folder}`")
    elif solution.outcome != "finished":
        say(solution.outcome)
    return solution
