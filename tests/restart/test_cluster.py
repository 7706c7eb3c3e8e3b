"""Work on a dask cluster: the same bits for any number of workers, and for one that is killed on the way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import LocalCluster
from threadpoolctl import threadpool_limits

from meanfield_pde import library
from meanfield_pde.cli.main import main
from meanfield_pde.equations.grid_tokens import BLOCK, GridTokens
from meanfield_pde.equations.token_shares import MOST, slices
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation
from meanfield_pde.output.ensemble import ensemble_members, resume_ensemble, run_ensemble, sweep
from meanfield_pde.output.ensemble_cluster import ClusterWorkers
from meanfield_pde.output.ensemble_job import Event, Reached
from meanfield_pde.output.file_schema import read_result
from meanfield_pde.output.run import run
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import dump_problem, load_problem, parse_problem
from meanfield_pde.training import cluster as clusters
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.cluster import ClusterHands, connected
from meanfield_pde.training.split_tokens import Here, SplitTokens

Out = pytest.CaptureFixture[str]
Write = Callable[..., Path]
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*touches the wall", "ignore:.*accurate to", "ignore:.*free energy rose"
)
MANY = """
kind = "training"
attention = "softmax"
[tokens]
lower = [-3.0]
upper = [3.0]
cells = [32]
[heads]
family = "scalar"
lower = [-2.0, -2.0]
upper = [2.0, 2.0]
cells = [10, 9]
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.1, 0.0], [0.0, 0.1]] }
[depth]
T = 0.4
layers = 3
shared = SHARED
scheme = "linear5"
SEQUENCES
[objective]
kind = "potential"
potential = { kind = "polynomial", coefficients = [0.5, -1.0, 0.5] }
[training]
beta = 0.1
weight_decay = 0.5
ds = 0.05
s_end = 0.2
[output]
snapshots = 2
checkpoint_every = 2
"""


def many(count: int, shared: bool = True, s_end: float = 0.2) -> Problem:
    """A problem of many sequences, no two alike."""
    one = "[[sequences]]\ninitial = { law = 'gaussian', mean = [%.6f], covariance = [[%.6f]] }\n"
    laws = "".join(one % (0.6 * np.sin(i), 0.2 + 0.05 * np.cos(2.0 * i)) for i in range(count))
    text = MANY.replace("SEQUENCES", laws).replace("SHARED", str(shared).lower())
    return parse_problem(text.replace("s_end = 0.2", f"s_end = {s_end}"))


def sides(problem: Problem) -> tuple[GridTokens, tuple[Measure, ...]]:
    ready = assemble(problem, 1)
    assert ready.tokens is not None
    assert ready.heads is not None
    assert ready.state is not None
    return ready.tokens, ready.heads.measure(ready.state.rho)


@pytest.fixture
def cluster() -> Iterator[Any]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as made:
        yield made


def pids(cluster: Any) -> list[int]:
    return [worker.pid for worker in cluster.workers.values()]


def close(split: FirstVariation, whole: FirstVariation) -> None:
    assert split.report == whole.report
    assert abs(split.loss - whole.loss) <= 1e-13 * abs(whole.loss)
    assert np.abs(split.potential - whole.potential).max() <= 1e-13 * np.abs(whole.potential).max()


def same(split: FirstVariation, other: FirstVariation) -> None:
    assert split.report == other.report
    assert split.loss == other.loss
    np.testing.assert_array_equal(split.potential, other.potential)


@pytest.mark.parametrize("count", [1, 8, 31, 32, 33, 256, 257, 1000, 4001])
def test_shares_are_whole_blocks_in_order_and_few(count: int) -> None:
    parts = slices(count)
    assert len(parts) <= MOST
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    assert all((part.stop - part.start) % BLOCK == 0 for part in parts[:-1])


@pytest.mark.parametrize("shared", [True, False])
def test_shares_add_up_to_the_whole(shared: bool) -> None:
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, rho = sides(many(70, shared))
        split, whole = SplitTokens(tokens, Here()), tokens.first_variation(rho)
        assert len(split.sides) == 3
        close(split.first_variation(rho), whole)
        assert abs(split.loss(rho) - whole.loss) <= 1e-13 * abs(whole.loss)
        few, rho = sides(many(9, shared))
        # one share is the whole, bit for bit
        same(SplitTokens(few, Here()).first_variation(rho), few.first_variation(rho))


def test_sequences_with_queries_are_split_with_them() -> None:
    wide = "heads.initial.covariance=[[0.09, 0.0], [0.0, 0.09]]"
    small = ["depth.T=0.3", "tokens.cells=[16, 12]", "heads.cells=[12, 12]", wide]
    problem = parse_problem(dump_problem(library.get("in_context_regression")[0]), overrides=small)
    copies = tuple(problem.sequences[i % 2] for i in range(34))
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, rho = sides(replace(problem, sequences=copies, reference=None))
        assert tokens.queries is not None
        split = SplitTokens(tokens, Here())
        assert len(split.sides) == 2
        close(split.first_variation(rho), tokens.first_variation(rho))


@pytest.mark.parametrize(("tolerance", "larger"), [(1e-6, 1), (2e-8, 2)])
def test_all_shares_take_the_table_that_one_of_them_needs(tolerance: float, larger: int) -> None:
    problem = many(70)
    assert problem.depth is not None
    assert problem.heads is not None
    problem = replace(problem, depth=replace(problem.depth, T=2.0))
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, rho = sides(parse_problem(dump_problem(problem), overrides=["heads.initial.mean=[0.4, 0.3]"]))
        tokens = replace(tokens, tolerance=tolerance)
        rho = tuple(Measure(tokens.head_points, law.weights, law.widths) for law in rho)
        whole, split = tokens.first_variation(rho), SplitTokens(tokens, Here())
        first = tokens.first_size(rho, tokens.mu0)[1]
        sizes = tokens.tables.sizes
        assert whole.report.table_size == sizes[sizes.index(first) + larger]
        if larger == 1:
            # the last share alone would do with the first table
            assert split.sides[2].first_variation(rho).report.table_size == first
        close(split.first_variation(rho), whole)


def test_one_two_and_four_workers_give_the_same_bits_and_so_does_a_death() -> None:
    with threadpool_limits(limits=1, user_api="blas"):
        tokens, rho = sides(many(140))
        here = SplitTokens(tokens, Here()).first_variation(rho)
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
            connected(cluster.scheduler_address) as client,
        ):
            split = SplitTokens(tokens, ClusterHands(client))
            assert len(split.sides) == 5
            for workers in (1, 2, 4):
                cluster.scale(workers)
                client.wait_for_workers(workers, timeout=60)
                same(split.first_variation(rho), here)
            assert split.loss(rho) == here.loss
            for pid in pids(cluster)[:2]:
                os.kill(pid, signal.SIGKILL)
            same(split.first_variation(rho), here)


def test_a_run_whose_worker_is_killed_has_the_bits_of_one_undisturbed(cluster: Any, tmp_path: Path) -> None:
    problem = many(70, s_end=0.6)
    whole = run(problem, tmp_path / "here", threads=1, split=lambda tokens: SplitTokens(tokens, Here()))
    (tmp_path / "many.toml").write_text(dump_problem(problem), encoding="utf-8")
    out, killed = tmp_path / "out", list[int]()

    def kill() -> None:
        while not list(out.glob("checkpoints/step-*.h5")):
            time.sleep(0.001)
        killed.extend(pids(cluster)[:1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    scheduler = ["-q", "--scheduler", cluster.scheduler_address]
    assert main(["run", str(tmp_path / "many.toml"), "-o", str(out), *scheduler]) == 0
    killer.join()
    assert killed
    assert killed[0] not in pids(cluster)
    same_solution(read_result(out / "result.h5"), whole)
    # without a scheduler the sum over sequences is rounded otherwise, and nothing else
    alone = run(problem, tmp_path / "alone", threads=1)
    assert np.abs(whole.rho - alone.rho).max() <= 1e-12 * np.abs(alone.rho).max()


def same_solution(a: Solution, b: Solution) -> None:
    assert set(a.history) == set(b.history)
    for name, series in a.history.items():
        np.testing.assert_array_equal(series, b.history[name], err_msg=name)
    for name in ("snapshot_s", "snapshots", "mu", "p", "rho"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_an_ensemble_on_a_cluster_survives_the_death_of_a_worker(cluster: Any, write: Write, tmp_path: Path) -> None:
    members = sweep(load_problem(write()), {"training.s_end": [0.7, 0.2, 0.8]})
    out, killed = tmp_path / "out", list[int]()

    def hear(names: tuple[str, ...], event: Event) -> None:
        if isinstance(event, Reached) and event.step >= 2 and not killed:
            killed.extend(pids(cluster)[:1])
            os.kill(killed[0], signal.SIGKILL)

    with connected(cluster.scheduler_address) as client:
        found = run_ensemble(members, out, others=ClusterWorkers(client), hear=hear)
    assert killed
    assert [member.outcome for member in found] == ["finished"] * 3
    for member in members:
        whole = run(member.problem, tmp_path / "whole" / member.name, threads=1)
        same_solution(read_result(out / member.name / "result.h5"), whole)


def test_an_interrupted_ensemble_on_a_cluster_saves_and_goes_on_without_it(
    cluster: Any, write: Write, tmp_path: Path, capsys: Out
) -> None:
    path = write(("s_end = 0.2", "s_end = 1e5"), ("checkpoint_every = 2", "checkpoint_every = 1000000"))
    out = tmp_path / "out"

    def hear(names: tuple[str, ...], event: Event) -> None:
        if isinstance(event, Reached) and event.step >= 3:
            raise KeyboardInterrupt

    members = sweep(load_problem(path), {"training.beta": [0.05, 0.1, 0.2]})
    with connected(cluster.scheduler_address) as client, pytest.raises(KeyboardInterrupt):
        run_ensemble(members, out, others=ClusterWorkers(client), hear=hear)
    stood = ensemble_members(out)
    assert "interrupted" in [member.outcome for member in stood]
    assert not [member for member in stood if member.is_done]
    end = max(member.s or 0.0 for member in stood) + 0.1
    found = resume_ensemble(out, [f"training.s_end={end}"], workers=1)
    assert [(member.outcome, member.s) for member in found] == [("finished", end)] * 3
    # and the command says the same
    assert main(["resume", str(out), "-q", "--scheduler", cluster.scheduler_address]) == 0
    assert "no member was missing" in capsys.readouterr().err


def test_what_a_cluster_cannot_do_is_refused_with_a_remedy(
    write: Write, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "ANSWER", 0.3)
    arguments = ["run", str(write()), "-o", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:9"]
    assert main(arguments) == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
    assert main([*arguments, "--sweep", "training.beta=0.1,0.2", "--workers", "2"]) == 2
    assert "--workers has no meaning with --scheduler" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(MeanFieldError, match="kind = 'fokker-planck' trains by no sequences"):
        solve(library.get("slab")[0], split=lambda tokens: SplitTokens(tokens, Here()))
    tokens, _ = sides(many(3))
    with pytest.raises(MeanFieldError, match="give laws on its head_points"):
        SplitTokens(tokens, Here()).loss((Measure.particles(np.zeros((1, 2))),))
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=50) as cluster,
        connected(cluster.scheduler_address) as client,
        pytest.raises(MeanFieldError, match="start workers with --nthreads 1"),
    ):
        ClusterHands(client).gather([ClusterHands(client).submit(abs, -1)])
