"""Worker processes of an ensemble: each does one job at a time, and the death of one fails that job alone."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

from meanfield_pde.output.background import POLL, heed
from meanfield_pde.output.ensemble_file import FAILED, INTERRUPTED, PROCESS
from meanfield_pde.output.ensemble_job import Ended, Event, Job, Reached

# a program rather than a fork, so that neither threads nor compiled code of this process are in the way
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from meanfield_pde.output.ensemble_job import main; main()"
# one thread a member: the bits are the same for any number, and members are as many as processors
ONE = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}
# seconds that members may take to save their state when all is to end
PATIENCE = 8.0


@dataclass(slots=True)
class _Worker:
    """A process, what it has been given, what it has answered of a line so far, and where its errors go."""

    process: subprocess.Popen[bytes]
    errors: int
    member: int | None = None
    rest: bytes = b""

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def give(self, member: int, job: Job) -> None:
        assert self.process.stdin is not None
        self.member = member
        with suppress(BrokenPipeError):  # its end is heard where answers are
            self.process.stdin.write(json.dumps({**job._asdict(), "member": member}).encode() + b"\n")
            self.process.stdin.flush()

    def heard(self) -> list[Event] | None:
        """What it has answered, None at its end."""
        data = os.read(self.answers.fileno(), 65536)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [_event(json.loads(line)) for line in lines]

    def close(self) -> None:
        os.close(self.errors)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


@dataclass(slots=True)
class Processes:
    """At most ``count`` worker processes, made when they are needed and used again; a context that ends them.

    Meaning: ``keep`` are descriptors that every worker holds open as long as it lives.
    """

    count: int
    keep: tuple[int, ...] = ()
    alive: list[_Worker] = field(default_factory=list)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        """End all workers; those at work are asked to save first, and are given PATIENCE for it."""
        for worker in self.alive:
            worker.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        for worker in self.alive:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.close()
        self.alive.clear()

    def do(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """What happens while the jobs are done, begun in their order; one `Ended` a job."""
        waiting = deque(range(len(jobs)))
        while True:
            heed()
            for worker in [one for one in self.alive if one.member is None and one.process.poll() is not None]:
                self._forget(worker)
                worker.close()
            idle = [one for one in self.alive if one.member is None]
            while waiting and (idle or len(self.alive) < self.count):
                member = waiting.popleft()
                (idle.pop(0) if idle else self._new()).give(member, jobs[member])
            busy = [one for one in self.alive if one.member is not None]
            if not busy:
                return
            for worker in _answering(busy):
                number, events = worker.member, worker.heard()
                assert number is not None
                if events is None:
                    self._forget(worker)
                    yield _death(worker, number)
                    continue
                if any(isinstance(event, Ended) for event in events):
                    worker.member = None
                yield from events

    def _new(self) -> _Worker:
        errors, name = tempfile.mkstemp()
        os.unlink(name)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **ONE},
            pass_fds=self.keep,
            # Ctrl-C comes to this process alone, which then asks the workers one by one
            start_new_session=True,
        )
        self.alive.append(_Worker(process, errors))
        return self.alive[-1]

    def _forget(self, worker: _Worker) -> None:
        worker.process.wait()
        self.alive.remove(worker)


def _answering(workers: list[_Worker]) -> list[_Worker]:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.answers, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(POLL)]


def _event(fields: dict[str, Any]) -> Event:
    kind = fields.pop("event")
    return Reached(**fields) if kind == "Reached" else Ended(**fields)


def _death(worker: _Worker, member: int) -> Ended:
    """What to say of a member whose process has ended without an answer."""
    code = worker.process.returncode
    os.lseek(worker.errors, max(0, os.lseek(worker.errors, 0, os.SEEK_END) - 2000), os.SEEK_SET)
    last = os.read(worker.errors, 2000).decode(errors="replace").strip().splitlines()[-1:]
    worker.close()
    if code == 0:
        return Ended(member, INTERRUPTED)  # it was asked to end before it had begun
    if code < 0:
        why = f"its process was ended by {signal.Signals(-code).name}"
        why += ", by hand or for want of memory" if -code == signal.SIGKILL else ""
    else:
        why = f"its process ended with code {code}"
    said = f" ({last[0]})" if last else ""
    return Ended(member, FAILED, PROCESS, f"{why}{said}: `resume` goes on with it")
