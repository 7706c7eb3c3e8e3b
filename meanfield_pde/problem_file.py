"""Problems as TOML files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from meanfield_pde.config import from_toml, to_toml
from meanfield_pde.foreign_files import beside, foreign_text
from meanfield_pde.laws import Law, Mixture, Samples
from meanfield_pde.problem import DataFile, Problem, SequenceFile
from meanfield_pde.problem_checks import NOT_COVERED


def load_problem(path: str | Path, overrides: Iterable[str] = ()) -> Problem:
    """The validated problem of a TOML file; its sample files are looked for in the same folder.

    Meaning: ``overrides`` are assignments such as ``training.beta=0.1``.
    Raises: FileError if the file cannot be read, MeanFieldError naming file and key otherwise.
    """
    path = Path(path)
    text = foreign_text(path, "problem in TOML")
    problem = parse_problem(text, str(path), overrides)
    return replace(problem, base=str(path.parent))


def parse_problem(text: str, source: str = "problem", overrides: Iterable[str] = ()) -> Problem:
    """The validated problem that a TOML text spells; ``source`` names it in messages."""
    return from_toml(text, Problem, source, overrides, NOT_COVERED)


def dump_problem(problem: Problem) -> str:
    """The TOML text of a problem with every setting resolved; loading it gives an equal problem.

    Raises: MeanFieldError for what only Python can say, such as a density given as a function.
    """
    return to_toml(problem)


def absolute_paths(problem: Problem) -> Problem:
    """The same problem with the paths of its sample files made absolute, so that its text holds in any folder."""
    base = Path(problem.base).resolve()

    def law(given: Law) -> Law:
        if isinstance(given, Samples):
            return replace(given, file=str(beside(base, given.file)))
        if isinstance(given, Mixture):
            return replace(given, components=tuple(law(part) for part in given.components))
        return given

    sequences = tuple(
        replace(entry, file=str(beside(base, entry.file)))
        if isinstance(entry, SequenceFile)
        else replace(
            entry,
            initial=law(entry.initial),
            target=law(entry.target) if isinstance(entry.target, Samples | Mixture) else entry.target,
        )
        for entry in problem.sequences
    )
    data = problem.data
    if isinstance(data, DataFile):
        data = replace(data, file=str(beside(base, data.file)))
    return replace(problem, sequences=sequences, data=data, base=str(base))
