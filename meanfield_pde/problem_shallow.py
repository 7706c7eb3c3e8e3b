"""Checks of shallow problems: one layer of heads or neurons, where its data come from, and its loss."""

from __future__ import annotations

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.model.heads import RADIAL
from meanfield_pde.problem_checks import integer, number, one_of
from meanfield_pde.problem_sections import DataFile, Drift, Heads, Sequence, SequenceFile, Shallow, Tokens, TwoGaussians

LOSSES = ("squared", "logistic")
ACTIVATIONS = ("tanh", "relu", "sigmoid", "erf", "ramp")
NEURONS = ("perceptron", RADIAL)
# the others are odd but for a constant: their mean over all directions does not depend on the length
RADIAL_ACTIVATIONS = ("relu", "ramp")
MOST_DIMENSIONS = 10_000


def check_shallow(
    attention: str | None,
    tokens: Tokens | None,
    sequences: tuple[Sequence | SequenceFile, ...],
    heads: Heads | None,
    shallow: Shallow | None,
    data: DataFile | TwoGaussians | None,
) -> None:
    """Refuse a layer whose heads, data and loss do not fit each other.

    Raises: MeanFieldError naming the key, what was given, what is allowed and the remedy.
    """
    family = None if heads is None else heads.family
    keys = shallow or Shallow()
    one_of(keys.loss, LOSSES, "shallow.loss")
    if attention not in ("softmax", "none"):
        raise MeanFieldError(
            f"attention = '{attention}' is not covered for kind = 'shallow': take 'softmax', or 'none' for neurons"
        )
    if (tokens is None) == (data is None) or bool(sequences) == (data is not None):
        how = "both" if data is not None else "not the whole"
        raise MeanFieldError(
            f"kind = 'shallow' is given {how} of [tokens] with [[sequences]] or else [data]: give one of the two"
        )
    if tokens is not None and (len(tokens.cells) > 1 or any(tokens.periodic)):
        raise MeanFieldError(
            f"tokens.cells = {tokens.cells}, periodic = {tokens.periodic}: kind = 'shallow' has tokens on one axis "
            "between walls"
        )
    if tokens is not None and (tokens.drift != Drift() or tokens.noise):
        raise MeanFieldError("tokens.drift and tokens.noise have no use for kind = 'shallow': tokens rest there")
    if attention == "softmax":
        if family != "scalar" or tokens is None:
            raise MeanFieldError(
                f"attention = 'softmax' of kind = 'shallow' needs heads.family = 'scalar' (given {family!r}) and tokens"
            )
        if keys.activation is not None:
            raise MeanFieldError("shallow.activation is for neurons: remove it, or set attention = 'none'")
        return
    if family not in NEURONS:
        raise MeanFieldError(f"heads.family = {family!r} is no neuron: allowed: {', '.join(NEURONS)}")
    one_of(keys.activation, ACTIVATIONS, "shallow.activation")
    if isinstance(data, TwoGaussians):
        integer(data.dimension, "data.dimension", 2)
        if data.dimension > MOST_DIMENSIONS:
            raise MeanFieldError(f"data.dimension = {data.dimension} is more than {MOST_DIMENSIONS}: take fewer")
        number(data.difference, "data.difference", 0.0, 0.99, above=True)
    if (family == RADIAL) != isinstance(data, TwoGaussians):
        raise MeanFieldError(
            f"heads.family = {family!r} does not fit its data: family '{RADIAL}' goes with data of a dimension and a "
            "difference, 'perceptron' with a file or with tokens and sequences"
        )
    if family == RADIAL and keys.activation not in RADIAL_ACTIVATIONS:
        raise MeanFieldError(
            f"shallow.activation = '{keys.activation}' is odd but for a constant, so its mean over the directions of a "
            f"weight says nothing: family '{RADIAL}' takes {' or '.join(RADIAL_ACTIVATIONS)}"
        )
    if family == RADIAL and heads is not None and heads.lower[0] < 0.0:
        raise MeanFieldError(f"heads.lower = {heads.lower}: the length r of a weight is not negative: take lower = [0]")
