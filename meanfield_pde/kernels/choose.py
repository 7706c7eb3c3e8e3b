"""Which of two numbers, both at hand: without a branch, so that loops that choose become vector instructions.

A conditional expression may come out as a branch around the loads of each side, or as a choice between addresses, and
either keeps a loop from vectorising.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic, is_jitted

from meanfield_pde.kernels._jit import jit_same


def _typed(typing_context, condition, first, second):
    """first where the condition holds, else second."""

    def generate(context, builder, signature, arguments):
        return builder.select(*arguments)

    return types.float64(types.boolean, types.float64, types.float64), generate


@jit_same
def _plain(condition, first, second):
    return first if condition else second


# without compilation there are no such instructions
choose: Any = intrinsic(_typed) if is_jitted(_plain) else _plain
