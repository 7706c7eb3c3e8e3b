"""Ensembles from the command line: which problems, what is said, how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanfield_pde.cli.interrupts import heard_once
from meanfield_pde.cli.running import Interrupted, Means, find_problem
from meanfield_pde.cli.terminal import say, table
from meanfield_pde.errors import MeanFieldError, nearest

if TYPE_CHECKING:
    from meanfield_pde.output.ensemble import Given, Hear
    from meanfield_pde.output.ensemble_table import Member

DONE, BAD_INPUT, FAILED = 0, 2, 3
OPENING, CLOSING, QUOTES = "[{", "]}", "\"'"


def is_many(problem: str, sweeps: Sequence[str]) -> bool:
    """Whether `run` is asked for an ensemble: a sweep, or a folder that is no name of the library."""
    if sweeps or not Path(problem).is_dir():
        return bool(sweeps)
    from meanfield_pde import library

    return problem not in library.NAMES


def refuse_options(options: Mapping[str, object], where: str) -> None:
    """Refuse options that are given and mean nothing ``where``. Raises: MeanFieldError."""
    for name, value in options.items():
        if value:
            raise MeanFieldError(f"{name} {where}: leave it out")


def run_many(
    problem: str, sweeps: Sequence[str], overrides: Sequence[str], folder: Path, workers: int | None, means: Means
) -> int:
    """Run a folder of problems or a sweep; the exit code. Raises: Interrupted, MeanFieldError."""
    from meanfield_pde import library
    from meanfield_pde.output.ensemble import members_of_folder, run_ensemble, sweep

    members: tuple[Given, ...]
    if sweeps:
        if Path(problem).is_dir() and problem not in library.NAMES:
            raise MeanFieldError(f"{problem} is a folder: a sweep is over one problem")
        members = sweep(find_problem(problem, overrides), read_sweeps(sweeps, overrides))
    else:
        members = members_of_folder(Path(problem), overrides)
    for member in members:
        reference = member.problem.reference
        if reference is not None and reference not in library.NAMES:
            raise MeanFieldError(f"{member.name}: reference = '{reference}' is no problem of the library; "
                                 f"{nearest(reference, library.NAMES)}")  # fmt: skip
    with _keywords(workers, means) as keywords:
        return _watched(folder, means.quiet, lambda hear: run_ensemble(members, folder, hear=hear, **keywords))


def resume_many(folder: Path, overrides: Sequence[str], workers: int | None, means: Means) -> int:
    """Go on with what is missing of an ensemble; the exit code. Raises: Interrupted, MeanFieldError."""
    from meanfield_pde.output.ensemble import resume_ensemble

    with _keywords(workers, means) as keywords:
        return _watched(folder, means.quiet, lambda hear: resume_ensemble(folder, overrides, hear=hear, **keywords))


@contextmanager
def _keywords(workers: int | None, means: Means) -> Iterator[dict[str, Any]]:
    """Keywords of `run_ensemble`: who does the work, and how much memory a member may take."""
    keywords = {"workers": workers, "memory": means.keywords()["memory"]}
    if means.scheduler is None:
        yield keywords
        return
    refuse_options({"--workers": workers}, "has no meaning with --scheduler: the cluster has its own")
    from meanfield_pde.output.ensemble_cluster import ClusterWorkers
    from meanfield_pde.training.cluster import connected

    with connected(means.scheduler) as client:
        yield {**keywords, "others": ClusterWorkers(client)}


def show_many(folder: Path, as_json: bool) -> None:
    """A row a member, and why those that failed did. Raises: FileError."""
    from meanfield_pde.cli.showing import print_json
    from meanfield_pde.output.ensemble import ensemble_members
    from meanfield_pde.output.ensemble_table import as_json as plain

    members = ensemble_members(folder)
    if as_json:
        print_json(plain(members))
    else:
        _print_members(members)


def read_sweeps(sweeps: Sequence[str], overrides: Sequence[str] = ()) -> dict[str, list[str]]:
    """The keys and values of `--sweep key=a,b,c`; commas in lists, tables and quotes do not divide values.

    Raises: MeanFieldError for a text that says something else, or a key that is given twice.
    """
    out: dict[str, list[str]] = {}
    fixed = {one.partition("=")[0].strip() for one in overrides}
    for text in sweeps:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not key or not equals or not all(parts := _parts(values)):
            raise MeanFieldError(f"'{text}' is no sweep: write key=value,value, such as training.beta=0.1,0.2")
        if key in out or key in fixed:
            raise MeanFieldError(f"{key} is given twice: name it in one --sweep, and not in --set")
        out[key] = parts
    return out


def _parts(text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote = sign
        depth += (sign in OPENING) - (sign in CLOSING) if not quote else 0
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _watched(folder: Path, quiet: bool, go: Callable[[Hear], tuple[Member, ...]]) -> int:
    from meanfield_pde.output.ensemble_file import is_ensemble
    from meanfield_pde.output.ensemble_progress import EnsembleProgress
    from meanfield_pde.output.ensemble_table import faults

    try:
        with heard_once(), EnsembleProgress(quiet=quiet) as shown:
            members = go(shown)
    except KeyboardInterrupt:
        if is_ensemble(folder):
            say(f"states saved: go on with `meanfield-pde resume {folder}`")
        raise Interrupted from None
    given, others = faults(members)
    if given or others:
        say(f"{given + others} of {len(members)} members failed: `meanfield-pde resume {folder}` begins them again")
    elif not all(member.is_done for member in members):
        say(f"members were interrupted: go on with `meanfield-pde resume {folder}`")
        raise Interrupted
    if not quiet:
        _print_members(members)
        print(f"results: {folder}; look at one with `meanfield-pde show {folder / members[0].name} -f`")
    return FAILED if others else BAD_INPUT if given else DONE


def _print_members(members: tuple[Member, ...]) -> None:
    from meanfield_pde.output.ensemble_table import COLUMNS, rows

    table(COLUMNS, rows(members), left=2)
    for member in members:
        if member.message:
            print(f"{member.name}: {member.message}")
