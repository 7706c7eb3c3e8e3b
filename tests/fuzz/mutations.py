"""Mutations of whole files: of bytes, of TOML keys and values, of NumPy headers, and of datasets under a new seal."""

from __future__ import annotations

import io
import random
import re
import struct
import zipfile
from hashlib import sha256

import h5py
import numpy as np

from meanfield_pde.output.files import MARK, SEAL

HOSTILE = (
    "1e999", "nan", "-inf", "-1", "0", "1e-320", "1e308", "[1000000000]", "[1000000000, 1000000000]", "9" * 5000,
    "0x" + "f" * 5000, "[" * 3000 + "]" * 3000, "{a=" * 500 + "1" + "}" * 500, '"\\u0000"', '"\\u001b[2J\\n"',
    '"' + "x" * 100000 + '"', "true", "[]", "[[]]", "{}", "1979-05-27T07:32:00Z", '"../../../etc/passwd"',
    '"/dev/zero"', '"__import__(\'os\')"', "[0.1, 0.2, 0.3, 0.4, 0.5]", "12345678901234567890", "64.5", '"perodic"',
)  # fmt: skip
WORDS = (
    "betta", "cells", "law", "law.law", ".".join("a" * 20000), '"a\\nb"', "''", "__class__", "function", "base", "mask",
    "\u202e", "tokens.cells", "training", "[[sequences]]",
)  # fmt: skip
SHAPES = ("(1000000000000,)", "(0,)", "()", "(-1, 2)", "(4294967296, 4294967296)", "(12, 2, 1)", "(" * 300 + ")" * 300)
DESCRS = ("|O", "<U9", "<c16", ">f8", "<f2", "|V8", "<M8[ns]", "<f16", "<i8", "|b1", "|S0", "zz", "<f9999")
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)


def of_bytes(content: bytes, chance: random.Random) -> bytes:
    """Flips, numbers put over others, pieces moved, cut or doubled, the end cut off."""
    out = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16, 64))):
        if not out:
            break
        at = chance.randrange(len(out))
        way = chance.randrange(6)
        if way == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif way == 1:
            out[at] = chance.randrange(256)
        elif way == 2:
            size = chance.choice((1, 2, 4, 8))
            out[at : at + size] = struct.pack("<Q", chance.choice(NUMBERS))[:size]
        elif way == 3:
            other = chance.randrange(len(out))
            out[at : at + chance.randrange(1, 40)] = out[other : other + chance.randrange(1, 40)]
        elif way == 4:
            del out[at : at + chance.randrange(1, 40)]
        else:
            out[at:at] = out[at : at + chance.randrange(1, 400)]
    if chance.random() < 0.15:
        del out[chance.randrange(len(out) + 1) :]
    return bytes(out)


def of_toml(content: bytes, chance: random.Random) -> bytes:
    """Keys, values, lines and encodings of a problem."""
    lines = content.decode("utf-8").splitlines()
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(lines))
        way = chance.randrange(8)
        key, equals, value = lines[at].partition("=")
        if way <= 2 and equals:
            lines[at] = f"{key}= {chance.choice(HOSTILE)}"
        elif way == 3 and equals:
            numbers = list(re.finditer(r"-?\d[\d.e-]*", value))
            if numbers:
                found = chance.choice(numbers)
                lines[at] = f"{key}={value[: found.start()]}{chance.choice(HOSTILE)}{value[found.end() :]}"
        elif way == 4 and equals:
            lines[at] = f"{chance.choice(WORDS)} ={value}"
        elif way == 5:
            lines.insert(at, chance.choice((lines[chance.randrange(len(lines))], f"[{chance.choice(WORDS)}]")))
        elif way == 6:
            del lines[at]
            lines = lines or [""]
        else:
            lines[at] = of_bytes(lines[at].encode(), chance).decode("utf-8", "replace")
    out = "\n".join(lines).encode()
    ending = chance.random()
    if ending < 0.05:
        return b"\xef\xbb\xbf" + out
    return out.decode().encode("utf-16") if ending < 0.08 else out


def of_npy(content: bytes, chance: random.Random) -> bytes:
    """The header of an array, its text of the old length or of a new one."""
    length = int.from_bytes(content[8:10], "little")
    text, rest = content[10 : 10 + length].decode("latin-1"), content[10 + length :]
    way = chance.randrange(5)
    if way == 0:
        text = re.sub(r"\([0-9, ]*\)", chance.choice(SHAPES), text)
    elif way == 1:
        text = re.sub(r"'[<>|=]\w+'", repr(chance.choice(DESCRS)), text)
    elif way == 2:
        text = chance.choice(("-" * 9000, "(" * 5000, "{'descr': __import__('os')}", text.replace("False", "1"), ""))
    elif way == 3:
        rest = chance.choice((b"", rest[:-1], rest + b"\0" * 9, rest * 3))
    else:
        return of_bytes(content[: 10 + length], chance) + rest
    header = text.encode("latin-1")
    return content[:8] + struct.pack("<H", len(header) % 65536) + header + rest


def of_npz(content: bytes, chance: random.Random) -> bytes:
    """The arrays of an archive, their names, and sizes that are not so."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(sorted(members))
    way = chance.randrange(5)
    if way == 0:
        members[name] = of_npy(members[name], chance)
    elif way == 1:
        new = chance.choice(("../../out.npy", "/etc/passwd", "a\n.npy", "x" * 60000, "points.npy/", "..\\b.npy"))
        members[new] = members.pop(name)
    elif way == 2:
        # two hundred megabytes of zeros in a few kilobytes, and a header that knows nothing of them
        members[name] = members[name] + b"\0" * (2 * 10**8 if chance.random() < 0.1 else 10**6)
    elif way == 3:
        del members[name]
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    out = memory.getvalue()
    if way == 4:
        at = out.find(b"PK\x01\x02")
        field = at + chance.choice((8, 10, 16, 20, 24, 28, 42))
        out = out[:field] + struct.pack("<I", chance.choice(NUMBERS) & 0xFFFFFFFF) + out[field + 4 :]
    return out


def of_datasets(content: bytes, chance: random.Random, sealed: bool) -> bytes:
    """One dataset of an HDF5 file changed as a whole, by HDF5 itself, and sealed anew: no digest can tell that."""
    memory = io.BytesIO(content[:-SEAL] if sealed else content)
    with h5py.File(memory, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        name = chance.choice(sorted(names))
        old = file[name][()]
        attrs = list(file.attrs)
        way = chance.randrange(12)
        if way == 11 and attrs:
            file.attrs[chance.choice(attrs)] = chance.choice(("words", -1, np.zeros(3), 2**40))
        else:
            del file[name]
        if way == 0:
            file.create_dataset(name, shape=(10**12,), dtype="f8")
        elif way == 1:
            file.create_dataset(name, shape=(2**20, 2**12), dtype="f8", chunks=(2**10, 2**10), compression="gzip")
        elif way == 2:
            file[name] = h5py.ExternalLink("/etc/hostname.h5", "/samples")
        elif way == 3:
            file[name] = h5py.SoftLink(f"/{name}")
        elif way == 4:
            file.create_dataset(name, shape=(8,), dtype="f8", external=[("/dev/zero", 0, 64)])
        elif way == 5:
            layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
            layout[:] = h5py.VirtualSource("other.h5", "samples", shape=(4,))
            file.create_virtual_dataset(name, layout)
        elif way == 6:
            file[name] = chance.choice(("words", "", 7, -1, np.nan, np.zeros((2, 3)), [True, False], b"\xff"))
        elif way == 7:
            file[name] = np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])
        elif way == 8 and np.asarray(old).dtype.kind == "f" and np.size(old):
            spoilt = np.array(old)
            spoilt.flat[chance.randrange(spoilt.size)] = chance.choice((np.nan, np.inf, -1.0, 1e308))
            file[name] = spoilt
        elif way == 9:
            file.create_group(name)
        elif way == 10 and np.ndim(old):
            file[name] = chance.choice((old[:-1], np.concatenate((old, old)), np.asarray(old)[None]))
    body = memory.getvalue()
    return b"".join((body, MARK, sha256(body).hexdigest().encode(), b"\n")) if sealed else body


def mutated(kind: str, suffix: str, content: bytes, chance: random.Random) -> bytes:
    """One mutation of a file of some kind, half of them and more by what its format means."""
    if chance.random() < 0.02:
        return chance.choice((b"", b"\0", b"\x89HDF\r\n\x1a\n", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY", b"[" * 10**6))
    meaning = 0.75 if suffix == ".h5" else 0.5
    if chance.random() > meaning or suffix in (".csv", ".parquet"):
        return of_bytes(content, chance)
    if suffix in (".toml", ".txt"):
        return of_toml(content, chance)
    if suffix == ".npy":
        return of_npy(content, chance)
    if suffix == ".npz":
        return of_npz(content, chance)
    return of_datasets(content, chance, sealed=kind not in ("hdf5", "foreign"))
