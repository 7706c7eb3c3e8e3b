"""What results depend on besides the problem: versions, processor, compiled code."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from meanfield_pde.cli.terminal import table


def print_info() -> None:
    """Print versions, processor, threads and where compiled kernels are kept."""
    from meanfield_pde.output.files import NUMERICS, SCHEMA, provenance

    rows = list(provenance().items())
    rows += [
        ("numerics", f"{NUMERICS} (checkpoints of another number are refused)"),
        ("file schema", str(SCHEMA)),
        ("system", platform.platform()),
        ("processors", str(os.cpu_count() or 1)),
        ("package", str(Path(__file__).resolve().parents[1])),
        ("compiled code", compiled_code()),
    ]
    table(("", ""), rows, left=2)


def compiled_code() -> str:
    """The folder of the cache of compiled kernels, and how much is in it."""
    from meanfield_pde.kernels import softmax

    stats = getattr(softmax.softmax_means, "stats", None)
    folder = getattr(stats, "cache_path", None)
    if stats is not None and not folder:
        return "kept nowhere, as no folder can be written: every run compiles; set NUMBA_CACHE_DIR to a folder"
    if not folder:
        return "kernels are not compiled (NUMBA_DISABLE_JIT is set)"
    count = len(list(Path(folder).glob("*.nbc")))
    state = f"{count} compiled kernels" if count else "empty: the first run compiles, which takes half a minute"
    return f"{folder} ({state})"
