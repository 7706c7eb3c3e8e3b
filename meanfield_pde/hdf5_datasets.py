"""Datasets of an open HDF5 file: hard links only, nothing of other files, and sizes compared before memory is taken.

Run as a program it reads one foreign file and writes its arrays as an .npz archive to standard output: a damaged file
can crash HDF5 itself or keep it busy for ever, and then it is the program that ends (`sample_files`). For that it
imports nothing of the package.
"""

from __future__ import annotations

import io
import sys
import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

# seconds of processor time to find the datasets; reading may take one more for so many bytes
LOOKING, A_SECOND = 1, 2**26
# bytes beside the arrays: the libraries, the file itself
BESIDE = 2**31
REFUSED = 3


def _reached(group: Any, name: str) -> Any:
    """What stands at a path, or None. Raises: ValueError where a link leads elsewhere."""
    import h5py

    node = group
    for part in name.split("/"):
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"'{name}' is a link to another place, which is not followed")
        node = node[part]
    return node


def holds(group: Any, name: str) -> bool:
    """Whether something stands at a path. Raises: ValueError where a link leads elsewhere."""
    return _reached(group, name) is not None


def dataset(group: Any, name: str, most: int) -> Any:
    """The dataset at the path ``name`` below an open group, with all of its data in this file.

    Raises: KeyError when there is none; ValueError for a link out of the file, data in other files, entries that are
    neither numbers nor strings, and a shape that takes more than ``most`` bytes.
    """
    import h5py

    node = _reached(group, name)
    if node is None:
        raise KeyError(f"'{name}' is missing")
    if not isinstance(node, h5py.Dataset):
        raise KeyError(f"'{name}' is no dataset")
    if node.is_virtual or node.external:
        raise ValueError(f"'{name}' keeps its data in other files, which are not read")
    if node.dtype.kind not in "biuf" and h5py.check_string_dtype(node.dtype) is None:
        raise ValueError(f"'{name}' has entries of type {node.dtype}: numbers are needed")
    if node.shape is None:
        raise ValueError(f"'{name}' is empty")
    size = prod(node.shape) * node.dtype.itemsize
    chunk = prod(node.chunks or ()) * node.dtype.itemsize
    if max(size, chunk) > most:
        raise ValueError(f"'{name}' has shape {node.shape}, which takes {max(size, chunk)} bytes, more than {most}")
    return node


def stored(group: Any, name: str, most: int) -> Any:
    """The values of `dataset`, in memory. Raises: as that."""
    return dataset(group, name, most)[()]


def words(group: Any, name: str, most: int) -> tuple[str, ...]:
    """The strings of a dataset, one or a list of them; together they may take ``most`` bytes. Raises: as `dataset`."""
    found = dataset(group, name, most)
    if found.dtype.kind in "biuf":
        raise ValueError(f"'{name}' is no text")
    found = found.asstr()
    size = 0
    out: list[str] = []
    # one at a time: any number of entries may share one long string
    for index in np.ndindex(found.shape):
        out.append(found[index])
        size += len(out[-1])
        if size > most:
            raise ValueError(f"'{name}' has strings of more than {most} bytes")
    return tuple(out)


def names(group: Any) -> tuple[str, ...]:
    """The names of the datasets that stand directly in a group and not elsewhere."""
    import h5py

    hard = [name for name in group if isinstance(group.get(name, getlink=True), h5py.HardLink)]
    return tuple(name for name in hard if isinstance(group[name], h5py.Dataset))


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
    import h5py

    content = Path(path).read_bytes()
    _limit(LOOKING, most + BESIDE)
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            found = {name: dataset(file, name, most) for name in names(file)}
            size = sum(item.nbytes for item in found.values())
            if size > most:
                raise ValueError(f"its datasets take {size} bytes, more than {most}")
            _limit(LOOKING + size / A_SECOND, most + BESIDE)
            with zipfile.ZipFile(sys.stdout.buffer, "w") as archive:
                for name, item in found.items():
                    values = item.asstr()[()] if item.dtype.kind == "O" else item[()]
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)
    except Exception as error:
        # whatever HDF5 and h5py may raise: the reader of our output says which file it was
        print(" ".join(str(error).split())[:500] or type(error).__name__, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_program(sys.argv[1], int(sys.argv[2])))
