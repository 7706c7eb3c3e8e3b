"""The columns of a .parquet file, by a program of its own.

Run as a program it reads one foreign file and writes its columns as an .npz archive to standard output: a damaged file
can crash the library or unfold to any size, and then it is the program that ends (`tables`). For that it imports
nothing of the package.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

# seconds of processor time to begin with (a busy machine takes 3 for the library alone), one more for so many bytes,
# and bytes beside the columns: the libraries
LOOKING, A_SECOND, BESIDE = 10, 2**26, 2**32
MOST_COLUMNS = 1000
REFUSED = 3


def _columns(path: str, most: int) -> dict[str, Any]:
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetFile(io.BytesIO(Path(path).read_bytes())) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        size = 8 * rows * len(schema.names)
        if not 0 <= size <= most or len(schema.names) > MOST_COLUMNS:
            raise ValueError(f"{rows} lines of {len(schema.names)} columns are more than {most} bytes")
        if len(set(schema.names)) != len(schema.names):
            raise ValueError("two columns have one name")
        _limit(LOOKING + size / A_SECOND, most + BESIDE)
        out = {}
        for field in schema:
            if not (pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type)):
                raise ValueError(f"column '{field.name}' has entries of type {field.type}: numbers are needed")
            out[field.name] = np.asarray(file.read([field.name]).column(0).to_numpy(), dtype=np.float64)
        return out


def _limit(seconds: float, memory: int) -> None:
    try:
        import resource
    except ImportError:  # only POSIX has them
        return
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _program(path: str, most: int) -> int:
    _limit(LOOKING, most + BESIDE)
    try:
        with zipfile.ZipFile(sys.stdout.buffer, "w") as archive:
            for name, values in _columns(path, most).items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
    except Exception as error:
        # whatever a damaged file makes the library raise: the reader of our output says which file it was
        print(" ".join(str(error).split())[:500] or type(error).__name__, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_program(sys.argv[1], int(sys.argv[2])))
