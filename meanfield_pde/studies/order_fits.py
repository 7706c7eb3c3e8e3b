"""Orders fitted to errors over a row of resolutions, and whether they fall short of what is declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray

MOST_BELOW = 0.15  # a fitted order this far below the declared one is still that order
MOST_BELOW_CLIPPING = 0.25  # minmod clips extrema
# the few cells at a wall move as h shrinks, so orders settle late there; a wrong wall rule misses by a whole one
MOST_BELOW_WALLS = 0.5
FLOOR = 1e-13  # errors below are rounding and say nothing of an order


def fitted(
    sizes: Sequence[int], errors: Sequence[float], declared: int, judged: int, below: float = MOST_BELOW
) -> dict[str, Any]:
    """Orders from each resolution to the next, of all together and of the ``judged`` finest, and ``short``.

    Meaning: errors of rounding are left out; an error that is not finite falls short of any declared order.
    """
    n, e = np.array(sizes, dtype=float), np.array(errors)
    finite = bool(np.isfinite(e).all())
    seen = np.isfinite(e) & (e > FLOOR)
    pairs = [
        float(np.log(e[i] / e[i + 1]) / np.log(n[i + 1] / n[i])) if seen[i] and seen[i + 1] else None
        for i in range(len(e) - 1)
    ]
    whole = _slope(n[seen], e[seen])
    finest = _slope(n[-judged:][seen[-judged:]], e[-judged:][seen[-judged:]])
    missed = whole is not None and max(whole, finest or whole) < declared - below
    return {
        "n": list(sizes),
        "errors": list(errors),
        "orders": pairs,
        "fitted": whole,
        "fitted_finest": finest,
        "declared": declared,
        "short": declared > 0 and (missed or not finite),
    }


def richardson(errors: Sequence[float], pairs: Sequence[float | None]) -> float | None:
    """The error of the finest of doubled resolutions, from the last difference e(2h) − e(h): that over 2^p − 1."""
    last = next((p for p in reversed(pairs) if p is not None), None)
    return errors[-1] / (2.0**last - 1.0) if last is not None and last > 0.0 else None


def _slope(n: FloatArray, errors: FloatArray) -> float | None:
    return float(-np.polyfit(np.log(n), np.log(errors), 1)[0]) if len(n) > 1 else None
