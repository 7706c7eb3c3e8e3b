"""The loader of each kind of file in worker processes that are killed when they take too long, and replaced."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian
from meanfield_pde.output.checkpoints import newest
from meanfield_pde.output.file_schema import read_checkpoint, read_result, read_segment
from meanfield_pde.output.report import summary
from meanfield_pde.problem import Depth, Problem, Sequence, SequenceFile, Tokens
from meanfield_pde.problem_file import absolute_paths, dump_problem, load_problem
from meanfield_pde.sample_files import read_samples
from meanfield_pde.sequences import sequence_batch
from meanfield_pde.validation.reading import from_arrays, read_trajectory
from meanfield_pde.validation.trajectory import ArrayNames, read_names

# seconds of processor time that a file may take, and on the clock before its worker is killed
MOST, PATIENCE = 2.0, 30.0
MEMORY = 6 * 2**30
LINE = Tokens((-3.0,), (3.0,), (16,))
PLANE = Problem(
    kind="tokens",
    tokens=Tokens((-6.0, -6.0), (6.0, 6.0), (16, 16)),
    depth=Depth(),
    sequences=(Sequence(Gaussian((0.0, 0.0), ((0.4, 0.0), (0.0, 0.4)))),),
)
ARRAYS = {
    "where": np.random.default_rng(1).normal(0.0, 0.6, (12, 3, 2)),
    "mass": np.ones(12),
    "keys": np.eye(2)[None],
    "values": np.eye(2)[None],
    "t": np.array([0.0, 0.5, 1.0]),
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How reading a file ended: loaded, refused with a message, or a fault."""

    name: str
    how: str
    message: str
    seconds: float


def load(kind: str, path: Path) -> None:
    """Read a file as the package does."""
    if kind in ("problem", "text"):
        dump_problem(absolute_paths(load_problem(path)))
    elif kind == "tokens":
        problem = Problem(kind="tokens", tokens=LINE, depth=Depth(), sequences=(SequenceFile(str(path)),))
        sequence_batch(problem, Grid((-3.0,), (3.0,), (16,), (False,)), entries=problem.sequences)
    elif kind in ("samples", "hdf5"):
        assert np.isfinite(read_samples(path)).all()
    elif kind in ("trajectory", "foreign"):
        names = ArrayNames(times=(0.0, 0.5, 1.0)) if path.suffix == ".npy" else None
        assert np.isfinite(read_trajectory(path, PLANE, names).points).all()
    elif kind == "names":
        assert from_arrays(ARRAYS, str(path), PLANE, read_names(path)).points.shape == (1, 3, 12, 2)
    elif kind == "result":
        summary(read_result(path))
    elif kind == "checkpoint":
        assert np.isfinite(read_checkpoint(path).state.rho).all()
        newest(path.parent.parent)
    else:
        read_segment(path)


def _seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _work(pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore", UserWarning)
    while True:
        try:
            kind, path = pipe.recv()
        except EOFError:
            return
        began = _seconds()
        try:
            load(kind, Path(path))
            how, message = "loaded", ""
        except MeanFieldError as error:
            how, message = "refused", str(error)
            if Path(path).name not in message:
                how, message = "fault", f"the message does not name the path: {message[:300]}"
        except BaseException as error:
            how, message = "fault", f"{type(error).__name__}: {str(error)[:300]}"
        pipe.send((how, message, _seconds() - began))


class Worker:
    """One process that reads files; a new one takes its place when it dies or hangs."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def read(self, kind: str, path: Path) -> Ending:
        """How reading a file ended."""
        self.pipe.send((kind, str(path)))
        began = time.monotonic()
        try:
            if self.pipe.poll(PATIENCE):
                how, message, seconds = self.pipe.recv()
                if seconds > MOST:
                    how, message = "fault", f"{seconds:.2f} s: {how} {message[:200]}"
                return Ending(path.name, how, message, seconds)
            message = "it hangs"
        except EOFError:
            self.process.join()
            message = f"the process died of {self.process.exitcode}"
        self.stop()
        self.start()
        return Ending(path.name, "fault", message, time.monotonic() - began)

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def read_all(files: Iterator[tuple[str, Path, bytes]], recycled: int = 250) -> Iterator[tuple[str, Path, Ending]]:
    """Put each content in its place, read it, and take it away again; a worker serves ``recycled`` files."""
    worker = Worker()
    try:
        for number, (kind, path, content) in enumerate(files):
            if number and number % recycled == 0:
                worker.stop()
                worker.start()
            path.write_bytes(content)
            yield kind, path, worker.read(kind, path)
            if kind in ("checkpoint", "segment"):
                shutil.rmtree(path.parent.parent)
            else:
                path.unlink()
    finally:
        worker.stop()
