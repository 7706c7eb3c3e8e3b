"""What a worker does for one member of an ensemble, and a worker process: jobs in as lines, answers out as lines."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from meanfield_pde.errors import MeanFieldError, NotConvergedError, NotFiniteError
from meanfield_pde.output.background import ASKED
from meanfield_pde.output.ensemble_file import FAILED, FINISHED, INPUT, INTERRUPTED, NUMBERS, PROCESS
from meanfield_pde.output.file_schema import write_result
from meanfield_pde.output.files import write_bytes
from meanfield_pde.output.folder_lock import locked
from meanfield_pde.output.run import PROBLEM, RESULT, resume
from meanfield_pde.output.solve import solve
from meanfield_pde.problem_file import dump_problem, load_problem, parse_problem
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.memory_plan import MEMORY
from meanfield_pde.training.state import Moment

# seconds between two words of how far a member is
PACE = 0.25


class Job(NamedTuple):
    """One member: only to look whether its problem can be run, or to run it in its folder as far as is missing.

    Meaning: ``problem`` is TOML text with absolute paths, for a look alone; ``overrides`` change a run that goes on;
    ``memory`` bounds its bytes.
    """

    name: str
    folder: str = ""
    problem: str = ""
    overrides: tuple[str, ...] = ()
    memory: float = MEMORY


class Reached(NamedTuple):
    """How far member number ``member`` is."""

    member: int
    s: float
    s_end: float
    step: int
    loss: float
    free_energy: float


class Ended(NamedTuple):
    """How member number ``member`` ended; ``fault`` and ``message`` as in ensemble.toml."""

    member: int
    outcome: str
    fault: str = ""
    message: str = ""


Event = Reached | Ended


def do(job: Job, member: int = 0, reached: Callable[[Reached], None] | None = None) -> Ended:
    """Do a job to its end, whatever that is; ``reached`` is told of moments now and then and may interrupt.

    Raises: nothing but what is no Exception (SystemExit).
    """
    try:
        if job.problem:
            with threadpool_limits(limits=1, user_api="blas"):
                assemble(parse_problem(job.problem, job.name), 1, job.memory)
        else:
            _run(job, member, reached)
        return Ended(member, FINISHED)
    except KeyboardInterrupt:
        return Ended(member, INTERRUPTED)
    except (NotFiniteError, NotConvergedError) as error:
        return Ended(member, FAILED, NUMBERS, str(error))
    except MemoryError as error:
        return Ended(member, FAILED, INPUT, str(error) or "not enough memory: take fewer cells, sequences or workers")
    except (MeanFieldError, OSError) as error:
        return Ended(member, FAILED, INPUT, str(error))
    except Exception as error:
        return Ended(member, FAILED, PROCESS, f"{type(error).__name__}: {error}")


def _run(job: Job, member: int, reached: Callable[[Reached], None] | None) -> None:
    folder = Path(job.folder)
    problem = load_problem(folder / PROBLEM, job.overrides)
    if problem.training is None:
        # tokens alone have no state to go on from, so they are done at once
        with locked(folder):
            if job.overrides:
                write_bytes(folder / PROBLEM, dump_problem(problem).encode())
            write_result(folder / RESULT, solve(problem, threads=1, memory=job.memory))
        return
    end, told, last = problem.training.s_end, [-PACE], list[Moment]()

    def tell(moment: Moment) -> None:
        if reached is not None:
            state = moment.state
            reached(Reached(member, state.s, end, state.step, moment.variation.loss, moment.free_energy))

    def each(moment: Moment) -> None:
        last[:] = [moment]
        now = time.monotonic()
        if now - told[0] >= PACE:
            told[0] = now
            tell(moment)

    resume(folder, job.overrides, threads=1, progress=each, memory=job.memory)
    for moment in last:
        tell(moment)


def main() -> None:
    """The life of a worker process: a job a line on standard input, answers a line on what was standard output.

    SIGINT and SIGTERM end it with the state of its member saved; so does the end of who gave the job.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    warnings.simplefilter("ignore")  # they are in the results
    busy, asked = [False], threading.Event()
    ASKED.set(asked)

    def on_signal(*_: Any) -> None:
        asked.set()
        if not busy[0]:
            os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)

    def answer(event: Event) -> None:
        fields = {**event._asdict(), "event": type(event).__name__}
        try:
            print(json.dumps(fields), file=answers, flush=True)
        except OSError:
            asked.set()  # nobody listens any more: save and end

    while line := sys.stdin.readline():
        fields = json.loads(line)
        member = fields.pop("member")
        job = Job(**{**fields, "overrides": tuple(fields["overrides"])})
        busy[0] = True
        try:
            answer(do(job, member, answer))
        except KeyboardInterrupt:
            break  # just before or after the work
        busy[0] = False
        if asked.is_set():
            break
    # a compiled kernel that nobody waits for any more must not hold the process
    os._exit(0)
