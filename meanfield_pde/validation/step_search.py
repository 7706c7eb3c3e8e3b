"""Which integrator and number of layers a particle code took, found from where its tokens are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.particles.integrators import METHODS
from meanfield_pde.problem_particles import INTEGRATORS, RENORMALISED, RUNGE_KUTTA
from meanfield_pde.validation.motion import Motion
from meanfield_pde.validation.same_tokens import OFF, SameTokens

# numbers of layers that are tried, by themselves and times the least that has all snapshots as edges
TRIED = (1, 2, 4, 5, 6, 8, 10, 12, 16, 20, 24, 25, 32, 40, 48, 50, 64, 96, 100, 128, 200, 250, 256, 400, 500, 512, 1000)
MOST, LEAST_BASE, BASE_LAYERS = 1024, 4, 16
# numbers of layers up to 1024 that are tried for each integrator because their error is predicted nearest
LIKELIEST = 5
# a combination is tried if it is predicted within this part of the distance between the data and the exact flow
NEAR = 0.3


@dataclass(frozen=True, slots=True)
class Steps:
    """An integrator with a number of layers, and how far its tokens are from the data at the first snapshot."""

    integrator: str
    layers: int
    distance: float


def order_of(integrator: str) -> int:
    """The order of an integrator in 1/L."""
    return 1 if integrator in RENORMALISED else METHODS[integrator].order


def integrators_of(case: SameTokens) -> tuple[str, ...]:
    """All integrators that suit the tokens."""
    return INTEGRATORS if case.model.circle else RUNGE_KUTTA


def layers_tried(case: SameTokens, stated: int) -> tuple[int, ...]:
    """Numbers of layers that have all snapshots as edges: the one ``stated``, then others from few to many.

    Meaning: the numbers `TRIED` themselves and their multiples of the least possible one, up to 1024.
    """
    unit = next((n for n in range(1, MOST + 1) if case.edges(n) is not None), None)
    others = sorted({n for n in (*TRIED, *(k * (unit or 1) for k in TRIED)) if n <= MOST} - {stated})
    return tuple(n for n in (stated, *others) if case.edges(n) is not None)


def moved(case: SameTokens, motion: Motion, snapshots: int = 2, run: int = 0) -> FloatArray | None:
    """Own tokens minus those of the data at the first ``snapshots`` but the first; None where they run away."""
    edges = case.edges(motion.layers, snapshots)
    if edges is None:
        raise MeanFieldError(f"the snapshots are no edges of {motion.layers} equal layers: take another number")
    try:
        own = motion.run(case.start(run), case.T, edges)
    except NotFiniteError:
        return None
    return case.apart(run, own.x)[1:]


def search(
    case: SameTokens, integrators: tuple[str, ...], layers: tuple[int, ...], bound: float
) -> tuple[Steps | None, Steps]:
    """The first combination that is within ``bound`` of the data at the first snapshot after 0, and the nearest one.

    Formula: at L layers tokens are off the exact flow by C L^{−p}; C and the flow come from short runs with few layers
    of each integrator and of rk4, and only combinations are carried whose C L^{−p} is near what the data have.
    """
    stated, seen = layers[0], []
    for name in integrators:
        one = _tried(case, name, stated)
        seen.append(one)
        if one.distance <= bound:
            return one, one
    for name, count in _predicted(case, integrators, layers, bound):
        one = _tried(case, name, count)
        seen.append(one)
        if one.distance <= bound:
            return one, one
    return None, min(seen, key=lambda one: one.distance)


def _tried(case: SameTokens, integrator: str, layers: int) -> Steps:
    gap = moved(case, Motion(case.model, integrator, layers))
    return Steps(integrator, layers, np.inf if gap is None else float(np.abs(gap).max()))


def _predicted(
    case: SameTokens, integrators: tuple[str, ...], layers: tuple[int, ...], bound: float
) -> list[tuple[str, int]]:
    """Combinations whose error is predicted near that of the data: the nearest of any number, then the cheapest."""
    share = case.times[1] / case.T
    base = next((n for n in sorted(layers) if n * share >= LEAST_BASE - OFF and n >= BASE_LAYERS), max(layers))
    coarse, fine = (moved(case, Motion(case.model, "rk4", count)) for count in (base, 2 * base))
    if coarse is None or fine is None:
        return []
    flow = fine + (fine - coarse) / 15.0  # Richardson, order 4
    wanted = float(np.abs(flow).max())
    every = [count for count in range(1, MOST + 1) if case.edges(count) is not None]
    out: list[tuple[int, str, int]] = []
    likely: list[tuple[float, str, int]] = []
    for name in integrators:
        here = coarse if name == "rk4" else moved(case, Motion(case.model, name, base))
        if here is None:
            continue
        off = [np.abs(flow + (here - flow) * (base / count) ** order_of(name)).max() for count in every]
        likely += [(float(off[k]), name, every[k]) for k in np.argsort(off)[:LIKELIEST]]
        for count in layers[1:]:
            predicted = flow + (here - flow) * (base / count) ** order_of(name)
            if np.abs(predicted).max() <= NEAR * wanted + bound:
                out.append((Motion(case.model, name, count).stages * count, name, count))
    first = [(name, count) for _, name, count in sorted(likely)]
    return first + [(name, count) for _, name, count in sorted(out) if (name, count) not in first]
