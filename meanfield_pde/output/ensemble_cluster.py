"""The members of an ensemble on the workers of a dask.distributed cluster, which all see the folder of the ensemble."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.output.background import POLL, heed
from meanfield_pde.output.ensemble_file import FAILED, INPUT, INTERRUPTED, PROCESS
from meanfield_pde.output.ensemble_job import Ended, Event, Job, Reached, do
from meanfield_pde.output.ensemble_processes import PATIENCE
from meanfield_pde.training.cluster import alone


@dataclass(frozen=True, slots=True)
class ClusterWorkers:
    """Does jobs on a cluster; the job of a worker that dies is gone on with by another, from its newest checkpoint."""

    client: Any

    def do(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """What happens while the jobs are done; one `Ended` a job. When it is broken off, members are asked to save."""
        from distributed import Event as Flag

        name = f"meanfield-pde-{uuid4().hex}"
        heard: SimpleQueue[Any] = SimpleQueue()
        self.client.subscribe_topic(name, lambda event: heard.put(Reached(*event[1]["reached"])))
        stop = Flag(name, client=self.client)
        futures = [self.client.submit(alone, do_there, job, i, name, pure=False) for i, job in enumerate(jobs)]
        for member, future in enumerate(futures):
            future.add_done_callback(lambda done, i=member: heard.put((i, done)))
        left = set(range(len(jobs)))
        try:
            while left:
                heed()
                try:
                    event = heard.get(timeout=POLL)
                except Empty:
                    continue
                if isinstance(event, Reached):
                    if event.member in left:
                        yield event
                    continue
                member, future = event
                left.discard(member)
                yield _ended(member, future)
        finally:
            if left:
                stop.set()
                _drain(futures)
            self.client.unsubscribe_topic(name)


def _drain(futures: list[Any]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not all(future.done() for future in futures):
        time.sleep(0.02)
    for future in futures:
        future.cancel()


def _ended(member: int, future: Any) -> Ended:
    error = future.exception()
    if error is None:
        ended = future.result()
        assert isinstance(ended, Ended)
        return ended
    if isinstance(error, MeanFieldError):
        return Ended(member, FAILED, INPUT, str(error))
    return Ended(member, FAILED, PROCESS, f"{type(error).__name__}: {error}")


def do_there(job: Job, member: int, name: str) -> Ended:
    """Do a job on a worker of a cluster, telling the topic ``name`` how far it is, until the flag of that name."""
    from distributed import Event as Flag
    from distributed import get_client, get_worker

    worker, stop = get_worker(), Flag(name, client=get_client())

    def reached(event: Reached) -> None:
        worker.log_event(name, {"reached": list(event)})
        if stop.is_set():
            raise KeyboardInterrupt

    if stop.is_set():
        return Ended(member, INTERRUPTED)
    return do(job, member, reached)
