"""2^s in about 17 operations that vectorise, for a loop that sums: no table, no branch, no memory.

Formula: with k the whole number nearest to s, 2^s = 2^k 2^r, |r| <= 1/2; 2^r is a polynomial of degree 10 of relative
error 2e-16 (coefficients by the Remez exchange), summed by pairs (Estrin 1960) so that few products wait for each
other; k is added to its exponent.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, is_jitted

from meanfield_pde.kernels._jit import jit

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
# adding 1.5 * 2**52 rounds to an integer and leaves it in the low bits
MAGIC = 6755399441055744.0
SMALLEST = -1021.0
"""The least exponent: a result below would not be a normal number."""


def _typed(typing_context, value, rounded):
    """value 2^k for the k in the low bits of ``rounded``, which the exponent of the value takes up."""

    def generate(context, builder, signature, arguments):
        integer = ir.IntType(64)
        bits, low = (builder.bitcast(one, integer) for one in arguments)
        raised = builder.add(bits, builder.shl(low, ir.Constant(integer, 52)))
        return builder.bitcast(raised, ir.DoubleType())

    return types.float64(types.float64, types.float64), generate


@jit
def _plain(value, rounded):
    return math.ldexp(value, int(rounded - MAGIC)) if math.isfinite(rounded) else math.nan


# without compilation there are no such instructions
times_power: Any = intrinsic(_typed) if is_jitted(_plain) else _plain


@jit
def power_of_two(score, magic):
    """2^{score - top} for magic = `MAGIC` - top with a whole top, and score - top in [-1021, 0]."""
    rounded = score + magic
    r = score - (rounded - magic)
    s = r * r
    t = s * s
    lowest = (0.05550410866445883 * r + 0.24022650695908768) * s + (0.6931471805599497 * r + 1.0)
    middle = (1.5252658116379724e-05 * r + 0.00015403529961126815) * s
    middle += 0.0013333558228561815 * r + 0.009618129108034598
    highest = 7.037278843204747e-09 * s + (1.0208537935725575e-07 * r + 1.3215662836029561e-06)
    return times_power((highest * t + middle) * t + lowest, rounded)
