"""The ways kernels are compiled, and what is kept of it on disk."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path

import numba

SOURCES = "sources.sha256"


@cache
def _forget_stale(folder):
    """Delete what was compiled in a folder from other sources than those at hand.

    numba looks at the file of a function alone, but a compiled function holds those that it calls from other files.
    """
    files = sorted(Path(__file__).parent.glob("*.py"))
    digest = sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()
    kept = Path(folder) / SOURCES
    if kept.exists() and kept.read_text() == digest:
        return
    for compiled in (*Path(folder).glob("*.nbi"), *Path(folder).glob("*.nbc")):
        compiled.unlink(missing_ok=True)
    Path(folder).mkdir(parents=True, exist_ok=True)
    made = kept.with_suffix(f".{os.getpid()}")
    made.write_text(digest)
    made.replace(kept)


def _compiled(**flags):
    """njit with the cache on disk; without it where no folder can be written, as in a read-only installation."""

    def decorate(function):
        try:
            compiled = numba.njit(cache=True, nogil=True, error_model="numpy", **flags)(function)
            if numba.extending.is_jitted(compiled):
                _forget_stale(compiled.stats.cache_path)
            return compiled
        except (RuntimeError, OSError):  # numba found no place for its files, or it is full
            return numba.njit(nogil=True, error_model="numpy", **flags)(function)

    return decorate


# contract, nsz and arcp keep isfinite honest and polynomial exponentials exact; plain fastmath does not.
jit = _compiled(fastmath={"contract", "nsz", "arcp"})

# for a loop that only sums: lanes may add up in another order, and nothing else is loosened
jit_sum = _compiled(fastmath={"contract", "nsz", "arcp", "reassoc"})

# without fused multiply-adds: a result has the same bits in a vector and in the rest of a row
jit_same = _compiled(fastmath={"nsz", "arcp"})
