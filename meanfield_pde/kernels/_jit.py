"""The two ways kernels are compiled."""

from __future__ import annotations

import numba

# contract, nsz and arcp keep isfinite honest and polynomial exponentials exact; plain fastmath does not.
jit = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract", "nsz", "arcp"},
)

# for a loop that only sums: lanes may add up in another order, and nothing else is loosened
jit_sum = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract", "nsz", "arcp", "reassoc"},
)
