"""A Fokker-Planck flux of the user's own, a weight B of its faces, and the laws it must keep, each measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Problem, given
from meanfield_pde.studies.scheme_laws import EXACT, Law, usable
from meanfield_pde.training.assembled import Assembled

HEAD_SCHEMES = {"scharfetter-gummel-1": 1, "scharfetter-gummel-2": 2}  # name -> order in ds
# differences of psi over beta from one cell to the next: a smooth potential, and all that doubles can weigh
SMOOTH, FARTHEST = 2.0, 700.0
POSITIVE = "weights are >= 0"


@dataclass(frozen=True, slots=True)
class OwnFlux:
    """An object of the user's as the weight of faces; ``order`` is that in h which it declares."""

    name: str
    order: int
    given: Any

    def weight(self, z: FloatArray) -> FloatArray:
        """Its B(z). Raises: MeanFieldError for another shape."""
        found = np.asarray(self.given.weight(z), dtype=float)
        if found.shape != z.shape:
            raise MeanFieldError(
                f"flux {self.name!r} gives {found.shape} for z of shape {z.shape}: weight(z) has the shape of z"
            )
        return found


def own_flux(name: str, given: Any) -> OwnFlux:
    """The flux that an object with ``order`` and ``weight`` is.

    Raises: MeanFieldError for what is missing, an order that is no integer >= 1, or the name of a built-in one.
    """
    if name in HEAD_SCHEMES:
        raise MeanFieldError(f"flux {name!r} of your own has the name of a built-in one: give it another")
    if isinstance(given, type):
        raise MeanFieldError(f"flux {name!r} is the class {given.__name__}: give an object, {given.__name__}()")
    for part, what in (("order", "an integer, its order in h"), ("weight", "weight(z), the B(z) of its rates")):
        if not hasattr(given, part):
            raise MeanFieldError(f"flux {name!r} has no {part!r}: a flux has {part}, {what}")
    if isinstance(given.order, bool) or not isinstance(given.order, int) or given.order < 1:
        raise MeanFieldError(f"flux {name!r} has order = {given.order!r}: it must be an integer >= 1")
    if not callable(given.weight):
        raise MeanFieldError(f"flux {name!r} has weight = {given.weight!r}: it must be a method")
    return OwnFlux(name, given.order, given)


def flux_laws(flux: OwnFlux) -> list[Law]:
    """Every law with what was measured; ends early where nothing more can be measured.

    Meaning: B is finite for all z in [-700, 700] and does not write to z; B(0) = 1, the diffusion, and
    B(-z) - B(z) = z, the drift, make it consistent; B >= 0 keeps every step positive. How far B(-z) is from e^z B(z),
    by which the Gibbs state stands still, is told.
    """
    found: list[Law] = []
    try:
        for law in _laws(flux):
            found.append(law)
            if law.law.startswith("values") and not law.held:
                break
    except Exception as error:  # whatever the user's code raises is his finding, not our failure
        found.append(Law("runs", float("nan"), 0.0, f"{type(error).__name__}: {error}"))
    return found


def _laws(flux: OwnFlux) -> Iterator[Law]:
    size = np.concatenate([np.linspace(0.0, SMOOTH, 41), np.linspace(SMOOTH, FARTHEST, 400)])
    z = np.concatenate([-size[::-1], size])
    kept = z.copy()
    weights = flux.weight(z)
    missing = int((~np.isfinite(weights)).sum())
    yield Law("values of the weight", missing, 0.0, f"{missing} of {z.size} are not finite")
    yield Law("input left as it was", float(np.abs(z - kept).max()), 0.0)
    ahead, back = flux.weight(size.copy()), flux.weight(-size)
    yield Law("B(0) = 1", abs(float(ahead[0]) - 1.0), EXACT)
    yield Law("B(-z) - B(z) = z", float((np.abs(back - ahead - size) / np.maximum(size, 1.0)).max()), EXACT)
    yield Law(POSITIVE, float(max(0.0, -weights.min())), 0.0)
    smooth = size <= SMOOTH
    gibbs = back[smooth] * np.exp(-size[smooth]) - ahead[smooth]
    yield Law("B(-z) = e^z B(z), |z| <= 2", float(np.abs(gibbs).max()), None)


def fluxes_with_laws(own: Mapping[str, Any]) -> tuple[dict[str, OwnFlux], list[dict[str, Any]]]:
    """Of the user's objects by name those that a step can take, as fluxes, and the laws of all as rows.

    Meaning: backward Euler by elimination without subtraction takes finite weights >= 0 alone.
    Raises: MeanFieldError for objects that lack something.
    """
    mine, rows = {}, []
    for name, one in own.items():
        flux = own_flux(name, one)
        found = flux_laws(flux)
        rows += [{"scheme": name, **asdict(law), "held": law.held} for law in found]
        if usable(found) and all(law.held for law in found if law.law == POSITIVE):
            mine[name] = flux
    return mine, rows


def with_flux(ready: Assembled, flux: OwnFlux) -> Assembled:
    """A problem made ready with the user's flux in the place of Scharfetter and Gummel's."""
    heads = replace(given(ready.heads, "heads"), weight=flux.weight)
    return replace(ready, heads=heads, training=replace(given(ready.training, "training"), heads=heads))


def check_fluxes(problem: Problem, own: Mapping[str, Any]) -> None:
    """Refuse fluxes of the user's where none is used. Raises: MeanFieldError."""
    if not own:
        return
    if problem.kind in ("tokens", "training"):
        raise MeanFieldError(
            f"a flux of your own moves heads, but what is measured of a problem of kind {problem.kind!r} are tokens or "
            "the gradient: take one of kind 'fokker-planck', such as double_well"
        )
    if given(problem.training, "training").beta == 0.0:
        raise MeanFieldError("training.beta = 0: a flux of your own weighs differences over beta, take beta > 0")
