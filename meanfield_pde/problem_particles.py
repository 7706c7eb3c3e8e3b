"""Checks of the section of particles; the messages name the key in the TOML file."""

from __future__ import annotations

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem_checks import integer, one_of
from meanfield_pde.problem_sections import Depth, Heads, Particles, Tokens

# explicit Runge-Kutta methods; on the unit circle also steps that leave it and come back
RUNGE_KUTTA = ("euler", "midpoint", "heun", "rk4")
RENORMALISED = ("renormalised", "renormalised-whole")
INTEGRATORS = (*RUNGE_KUTTA, *RENORMALISED)
SAMPLINGS = ("iid", "stratified", "quantile", "sobol")
ON_ONE_AXIS = ("stratified", "quantile")
SIDES = ("tokens", "heads")


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
