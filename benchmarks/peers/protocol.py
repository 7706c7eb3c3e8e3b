"""How a peer is asked and answers: one JSON argument in, one JSON line out, in a process of its own.

The argument holds "problem", "method" and "threads", sizes, and the path of the reference where there is one.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Ask = dict[str, Any]
Answer = dict[str, Any]


def seconds_of(call: Callable[[], Any], repeats: int = 1, warm: bool = False) -> tuple[float, Any]:
    """Median wall time and the last result; ``warm`` runs it once before, for what compiles or fills caches."""
    if warm:
        call()
    times, result = [], None
    for _ in range(repeats):
        begun = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times), result


def answer(solve: Callable[[Ask], Answer], *packages: str) -> None:
    """Solve what the command line asks for and print it with the versions of the packages that did it."""
    ask = json.loads(sys.argv[1])
    found = {**solve(ask), "versions": {name: version(name) for name in packages}}
    print(json.dumps(found))
