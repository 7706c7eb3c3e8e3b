"""A dask.distributed cluster as hands: dask is loaded here and only when it is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from meanfield_pde.errors import MeanFieldError

# seconds in which a scheduler has to answer
ANSWER = 10.0


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address such as tcp://host:8786, closed at the end.

    Raises: MeanFieldError when dask.distributed is not installed, or when no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MeanFieldError(
            "a scheduler needs dask.distributed: install it with pip install 'meanfield-pde[distributed]'"
        ) from None
    try:
        client = Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise MeanFieldError(
            f"no scheduler answers at {address} ({error}): start `dask scheduler` and workers, and give its address"
        ) from None
    try:
        yield client
    finally:
        client.close()


def alone(function: Callable[..., Any], *given: Any) -> Any:
    """What a worker of a cluster does: ``function(*given)`` with one thread, so that the bits are those of one machine.

    Raises: MeanFieldError on a worker that does several things at once.
    """
    from distributed import get_worker

    threads = get_worker().state.nthreads
    if threads != 1:
        raise MeanFieldError(f"a worker has {threads} threads: start workers with --nthreads 1 and more --nworkers")
    with threadpool_limits(limits=1, user_api="blas"):
        return function(*given)


@dataclass(frozen=True, slots=True)
class ClusterHands:
    """The workers of a cluster; what a worker had that is lost is computed again by others."""

    client: Any

    def submit(self, function: Callable[..., Any], *given: Any) -> Any:
        """A future of ``function(*given)``."""
        with warnings.catch_warnings():
            # a share with its laws may well have 10 MB, and is sent once
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.client.submit(alone, function, *given, pure=False)

    def gather(self, promises: Sequence[Any]) -> list[Any]:
        """The values of futures. Raises: MeanFieldError when worker after worker died of one."""
        from distributed import KilledWorker

        try:
            return list(self.client.gather(list(promises)))
        except KilledWorker as error:
            raise MeanFieldError(
                f"workers of the cluster died again and again ({error}): give them more memory"
            ) from None
