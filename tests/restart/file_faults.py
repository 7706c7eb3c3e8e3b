"""Faults at every operation on files: a kill, a full disk, a disk that turns read-only."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from victims import Tally, begin, differences, ended, forked, go_on, problem_text

from meanfield_pde.output import files
from meanfield_pde.output.checkpoints import checkpoint_files, newest


class Fault:
    """A fault at the n-th operation on files of ours: a kill before it, in the middle of a write, or an error."""

    def __init__(self, at: int, how: int) -> None:
        """``how`` is an errno, or 0 for a kill."""
        self.at, self.how, self.count = at, how, 0
        self.fsync, self.replace, self.open = os.fsync, os.replace, open

    def strike(self) -> bool:
        self.count += 1
        return self.count == self.at + 1

    def hit(self) -> None:
        if self.how == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.how, os.strerror(self.how))

    def wrapped(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any) -> Any:
            if self.strike():
                self.hit()
            return operation(*arguments)

        return inner

    def opened(self, path: Any, mode: str) -> Any:
        if self.strike():
            self.hit()
        handle = self.open(path, mode)
        if mode == "wb":
            fault, write = self, handle.write

            class Half:
                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *_: object) -> None:
                    handle.close()

                def write(self, content: bytes) -> int:
                    if fault.strike():
                        write(content[: len(content) // 2])
                        handle.flush()
                        fault.hit()
                    return int(write(content))

                def flush(self) -> None:
                    fault.wrapped(handle.flush)()

                def fileno(self) -> int:
                    return int(handle.fileno())

            return Half()
        return handle

    def install(self) -> None:
        files.os.fsync, files.os.replace = self.wrapped(self.fsync), self.wrapped(self.replace)
        files.open = self.opened


def faults_at_every_write(folder: Path, every: int, tally: Tally) -> None:
    """A kill, a full disk and a read-only disk at every write, flush, fsync and rename of a run."""
    text = problem_text(end=0.3)
    whole = folder / "writes-whole"
    counter = Fault(-1, 0)

    def counted() -> None:
        counter.install()
        begin(text, whole)
        (folder / "operations").write_text(str(counter.count), encoding="utf-8")

    tally.check(ended(forked(counted, folder / "log")) == 0, "writes: the undisturbed run failed")
    operations = int((folder / "operations").read_text(encoding="utf-8"))
    for how in (0, errno.ENOSPC, errno.EROFS, errno.EIO):
        for at in range(0, operations, every):
            victim = folder / f"writes-{how}-{at}"

            def struck(at: int = at, how: int = how, victim: Path = victim) -> None:
                Fault(at, how).install()
                begin(text, victim)

            code = ended(forked(struck, folder / "log"))
            tally.add("faults injected")
            expected = -signal.SIGKILL if how == 0 else 2
            tally.check(code == expected, f"{victim.name}: exit code {code}, not {expected}")
            before = [step for step, _ in checkpoint_files(victim)]
            if before:
                found = newest(victim)
                tally.check(not found.notes, f"{victim.name}: {found.notes}")
            compare(victim, whole, text, tally, folder)
    tally.add("operations on files", operations)


def full_and_locked_disks(folder: Path, tally: Tally) -> None:
    """A limit on the size of files, and a folder that becomes read-only in the middle of a run."""
    text, whole = problem_text(), folder / "disk-whole"
    tally.check(ended(forked(lambda: begin(text, whole), folder / "log")) == 0, "disk: the undisturbed run failed")
    sizes = [path.stat().st_size for path in (*whole.glob("*/*.h5"), whole / "result.h5")]

    def limited(victim: Path, limit: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        begin(text, victim)

    def locked(victim: Path) -> None:
        begun = files.write_bytes

        def write(path: Path, content: bytes) -> None:
            begun(path, content)
            if path.name == "step-0000000012.h5":
                (victim / "checkpoints").chmod(0o555)

        files.write_bytes = write
        begin(text, victim)

    def as_nobody(work: Callable[[], None]) -> Callable[[], None]:
        def inner() -> None:
            if os.getuid() == 0:
                os.setuid(65534)  # root may write anywhere
            work()

        return inner

    folder.chmod(0o777)
    for number, limit in enumerate(np.linspace(0.5 * min(sizes), max(sizes) - 1, 6).astype(int).tolist()):
        victim = folder / f"disk-{number}"
        code = ended(forked(lambda f=victim, n=limit: limited(f, n), folder / "log"))
        tally.check(code == 2, f"{victim.name}: a full disk ended with exit code {code}")
        tally.add("full disks")
        compare(victim, whole, text, tally, folder)
    victim = folder / "disk-locked"
    code = ended(forked(as_nobody(lambda: locked(victim)), folder / "nobody.log"))
    tally.check(code == 2, f"{victim.name}: a read-only folder ended with exit code {code}")
    tally.check(bool(checkpoint_files(victim)), f"{victim.name}: what was saved is gone")
    (victim / "checkpoints").chmod(0o755)
    tally.add("read-only folders")
    compare(victim, whole, text, tally, folder)


def compare(victim: Path, whole: Path, text: str, tally: Tally, folder: Path) -> None:
    """Go on with a run that met a fault, and compare it with an undisturbed one."""
    tally.check(ended(forked(lambda: go_on(text, victim), folder / "log")) == 0, f"{victim.name}: no going on")
    found = differences(victim / "result.h5", whole / "result.h5")
    tally.check(not found, f"{victim.name}: not the same bits in {', '.join(found)}")
