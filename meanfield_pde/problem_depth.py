"""Checks of the section of depth; the messages name the key in the TOML file."""

from __future__ import annotations

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem_checks import flag, integer, number, one_of
from meanfield_pde.problem_sections import Depth
from meanfield_pde.splitting import token_splitting

SCHEMES = ("upwind1", "linear3", "linear5", "muscl-minmod", "muscl-mc", "muscl-vanleer", "muscl-vanalbada", "weno5z")
STEPPERS = ("ssprk1", "ssprk2", "ssprk3", "ssprk104", "lax-wendroff")
# those with slopes to limit
LIMITED = ("upwind1", "muscl-minmod", "muscl-mc", "muscl-vanleer", "muscl-vanalbada")
DEPTH_CONTROLS = ("cfl", "fixed", "error")
# that of upwind1 with ssprk104
MOST_CFL = 6.0
# beyond these nothing would end in a lifetime or fit into memory
MOST_LAYERS, MOST_DEPTH_STEPS = 10**6, 1e7


def check_depth(depth: Depth) -> None:
    """Refuse depth settings out of range."""
    number(depth.T, "depth.T", 0.0)
    integer(depth.layers, "depth.layers", 1)
    if depth.layers > MOST_LAYERS:
        raise MeanFieldError(f"depth.layers = {depth.layers} is more than {MOST_LAYERS}: take fewer")
    flag(depth.shared, "depth.shared")
    if depth.T == 0 and not depth.shared:
        raise MeanFieldError("depth.T = 0 leaves no layers to tell apart: take T > 0, or shared = true")
    flag(depth.positivity, "depth.positivity")
    if depth.scheme == "weno":
        raise MeanFieldError("depth.scheme = 'weno' is not known; did you mean 'weno5z'?")
    one_of(depth.scheme, SCHEMES, "depth.scheme")
    one_of(depth.stepper, STEPPERS, "depth.stepper")
    if depth.stepper == "lax-wendroff":
        _check_one_step(depth)
    token_splitting(depth.splitting)
    number(depth.cfl, "depth.cfl", 0.0, MOST_CFL, above=True)
    _check_control(depth)


def _check_one_step(depth: Depth) -> None:
    if depth.scheme not in LIMITED:
        raise MeanFieldError(
            f"depth.scheme = '{depth.scheme}' does not go with depth.stepper = 'lax-wendroff', which limits slopes: "
            "take 'muscl-mc' or another of muscl-*, or 'upwind1'"
        )
    if depth.positivity:
        raise MeanFieldError(
            "depth.positivity = true is a property of Runge–Kutta stages: with depth.stepper = 'lax-wendroff' take "
            "positivity = false, or stepper = 'ssprk2'"
        )


def check_followed(depth: Depth | None, wanted: str | None) -> None:
    """Refuse a stepper without stages where something follows them: ``wanted`` names what."""
    if depth is not None and depth.stepper == "lax-wendroff" and wanted is not None:
        raise MeanFieldError(
            f"depth.stepper = 'lax-wendroff' has no stages to follow, so it has no costate, no gradient and carries no "
            f"queries, and {wanted} needs them: take 'ssprk2' or 'ssprk3'"
        )


def _check_control(depth: Depth) -> None:
    one_of(depth.control, DEPTH_CONTROLS, "depth.control")
    number(depth.tolerance, "depth.tolerance", 0.0, above=True)
    if depth.control != "fixed":
        if depth.dt is not None:
            raise MeanFieldError(
                f"depth.dt = {depth.dt!r} is for depth.control = 'fixed', not '{depth.control}': remove one of them"
            )
        return
    if depth.dt is None:
        raise MeanFieldError("depth.dt is missing: with depth.control = 'fixed' give the length of a step in depth")
    number(depth.dt, "depth.dt", 0.0, above=True)
    if depth.T / depth.dt > MOST_DEPTH_STEPS:
        raise MeanFieldError(
            f"depth.T = {depth.T:g} in steps of depth.dt = {depth.dt:g} is more than {MOST_DEPTH_STEPS:.0e} steps: "
            "raise dt or lower T"
        )
