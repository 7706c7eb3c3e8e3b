"""Running and resuming from the command line: where a problem comes from, what is said, how it ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanfield_pde.cli.interrupts import heard_once
from meanfield_pde.cli.terminal import say
from meanfield_pde.errors import MeanFieldError, nearest

if TYPE_CHECKING:
    from meanfield_pde.output.run import Progress
    from meanfield_pde.output.solution import Solution
    from meanfield_pde.output.solve import Split
    from meanfield_pde.problem import Problem

INTERRUPTED = 130


class Interrupted(Exception):
    """The run was asked to stop and has stopped."""


def named(text: str) -> Path:
    """A path that is said. Raises: MeanFieldError for an empty one, which would be the folder one is in."""
    if not text:
        raise MeanFieldError("--output '' names no folder: give one, such as -o out")
    return Path(text)


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


@dataclass(frozen=True, slots=True)
class Means:
    """What a run on the command line may use; none of it changes a bit of its result.

    Meaning: ``threads`` all processors if None, at most ``memory`` bytes, as in "2GB"; ``steps`` and ``minutes`` say
    how much of the run to do now; ``scheduler`` is the address of a cluster that carries the sequences.
    """

    threads: int | None = None
    quiet: bool = False
    memory: str | None = None
    steps: int | None = None
    minutes: float | None = None
    scheduler: str | None = None

    def keywords(self) -> dict[str, Any]:
        """Keywords of `run` and `resume`. Raises: MeanFieldError for numbers that are not positive."""
        from meanfield_pde.training.memory_plan import MEMORY
        from meanfield_pde.training.stopping import Stop

        if self.minutes is not None and not 0.0 < self.minutes < inf:
            raise MeanFieldError(f"--minutes {self.minutes:g} must be positive: say how long the run may take")
        return {
            "threads": self.threads,
            "memory": MEMORY if self.memory is None else bytes_of(self.memory),
            "stop": Stop(self.steps, None if self.minutes is None else 60.0 * self.minutes),
            "said": None if self.quiet else say,
        }


def bytes_of(words: str) -> float:
    """A number of bytes such as 2GB, 512 MiB or 3e9. Raises: MeanFieldError."""
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*(?:([kmgt]?)(i?)b)?\s*", words.lower())
    try:
        size = float(found[1]) * (1024.0 if found[3] else 1000.0) ** " kmgt".index(found[2] or " ") if found else 0.0
    except ValueError:
        size = 0.0
    if not 0.0 < size < inf:
        raise MeanFieldError(f"memory = {words!r} is no number of bytes above 0: give one such as 2GB or 512MB")
    return size


def run_folder(problem: Problem, folder: Path, means: Means) -> Solution:
    """Solve in a new folder with progress. Raises: Interrupted with the state saved, MeanFieldError."""
    from meanfield_pde.output.run import run

    end, keywords = problem.training.s_end if problem.training is not None else None, means.keywords()
    with _split(means.scheduler) as split:
        keywords["split"] = split
        return _watched(end, folder, means.quiet, lambda progress: run(problem, folder, progress=progress, **keywords))


def resume_folder(folder: Path, overrides: Sequence[str], step: int | None, means: Means) -> Solution:
    """Go on with the run of a folder, with progress. Raises: as `run_folder`."""
    from meanfield_pde.output.run import PROBLEM, resume
    from meanfield_pde.problem_file import load_problem

    end, keywords = None, means.keywords()
    if (folder / PROBLEM).exists():
        training = load_problem(folder / PROBLEM, overrides).training
        end = None if training is None else training.s_end

    def go(progress: Progress) -> Solution:
        return resume(folder, overrides, step=step, progress=progress, **keywords)[0]

    with _split(means.scheduler) as split:
        keywords["split"] = split
        return _watched(end, folder, means.quiet, go)


@contextmanager
def _split(scheduler: str | None) -> Iterator[Split | None]:
    """The token side on the workers of a cluster; None without one."""
    if scheduler is None:
        yield None
        return
    from meanfield_pde.training.cluster import ClusterHands, connected
    from meanfield_pde.training.split_tokens import SplitTokens

    with connected(scheduler) as client:
        yield lambda tokens: SplitTokens(tokens, ClusterHands(client))


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
