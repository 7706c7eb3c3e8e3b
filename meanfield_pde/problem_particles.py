"""Checks of the section of particles; the messages name the key in the TOML file."""

from __future__ import annotations

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem_checks import integer, one_of
from meanfield_pde.problem_sections import (
    Depth,
    Heads,
    Objective,
    Particles,
    Sequence,
    SequenceFile,
    Tokens,
    Training,
    given,
)

# explicit Runge-Kutta methods; on the unit circle also steps that leave it and come back
RUNGE_KUTTA = ("euler", "midpoint", "heun", "rk4")
RENORMALISED = ("renormalised", "renormalised-whole")
INTEGRATORS = (*RUNGE_KUTTA, *RENORMALISED)
SAMPLINGS = ("iid", "stratified", "quantile", "sobol")
ON_ONE_AXIS = ("stratified", "quantile")
SIDES = ("tokens", "heads")
# losses and features of final tokens that have a derivative by each of them
TOKEN_LOSSES = ("potential", "regression", "cross-entropy")
TOKEN_FEATURES = ("polynomial", "bump")


def check_particles(particles: Particles, tokens: Tokens | None, heads: Heads | None, depth: Depth | None) -> None:
    """Refuse particles that cannot be drawn or carried, and sides without a number.

    Raises: MeanFieldError naming the key, what was given, what is allowed and the remedy.
    """
    for key in ("tokens", "heads", "layers"):
        value = getattr(particles, key)
        if value is not None:
            integer(value, f"particles.{key}", 1)
    _check_integrator(particles, tokens)
    for key, axes in (("sampling", tokens), ("head_sampling", heads)):
        way = getattr(particles, key)
        one_of(way, SAMPLINGS, f"particles.{key}")
        if way in ON_ONE_AXIS and axes is not None and len(axes.cells) > 1:
            dim = len(axes.cells)
            raise MeanFieldError(f"particles.{key} = '{way}' is for one axis, not {dim}: take 'sobol' or 'iid'")
    if heads is not None and heads.points and particles.heads not in (None, len(heads.points)):
        raise MeanFieldError(
            f"particles.heads = {particles.heads}, but [heads] has {len(heads.points)} points: leave it out"
        )
    if not isinstance(particles.sides, tuple) or len(set(particles.sides)) != len(particles.sides):
        raise MeanFieldError(f"particles.sides = {particles.sides!r} must be a list of different ones of tokens, heads")
    for side in particles.sides:
        one_of(side, SIDES, "particles.sides")
        if getattr(particles, side) is None:
            raise MeanFieldError(f"particles.sides has '{side}', but particles.{side} is missing: give their number")
    if depth is None and particles.layers is not None:
        raise MeanFieldError("particles.layers is given, but the problem has no depth: leave it out")


def _check_integrator(particles: Particles, tokens: Tokens | None) -> None:
    if particles.integrator is None:
        return
    one_of(particles.integrator, INTEGRATORS, "particles.integrator")
    circle = tokens is not None and len(tokens.cells) == 1 and tokens.periodic == (True,)
    if particles.integrator in RENORMALISED and not circle:
        raise MeanFieldError(
            f"particles.integrator = '{particles.integrator}' is for tokens on the circle: take one of "
            f"{', '.join(RUNGE_KUTTA)}"
        )


def check_token_side(
    particles: Particles,
    attention: str | None,
    tokens: Tokens,
    depth: Depth,
    objective: Objective,
    sequences: tuple[Sequence | SequenceFile, ...],
) -> None:
    """Refuse what the tokens of a training run as particles do not have. Raises: MeanFieldError naming the key."""

    def refuse(what: str, remedy: str) -> None:
        raise MeanFieldError(f"particles.sides has 'tokens', and {what} is not covered for them: {remedy}")

    if attention != "softmax":
        refuse(f"attention = '{attention}'", "take attention = 'softmax'")
    if any(tokens.periodic):
        refuse("a periodic axis of tokens", "take walls, or remove 'tokens' from particles.sides")
    if tokens.noise > 0.0:
        refuse(f"tokens.noise = {tokens.noise:g}", "set it to 0")
    if tokens.drift.flow is not None:
        refuse("tokens.drift.flow", "take constant and leak alone")
    check_final_loss(objective)
    for k, entry in enumerate(sequences):
        if isinstance(entry, SequenceFile):
            refuse(f"sequences[{k}], a file of many laws,", "give each law as a sequence of its own")
        elif entry.queries:
            refuse(f"sequences[{k}].queries", "remove them")
    layers = particles.layers_in(depth)
    if not depth.shared and layers % depth.layers:
        raise MeanFieldError(
            f"particles.layers = {layers} does not share the heads of depth.layers = {depth.layers} evenly: "
            "take a multiple"
        )


def check_final_loss(objective: Objective) -> None:
    """Refuse a loss that has no derivative by each of finitely many tokens. Raises: MeanFieldError naming the key."""
    if objective.kind not in TOKEN_LOSSES:
        raise MeanFieldError(
            f"objective.kind = '{objective.kind}' is not covered for tokens as particles: allowed: "
            f"{', '.join(TOKEN_LOSSES)}"
        )
    if objective.query is not None:
        raise MeanFieldError("objective.query is not covered for tokens as particles: remove it")
    single = objective.kind == "potential"
    for feature in (given(objective.potential, "objective.potential"),) if single else objective.features:
        if feature.kind not in TOKEN_FEATURES:
            raise MeanFieldError(
                f"a feature of kind '{feature.kind}' is not covered for tokens as particles: allowed: "
                f"{', '.join(TOKEN_FEATURES)}"
            )


def check_head_side(training: Training, heads: Heads, seed: int) -> None:
    """Refuse what heads that move by noisy gradient descent do not have. Raises: MeanFieldError naming the key."""
    for key, value, allowed in (
        ("order", training.order, 1),
        ("control", training.control, "fixed"),
        ("splitting", training.splitting, "gibbs"),
        ("flow", training.flow, None),
        ("rest", training.rest, None),
    ):
        if value != allowed:
            remedy = "leave it out" if allowed is None else f"take {key} = {allowed!r}"
            raise MeanFieldError(
                f"training.{key} = {value!r} is not covered for particles.sides with 'heads', which move by steps of "
                f"noisy gradient descent: {remedy}"
            )
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law that the heads are drawn from")
    if seed >= 2**64:
        raise MeanFieldError(f"seed = {seed} is too large for the noise of particle heads: take one below 2^64")
