"""Arrays of .npy and .npz bytes: numbers only, and sizes are compared with what is there before memory is taken.

NumPy's own reader believes the header, evaluates it as Python text and inflates a member whole; this one does neither.
"""

from __future__ import annotations

import io
import re
import zipfile
from math import prod
from typing import Any, BinaryIO

import numpy as np

MAGIC = b"\x93NUMPY"
# longer headers and more arrays are no samples
MOST_HEADER, MOST_MEMBERS, MOST_AXES = 10_000, 1000, 32
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([<>|=]?)([a-zA-Z?])(\d{0,4})['"]""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([0-9,\s]*)\)""")


def npy_array(content: bytes, most: int) -> Any:
    """The array of .npy bytes. Raises: ValueError in words for what is damaged, no number, or beyond ``most``."""
    return _read_array(io.BytesIO(content), len(content), most)


def npz_arrays(content: bytes, most: int) -> dict[str, Any]:
    """The arrays of .npz bytes by name; together they may take ``most`` bytes. Names are never used as paths.

    Raises: ValueError in words for what is damaged, no numbers, too many or too large.
    """
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise ValueError(f"it has {len(members)} members, more than {MOST_MEMBERS}")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
                raise ValueError(f"the member {name!r} is encrypted or compressed in another way than by deflate")
            if name in arrays:
                raise ValueError(f"two members have the name {name!r}")
            with archive.open(member) as file:
                try:
                    arrays[name] = _read_array(file, member.file_size, most)
                except ValueError as error:
                    raise ValueError(f"the member {name!r}: {error}") from None
            most -= arrays[name].nbytes
    return arrays


def _read_array(file: BinaryIO | Any, size: int, most: int) -> Any:
    """The array at the start of a stream that says to have ``size`` bytes."""
    start = file.read(len(MAGIC) + 2)
    if start[: len(MAGIC)] != MAGIC or len(start) != len(MAGIC) + 2:
        raise ValueError("it is no .npy array: its first bytes are others")
    digits = 2 if start[-2] == 1 else 4
    length = int.from_bytes(file.read(digits), "little")
    if start[-2] not in (1, 2, 3) or length > MOST_HEADER:
        raise ValueError(f"a header of version {start[-2]} and {length} bytes is not read")
    text = file.read(length).decode("latin-1")
    descr, order, shape = (pattern.search(text) for pattern in (_DESCR, _ORDER, _SHAPE))
    if descr is None or order is None or shape is None or len(text) != length:
        raise ValueError("its header does not say a plain kind of number, an order and a shape")
    dtype, sides = _dtype(*descr.groups()), _sides(shape[1])
    wanted, there = prod(sides) * dtype.itemsize, size - len(start) - digits - length
    if wanted > most:
        raise ValueError(f"shape {sides} of {dtype} takes {wanted} bytes, more than {most}")
    if wanted != there:
        raise ValueError(f"shape {sides} of {dtype} takes {wanted} bytes, but there are {there}")
    content = file.read(wanted)
    # the byte behind the end makes an archive compare its checksum
    if len(content) != wanted or file.read(1):
        raise ValueError(f"shape {sides} of {dtype} takes {wanted} bytes, and there are others")
    return np.frombuffer(content, dtype).reshape(sides, order="F" if order[1] == "True" else "C")


def _dtype(order: str, kind: str, size: str) -> np.dtype[Any]:
    if kind not in "?biufcSU":
        raise ValueError(f"entries of kind '{kind}{size}' are Python objects or records: numbers are needed")
    try:
        return np.dtype(f"{order}{kind}{size}")
    except TypeError:
        raise ValueError(f"entries of kind '{kind}{size}' are not known: numbers are needed") from None


def _sides(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MOST_AXES or not all(word.isdecimal() and len(word) < 20 for word in words):
        raise ValueError(f"its shape ({text[:60]}) is none")
    return tuple(int(word) for word in words)
