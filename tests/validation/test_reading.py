"""Trajectories of particle codes from files of every kind, and the refusal of what cannot be one."""

from __future__ import annotations

import io
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import xarray
from pyarrow import parquet

from meanfield_pde.config import from_toml
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.laws import Gaussian, VonMises
from meanfield_pde.problem import Depth, Heads, Problem, Sequence, Tokens
from meanfield_pde.problem_file import parse_problem
from meanfield_pde.validation.reading import from_arrays, from_dataset, read_trajectory
from meanfield_pde.validation.trajectory import ArrayNames, Trajectory, read_names

TIMES = np.array([0.0, 0.5, 1.0])
TOKENS = np.random.default_rng(0).normal(size=(3, 12, 2))
RUNS = np.random.default_rng(1).normal(size=(4, 3, 12, 2))
HEADS = Heads("scalar", points=((-0.6, 1.0),))


def plane_problem(half: float = 6.0) -> Problem:
    tokens = Tokens((-half, -half), (half, half), (24, 24))
    initial = Sequence(Gaussian((0.0, 0.0), ((0.3, 0.0), (0.0, 0.3))))
    return Problem("tokens", attention="softmax", tokens=tokens, heads=HEADS, depth=Depth(1.0, 2), sequences=(initial,))


def ring_problem() -> Problem:
    tokens = Tokens((-np.pi,), (np.pi,), (32,), (True,))
    return Problem(
        "tokens",
        attention="softmax",
        tokens=tokens,
        heads=HEADS,
        depth=Depth(3.0, 2),
        sequences=(Sequence(VonMises(0.0, 1.0)),),
    )


def save(path: Path, arrays: dict[str, Any]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return path


def long_table(points: np.ndarray, shuffled: bool = True) -> dict[str, np.ndarray]:
    """One particle of one run at one time a line, in no order."""
    runs, snapshots, count, dim = points.shape
    index = np.stack([k.ravel() for k in np.indices(points.shape[:3])])
    columns = {"run": index[0] + 1.0, "t": TIMES[index[1]], "particle": index[2].astype(float)}
    columns |= {f"x{axis + 1}": points[..., axis].ravel() for axis in range(dim)}
    order = np.random.default_rng(2).permutation(runs * snapshots * count) if shuffled else slice(None)
    return {name: column[order] for name, column in columns.items()}


def write_csv(path: Path, columns: dict[str, np.ndarray]) -> Path:
    rows = "\n".join(",".join(repr(float(v)) for v in row) for row in zip(*columns.values(), strict=True))
    path.write_text(",".join(columns) + "\n" + rows + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_tokens_with_all_that_may_be_beside_them(tmp_path: Path, suffix: str) -> None:
    matrices = np.random.default_rng(3).normal(size=(2, 5, 2, 2))
    weights = np.arange(1.0, 13.0)
    arrays = {"tokens": TOKENS, "t": TIMES, "A": matrices[0], "W": matrices[1], "weights": weights, "note": np.ones(2)}
    read = read_trajectory(save(tmp_path / f"run{suffix}", arrays), plane_problem())
    assert (read.kind, read.runs, read.count, read.dim) == ("tokens", 1, 12, 2)
    np.testing.assert_array_equal(read.points[0], TOKENS)
    np.testing.assert_array_equal(read.times, TIMES)
    np.testing.assert_allclose(read.weights, weights[None] / 78, rtol=1e-15)
    np.testing.assert_array_equal(read.A, matrices[0])
    np.testing.assert_array_equal(read.W, matrices[1])
    np.testing.assert_array_equal(read.at(0.6)[0], TOKENS[1])
    assert read.loss is read.loss_times is None


def test_several_runs_angles_heads_and_loss(tmp_path: Path) -> None:
    read = read_trajectory(save(tmp_path / "runs.npz", {"tokens": RUNS, "t": TIMES}), plane_problem())
    np.testing.assert_array_equal(read.points, RUNS)
    assert read.weights.shape == (4, 12)
    angles = np.random.default_rng(4).uniform(-np.pi, np.pi, (3, 15))
    read = read_trajectory(save(tmp_path / "angles.npz", {"angles": angles, "t": TIMES, "beta": 4.0}), ring_problem())
    np.testing.assert_array_equal(read.points, angles[None, :, :, None])
    more = save(tmp_path / "more.npz", {"angles": np.stack([angles] * 5), "t": TIMES})
    several = read_trajectory(more, ring_problem())
    assert several.points.shape == (5, 3, 15, 1)
    line = from_arrays({"tokens": angles, "t": TIMES})
    assert (line.points.shape, line.kind) == ((1, 3, 15, 1), "tokens")
    heads = {"heads": TOKENS, "s": np.linspace(0, 1, 9), "loss": np.ones(9)}
    with pytest.raises(FileError, match=r"\[s\] has shape \(9,\), but there are 3 snapshots.*times = \["):
        from_arrays(heads)
    read = from_arrays(heads, names=ArrayNames(times=(0.0, 0.5, 1.0), columns=(1, 0)))
    np.testing.assert_array_equal(read.points[0], TOKENS[..., ::-1])
    np.testing.assert_array_equal(read.loss_times, heads["s"])


def test_names_and_axes_of_a_toml_file(tmp_path: Path) -> None:
    (tmp_path / "names.toml").write_text(
        'kind = "tokens"\npoints = "state"\ntimes = [0, 0.5, 1]\nA = "keys"\nW = "values"\n'
        'axes = ["particles", "runs", "dimension", "snapshots"]\n',
        encoding="utf-8",
    )
    eyes = np.stack([np.eye(2)] * 3)
    arrays = {"state": RUNS.transpose(2, 0, 3, 1), "keys": eyes, "values": 2 * eyes, "tokens": np.zeros(3)}
    read = read_trajectory(save(tmp_path / "other.npz", arrays), plane_problem(), tmp_path / "names.toml")
    np.testing.assert_array_equal(read.points, RUNS)
    np.testing.assert_array_equal(read.W, 2 * eyes)
    (tmp_path / "names.toml").write_text('point = "state"\n', encoding="utf-8")
    with pytest.raises(MeanFieldError, match=r"names.toml: unknown key point; did you mean 'points'"):
        read_names(tmp_path / "names.toml")


def test_the_page_on_trajectories_shows_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trajectories.md").read_text(encoding="utf-8")
    text = page.split("```toml\n")[1].split("```")[0]
    shown = from_toml(text, ArrayNames)
    assert set(tomllib.loads(text)) == {field.name for field in fields(ArrayNames)}
    assert (shown.times, shown.axes[0], shown.columns) == ((0.0, 5.0, 10.0, 15.0, 20.0), "particles", (1, 0))


def test_one_array_in_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", TOKENS)
    read = read_trajectory(tmp_path / "tokens.npy", plane_problem(), ArrayNames(times=(0.0, 0.5, 1.0)))
    np.testing.assert_array_equal(read.points[0], TOKENS)
    np.save(tmp_path / "angles.npy", TOKENS[..., 0])
    read = read_trajectory(tmp_path / "angles.npy", ring_problem(), ArrayNames("angles", times=(0.0, 0.5, 1.0)))
    assert read.kind == "angles"
    with pytest.raises(FileError, match="no times: name them t, or give times"):
        read_trajectory(tmp_path / "tokens.npy")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_long_tables_in_any_order_of_lines(tmp_path: Path, suffix: str) -> None:
    columns = long_table(RUNS) | {}
    weights = np.random.default_rng(5).uniform(0.5, 1, (4, 12))
    runs, particles = (columns[name].astype(int) for name in ("run", "particle"))
    columns["weights"] = weights[runs - 1, particles]
    path = tmp_path / f"table{suffix}"
    if suffix == ".csv":
        write_csv(path, columns)
    else:
        parquet.write_table(pa.table(columns), path)
    read = read_trajectory(path, plane_problem())
    np.testing.assert_array_equal(read.points, RUNS)
    np.testing.assert_array_equal(read.times, TIMES)
    np.testing.assert_allclose(read.weights, weights / weights.sum(axis=1, keepdims=True), rtol=1e-14)
    renamed = {"z" if name == "x2" else name: column for name, column in columns.items()}
    write_csv(tmp_path / "renamed.csv", renamed)
    read = read_trajectory(tmp_path / "renamed.csv", names=ArrayNames(points=("z", "x1")))
    np.testing.assert_array_equal(read.points, RUNS[..., ::-1])


def test_a_table_without_particles_or_runs_goes_by_its_lines(tmp_path: Path) -> None:
    columns = long_table(RUNS[:1, ..., :1], shuffled=False)
    read = read_trajectory(write_csv(tmp_path / "a.csv", {"time": columns["t"], "phi": columns["x1"]}), ring_problem())
    np.testing.assert_array_equal(read.points, RUNS[:1, ..., :1])
    assert read.kind == "angles"
    degrees = {"time": columns["t"], "phi": np.rad2deg(columns["x1"])}
    read = read_trajectory(write_csv(tmp_path / "b.csv", degrees), ring_problem(), ArrayNames(degrees=True))
    np.testing.assert_allclose(read.points, RUNS[:1, ..., :1], rtol=1e-15)


def test_datasets_go_by_the_names_of_their_dimensions() -> None:
    dataset = xarray.Dataset(
        {"x": (("particle", "time", "dim", "run"), RUNS.transpose(2, 1, 3, 0)), "loss": ("k", np.ones(4))},
        coords={"time": TIMES},
    )
    read = from_dataset(dataset, plane_problem())
    np.testing.assert_array_equal(read.points, RUNS)
    np.testing.assert_array_equal(read.times, TIMES)
    plain = xarray.Dataset({"tokens": (("a", "b", "c"), TOKENS), "t": ("a", TIMES)})
    np.testing.assert_array_equal(from_dataset(plain).points[0], TOKENS)


def changed(**arrays: Any) -> dict[str, Any]:
    return {key: value for key, value in ({"tokens": TOKENS, "t": TIMES} | arrays).items() if value is not None}


def with_value(value: float, index: tuple[int, ...] = (1, 7, 1)) -> np.ndarray:
    out = TOKENS.copy()
    out[index] = value
    return out


FAULTS = {
    "too few times": (changed(t=TIMES[:2]), r"\[t\] has shape \(2,\), but there are 3 snapshots: give one"),
    "times fall": (changed(t=[0.0, 1.0, 0.5]), r"\[t\] must increase, but entry 2 .* is 0.5 after 1"),
    "times twice": (changed(t=[0.0, 0.5, 0.5]), "must increase"),
    "negative times": (changed(t=[-1.0, 0.5, 1.0]), r"begins at -1: times count from 0"),
    "times too late": (changed(t=[0.0, 1.0, 3.0]), r"\[times\] go on to 3, but depth.T = 1"),
    "no times": (changed(t=None), "no times"),
    "times in a table": (changed(t=np.zeros((3, 1))), "times are a list of numbers"),
    "other dimension": (changed(tokens=TOKENS[..., :1]), r"dimension 1, but the tokens of the problem have 2"),
    "nan": (
        changed(tokens=with_value(np.nan)),
        r"\[tokens\] has 1 entries.*nan\) at run 0, snapshot 1, particle 7, column 1",
    ),
    "three particles": (changed(tokens=TOKENS[:, :3]), "3 particles in a run; at least 10 are needed"),
    "outside": (
        changed(tokens=with_value(7.5)),
        r"1 of 36 points outside the box \[-6, 6\] x \[-6, 6\], by up to 1.5; .* at run 0, snapshot 1, particle 7",
    ),
    "negative weights": (
        changed(weights=np.r_[-0.5, np.ones(11)]),
        r"1 negative entries, the first \(-0.5\) at particle 0",
    ),
    "weights of others": (changed(weights=np.ones(5)), r"\[weights\] has shape \(5,\): give \(12,\)"),
    "no weight at all": (changed(weights=np.zeros(12)), "all 0"),
    "text": (changed(tokens=TOKENS.astype(str)), "entries of type .*: real numbers are needed"),
    "complex": (changed(tokens=TOKENS + 0j), "entries of type complex128"),
    "one axis": (changed(tokens=TOKENS.ravel()), r"has shape \(72,\): tokens are \(snapshots, N, d\)"),
    "nothing": (changed(tokens=np.zeros((3, 0, 2))), "nothing is in it"),
    "two kinds": (changed(heads=TOKENS), r'say which are the points \(kind = "tokens"'),
    "no points": (changed(tokens=None), "has the arrays t: call the points tokens, angles or heads"),
    "A alone": (changed(A=np.zeros((3, 2, 2))), r"A \(3, 2, 2\) and W None: give both"),
    "A and W differ": (changed(A=np.zeros((3, 2, 2)), W=np.zeros((4, 2, 2))), "one matrix a head"),
    "A of another dimension": (changed(A=np.zeros((3, 1, 1)), W=np.zeros((3, 1, 1))), r"\[A\] has matrices \(1, 1\)"),
    "A is not square": (changed(A=np.zeros((3, 2, 1)), W=np.zeros((3, 2, 1))), r"\(heads, d, d\)"),
    "A has nan": (changed(A=np.full((3, 2, 2), np.nan), W=np.zeros((3, 2, 2))), "head 0, row 0, column 0"),
    "loss of other times": (changed(loss=np.ones(4), loss_times=np.arange(5.0)), "_times.*4 values of the loss"),
    "angles in the plane": (changed(tokens=None, angles=TOKENS[..., 0]), "not on one ring"),
    "heads of fixed points": (changed(tokens=None, heads=TOKENS), "finitely many points"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_its_file(tmp_path: Path, fault: str) -> None:
    arrays, words = FAULTS[fault]
    path = save(tmp_path / "foreign.npz", arrays)
    with pytest.raises(FileError, match=words) as caught:
        read_trajectory(path, plane_problem())
    assert str(path) in str(caught.value)


def test_a_wider_box_or_the_rounding_of_a_wall_is_no_fault() -> None:
    assert from_arrays(changed(tokens=with_value(7.5)), problem=plane_problem(8.0)).count == 12
    assert from_arrays(changed(tokens=with_value(6.0 + 1e-10)), problem=plane_problem()).count == 12


def test_angles_in_degrees_are_noticed() -> None:
    angles = np.random.default_rng(6).uniform(-180, 180, (3, 15))
    with pytest.raises(FileError, match=r"\d+ of 45 angles beyond 2π, up to 1\d\d.*say degrees = true"):
        from_arrays({"angles": angles, "t": TIMES}, problem=ring_problem())
    read = from_arrays({"angles": angles, "t": TIMES}, problem=ring_problem(), names=ArrayNames(degrees=True))
    np.testing.assert_allclose(read.points[0, ..., 0], np.deg2rad(angles))
    names = ArrayNames(axes=("snapshots", "runs", "particles", "dimension"))
    with pytest.raises(FileError, match="an angle is one"):
        from_arrays({"angles": RUNS[0, :, None], "t": TIMES}, names=names)
    with pytest.raises(FileError, match=r"on the circle give angles, arctan2"):
        from_arrays(changed(), problem=ring_problem())


def test_heads_are_compared_with_the_box_and_the_times_of_training() -> None:
    toml = """
        kind = "training"
        attention = "softmax"
        tokens = { lower = [-6.0], upper = [6.0], cells = [20] }
        depth = { layers = 2 }
        sequences = [{ initial = { law = "gaussian", mean = [0.5], covariance = [[0.4]] } }]
        objective = { kind = "potential", potential = { kind = "polynomial", coefficients = [0.5, -1.0, 0.5] } }
        training = { beta = 0.05, ds = 0.05, s_end = 0.2 }
        [heads]
        family = "scalar"
        lower = [-3.0, -3.0]
        upper = [3.0, 3.0]
        cells = [12, 12]
        initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.06, 0.0], [0.0, 0.06]] }
    """
    problem = parse_problem("\n".join(line.strip() for line in toml.splitlines()))
    heads = {"heads": 0.3 * TOKENS, "s": 0.2 * TIMES}
    assert from_arrays(heads, problem=problem).kind == "heads"
    with pytest.raises(FileError, match=r"go on to 1, but training.s_end = 0.2"):
        from_arrays(heads | {"s": TIMES}, problem=problem)
    with pytest.raises(FileError, match=r"outside the box \[-3, 3\] x \[-3, 3\].*widen heads.lower"):
        from_arrays(heads | {"heads": 10 * TOKENS}, problem=problem)
    fixed = replace(problem, kind="tokens", training=None, objective=None, heads=HEADS)
    with pytest.raises(FileError, match="finitely many points"):
        from_arrays(heads, problem=fixed)


def test_names_that_do_not_fit_are_refused() -> None:
    for names, words in (
        (ArrayNames(points="token"), r"no array 'token' for points; did you mean 'tokens'"),
        (ArrayNames(kind="token"), "kind = 'token' is not known; did you mean 'tokens'"),
        (ArrayNames(times="T"), "no array 'T' for times"),
        (ArrayNames(weights="mass"), "no array 'mass' for weights"),
        (ArrayNames(A="keys"), "no array 'keys' for A"),
        (ArrayNames(columns=(0, 0)), r"columns = \[0, 0\] must be an order of 0 … 1"),
        (ArrayNames(axes=("snapshots", "particles")), "name every axis"),
        (ArrayNames(axes=("snapshots", "particles", "particles")), "must be different ones of runs, snapshots"),
    ):
        with pytest.raises(FileError, match=words):
            from_arrays(changed(), names=names)


def csv_text(text: str, path: Path) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.0,1.0\n0.5,2.0\n", "a line of different names is needed first"),
        ("t,x,x\n", "a line of different names"),
        ("t,x\n", "no data"),
        ("t,x\n0.0\n", "1 entries in line 1 of the data, but 2 names"),
        ("t,x\n0.0,hello\n", "'hello' in column x, line 1 of the data: a number is needed"),
        ("x,y\n0.0,1.0\n", "no time: name that column t"),
        ("t,y\n0.0,1.0\n", r"name those of the points x1, x2"),
        ("t,x\nnan,1.0\n", "nan in column t, line 1"),
        ("t,x\n0,1\n0,2\n1,3\n", "has 2 at t = 0, run 1, but 1 at t = 1, run 1 particles"),
        ("t,particle,x\n0,1,1\n1,2,3\n", "other particles in column particle"),
        ("t,weights,x\n0,1,1\n1,2,3\n", "a particle keeps its weight"),
    ],
)
def test_tables_with_faults(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FileError, match=words) as caught:
        read_trajectory(csv_text(text, tmp_path / "foreign.csv"))
    assert str(tmp_path / "foreign.csv") in str(caught.value)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (ArrayNames(times=(0.0, 1.0)), "is a table: times are a column"),
        (ArrayNames(A="keys"), "it has no axes, A, W or loss"),
        (ArrayNames(run="seed"), "no column 'seed' for runs"),
        (ArrayNames(points=("x", "z")), "no column 'z' for points"),
    ],
)
def test_names_that_a_table_does_not_have(tmp_path: Path, names: ArrayNames, words: str) -> None:
    path = csv_text("t,x\n\n0,1\n\n1,2\n", tmp_path / "foreign.csv")
    with pytest.raises(FileError, match=words):
        read_trajectory(path, names=names)


def test_parquet_holds_numbers_and_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "foreign.parquet"
    parquet.write_table(pa.table({"t": [0.0, 1.0], "x": ["a", "b"]}), path)
    with pytest.raises(FileError, match="column 'x' has entries of type string"):
        read_trajectory(path)
    parquet.write_table(pa.table({"t": [0.0] * 12, "x": [None, *[1.0] * 11]}), path)
    with pytest.raises(FileError, match="not finite"):
        read_trajectory(path)
    parquet.write_table(pa.table({"t": [], "x": []}).cast(pa.schema([("t", pa.float64()), ("x", pa.float64())])), path)
    with pytest.raises(FileError, match="no lines"):
        read_trajectory(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileError, match="cannot be read as parquet"):
        read_trajectory(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FileError, match=r'needs pyarrow.*meanfield-pde\[validate\]", or save it as .npz'):
        read_trajectory(path)


def test_a_parquet_file_that_unfolds_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    zeros = pa.chunked_array([pa.array(np.zeros(2**20, dtype=np.int8))] * 96)
    parquet.write_table(pa.table({"t": zeros, "x": zeros}), path)
    assert path.stat().st_size < 2**20
    with pytest.raises(FileError, match=r"100663296 lines of 2 columns are more than 1073741824 bytes"):
        read_trajectory(path)


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_mutated_files_load_or_are_refused_by_name(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(7)
    path = tmp_path / f"foreign{suffix}"
    if suffix == ".csv":
        write_csv(path, long_table(TOKENS[None]))
    else:
        save(path, {"tokens": TOKENS, "t": TIMES, "weights": np.ones(12)})
    whole, loaded = path.read_bytes(), 0
    refusals: list[str] = []
    for _ in range(300):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), rng.integers(1, 5)):
            content[at : at + rng.integers(0, 3)] = rng.bytes(rng.integers(0, 3))
        path.write_bytes(content)
        try:
            read = read_trajectory(path, plane_problem())
        except MeanFieldError as error:
            refusals.append(str(error))
        else:
            loaded += 1
            assert np.isfinite(read.points).all()
    assert loaded + len(refusals) == 300
    assert len(refusals) > 30
    assert all(str(path) in message for message in refusals)


def test_what_is_in_a_file_is_never_run(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"'.pkl' files are not read"):
        read_trajectory(tmp_path / "run.pkl")
    with pytest.raises(FileError, match="missing"):
        read_trajectory(tmp_path / "run.npz")
    buffer = io.BytesIO()
    np.savez(buffer, tokens=np.array([{"a": 1}], dtype=object), t=TIMES)
    (tmp_path / "run.npz").write_bytes(buffer.getvalue())
    with pytest.raises(FileError, match="Python objects"):
        read_trajectory(tmp_path / "run.npz")


def test_a_trajectory_says_how_many_runs_it_is() -> None:
    one = Trajectory("tokens", TIMES, RUNS, np.full((4, 12), 1 / 12))
    assert (one.runs, one.count, one.dim, one.at(5.0).shape) == (4, 12, 2, (4, 12, 2))
