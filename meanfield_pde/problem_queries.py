"""Checks of query tokens: where they start, what carries them, and the loss on where they end."""

from __future__ import annotations

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem_checks import integer, number, vector
from meanfield_pde.problem_sections import Objective, Sequence, SequenceFile, Tokens


def check_queries(
    sequences: tuple[Sequence | SequenceFile, ...],
    objective: Objective | None,
    tokens: Tokens,
    attention: str | None,
    with_targets: bool = True,
) -> None:
    """Refuse queries that cannot be carried, and losses on queries that are not there.

    Raises: MeanFieldError naming the key, what was given, what is allowed and the remedy.
    """
    term = None if objective is None else objective.query
    dim = len(tokens.cells)
    if term is not None:
        integer(term.axis, "objective.query.axis", 0)
        if term.axis >= dim:
            raise MeanFieldError(
                f"objective.query.axis = {term.axis} does not exist: the tokens have axes 0 to {dim - 1}"
            )
        number(term.weight, "objective.query.weight", 0.0, above=True)
    elif objective is not None and objective.kind == "query-regression":
        raise MeanFieldError("objective.kind = 'query-regression' needs objective.query, such as query = { axis = 0 }")
    some = False
    for k, entry in enumerate(sequences):
        where = f"sequences[{k}]"
        if isinstance(entry, SequenceFile):
            if term is not None and with_targets:
                raise MeanFieldError(f"{where}: a file has no queries for objective.query: give sequences one by one")
            continue
        some = some or bool(entry.queries)
        for i, query in enumerate(entry.queries):
            _check_start(query, tokens, f"{where}.queries[{i}]")
        if term is None and entry.query_targets:
            raise MeanFieldError(f"{where}.query_targets has no use without objective.query: remove it, or add that")
        if term is None or not with_targets:
            continue
        if not entry.queries and entry.role == "train":
            raise MeanFieldError(f"{where}.queries is missing: objective.query needs at least one a training sequence")
        vector(entry.query_targets, f"{where}.query_targets", len(entry.queries))
    if some:
        _check_carried(tokens, attention)


def _check_start(query: tuple[float, ...], tokens: Tokens, where: str) -> None:
    vector(query, where, len(tokens.cells))
    for x, low, high in zip(query, tokens.lower, tokens.upper, strict=True):
        if not low <= x <= high:
            raise MeanFieldError(f"{where} = {query} is outside the box of the tokens: move it, or widen the box")


def _check_carried(tokens: Tokens, attention: str | None) -> None:
    """Refuse what a query cannot follow."""
    if attention != "softmax":
        raise MeanFieldError(
            f"sequences.queries with attention = {attention!r}: queries are carried by 'softmax' alone so far; "
            "set attention = 'softmax', or remove the queries"
        )
    if any(tokens.periodic):
        raise MeanFieldError("sequences.queries on a ring is not covered yet: use walls, or remove the queries")
    if tokens.noise > 0.0:
        raise MeanFieldError(
            f"sequences.queries with tokens.noise = {tokens.noise:g}: a query follows V and has no noise of its own; "
            "set noise = 0, or remove the queries"
        )
    if tokens.drift.flow is not None:
        raise MeanFieldError(
            "sequences.queries with tokens.drift.flow: queries feel leak and constant alone so far; remove one of them"
        )
