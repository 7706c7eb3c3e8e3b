from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meanfield_pde.errors import FileError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, cell_averages
from meanfield_pde.output.plots import figures, training_figure
from meanfield_pde.output.plots_heads import ALIKE, axis_names, head_figures
from meanfield_pde.output.plots_panels import evenly, resampled, shown_sequences
from meanfield_pde.output.plots_titles import heading, name_of, target_words
from meanfield_pde.output.plots_tokens import heat_figure, quantiles, token_figures
from meanfield_pde.output.solution import Solution
from meanfield_pde.output.solve import solve
from meanfield_pde.problem_file import parse_problem

TRAINING = """
kind = "training"
title = "a tiny problem"
attention = "softmax"
tokens = { lower = [-4.5], upper = [5.5], cells = [32] }
heads = { family = "scalar", lower = [-2.0, -2.0], upper = [2.0, 2.0], cells = [12, 12], \
initial = { law = "gaussian", mean = [0.2, 0.3], covariance = [[0.06, 0.0], [0.0, 0.06]] } }
depth = { layers = 3, shared = false, scheme = "linear3" }
sequences = [
    { initial = { law = "gaussian", mean = [0.5], covariance = [[0.4]] } },
    { initial = { law = "gaussian", mean = [-0.5], covariance = [[0.6]] } },
]
objective = { kind = "potential", potential = { kind = "polynomial", coefficients = [0.5, -1.0, 0.5] } }
training = { beta = 0.05, ds = 0.1, s_end = 0.3 }
"""
PLANE = """
kind = "tokens"
attention = "softmax"
tokens = { lower = [-4.0, -4.0], upper = [4.0, 4.0], cells = [16, 16] }
heads = { family = "scalar", points = [[0.1, 0.1]] }
depth = { scheme = "upwind1" }
sequences = [{ initial = { law = "gaussian", mean = [0.5, -0.5], covariance = [[0.4, 0.1], [0.1, 0.3]] } }]
"""
HEADS = """
kind = "fokker-planck"
heads = { lower = [0.0], upper = [1.0], cells = [16], initial = { law = "uniform", lower = [0.0], upper = [1.0] } }
potential = { coefficients = [[0.0, -1.0]] }
training = { beta = 0.5, ds = 0.1, s_end = 0.3 }
"""


@pytest.fixture(scope="module")
def trained() -> Solution:
    # a box of heads this small is no matter here
    with pytest.warns(UserWarning, match="touches the wall"):
        return solve(parse_problem(TRAINING))


def grid_of(solution: Solution) -> Grid:
    assert solution.token_grid is not None
    return solution.token_grid


@pytest.mark.filterwarnings("ignore:(mu|rho) touches the wall")
def test_each_kind_has_its_figures(trained: Solution, tmp_path: Path) -> None:
    flat = replace(trained.problem, title="")
    expected = {
        "training": (trained, ["mu", "p", "rho", "rho_layers", "training", "certificates"]),
        "untitled": (replace(trained, problem=flat), ["mu", "p", "rho", "rho_layers", "training", "certificates"]),
        "plane": (solve(parse_problem(PLANE)), ["mu", "certificates"]),
        "heads": (solve(parse_problem(HEADS)), ["rho", "training", "certificates"]),
    }
    for name, (solution, wanted) in expected.items():
        paths = figures(solution, tmp_path / name / "deep")
        assert paths == [tmp_path / name / "deep" / f"{figure}.png" for figure in wanted]
        for path in paths:
            assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            assert path.stat().st_size > 5000


def test_a_folder_that_cannot_be_written_is_named(trained: Solution, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match="file"):
        figures(trained, tmp_path / "file")


def test_quantile_lines_are_characteristics() -> None:
    # under V = -x a Gaussian keeps its form, and a token at x goes to x e^{-t}: so do the quantiles
    grid = Grid((-4.0,), (4.0,), (400,), (False,))
    shares = (0.05, 0.5, 0.9)
    start, end = (
        cell_averages(Gaussian((0.4 * f,), ((0.3 * f * f,),)), grid, Path())[0] for f in (1.0, float(np.exp(-1.0)))
    )
    first, last = quantiles(np.stack([start, end]), grid, shares)
    np.testing.assert_allclose(last, first * np.exp(-1.0), atol=3e-4)
    # the normal quantiles of 5 % and 90 %
    np.testing.assert_allclose(first, 0.4 + np.sqrt(0.3) * np.array([-1.6448536, 0.0, 1.2815516]), atol=3e-4)


def test_quantiles_of_a_uniform_law_and_of_one_with_undershoot() -> None:
    grid = Grid((0.0,), (2.0,), (8,), (False,))
    np.testing.assert_allclose(quantiles(np.full((1, 8), 0.5), grid, (0.25, 0.5)), [[0.5, 1.0]], atol=1e-14)
    rough = np.array([[-1e-3, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(quantiles(rough, grid, (0.25, 0.5)), [[0.625, 0.75]], atol=1e-14)


def test_depths_are_interpolated_linearly() -> None:
    t = np.array([0.0, 0.25, 1.0])
    values = np.stack([3.0 * t - 1.0, t**2], axis=1)
    wanted = np.array([0.0, 0.125, 0.25, 0.625, 1.0])
    got = resampled(t, values, wanted)
    np.testing.assert_allclose(got[:, 0], 3.0 * wanted - 1.0, atol=1e-15)
    np.testing.assert_allclose(got[:, 1], [0.0, 0.03125, 0.0625, 0.53125, 1.0], atol=1e-15)


def test_the_costate_is_shown_where_tokens_are_and_without_its_mean(trained: Solution) -> None:
    grid = grid_of(trained)
    figure = heat_figure(trained, grid, costate=True)
    meshes = [axes.collections[0] for axes in figure.axes[:2]]
    shown = [np.ma.masked_array(mesh.get_array()) for mesh in meshes]
    x = grid.centers(0)
    assert shown[0].mask[np.abs(x - 0.5) > 3.5].all()
    assert not shown[0].mask[np.abs(x - 0.5) < 1.0].any()
    # p_T = (x - 1)²/2, less its mean over mu_T; the loss that a token at x adds does not depend on the constant
    last = shown[0][:, -1]
    seen = np.abs(x - 0.5) < 1.0
    difference = last[seen] - 0.5 * (x[seen] - 1.0) ** 2
    assert np.ptp(difference) < 1e-12
    mean = grid.integral(np.asarray(0.5 * (x - 1.0) ** 2 * trained.mu[-1, 0]))
    np.testing.assert_allclose(difference, -float(mean), atol=5e-3)
    # one scale for all, and 0 is its middle
    limits = {mesh.get_clim() for mesh in meshes}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high


def test_laws_share_one_scale_that_begins_at_zero(trained: Solution) -> None:
    figure = heat_figure(trained, grid_of(trained), costate=False)
    limits = {axes.collections[0].get_clim() for axes in figure.axes[:2]}
    assert len(limits) == 1
    assert limits.pop()[0] == 0.0
    assert [axes.get_title() for axes in figure.axes[:2]] == ["sequences[0]", "sequences[1]"]
    assert "characteristics" in figure.get_suptitle()
    assert len(figure.axes[0].lines) == 5


def test_a_ring_has_no_quantile_lines(trained: Solution) -> None:
    grid = grid_of(trained)
    ring = Grid(grid.lower, grid.upper, grid.cells, (True,))
    figure = heat_figure(trained, ring, costate=False)
    assert not figure.axes[0].lines
    assert "characteristics" not in figure.get_suptitle()


def test_no_depth_gives_profiles_and_says_so(trained: Solution) -> None:
    for count in (1, 2):
        still = replace(trained, depth_t=np.zeros(count), mu=trained.mu[:count])
        ((name, figure),) = token_figures(still)
        assert name == "mu"
        assert "nothing moves" in figure.get_suptitle()


def test_heads_are_shown_with_their_marginals(trained: Solution) -> None:
    named = dict(head_figures(trained))
    assert list(named) == ["rho", "rho_layers"]
    grid = trained.head_grid
    assert grid is not None
    joint, above, beside = named["rho"].axes[:3]
    rho = trained.snapshots[0].mean(axis=0)
    np.testing.assert_allclose(above.lines[0].get_ydata(), rho.sum(axis=1) * grid.spacing[1], rtol=1e-13)
    np.testing.assert_allclose(beside.lines[0].get_xdata(), rho.sum(axis=0) * grid.spacing[0], rtol=1e-13)
    assert (joint.get_xlabel(), joint.get_ylabel()) == axis_names(trained, grid) == ("value w", "score a")
    assert [axes.get_title() for axes in named["rho_layers"].axes if axes.get_title()] == [
        f"layer {k} of 3" for k in (1, 2, 3)
    ]


def test_training_is_told_from_first_to_last(trained: Solution) -> None:
    figure = training_figure(trained)
    for axes, name in zip(figure.axes, ("loss", "free_energy"), strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), trained.history[name])
        assert f"{trained.history[name][-1]:.6g}" in axes.get_title()


def test_titles_stay_inside_and_names_lose_their_folders(trained: Solution) -> None:
    long = replace(trained, names=("/a/b/tokens.npz[3]", "x" * 40))
    for notes in ((), ("note " * 30,)):
        lines = heading(long, "word " * 30, 4.0, *notes).splitlines()
        assert len(lines) == 2
        assert all(len(line) <= 56 for line in lines)
        assert lines[-1].endswith(" …")
    assert heading(trained, "law", 8.0, "more", "and more") == "law  ·  a tiny problem\nmore; and more"
    assert name_of(long, 0) == "tokens.npz[3]"
    assert len(name_of(long, 1)) == 24
    assert name_of(long, 7) == "sequence 7"
    assert evenly(1) == [0]
    assert evenly(40) == [0, 13, 26, 39]


def test_targets_are_named_where_they_are_numbers(trained: Solution) -> None:
    assert target_words(trained) == ["", ""]
    start, end = TRAINING.index("sequences = "), TRAINING.index("training = ")
    features = "[{ kind = 'polynomial', coefficients = [0.0, 1.0] }, { kind = 'bump', center = [0.0], width = 0.5 }]"
    law = "initial = { law = 'gaussian', mean = [0.5], covariance = [[0.4]] }"
    cases = {
        "kind = 'regression', readout = [[1.0, 1.0]]": ("0.25", "target 0.25"),
        "kind = 'regression'": ("[-0.5, 1e-3]", "target -0.5, 0.001"),
        "kind = 'cross-entropy'": ("1", "label 1"),
        "kind = 'energy-distance'": ("{ law = 'uniform', lower = [-1.0], upper = [1.0] }", ""),
    }
    for objective, (target, words) in cases.items():
        parts = f"features = {features}" * ("energy" not in objective)
        text = (
            f"sequences = [{{ {law}, target = {target}, role = 'held-out' }}, {{ {law}, target = {target} }}]\n"
            f"objective = {{ {', '.join(filter(None, (objective, parts)))} }}\n"
        )
        problem = parse_problem(TRAINING[:start] + text + TRAINING[end:])
        # the held-out sequence has no panel
        solution = replace(trained, problem=problem, names=("sequences[1]",), mu=trained.mu[:, :1])
        assert target_words(solution) == [words], objective
        title = heat_figure(solution, grid_of(solution), costate=False).axes[0].get_title()
        assert title.splitlines() == ["sequences[1]", *filter(None, [words])]


def test_a_token_file_that_is_gone_costs_the_targets_alone(trained: Solution) -> None:
    start, end = TRAINING.index("sequences = "), TRAINING.index("training = ")
    text = (
        "sequences = [{ file = '/nowhere/many.npz' }]\nobjective = { kind = 'cross-entropy', features = "
        "[{ kind = 'polynomial', coefficients = [0.0, 1.0] }] }\n"
    )
    gone = replace(trained, problem=parse_problem(TRAINING[:start] + text + TRAINING[end:]))
    assert target_words(gone) == ["", ""]


def test_every_label_has_its_panels(trained: Solution) -> None:
    start, end = TRAINING.index("sequences = "), TRAINING.index("training = ")
    law = "initial = { law = 'gaussian', mean = [0.5], covariance = [[0.4]] }"
    feature = "features = [{ kind = 'polynomial', coefficients = [0.0, 1.0] }]"
    # one of each label, or two of each of two
    for labels, chosen in (("0111110", [0, 1, 5, 6]), ("0111112", [0, 1, 6]), ("1111111", [0, 2, 4, 6])):
        sequences = ", ".join(f"{{ {law}, target = {label} }}" for label in labels)
        readout = ", readout = [[1.0], [2.0], [0.0]]" if "2" in labels else ""
        loss = f"objective = {{ kind = 'cross-entropy', {feature}{readout} }}"
        text = f"{TRAINING[:start]}sequences = [{sequences}]\n{loss}\n{TRAINING[end:]}"
        mu = np.repeat(trained.mu[:, :1], len(labels), axis=1)
        solution = replace(trained, problem=parse_problem(text), names=tuple(labels), mu=mu)
        assert shown_sequences(solution) == chosen


def test_what_is_not_shown_is_told(trained: Solution) -> None:
    many = replace(trained, mu=np.repeat(trained.mu[:, :1], 6, axis=1), names=tuple("abcdef"))
    for figure in (
        heat_figure(many, grid_of(many), costate=False),
        next(token_figures(replace(many, depth_t=np.zeros(1), mu=many.mu[:1])))[1],
    ):
        assert "4 of 6 sequences shown" in figure.get_suptitle()
        assert len(figure.get_suptitle().splitlines()) == 2
    assert "shown" not in heat_figure(trained, grid_of(trained), costate=False).get_suptitle()


def test_layers_that_look_alike_are_shown_by_their_differences(trained: Solution) -> None:
    grid = trained.head_grid
    assert grid is not None
    base = trained.rho.mean(axis=0)
    wave = base * np.sin(3.0 * grid.points()[:, 0]).reshape(grid.cells)
    for share, alike in ((0.9 * ALIKE, True), (1.1 * ALIKE, False)):
        away = np.array([-1.0, 0.25, 0.75])[:, None, None] * wave * share / np.abs(wave).max() * base.max()
        rho = base + away
        figure = dict(head_figures(replace(trained, snapshots=rho[None], snapshot_s=trained.snapshot_s[-1:])))[
            "rho_layers"
        ]
        joint, above = figure.axes[:2]
        low, high = joint.collections[0].get_clim()
        shown = np.ma.getdata(joint.collections[0].get_array()).reshape(grid.cells[::-1]).T
        if alike:
            assert low == -high
            np.testing.assert_allclose(shown, away[0], atol=1e-13)
            np.testing.assert_allclose(above.lines[0].get_ydata(), away[0].sum(axis=1) * grid.spacing[1], atol=1e-13)
            assert "less mean over layers" in figure.get_suptitle()
            assert "blue: less" in figure.get_suptitle()
        else:
            assert low == 0.0
            np.testing.assert_allclose(shown, rho[0], atol=1e-13)
            assert "law of the heads by layer" in figure.get_suptitle()


def test_layers_that_are_the_same_are_told_and_shown_as_they_are(trained: Solution) -> None:
    same = replace(trained, snapshots=np.repeat(trained.snapshots[:1, :1], 3, axis=1), snapshot_s=np.zeros(1))
    figure = dict(head_figures(same))["rho_layers"]
    assert figure.get_suptitle().splitlines()[1] == "the layers are the same"
    # rounding is no difference to be drawn
    assert figure.axes[0].collections[0].get_clim()[0] == 0.0


@pytest.mark.filterwarnings("ignore:rho touches the wall")
def test_a_given_potential_has_an_energy_not_a_loss_over_sequences(trained: Solution) -> None:
    figure = training_figure(solve(parse_problem(HEADS)))
    assert figure.axes[0].get_title().startswith("energy L(rho)\n")
    assert training_figure(trained).axes[0].get_title().startswith("loss L(rho), mean over sequences\n")
