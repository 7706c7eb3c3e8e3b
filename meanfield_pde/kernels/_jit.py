"""The two ways kernels are compiled."""

from __future__ import annotations

import numba


def _compiled(**flags):
    """njit with the cache on disk; without it where no folder can be written, as in a read-only installation."""

    def decorate(function):
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", **flags)(function)
        except RuntimeError:  # numba found no place for its files
            return numba.njit(nogil=True, error_model="numpy", **flags)(function)

    return decorate


# contract, nsz and arcp keep isfinite honest and polynomial exponentials exact; plain fastmath does not.
jit = _compiled(fastmath={"contract", "nsz", "arcp"})

# for a loop that only sums: lanes may add up in another order, and nothing else is loosened
jit_sum = _compiled(fastmath={"contract", "nsz", "arcp", "reassoc"})

# without fused multiply-adds: a result has the same bits in a vector and in the rest of a row
jit_same = _compiled(fastmath={"nsz", "arcp"})
