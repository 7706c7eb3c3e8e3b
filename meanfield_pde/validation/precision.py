"""In what precision numbers were computed and stored, from the numbers themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield_pde.arrays import FloatArray

DOUBLE = 2.0**-53
# more decimal digits than this are taken for a double, and 9 are enough for a float32
MOST_DIGITS, DIGITS_OF_SINGLE = 13, 9
SINGLE = 2.0**-24


@dataclass(frozen=True, slots=True)
class Precision:
    """Unit roundoffs, relative: of the ``arithmetic`` that made numbers, of their ``storage``; ``words`` name them."""

    arithmetic: float
    storage: float
    words: str


def precision_of(values: FloatArray) -> Precision:
    """The precision that all values have in common.

    Meaning: significands of at most 24 bits are those of float32 arithmetic, of fewer bits those of a shorter format;
    k ≤ 13 significant decimal digits are storage at 10^{1−k}/2, of float32 arithmetic where k ≤ 9, else of float64.
    """
    some = values[values != 0.0]
    bits = _bits(some)
    if bits <= 24:
        name = {24: "float32", 11: "float16", 8: "bfloat16"}.get(bits, f"{bits} bits")
        return Precision(2.0**-bits, 2.0**-bits, name)
    digits = _digits(some)
    if digits is None:
        return Precision(DOUBLE, DOUBLE, "float64")
    arithmetic = SINGLE if digits <= DIGITS_OF_SINGLE else DOUBLE
    return Precision(arithmetic, 0.5 * 10.0 ** (1 - digits), f"{digits} decimal digits")


def _bits(values: FloatArray) -> int:
    """Bits that the longest significand needs, 53 at most."""
    if not len(values):
        return 53
    whole = np.ldexp(np.frexp(values)[0], 53).astype(np.int64)
    lowest = (whole & -whole).astype(float)
    return 53 - int(np.log2(lowest.min()))


def _digits(values: FloatArray) -> int | None:
    """Significant decimal digits that the longest value needs, None for more than `MOST_DIGITS`."""
    place = np.floor(np.log10(np.abs(values)))
    for digits in range(1, MOST_DIGITS + 1):
        scaled = np.abs(values) * 10.0 ** (digits - 1 - place)
        if (np.abs(scaled - np.rint(scaled)) <= 4.0 * DOUBLE * 2.0 * scaled).all():
            return digits
    return None
