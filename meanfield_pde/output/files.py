"""HDF5 files of ours on disk: made in memory, sealed, written whole and renamed; read whole, checked, then closed.

HDF5 itself never touches the disk, so neither a kill nor a full disk can leave a file half written, and a damaged file
is told by its seal before HDF5 looks at it.
"""

from __future__ import annotations

import io
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.foreign_files import foreign_bytes

# raised when the layout of a file changes
SCHEMA = 3
# raised when a change alters results; a new package version alone does not
NUMERICS = 5
# behind the last byte of HDF5, which ignores it: the digest of all bytes before
MARK = b"\nmeanfield_pde sha256 "
SEAL = len(MARK) + 64 + 1
# a file is made, and read, in memory
MOST_RESULT = 2**36
# what h5py and our own readers may meet in a file that is not as it should be
DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
T = TypeVar("T")


def _h5py() -> Any:
    import h5py  # imported late: not every command opens a file

    return h5py


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    packages = ("meanfield-pde", "numpy", "scipy", "numba", "h5py")
    found = tuple((name, version(name)) for name in packages)
    return (*found, ("processor", _processor()), ("python", platform.python_version()))


def provenance() -> dict[str, str]:
    """Versions and processor that the bits depend on."""
    return dict(_versions())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def provenance_changes(there: dict[str, str]) -> list[str]:
    """What of versions and processor differs between a file and here, in words."""
    here = provenance()
    return [f"{name} was {there.get(name)} and is {here[name]}" for name in here if there.get(name) != here[name]]


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary file beside it, flushed to disk, renamed, and the folder flushed.

    Raises: FileError naming the path; what stood there before stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException as error:
        with suppress(OSError):  # the folder itself may be gone; the first error says so
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FileError(f"cannot write {path}: {error.strerror or error}: look at its disk and folder") from error
        raise


def write_file(path: Path, fill: Callable[[Any], None]) -> None:
    """Let ``fill(h5file)`` make a file in memory and write it sealed, whole or not at all. Raises: FileError."""
    memory = io.BytesIO()
    with _h5py().File(memory, "w") as file:
        file.attrs["schema"], file.attrs["numerics"] = SCHEMA, NUMERICS
        for name, value in provenance().items():
            file.attrs[f"version {name}"] = value
        fill(file)
    content = memory.getvalue()
    write_bytes(path, b"".join((content, MARK, sha256(content).hexdigest().encode(), b"\n")))


def read_file(path: Path, what: str, take: Callable[[Any], T], same_numerics: bool = False) -> T:
    """What ``take(h5file)`` finds in a sealed file, which is read into memory and closed first; ``what`` names it.

    Raises: FileError naming the path for a file that is missing, damaged, changed by others, of a schema that cannot be
    read, or, with ``same_numerics``, made by a package with other results.
    """
    content = foreign_bytes(path, what, MOST_RESULT)
    body, seal = content[:-SEAL], content[-SEAL:]
    if not seal.startswith(MARK):
        raise FileError(
            f"{path} is not a whole {what}: the seal at its end is missing, so it was cut off, another program has "
            "written to it, or it has file schema 1; copy it anew, or run the problem anew"
        )
    if sha256(body).hexdigest().encode() != seal[len(MARK) : -1]:
        raise FileError(f"{path} is damaged: its bytes do not have the digest that was written with them")
    try:
        with _h5py().File(io.BytesIO(body), "r") as file:
            _check_versions(path, file, same_numerics)
            return take(file)
    except MeanFieldError:
        raise
    except DAMAGE as error:
        raise FileError(f"{path} is not a whole {what}: {error}") from error


def _check_versions(path: Path, file: Any, same_numerics: bool) -> None:
    schema, numerics = file.attrs.get("schema"), file.attrs.get("numerics")
    if schema is None or int(schema) != SCHEMA:
        raise FileError(
            f"{path} has file schema {schema}, this package reads {SCHEMA}: use the package version that wrote it "
            f"({file.attrs.get('version meanfield-pde')}), or run the problem anew"
        )
    if same_numerics and int(numerics) != NUMERICS:
        raise FileError(
            f"{path} was computed by numerics version {numerics}, this package has {NUMERICS} and gives other digits: "
            "run the problem anew, or go on with the package version that began it"
        )


def versions_of(file: Any) -> dict[str, str]:
    """Versions and processor recorded in an open file."""
    return {name: str(file.attrs.get(f"version {name}")) for name in provenance()}
