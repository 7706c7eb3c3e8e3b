"""Keyword parameters of a named problem: which entries of its dataclasses each of them sets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.problem import Heads, Problem, Tokens

Changes = dict[tuple[str, ...], Any]
Parameter = Callable[[Any], Changes]


def at(path: str, convert: Callable[[Any], Any] = float) -> Parameter:
    """A parameter that is one entry: dotted names of fields, numbers for places in a list."""
    keys = tuple(path.split("."))
    return lambda value: {keys: convert(value)}


def vector(length: int, convert: Callable[[Any], Any] = float) -> Callable[[Any], Any]:
    """Converts to a tuple of ``length`` entries; a single number serves for all of them."""

    def converted(value: Any) -> Any:
        entries = tuple(convert(v) for v in value) if hasattr(value, "__len__") else (convert(value),) * length
        if len(entries) != length:
            raise ValueError(f"it must have {length} entries")
        return entries

    return converted


def whole(value: Any) -> int:
    """Converts to an integer what is one."""
    if int(value) != value:
        raise ValueError("it must be an integer")
    return int(value)


def itself(value: Any) -> Any:
    """Leaves a word, a flag or a law to the checks of the problem."""
    return value


def numerical(problem: Problem) -> dict[str, Parameter]:
    """The parameters that every problem with these sections has: boxes, cells, steps, schemes, outputs."""
    out: dict[str, Parameter] = {"title": at("title", itself), "seed": at("seed", whole)}
    if problem.tokens is not None:
        out |= _box("tokens", "", len(problem.tokens.cells)) | {"noise": at("tokens.noise")}
    if problem.heads is not None and problem.heads.cells:
        out |= _box("heads", "head_" if problem.tokens is not None else "", len(problem.heads.cells))
    if problem.depth is not None:
        out |= {"T": at("depth.T"), "layers": at("depth.layers", whole), "cfl": at("depth.cfl")}
        out |= {name: at(f"depth.{name}", itself) for name in ("shared", "scheme", "stepper", "positivity")}
        out |= {"noise_splitting": at("depth.splitting", itself), "depth_control": at("depth.control", itself)}
        out |= {"dt": at("depth.dt"), "depth_tolerance": at("depth.tolerance")}
    if problem.training is not None:
        out |= {name: at(f"training.{name}") for name in ("beta", "weight_decay", "ds", "s_end", "tolerance")}
        out |= {name: at(f"training.{name}", itself) for name in ("splitting", "control")}
        out |= {"order": at("training.order", whole)}
    out |= {name: at(f"output.{name}", whole) for name in ("every", "snapshots", "checkpoint_every")}
    return out | {"times": at("output.times", lambda value: tuple(float(v) for v in value))}


def _box(section: str, prefix: str, dim: int) -> dict[str, Parameter]:
    return {
        f"{prefix}cells": at(f"{section}.cells", vector(dim, whole)),
        f"{prefix}lower": at(f"{section}.lower", vector(dim)),
        f"{prefix}upper": at(f"{section}.upper", vector(dim)),
    }


def with_parameters(problem: Problem, known: Mapping[str, Parameter], given: Mapping[str, Any], name: str) -> Problem:
    """The problem with the given parameters set, all at once.

    Raises: MeanFieldError for an unknown parameter (with the nearest name) or a value that cannot be one.
    """
    changes: Changes = {}
    for key, value in given.items():
        if key not in known:
            raise MeanFieldError(f"problem '{name}' has no parameter {key!r}: {nearest(key, known)}")
        try:
            new = known[key](value)
        except (TypeError, ValueError) as error:
            raise MeanFieldError(f"{key} = {value!r} cannot be used in problem '{name}': {error}") from None
        for path in new:
            twice = [other for other in changes if other[: len(path)] == path or path[: len(other)] == other]
            if twice:
                raise MeanFieldError(f"{key} = {value!r} and another parameter both set {'.'.join(path)}: give one")
        changes |= new
    changed: Problem = _replaced(problem, changes)
    return changed


def _replaced(node: Any, changes: Changes) -> Any:
    """A copy of a tree of dataclasses and tuples with the entries at some paths replaced, each node made once."""
    if not changes:
        return node
    if () in changes:
        return changes[()]
    inner: dict[str, Changes] = {}
    for path, value in changes.items():
        inner.setdefault(path[0], {})[path[1:]] = value
    if isinstance(node, tuple):
        return tuple(_replaced(entry, inner.get(str(k), {})) for k, entry in enumerate(node))
    return replace(node, **{key: _replaced(getattr(node, key), part) for key, part in inner.items()})


Interval = tuple[float, float, float]


def widened(problem: Problem, section: str, prefix: str, given: Collection[str], laws: list[list[Interval]]) -> Problem:
    """The problem with a box that holds its laws, at the same cell width, if it does not; boxes given are kept.

    Meaning: ``laws`` lists, per axis, (mean, deviation, least) of normal laws that live in the box: mean ± ``least``
    deviations must fit into the box, which is otherwise widened to hold mean ± 7 deviations.
    """
    if f"{prefix}lower" in given or f"{prefix}upper" in given:
        return problem
    box: Tokens | Heads = getattr(problem, section)
    lower, upper, cells = list(box.lower), list(box.upper), list(box.cells)
    for k, axis in enumerate(laws):
        tight = [(m, d) for m, d, least in axis if m - least * d < box.lower[k] or m + least * d > box.upper[k]]
        if tight:
            h = (box.upper[k] - box.lower[k]) / box.cells[k]
            lower[k] = min(box.lower[k], *(m - 7.0 * d for m, d in tight))
            upper[k] = max(box.upper[k], *(m + 7.0 * d for m, d in tight))
            if f"{prefix}cells" not in given:
                cells[k] = ceil((upper[k] - lower[k]) / h)
    fitted = replace(box, lower=tuple(lower), upper=tuple(upper), cells=tuple(cells))
    changed: Problem = _replaced(problem, {(section,): fitted} if fitted != box else {})
    return changed
