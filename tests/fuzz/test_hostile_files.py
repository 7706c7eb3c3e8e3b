"""Files made to do harm, one of each kind: refused in words, by name, before memory is taken or code is run."""

from __future__ import annotations

import io
import os
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from meanfield_pde.config import from_toml
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.numpy_arrays import npz_arrays
from meanfield_pde.output.file_schema import read_checkpoint, read_result, read_segment
from meanfield_pde.output.files import MARK, SEAL
from meanfield_pde.output.run import run
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import absolute_paths, load_problem, parse_problem
from meanfield_pde.sample_files import read_samples

TRAINING = """
kind = "fokker-planck"
[heads]
lower = [-2.0]
upper = [2.0]
cells = [12]
initial = { law = "gaussian", mean = [0.2], covariance = [[0.1]] }
[potential]
coefficients = [[0.0, 0.0, 0.5]]
[training]
beta = 0.3
ds = 0.1
s_end = 0.2
"""


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """What a hostile file asks for is not there: a reader that tried would end in a MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 3 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def npy(shape: str, descr: str = "'<f8'", data: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def npz(*members: tuple[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return memory.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("(1000000000000,)"), "takes 8000000000000 bytes, more than"),
        (npy("(1000,)"), "takes 8000 bytes, but there are 0"),
        (npy("(2,)", data=bytes(17)), "takes 16 bytes, but there are 17"),
        (npy("(99999999999999999999, 2)"), "its shape .* is none"),
        (npy("(-1,)"), "does not say a plain kind of number"),
        (npy("(2,)", "'|O'", bytes(16)), "Python objects or records"),
        (npy("(2,)", "[('a', '<f8')]", bytes(16)), "does not say a plain kind of number"),
        (npy("(2,)", "'<f3'", bytes(16)), "'f3' are not known"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "65535 bytes is not read"),
        (b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16, "version 9"),
        (b"\x93NUMPY\x01\x00\x28\x23" + b"-" * 9000, "does not say a plain kind of number"),
        (b"\x80\x04\x95cos\nsystem\n", "its first bytes are others"),
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_header_is_compared_with_what_is_there(content: bytes, message: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"s.{suffix}"
    path.write_bytes(content if suffix == "npy" else npz(("samples.npy", content)))
    with pytest.raises(FileError, match=rf"s\.{suffix} cannot be read as {suffix}: .*{message}"):
        read_samples(path)


def test_an_archive_that_swells_is_stopped(tmp_path: Path) -> None:
    count = 10**6
    bomb = npz(("samples.npy", npy(f"({count},)", data=bytes(8 * count))))
    assert len(bomb) < 10**4
    assert npz_arrays(bomb, 8 * count)["samples"].shape == (count,)
    with pytest.raises(ValueError, match=r"'samples': .* takes 8000000 bytes, more than 7999999"):
        npz_arrays(bomb, 8 * count - 1)
    # each is allowed, together they are not
    pair = npz(*((f"{name}.npy", npy("(1000,)", data=bytes(8000))) for name in "ab"))
    with pytest.raises(ValueError, match=r"'b': .* takes 8000 bytes, more than 2000"):
        npz_arrays(pair, 10000)
    path = tmp_path / "many.npz"
    small = npy("(2,)", data=bytes(16))
    path.write_bytes(npz(*((f"a{k}.npy", small) for k in range(1001))))
    with pytest.raises(FileError, match="1001 members, more than 1000"):
        read_samples(path)


def test_a_member_that_says_less_than_it_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    content = npz(("samples.npy", npy("(2,)", data=bytes(16))))
    at = content.find(b"PK\x01\x02") + 24
    path.write_bytes(content[:at] + struct.pack("<I", 40) + content[at + 4 :])
    with pytest.raises(FileError, match=r"s\.npz cannot be read"):
        read_samples(path)


@pytest.mark.parametrize("name", ["../../out.npy", "/tmp/out.npy", "..\\out.npy"])
def test_names_in_an_archive_are_no_paths(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "s.npz").write_bytes(npz((name, npy("(2,)", data=bytes(16)))))
    assert read_samples(folder / "s.npz").shape == (2, 1)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["s.npz"]


def _virtual(file: Any) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "samples", shape=(4,))
    file.create_virtual_dataset("samples", layout)


def _external(file: Any) -> None:
    file.create_dataset("samples", shape=(4,), dtype="f8", external=[("other.h5", 0, 32)])


def _link(file: Any) -> None:
    file["samples"] = h5py.ExternalLink("other.h5", "/samples")


def _huge(file: Any) -> None:
    file.create_dataset("samples", shape=(10**12,), dtype="f8")


def _bomb(file: Any) -> None:
    file.create_dataset("samples", shape=(2**20, 2**10), dtype="f8", chunks=(2**12, 2**10), compression="gzip")


def _records(file: Any) -> None:
    file["samples"] = np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])


def _references(file: Any) -> None:
    file["samples"] = np.array([file.ref], dtype=h5py.ref_dtype)


HOSTILE: list[tuple[Callable[[Any], None], str]] = [
    (_virtual, "keeps its data in other files"),
    (_external, "keeps its data in other files"),
    (_huge, "takes 8000000000000 bytes, more than"),
    (_bomb, "takes 8589934592 bytes, more than"),
    (_records, "has entries of type"),
    (_references, "has entries of type object"),
]


@pytest.mark.parametrize(("make", "message"), [*HOSTILE, (_link, "holds no array")])
def test_hdf5_samples_stay_in_their_file_and_in_their_size(
    make: Callable[[Any], None], message: str, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["samples"] = np.ones(4)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        make(file)
    with pytest.raises(FileError, match=rf"s\.h5 .*{message}"):
        read_samples(tmp_path / "s.h5")


def test_hdf5_that_never_ends_or_crashes_ends_in_words(tmp_path: Path) -> None:
    """One changed byte that HDF5 2.0 crashes on, one that it never ends on; another version may refuse them itself."""
    path = tmp_path / "s.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["samples"] = rng.random((40, 2))
        file["names"] = np.array(["a", "bb"], dtype=h5py.string_dtype())
        file.attrs["x"] = "hello"
        file["g/h"] = rng.random(4)
        file["problem"] = "text" * 30
    strings = path.read_bytes()
    with h5py.File(path, "w") as file:
        file.create_dataset("samples", data=rng.random((64, 2)), chunks=(16, 2), compression="gzip")
        file.create_dataset("x", data=[b"a"])
    chunks = path.read_bytes()
    began = os.times()
    for content, at, byte in ((strings, 7913, 127), (chunks, 5421, 13)):
        path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        with pytest.raises(FileError, match=r"s\.h5 (cannot be read as h5|holds)"):
            read_samples(path)
    assert os.times().children_user - began.children_user < 2 * 4.0


def sealed(content: bytes, change: Callable[[Any], None]) -> bytes:
    """A file of ours, changed by HDF5 and sealed anew."""
    memory = io.BytesIO(content[:-SEAL])
    with h5py.File(memory, "r+") as file:
        change(file)
    body = memory.getvalue()
    return b"".join((body, MARK, sha256(body).hexdigest().encode(), b"\n"))


def replaced(name: str, value: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[name]
        if value is not None:
            file[name] = value

    return change


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    run(parse_problem(TRAINING), out, threads=1)
    return out


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("state/rho", np.ones((1, 13)), r"rho is float64 of shape \(1, 13\), not float64 of shape \(1, 12\)"),
        ("state/rho", np.ones((1, 12), dtype=int), "rho is int64"),
        ("state/rho", np.full((1, 12), np.nan), "rho is not finite"),
        ("state/rho", np.ones((1, 12)), "rho is of a mass 3 off"),
        ("state/rho", np.full((1, 12), 1e308), "rho is not finite"),
        ("state/rho", h5py.ExternalLink("other.h5", "/rho"), "is a link to another place"),
        ("state/rho", h5py.SoftLink("/state/rho"), "is a link to another place"),
        ("state/rho", None, "'state/rho' is missing"),
        ("state/step", -1, "step is -1"),
        ("state/step", 2.0, "step is 2.0"),
        ("state/s", np.nan, "s is nan"),
        ("state/s", np.zeros(2), "state/s|only length-1|can only convert"),
        ("problem", "kind = 1", "kind = 1"),
        ("problem", 7, "is no text"),
        ("record/rows", "many", "is not a whole checkpoint"),
    ],
)
def test_a_checkpoint_under_a_new_seal_has_to_fit_its_problem(
    name: str, value: Any, message: str, folder: Path, tmp_path: Path
) -> None:
    good = sorted((folder / "checkpoints").iterdir())[-1]
    path = tmp_path / good.name
    path.write_bytes(sealed(good.read_bytes(), replaced(name, value)))
    with pytest.raises(MeanFieldError, match=message) as caught:
        read_checkpoint(path)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("history/s", np.zeros(11), "out of order"),
        ("history/loss", np.zeros(9), "float64 of shape"),
        ("heads/rho", np.zeros((3, 1, 5)), "heads/rho is float64 of shape"),
        ("heads/rho", np.full((11, 1, 12), np.nan), "heads/rho is not finite"),
        ("heads/s", np.array([0.0, np.nan]), "heads/s|heads/rho"),
        ("names", np.zeros(3), "is no text"),
        ("tokens/mu", np.zeros((3, 1, 4)), "mu is float64 of shape"),
    ],
)
def test_a_result_under_a_new_seal_has_to_fit_its_problem(
    name: str, value: Any, message: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "result.h5"
    path.write_bytes(sealed((folder / "result.h5").read_bytes(), replaced(name, value)))
    with pytest.raises(FileError, match=message) as caught:
        read_result(path)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(("make", "message"), HOSTILE)
def test_a_segment_under_a_new_seal_stays_in_its_file_and_in_its_size(
    make: Callable[[Any], None], message: str, folder: Path, tmp_path: Path
) -> None:
    good = sorted((folder / "segments").iterdir())[0]

    def change(file: Any) -> None:
        make(file)
        del file["history/s"]
        file["history/s"] = file["samples"]

    path = tmp_path / good.name
    path.write_bytes(sealed(good.read_bytes(), change))
    with pytest.raises(FileError, match=message.replace("other files", "other files|more than")):
        read_segment(path)


@pytest.mark.parametrize("reader", [read_samples, read_result, read_checkpoint, load_problem])
def test_what_is_no_regular_file_is_refused_at_once(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    endless = tmp_path / "zeros.npy"
    endless.symlink_to("/dev/zero")
    loop = tmp_path / "loop.npy"
    loop.symlink_to(loop)
    (tmp_path / "folder.npy").mkdir()
    for name, message in (
        ("pipe.npy", "a pipe or a device"),
        ("zeros.npy", "a pipe or a device"),
        ("folder.npy", "a folder"),
        ("none.npy", "is missing"),
        ("loop.npy", "cannot be read: Too many levels"),
        ("x" * 300 + ".npy", "cannot be read: File name too long"),
        ("nul\0.npy", "cannot be read: embedded null"),
    ):
        with pytest.raises(FileError, match=message):
            reader(tmp_path / name)
    if reader is load_problem:
        with (tmp_path / "long.toml").open("wb") as file:
            file.truncate(2**40)
        with pytest.raises(FileError, match="1099511627776 bytes"):
            reader(tmp_path / "long.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 100000, "too many brackets within brackets"),
        ("x = " + "[" * 400 + "]" * 400, "unknown key x|too many brackets"),
        ("x = " + "{a=" * 5000 + "1" + "}" * 5000, "too many brackets within brackets"),
        (".".join("a" * 200000) + " = 1", "a key of more than 32 parts"),
        ("\n\n" + ".".join(["'a b'"] * 200000) + " = 1", "line 3 has a key of more than 32 parts"),
        ("kind = " + "9" * 5000, "not valid TOML"),
        ("kind = 0x" + "f" * 5000, "an integer of 20000 bits"),
        ("sequences = [[{ a = 0x" + "f" * 5000 + " }]]", "an integer of 20000 bits"),
        ("kind = 'a\0b'", "not valid TOML"),
        ("kind = " + '"' + "x" * 10**6 + '"', "kind = 'xxx"),
        ("\ufeffkind = 1", "kind = 1 must be a string|not valid TOML"),
    ],
)
def test_texts_made_to_break_a_parser_are_refused(text: str, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        from_toml(text, Problem, "p.toml")


@pytest.mark.parametrize("name", ["a\\u0000b.npz", "x" * 300 + "/s.npz", "\\u001b[2J.npz"])
def test_impossible_names_of_files_in_a_problem_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'kind = "tokens"\n[tokens]\nlower = [0.0]\nupper = [1.0]\ncells = [12]\n[depth]\nT = 0.0\n'
        f'[[sequences]]\ninitial = {{ law = "samples", file = "{name}" }}\n'
    )
    with pytest.raises(FileError):
        run(absolute_paths(load_problem(path)), tmp_path / "out")
    ended = subprocess.run(
        [sys.executable, "-m", "meanfield_pde", "run", str(path), "-o", str(tmp_path / "out")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "\x1b" not in ended.stderr
    assert not (tmp_path / "out").exists()
