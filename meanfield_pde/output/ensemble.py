"""Ensembles: many problems, each in a folder of its own, run side by side; nothing of one depends on another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.output.ensemble_file import (
    ENSEMBLE,
    FINISHED,
    Entry,
    is_ensemble,
    is_name,
    read_ensemble,
    write_ensemble,
)
from meanfield_pde.output.ensemble_job import Ended, Event, Job
from meanfield_pde.output.ensemble_processes import Processes
from meanfield_pde.output.ensemble_table import Member, member_of
from meanfield_pde.output.file_schema import read_result
from meanfield_pde.output.files import write_bytes
from meanfield_pde.output.folder_lock import locked
from meanfield_pde.output.origin import Origin, refuse_changes
from meanfield_pde.output.run import PROBLEM, RESULT
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import absolute_paths, dump_problem, load_problem, parse_problem
from meanfield_pde.training.memory_plan import MEMORY

# seconds between two writes of ensemble.toml: what it says of members that ended is in their folders too
PACE = 1.0


class Workers(Protocol):
    """Whoever does jobs: processes of this machine, or of a cluster."""

    def do(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """What happens while the jobs are done; one `Ended` a job."""
        ...


Hear = Callable[[tuple[str, ...], Event], None]
"""Told of what happens: the names of all members that are run, and an event, which has the number of its member."""


@dataclass(frozen=True, slots=True)
class Given:
    """A member to be run: its name, which becomes its folder, its problem, and the settings in which it differs."""

    name: str
    problem: Problem
    overrides: tuple[str, ...] = ()


def members_of_folder(folder: Path, overrides: Iterable[str] = ()) -> tuple[Given, ...]:
    """One member for each TOML file in a folder, in the order of their names, after ``overrides``.

    Raises: MeanFieldError naming the first file that is no good problem, or for a folder without any.
    """
    folder, overrides = Path(folder), tuple(overrides)
    if is_ensemble(folder):
        raise MeanFieldError(f"{folder} is an ensemble that was begun: go on with `resume {folder}`")
    paths = sorted(path for path in folder.glob("*.toml") if not path.name.startswith("."))
    if not paths:
        raise MeanFieldError(f"{folder} holds no problem: put TOML files into it, or give one of them")
    return tuple(Given(path.stem, load_problem(path, overrides), overrides) for path in paths)


def sweep(problem: Problem, values: Mapping[str, Sequence[Any]]) -> tuple[Given, ...]:
    """The problem once for each combination of values, the last key running fastest, named ``key=value,key=value``.

    Meaning: ``values`` gives a list for each key of the TOML file, such as {"training.beta": [0.1, 0.2]}; a text is
    read as TOML, as `--set` reads it.
    Raises: MeanFieldError naming the member for a value that is refused, and for two members that are the same.
    """
    for key, options in values.items():
        if not len(options):
            raise MeanFieldError(f"the sweep over {key} has no values: give some, such as {key}=0.1,0.2")
    text = dump_problem(absolute_paths(problem))
    out: list[Given] = []
    for chosen in product(*values.values()):
        overrides = tuple(f"{key}={_toml(value)}" for key, value in zip(values, chosen, strict=True))
        name = ",".join(_plain(one) for one in overrides)
        member = replace(parse_problem(text, name, overrides), base=problem.base)
        for other in out:
            if other.problem == member or other.name == name:
                raise MeanFieldError(f"the members '{other.name}' and '{name}' are the same: leave one value out")
        out.append(Given(name, member, overrides))
    return tuple(out)


def _toml(value: Any) -> str:
    """A value as TOML; a text is TOML already."""
    if isinstance(value, str):
        return value.strip()
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence):
        return f"[{', '.join(repr(one) if isinstance(one, str) else _toml(one) for one in value)}]"
    return repr(value)


def _plain(text: str) -> str:
    """An override as part of a folder's name: lists as 16x16, no sign that a shell would take for its own."""
    text = text.replace(" ", "").replace("[", "").replace("]", "").replace(",", "x")
    return "".join(c if c.isalnum() or c in "._=+-" else "_" for c in text.replace('"', "").replace("'", ""))


def run_ensemble(
    members: Sequence[Given],
    folder: Path,
    *,
    workers: int | None = None,
    memory: float = MEMORY,
    hear: Hear | None = None,
    others: Workers | None = None,
) -> tuple[Member, ...]:
    """Run all members in a new ``folder``, each in its own folder there, in ``workers`` processes (all processors).

    Meaning: every problem is made ready once before any is begun; each may take ``memory`` bytes. A member that
    fails, or whose process is killed, stops no other. ``others`` does the work instead of processes of this machine.
    Raises: MeanFieldError naming the first member that cannot be run, with nothing left behind; FileError for a
    folder that is in use; KeyboardInterrupt with the states saved.
    """
    folder = Path(folder).absolute()
    _check_names([member.name for member in members])
    for there in (folder / ENSEMBLE, folder / PROBLEM, *(folder / member.name for member in members)):
        if there.exists():
            how = f"go on with `resume {folder}`, or " if is_ensemble(folder) else ""
            raise FileError(f"{folder} is in use ({there.name} is there): {how}give another folder")
    texts = [dump_problem(absolute_paths(member.problem)) for member in members]
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    entries = tuple(Entry(member.name, member.overrides) for member in members)
    try:
        _make(folder)
        with locked(folder) as handle, _workers(others, workers, len(members), handle) as who:
            looks = [Job(member.name, problem=text, memory=memory) for member, text in zip(members, texts, strict=True)]
            _refuse(members, [event for event in who.do(looks) if isinstance(event, Ended)])
            for member, text in zip(members, texts, strict=True):
                _make(folder / member.name)
                write_bytes(folder / member.name / PROBLEM, text.encode())
            write_ensemble(folder, entries)
            jobs = {i: Job(member.name, str(folder / member.name), memory=memory) for i, member in enumerate(members)}
            return _go(folder, entries, jobs, who, hear)
    finally:
        if not is_ensemble(folder):
            _unmake(folder, [member.name for member in members], made)


def resume_ensemble(
    folder: Path,
    overrides: Iterable[str] = (),
    *,
    workers: int | None = None,
    memory: float = MEMORY,
    hear: Hear | None = None,
    others: Workers | None = None,
) -> tuple[Member, ...]:
    """Go on with what is missing in an ensemble: finished members are left alone, others go on from where they are.

    ``overrides`` (key=value) may change the end and the outputs, of all members. Others as in `run_ensemble`.
    Raises: FileError for a folder without an ensemble or with one at work; MeanFieldError naming the member for a
    change that is not allowed, before any is begun.
    """
    folder, overrides = Path(folder).absolute(), tuple(overrides)
    entries = read_ensemble(folder)
    with locked(folder) as handle:
        jobs: dict[int, Job] = {}
        for i, entry in enumerate(entries):
            path = folder / entry.folder
            try:
                _refuse_swapped(path / PROBLEM, entry.overrides)
                problem = _changed(path / PROBLEM, overrides)
                if not _is_finished(path, problem):
                    jobs[i] = Job(entry.folder, str(path), overrides=overrides, memory=memory)
            except MeanFieldError as error:
                raise type(error)(
                    f"member {entry.folder}: {error}. Nothing was begun; a member that is gone for good is taken out "
                    f"of {folder / ENSEMBLE}"
                ) from None
        entries = tuple(Entry(e.folder, e.overrides) if i in jobs else replace(e, outcome=FINISHED)
                        for i, e in enumerate(entries))  # fmt: skip
        with _workers(others, workers, len(jobs), handle) as who:
            return _go(folder, entries, jobs, who, hear)


def ensemble_members(folder: Path) -> tuple[Member, ...]:
    """What became of each member of the ensemble in a folder, also while it is at work. Raises: FileError."""
    return tuple(member_of(Path(folder), entry) for entry in read_ensemble(Path(folder)))


def _check_names(names: list[str]) -> None:
    if not names:
        raise MeanFieldError("an ensemble needs members: give at least one problem")
    for i, name in enumerate(names):
        if not is_name(name):
            raise MeanFieldError(f"the member '{name}' cannot be the name of a folder: give it a shorter, plain name")
        if name in names[:i]:
            raise MeanFieldError(f"two members have the name '{name}': give each its own")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make {folder}: {error.strerror}; give a folder you may write to") from None


def _unmake(folder: Path, names: list[str], made: list[Path]) -> None:
    """Take back an ensemble that was not begun: what was written for it, nothing else."""
    for name in names:
        with suppress(OSError):
            (folder / name / PROBLEM).unlink(missing_ok=True)
        with suppress(OSError):
            (folder / name).rmdir()
    for path in made:
        with suppress(OSError):
            path.rmdir()


@contextmanager
def _workers(others: Workers | None, count: int | None, most: int, keep: int) -> Iterator[Workers]:
    """Who does the work: ``others``, or processes of this machine that hold the lock as long as they live."""
    if others is not None:
        yield others
        return
    if count is not None and count < 1:
        raise MeanFieldError(f"workers = {count} must be at least 1: say how many processes to use")
    with Processes(min(count or len(os.sched_getaffinity(0)), max(most, 1)), (keep,)) as processes:
        yield processes


def _refuse(members: Sequence[Given], looked: list[Ended]) -> None:
    bad = sorted(event for event in looked if event.outcome != FINISHED)
    if bad:
        more = f" (and {len(bad) - 1} more members cannot be run)" if len(bad) > 1 else ""
        raise MeanFieldError(f"{members[bad[0].member].name}: {bad[0].message}{more}")


def _refuse_swapped(path: Path, overrides: tuple[str, ...]) -> None:
    """Refuse a folder in which there is another problem than that of its member. Raises: MeanFieldError."""
    # where a file of samples is, is said in other words by an override
    said = [text for text in overrides if not text.partition("=")[0].strip().endswith("file")]
    refuse_changes(path, Origin(dump_problem(load_problem(path, said))), Origin(dump_problem(load_problem(path))))


def _changed(path: Path, overrides: tuple[str, ...]) -> Problem:
    """The problem of a member after the overrides. Raises: MeanFieldError for changes that are not allowed."""
    problem = load_problem(path, overrides)
    if overrides:
        refuse_changes(path, Origin(dump_problem(load_problem(path))), Origin(dump_problem(problem)))
    return problem


def _is_finished(folder: Path, problem: Problem) -> bool:
    """Whether the result of just this problem is there. Raises: MeanFieldError for an end before it."""
    try:
        result = read_result(folder / RESULT)
    except FileError:
        return False  # missing or damaged: made again from the newest checkpoint
    training, state = problem.training, result.state
    if training is not None and state is not None and state.s > training.s_end:
        raise MeanFieldError(f"training.s_end = {training.s_end:g} is before s = {state.s:g}, which is reached already")
    return result.is_done and result.problem == problem


def _go(
    folder: Path, entries: tuple[Entry, ...], jobs: Mapping[int, Job], who: Workers, hear: Hear | None
) -> tuple[Member, ...]:
    now, at = list(entries), list(jobs)
    names = tuple(entries[i].folder for i in at)
    written = time.monotonic()
    try:
        # closed before the end is written: members that were broken off have saved by then
        with closing(who.do(list(jobs.values()))) as events:
            for event in events:
                if isinstance(event, Ended):
                    i = at[event.member]
                    now[i] = replace(now[i], outcome=event.outcome, fault=event.fault, message=event.message)
                    if time.monotonic() - written > PACE:
                        write_ensemble(folder, tuple(now))
                        written = time.monotonic()
                if hear is not None:
                    hear(names, event)
    finally:
        write_ensemble(folder, tuple(now))
    return ensemble_members(folder)
