"""A scheme of the user's own: what it must have, and what is added where it says less than the built-in ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.schemes import Reconstruction
from meanfield_pde.errors import MeanFieldError


@dataclass(frozen=True, slots=True)
class OwnScheme:
    """An object of the user's as a reconstruction; ``width`` is its own, or as many cells as its order is high."""

    given: Any

    @property
    def order(self) -> int:
        """The order that it declares."""
        return int(self.given.order)

    @property
    def width(self) -> int:
        """The least number of cells on an axis."""
        return int(getattr(self.given, "width", max(1, self.order)))

    @property
    def order_at_extrema(self) -> int:
        """The order that it declares of the largest error, its own ``order_at_extrema`` or else its order."""
        return order_at_extrema(self.given)

    def faces(self, u3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Its values at the faces."""
        self.given.faces(u3, v3, out3)


@dataclass(frozen=True, slots=True)
class OwnDualScheme(OwnScheme):
    """The same with a transpose."""

    def cells(self, u3: FloatArray, g3: FloatArray, v3: FloatArray, out3: FloatArray) -> None:
        """Its R'(u)ᵀ g, added."""
        self.given.cells(u3, g3, v3, out3)


def own_scheme(name: str, given: Any) -> Reconstruction:
    """The reconstruction that an object with ``order``, ``faces`` and perhaps ``cells`` and ``width`` is.

    Raises: MeanFieldError for what is missing, or an order or width that is no integer >= 1.
    """
    if isinstance(given, type):
        raise MeanFieldError(f"scheme {name!r} is the class {given.__name__}: give an object, {given.__name__}()")
    for part, what in (("order", "an integer, its order of accuracy"), ("faces", "faces(u3, v3, out3)")):
        if not hasattr(given, part):
            raise MeanFieldError(f"scheme {name!r} has no {part!r}: a scheme has {part}, {what}")
    for part in ("order", "width", "order_at_extrema"):
        value = getattr(given, part, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise MeanFieldError(f"scheme {name!r} has {part} = {value!r}: it must be an integer >= 1")
    for part in ("faces", "cells"):
        if not callable(getattr(given, part, len)):
            raise MeanFieldError(f"scheme {name!r} has {part} = {getattr(given, part)!r}: it must be a method")
    return OwnDualScheme(given) if hasattr(given, "cells") else OwnScheme(given)


def order_at_extrema(scheme: Any) -> int:
    """The order of the largest error: lower than that of the scheme where it limits slopes at extrema, and says so."""
    return int(getattr(scheme, "order_at_extrema", scheme.order))
