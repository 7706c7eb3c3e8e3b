"""The one way kernels are compiled."""

from __future__ import annotations

import numba

# contract, nsz and arcp keep isfinite honest and polynomial exponentials exact; plain fastmath does not.
jit = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract", "nsz", "arcp"},
)
