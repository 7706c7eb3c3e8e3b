"""Splittings as data: the order that follows from a table, what is refused, composition, a user's own flow."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from meanfield_pde import library, solve
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.equations.user_flow import user_step
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian
from meanfield_pde.problem import Heads, Output, Potential, Problem, Training
from meanfield_pde.problem_file import dump_problem, parse_problem
from meanfield_pde.splitting import HEADS, TOKENS, Splitting, compose, head_splitting, token_splitting

LIE_3 = (("a", 1.0), ("b", 1.0), ("c", 1.0))
STRANG_3 = (("a", 0.5), ("b", 0.5), ("c", 1.0), ("b", 0.5), ("a", 0.5))
# a quarter of a is early, three are late, and b waits for the quarter and for half of the rest: not symmetric
SKEW = (("a", 0.25), ("b", 0.5), ("a", 0.5), ("b", 0.5), ("a", 0.25))
UNEVEN = (("a", 0.2), ("b", 0.625), ("a", 0.8), ("b", 0.375))
TILTED = (("a", 0.25), ("b", 2 / 3), ("a", 0.75), ("b", 1 / 3))
OWN = {
    "lie of three": (LIE_3, 1),
    "strang of three": (STRANG_3, 2),
    "strang twice": (SKEW, 2),
    "not symmetric": (UNEVEN, 2),
    "tilted": (TILTED, 2),
    "nearly": ((("a", 0.2), ("b", 0.6), ("a", 0.8), ("b", 0.4)), 1),
    # a and b, b and c are of order 2, a and c are not
    "one pair short": ((("b", 0.5), ("a", 1.0), ("c", 1.0), ("b", 0.5)), 1),
}  # fmt: skip
NAMED = {f"{kind} {name}": t.stages for kind, d in (("heads", HEADS), ("tokens", TOKENS)) for name, t in d.items()}
EVERY = {**NAMED, **{name: table for name, (table, _) in OWN.items()}}


@pytest.mark.parametrize("table", EVERY.values(), ids=EVERY.keys())
def test_the_order_of_a_table_is_that_measured_on_matrices(table: Any) -> None:
    rng = np.random.default_rng(1)
    splitting = Splitting(table)
    matrices = {name: rng.normal(size=(5, 5)) for name in splitting.flows}
    flows = {name: (lambda u, t, m=m: expm(t * m) @ u) for name, m in matrices.items()}
    u = rng.normal(size=5)
    exact = expm(0.5 * sum(matrices.values())) @ u
    errors = []
    for steps in (40, 80, 160):
        v = u
        for _ in range(steps):
            v = compose(splitting.stages, flows, v, 0.5 / steps)
        errors.append(np.abs(v - exact).max())
    if len(splitting.flows) == 1:
        assert splitting.order == 2
        assert max(errors) <= 1e-12
        return
    assert np.log2(errors[1] / errors[2]) == pytest.approx(splitting.order, abs=0.1)


@pytest.mark.parametrize("name", OWN)
def test_the_derived_order_is_that_of_the_double_sums(name: str) -> None:
    table, order = OWN[name]
    assert Splitting(table).order == order
    # the weights of the commutators in exact fractions, pair by pair of stages
    shares = [(flow, Fraction(share).limit_denominator(1000)) for flow, share in table]
    weight: dict[tuple[str, str], Fraction] = {}
    for (a, x), (b, y) in combinations(shares, 2):
        weight[a, b] = weight.get((a, b), Fraction(0)) + x * y
    even = all(w == Fraction(1, 2) for (a, b), w in weight.items() if a != b)
    assert (2 if even else 1) == order


def test_named_splittings_have_their_orders() -> None:
    assert {name: table.order for name, table in HEADS.items()} == {"gibbs": 2, "lie": 1, "strang": 2}
    assert {name: table.order for name, table in TOKENS.items()} == {"strang": 2, "lie": 1}


@pytest.mark.parametrize("table", EVERY.values(), ids=EVERY.keys())
def test_each_flow_takes_the_whole_time_and_decays_by_it(table: Any) -> None:
    splitting, T = Splitting(table), 0.7
    for active in splitting.flows:
        times: dict[str, list[float]] = {name: [] for name in splitting.flows}

        def flow(u: float, t: float, name: str, on: str = active, seen: Any = times) -> float:
            seen[name].append(t)
            return u * np.exp(-t) if name == on else u

        flows = {n: (lambda u, t, n=n, f=flow: f(u, t, n)) for n in splitting.flows}
        u = compose(splitting.stages, flows, 1.0, T)
        assert u == pytest.approx(np.exp(-T), rel=1e-15)
        for taken in times.values():
            assert sum(taken) == pytest.approx(T, rel=1e-15)
            if len(taken) <= 2:
                assert sum(taken) == T


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("stang", r"training\.splitting = 'stang' is not known; did you mean 'strang'"),
        (3, r"must be a name \(gibbs, lie, strang\) or a table of \(flow, fraction\)"),
        ((), "must be a name"),
        ((("drift", 1.0, 2.0),), r"training\.splitting\[0\] = \('drift', 1\.0, 2\.0\) must be \(flow, fraction\)"),
        ((("drift", "1"),), "the fraction must be a number"),
        ((("drift", True),), "the fraction must be a number"),
        ((("drfit", 1.0), ("diffusion", 1.0)), r"\[0\] uses a flow 'drfit' that is not known; did you mean 'drift'"),
        ((("drift", -0.5), ("diffusion", 1.0), ("drift", 1.5)), "fraction -0.5: .* does not run backward"),
        ((("drift", 0.0), ("diffusion", 1.0), ("drift", 1.0)), "fractions must be finite and > 0"),
        ((("drift", np.nan), ("diffusion", 1.0)), "finite"),
        ((("drift", 0.5), ("diffusion", 1.0), ("drift", 0.4)), "fractions of flow 'drift' sum to 0.9: .* sum to 1"),
        ((("drift", 1.0),), r"leaves out 'diffusion': use both 'drift' and 'diffusion', or 'gibbs' alone"),
        ((("gibbs", 0.5), ("drift", 1.0), ("gibbs", 0.5)), "'gibbs' along with 'drift': .* count twice"),
        ((("gibbs", 1.0), ("user", 1.0)), r"uses the flow 'user' and there is none: give training\.flow"),
        ((("gibbs", 0.01),) * 101, "101 stages: at most 100"),
    ],
)
def test_tables_that_make_no_sense_are_refused(table: Any, message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        head_splitting(table)


def test_token_tables_need_both_flows_and_no_other() -> None:
    assert token_splitting((("transport", 0.5), ("noise", 1.0), ("transport", 0.5))).order == 2
    for table, message in (
        ((("transport", 1.0),), r"depth\.splitting leaves out 'noise'"),
        ((("noise", 1.0), ("transprot", 1.0)), "did you mean 'transport'"),
        ("strong", r"depth\.splitting = 'strong' is not known; did you mean 'strang'"),
    ):
        with pytest.raises(MeanFieldError, match=message):
            token_splitting(table)


# ---- in a problem --------------------------------------------------------------------------------------------------


TABLE = (("diffusion", 0.5), ("drift", 1.0), ("diffusion", 0.5))


def in_a_well(**training: Any) -> Problem:
    keys: dict[str, Any] = {"beta": 0.3, "ds": 0.05, "s_end": 0.4, **training}
    return Problem(
        kind="fokker-planck",
        heads=Heads(lower=(-4.0,), upper=(4.0,), cells=(48,), initial=Gaussian((0.4,), ((0.3,),))),
        potential=Potential(((0.0, 0.0, 0.5),)),
        training=Training(**keys),
        output=Output(snapshots=2),
    )


def test_a_table_is_written_read_and_overridden_in_toml() -> None:
    problem = in_a_well(splitting=TABLE)
    text = dump_problem(problem)
    assert '["diffusion", 0.5]' in text
    assert parse_problem(text) == problem
    over = parse_problem(dump_problem(in_a_well()), overrides=['training.splitting=[["drift",1],["diffusion",1]]'])
    assert over.training is not None
    assert over.training.splitting == (("drift", 1.0), ("diffusion", 1.0))
    with pytest.raises(MeanFieldError, match="did you mean 'diffusion'"):
        parse_problem(text.replace('["diffusion", 0.5]', '["difusion", 0.5]'))
    with pytest.raises(MeanFieldError, match="each entry \\[a string, a number\\]"):
        parse_problem(text.replace('["diffusion", 0.5]', '["diffusion"]'))
    problem, _ = library.get("noisy_softmax", noise_splitting=(("transport", 0.5), ("noise", 1.0), ("transport", 0.5)))
    assert parse_problem(dump_problem(problem)) == problem


def test_order_two_needs_a_table_of_order_two() -> None:
    skew = (("drift", 0.2), ("diffusion", 0.6), ("drift", 0.8), ("diffusion", 0.4))
    with pytest.raises(MeanFieldError, match=r"training\.order = 2 needs a splitting of order 2"):
        solve(in_a_well(splitting=skew))
    assert solve(in_a_well(splitting=skew, order=1)).rho.shape[-1] == 48


# ---- a user's own flow ---------------------------------------------------------------------------------------------


def jumps(theta: np.ndarray, rho: np.ndarray, ds: float) -> np.ndarray:
    """Heads are taken back to the first half of the box at rate 1: rho' = ∫rho g − rho, solved exactly."""
    g = np.where(theta[:, 0] < 0.0, 1.0, 0.0)
    g /= g.sum()
    mass = rho.sum(axis=1, keepdims=True)
    return np.asarray(mass * g + (rho - mass * g) * np.exp(-ds))


def test_a_flow_of_the_users_takes_part() -> None:
    table = (("user", 0.5), ("gibbs", 1.0), ("user", 0.5))
    problem = in_a_well(splitting=table, flow=jumps)
    grid = problem.heads.grid()
    gibbs = FokkerPlanckHeads(grid, 0.3)
    # the limit ds -> 0 by the matrix of both together: L of the unsplit step at a tiny ds, and the jumps
    x = grid.centers(0)
    still = 0.5 * x[None] ** 2
    eye, tiny = np.eye(48), 1e-7
    L = np.stack([(gibbs.step(row[None], still, tiny, 1).rho[0] - row) / tiny for row in eye], axis=1)
    g = np.where(x < 0.0, 1.0, 0.0) / 24
    both = L + np.outer(g, np.ones(48)) - eye
    errors = []
    for ds in (0.05, 0.025, 0.0125):
        solution = solve(replace(problem, training=replace(problem.training, ds=ds)))
        exact = expm(0.4 * both) @ solution.snapshots[0, 0]
        errors.append(np.abs(solution.rho[0] - exact).sum() * grid.cell_volume)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(2.0, abs=0.15)
    assert errors[-1] <= 2e-4


@pytest.mark.parametrize(
    ("flow", "kind", "message"),
    [
        (lambda theta, rho, ds: rho[:, :-1], MeanFieldError, r"shape \(1, 7\): it must keep the shape \(1, 8\)"),
        (lambda theta, rho, ds: rho * np.nan, NotFiniteError, r"not finite in layer 0, cell \(0,\)"),
        (lambda theta, rho, ds: rho * 1.01, MeanFieldError, r"moves the mass of layer 0 by 1\.0e-02 .* 1e-10"),
        (lambda theta, rho, ds: rho * 1.0 + np.array([1, -2, 1] + 5 * [0]), MeanFieldError, r"rho = -1 in layer 0"),
    ],
)
def test_a_flow_that_breaks_rho_is_refused(flow: Any, kind: type[Exception], message: str) -> None:
    grid = Grid((0.0,), (1.0,), (8,), (False,))
    with pytest.raises(kind, match=message):
        user_step(flow, grid, grid.points(), np.ones((1, 8)), 0.1)


def test_a_flow_goes_with_a_table_that_uses_it_and_with_no_file() -> None:
    with pytest.raises(MeanFieldError, match=r"training\.flow is given and training\.splitting does not use it"):
        in_a_well(flow=jumps)
    with pytest.raises(MeanFieldError, match=r"must be a Python function"):
        in_a_well(flow="jumps", splitting=(("gibbs", 1.0), ("user", 1.0)))
    table = (("gibbs", 1.0), ("user", 1.0))
    for more in ({"control": "energy"}, {"rest": 0.1}):
        with pytest.raises(MeanFieldError, match=r"free energy, which knows no training\.flow"):
            in_a_well(flow=jumps, splitting=table, order=1, **more)
    with pytest.raises(MeanFieldError, match=r"training\.flow is a Python function and cannot be written"):
        dump_problem(in_a_well(flow=jumps, splitting=(("gibbs", 1.0), ("user", 1.0))))
