"""TOML text to a tree of frozen dataclasses and back, strictly: nothing unknown, nothing guessed."""

from __future__ import annotations

import math
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from meanfield_pde.errors import MeanFieldError, nearest

T = TypeVar("T")
MOST_PARTS = 32
_PART = r"""(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"{_PART}(?:\.[ \t]*+{_PART}){{{MOST_PARTS}}}")
TAG = "law"  # the key that says which member of a union of tagged dataclasses a table is


def from_toml(
    text: str,
    cls: type[T],
    source: str = "problem",
    overrides: Iterable[str] = (),
    not_covered: Mapping[str, str] | None = None,
) -> T:
    """The dataclass ``cls`` that a TOML text spells, after ``key=value`` overrides.

    Meaning: tables are dataclasses, arrays are tuples; a table of a union whose members carry a
    class attribute ``law`` is chosen by its key ``law``. ``not_covered`` gives the message for keys
    that are refused by name. Floats are read bit for bit.
    Raises: MeanFieldError naming ``source``, the key and the nearest valid name, for text that is
    not TOML, unknown or missing keys, wrong types, NaN and inf.
    """
    try:
        table = set_keys(_parsed(text), overrides)
        _refuse_wide(table, "")
        return _Reader(not_covered or {}).table(table, (cls,), "")  # type: ignore[no-any-return]
    except MeanFieldError as error:
        raise type(error)(f"{source}: {error}") from None
    except RecursionError:
        raise MeanFieldError(f"{source}: too many brackets within brackets: nest less") from None


def _parsed(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises: MeanFieldError where it is none, or where reading it would not end."""
    # the time of the parser grows with the square of the parts of a key
    long = _LONG_KEY.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise MeanFieldError(f"line {line} has a key of more than {MOST_PARTS} parts: no setting has so many")
    try:
        return tomllib.loads(text)
    except ValueError as error:
        # TOMLDecodeError, and an integer of more digits than Python converts
        raise MeanFieldError(f"not valid TOML: {error}") from None


def to_toml(value: object) -> str:
    """The TOML text of a dataclass tree: every field that is not None, floats bit for bit.

    Raises: MeanFieldError for NaN, inf, or a value (such as a Python function) that TOML cannot say.
    """
    import tomli_w

    text = tomli_w.dumps(_plain(value, ""))
    # rows of numbers on one line each; a string never holds a raw line end, so none can match
    text = re.sub(r"\[\n\s*(\"\w+\"),\n\s*([-+.\w]+),\n\s*\]", r"[\1, \2]", text)
    return re.sub(r"\[\n\s*([-+.\w\s,]*?),\n\s*\]", lambda m: f"[{', '.join(m[1].replace(',', ' ').split())}]", text)


def set_keys(table: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """A copy of a nested mapping with ``a.b.0.c=value`` assignments made.

    Meaning: the value is read as TOML, and a bare word is a string. Missing tables are made (an
    unknown key is refused when the mapping is turned into dataclasses); list entries must exist.
    Raises: MeanFieldError for an assignment without '=' or through something that is no table.
    """
    out: dict[str, Any] = _copy(dict(table))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        names = [name.strip() for name in path.split(".")]
        if not equals or not all(names):
            raise MeanFieldError(f"'{assignment}' is not an assignment: write key=value, such as training.beta=0.1")
        node: Any = out
        for position, name in enumerate(names):
            last = position == len(names) - 1
            if isinstance(node, list):
                if not (name.isdecimal() and int(name) < len(node)):
                    given = ".".join(names[:position])
                    raise MeanFieldError(f"'{assignment}': {given} has {len(node)} entries, from 0 on, no '{name}'")
                key: Any = int(name)
            elif isinstance(node, dict):
                key = name
            else:
                raise MeanFieldError(f"'{assignment}': {'.'.join(names[:position])} = {node!r} is not a table")
            if last:
                node[key] = _value(text.strip())
            else:
                node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    return out


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(entry) for key, entry in value.items()}
    return [_copy(entry) for entry in value] if isinstance(value, list) else value


def _in_file(field: Field[Any]) -> bool:
    return bool(field.metadata.get("toml", True))


def _plain(value: object, where: str) -> Any:
    """Builtin containers and numbers only, None left out."""
    if is_dataclass(value) and not isinstance(value, type):
        out = {TAG: getattr(type(value), TAG)} if hasattr(type(value), TAG) else {}
        for field in fields(value):
            entry = getattr(value, field.name)
            if entry is not None and _in_file(field):
                out[field.name] = _plain(entry, f"{where}.{field.name}".lstrip("."))
        return out
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(entry, f"{where}[{k}]") for k, entry in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise MeanFieldError(f"{where} = {value} cannot be written: numbers must be finite")
    if isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        raise MeanFieldError(f"{where} is a Python function and cannot be written as TOML; use a named law or samples")
    raise MeanFieldError(f"{where} = {value!r} cannot be written as TOML")


class _Reader:
    """Walks a parsed TOML table along the type hints of dataclasses; paths are for messages."""

    def __init__(self, not_covered: Mapping[str, str]) -> None:
        self.not_covered = not_covered

    def table(self, value: Mapping[str, Any], members: Sequence[type], path: str) -> Any:
        cls, body = self._choose(dict(value), members, path)
        known = {field.name: field for field in fields(cls) if _in_file(field)}
        for key in body:
            if key not in known:
                self._refuse_key(key, _join(path, key), known)
        hints = get_type_hints(cls)
        arguments = {}
        for name, field in known.items():
            if name in body:
                arguments[name] = self.entry(body[name], hints[name], _join(path, name))
            elif field.default is MISSING and field.default_factory is MISSING:
                raise MeanFieldError(f"{_join(path, name)} is missing: give {_describe(hints[name])}")
        return cls(**arguments)

    def _refuse_key(self, key: str, path: str, known: Iterable[str]) -> None:
        if key in self.not_covered:
            raise MeanFieldError(f"{path}: {self.not_covered[key]}")
        raise MeanFieldError(f"unknown key {path}; {nearest(key, known)}")

    def _choose(self, body: dict[str, Any], members: Sequence[type], path: str) -> tuple[type, dict[str, Any]]:
        """The member of a union that a table spells, and the table without its tag."""
        tagged = {getattr(m, TAG): m for m in members if hasattr(m, TAG) and _readable(m)}
        if tagged:
            if TAG not in body:
                raise MeanFieldError(f"{_join(path, TAG)} is missing: allowed: {', '.join(tagged)}")
            tag = body.pop(TAG)
            if not isinstance(tag, str) or tag not in tagged:
                raise MeanFieldError(f"{_join(path, TAG)} = {tag!r} is not known; {nearest(str(tag), tagged)}")
            return tagged[tag], body
        whole = [m for m in members if all(name in body for name in _required(m))]
        if whole:
            return whole[0], body
        return max(members, key=lambda m: sum(field.name in body for field in fields(m))), body

    def entry(self, value: Any, hint: Any, path: str) -> Any:
        options = _options(hint)
        members = [m for m in options if isinstance(m, type) and is_dataclass(m)]
        if isinstance(value, dict):
            if members:
                return self.table(value, members, path)
            for key in value:
                if key in self.not_covered:
                    raise MeanFieldError(f"{_join(path, key)}: {self.not_covered[key]}")
            raise MeanFieldError(f"{path} is given as a table, but must be {_describe(hint)}")
        if isinstance(value, list):
            for option in options:
                inner = get_args(option)[0] if get_origin(option) is tuple else None
                if inner is not None and any(is_dataclass(m) for m in _options(inner)):
                    return tuple(self.entry(v, inner, f"{path}[{k}]") for k, v in enumerate(value))
        return _leaf(value, tuple(o for o in options if not is_dataclass(o)), hint, path)


def _leaf(value: Any, options: tuple[Any, ...], hint: Any, path: str) -> Any:
    from pydantic import ValidationError  # imported late: it takes a tenth of a second

    _refuse_not_finite(value, path)
    expected = MeanFieldError(f"{path} = {_spell(value)} must be {_describe(hint)}")
    if not options:
        raise expected
    try:
        return _adapter(Union[options]).validate_python(_tuples(value), strict=True)  # noqa: UP007 - built at run time
    except ValidationError:
        raise expected from None


@cache
def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _refuse_wide(value: Any, path: str) -> None:
    """Refuse integers of more than 64 bits anywhere: they could not even be named in a message."""
    if isinstance(value, dict):
        for key, entry in value.items():
            _refuse_wide(entry, _join(path, key))
    elif isinstance(value, list):
        for k, entry in enumerate(value):
            _refuse_wide(entry, f"{path}[{k}]")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise MeanFieldError(f"{path} is an integer of {value.bit_length()} bits: TOML has at most 64")


def _refuse_not_finite(value: Any, path: str) -> None:
    if isinstance(value, list):
        for k, entry in enumerate(value):
            _refuse_not_finite(entry, f"{path}[{k}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise MeanFieldError(f"{path} = {value} must be finite")


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _required(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]


def _readable(cls: type) -> bool:
    """Whether a file can spell this dataclass: a function can only be given in Python."""
    return not any(get_origin(hint) is Callable for hint in get_type_hints(cls).values())


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _spell(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _describe(hint: Any) -> str:
    """A type hint in the words of someone who writes TOML."""
    words = {float: "a number", int: "an integer", str: "a string", bool: "true or false"}
    parts = []
    for option in _options(hint):
        if get_origin(option) is tuple and get_args(option)[-1] is not Ellipsis:
            parts.append(f"[{', '.join(_describe(kind) for kind in get_args(option))}]")
        elif get_origin(option) is tuple:
            inner = get_args(option)[0]
            parts.append(f"a list, each entry {_describe(inner)}" if inner not in words else _list_of(inner))
        elif is_dataclass(option):
            parts.append("a table")
        elif get_origin(option) is Callable:
            parts.append("a Python function")
        elif option is not type(None):
            parts.append(words.get(option, str(option)))
    return " or ".join(dict.fromkeys(parts))


def _list_of(kind: type) -> str:
    return {float: "a list of numbers", int: "a list of integers", str: "a list of strings"}.get(
        kind, "a list of true or false"
    )
