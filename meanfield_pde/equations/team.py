"""Threads that share the lines of a grid: which of them does what changes no bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

# cells of all laws from which on a team pays for being waited for
TEAM_PAYS = 2**15


@dataclass(frozen=True, slots=True)
class Team:
    """The caller and ``pool``, ``count`` threads in all."""

    pool: Executor | None = None
    count: int = 1

    def share(self, run: Callable[[int, int], object], pieces: int) -> None:
        """run(first, last) for parts of ``pieces`` equal ones; returns when all are done.

        Raises: what a part raised.
        """
        if self.pool is None:
            run(0, pieces)
            return
        parts = max(min(self.count, pieces), 1)
        edges = [pieces * k // parts for k in range(parts + 1)]
        others = [self.pool.submit(run, edges[k], edges[k + 1]) for k in range(1, parts)]
        run(edges[0], edges[1])
        for other in others:
            other.result()


ALONE = Team()


@contextmanager
def team(count: int) -> Iterator[Team]:
    """A team of ``count`` threads for as long as the context lasts; `ALONE` if that is one."""
    if count == 1:
        yield ALONE
        return
    with ThreadPoolExecutor(count - 1) as pool:
        yield Team(pool, count)
