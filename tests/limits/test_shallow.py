"""One layer of attention, convex in rho: the closed form to its digits, by the closure, in time and at rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from meanfield_pde import library, stability, stationary
from meanfield_pde.equations.shallow import ShallowModel, check_memory
from meanfield_pde.equations.shallow_kernels import attention_kernel, token_weights
from meanfield_pde.errors import FileError, MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Gaussian, cell_averages
from meanfield_pde.library.gaussian_shallow import closure_of
from meanfield_pde.measure import Measure
from meanfield_pde.output.plots_shallow import prediction_figure
from meanfield_pde.output.run import resume, run
from meanfield_pde.output.solve import solve
from meanfield_pde.problem import DataFile, Heads, Problem, Sequence, Shallow, Training
from meanfield_pde.training.assemble import assemble

LEAST = 0.35814888478875
ABOVE = {0.0: 1.229083e-1, 1.0: 2.140493e-2, 4.0: 1.555534e-4, 8.0: 4.045619e-7}


def above(closure: Any, s: float) -> float:
    return float(closure.free_energy(*closure.state(s)) - closure.free_energy(*closure.state(np.inf)))


def test_the_closed_system_has_its_digits() -> None:
    closure = closure_of(library.get("shallow_gaussian")[0])
    eta, C = closure.state(np.inf)
    assert closure.free_energy(eta, C) == pytest.approx(LEAST, abs=1e-14)
    assert eta == pytest.approx([0.68856122, 0.21992124], abs=5e-9)
    for s, digits in ABOVE.items():
        assert above(closure, s) == pytest.approx(digits, rel=5e-7)


def test_the_free_energy_falls_at_the_rates_of_the_linearised_system() -> None:
    closure = closure_of(library.get("shallow_gaussian")[0])
    for s, digits in ((8.0, 1.327), (12.0, 1.082), (20.0, 1.038)):
        # F less its least value is 8e-13 at s = 20, of which rounding is 1e-4: over less than this it would show
        rate = np.log(above(closure, s - 0.5) / above(closure, s + 0.5))
        assert rate == pytest.approx(digits, abs=6e-4)
    eta, C = closure.state(np.inf)
    rest, h = np.array([*eta, C[0, 0], C[0, 1], C[1, 1]]), 1e-5
    columns = [(closure.rate(rest + h * e) - closure.rate(rest - h * e)) / (2 * h) for e in np.eye(5)]
    slowest = 2.0 * float(np.min(-np.linalg.eigvals(np.array(columns).T).real))
    assert slowest == pytest.approx(1.0375167, abs=5e-7)
    c2 = closure.gradient(eta, C)[1]
    bound = 2.0 * (0.5 - abs(c2))
    assert bound == pytest.approx(0.6806, abs=5e-5)
    assert bound < slowest


def test_the_solver_follows_it_to_second_order() -> None:
    found = []
    for refinement in (1, 2):
        problem, exact = library.get(
            "shallow_gaussian", s_end=4.0, head_cells=48 * refinement, ds=0.1 / refinement, snapshots=5
        )
        assert exact is not None
        history = solve(problem).history
        errors = []
        for s in (1.0, 4.0):
            row = int(np.argmin(np.abs(history["s"] - s)))
            known = exact.observables(s)
            errors += [abs(history[name][row] - known[name]) for name in ("loss", "free_energy")]
        found.append(errors)
    assert max(found[1]) <= 2e-3
    # the free energy at s = 4 is second order around its least value, and so are its errors
    assert (np.array(found[0]) / found[1] >= 3.5).all()


def test_the_state_at_rest_is_the_global_minimum() -> None:
    problem, exact = library.get("shallow_gaussian")
    found = stationary(problem)
    assert found.free_energy == pytest.approx(LEAST, abs=1e-11)
    assert problem.heads is not None
    grid = problem.heads.grid()
    eta = grid.points().T @ found.rho.ravel() * grid.cell_volume
    assert eta == pytest.approx([0.68856122, 0.21992124], abs=1e-8)
    # H = δ²L/δrho² is positive where L is convex: the linearised map has no positive eigenvalue
    assert stability(problem, found) <= 1e-9
    # and there is no other: from a far start it is the same
    far, _ = library.get("shallow_gaussian", eta0=(-0.8, 1.0))
    assert stationary(far).free_energy == pytest.approx(found.free_energy, abs=1e-10)
    assert exact is not None
    assert exact.observables(np.inf)["free_energy"] == pytest.approx(LEAST, abs=1e-13)


def test_gaussian_means_and_integrals_are_those_of_the_law_itself() -> None:
    """m(z) = m0 + s0 z, and ∫ f dmu of a polynomial, both without the width of the cells."""
    grid = Grid((-4.5,), (5.5,), (48,), (False,))
    mu = cell_averages(Gaussian((0.5,), ((0.4,),)), grid)[0][None]
    theta = np.array([[1.0, 0.7], [2.0, -0.5], [0.3, 0.0]])
    x = grid.centers(0)
    K = attention_kernel(grid, mu, theta)
    bulk = np.abs(x - 0.5) < 3.0
    for k, (w, a) in enumerate(theta):
        np.testing.assert_allclose(K[bulk, k], w * (0.5 + 0.4 * a * x[bulk]), rtol=1e-9)
    q = token_weights(grid, mu)[0]
    assert q @ x**2 == pytest.approx(0.25 + 0.4, rel=1e-7)
    assert q @ np.cos(x) == pytest.approx(np.cos(0.5) * np.exp(-0.2), rel=1e-6)
    assert (q >= 0).all()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_first_variation_is_the_derivative_and_the_loss_is_convex(loss: str) -> None:
    rng = np.random.default_rng(5)
    kernel, weights = rng.normal(size=(7, 11)), rng.dirichlet(np.ones(7))
    model = ShallowModel(kernel, weights, rng.uniform(size=7), loss)
    a, b = (Measure.particles(np.zeros((11, 1)), rng.dirichlet(np.ones(11))) for _ in range(2))

    def at(t: float) -> Measure:
        return Measure.particles(a.points, (1 - t) * a.weights + t * b.weights)

    slope = float(model.first_variation((a,)).potential[0] @ (b.weights - a.weights))
    remainders = [abs(model.loss((at(t),)) - model.loss((a,)) - t * slope) for t in (1e-2, 5e-3)]
    assert remainders[0] / remainders[1] == pytest.approx(4.0, abs=0.1)
    middle = model.loss((at(0.5),))
    assert middle <= 0.5 * (model.loss((a,)) + model.loss((b,)))
    f = kernel @ a.weights
    wanted = 0.5 * (f - model.targets) ** 2
    if loss == "logistic":
        wanted = -model.targets * np.log(expit(f)) - (1 - model.targets) * np.log(expit(-f))
    assert model.loss((a,)) == pytest.approx(weights @ wanted, rel=1e-13)
    assert model.first_variation((a,)).report.mass_error is None


def neurons(data: DataFile, base: Path, **training: float) -> Problem:
    settings = {"beta": 0.0, "ds": 0.02, "s_end": 1.0} | training
    law = Gaussian((0.3, 0.8, 0.1), ((0.05, 0, 0), (0, 0.05, 0), (0, 0, 0.05)))
    return Problem(
        "shallow",
        attention="none",
        heads=Heads("perceptron", (-1.5, -0.7, -1.3), (2.2, 2.3, 1.5), (24, 24, 24), (), law),
        shallow=Shallow(activation="tanh"),
        data=data,
        training=Training(**settings),
        base=str(base),
    )


# few cells, for speed
@pytest.mark.filterwarnings("ignore:rho touches the wall")
def test_neurons_on_samples_of_a_file_without_noise(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=60)
    y = np.sin(x)
    np.savez(tmp_path / "samples.npz", x=x[:, None], y=y)
    problem = neurons(DataFile("samples.npz", "x", "y"), tmp_path, s_end=1.5)
    assert problem.heads is not None
    solution = solve(problem)
    theta = problem.heads.grid().points()
    w = np.exp(-((theta - [0.3, 0.8, 0.1]) ** 2).sum(axis=1) / 0.1)
    f = np.tanh(np.outer(x, theta[:, 1]) + theta[:, 2]) @ (theta[:, 0] * w) / w.sum()
    assert solution.history["loss"][0] == pytest.approx(0.5 * np.mean((f - y) ** 2), rel=1e-12)
    # with beta = 0 the loss is the free energy, and it falls by the squared gradient
    np.testing.assert_array_equal(solution.history["loss"], solution.history["free_energy"])
    assert (np.diff(solution.history["loss"]) < 0).all()
    assert solution.history["loss"][-1] < 0.5 * solution.history["loss"][0]
    # in a folder of its own the run still finds its samples, and goes on
    coarse = replace(problem.heads, cells=(20, 20, 20))
    few = replace(problem, heads=coarse, training=Training(beta=0.0, ds=0.1, s_end=0.2))
    run(few, tmp_path / "elsewhere" / "out")
    longer, _ = resume(tmp_path / "elsewhere" / "out", ["training.s_end=0.3"])
    assert longer.snapshot_s[-1] == 0.3
    # the figure shows the samples and what is predicted of them, as long as they are there
    drawn = prediction_figure(longer)
    assert drawn is not None
    target, before, _ = drawn.axes[0].lines
    assert target.get_xydata() == pytest.approx(np.stack([np.sort(x), np.sin(np.sort(x))], axis=1))
    loss = 0.5 * np.mean((before.get_ydata() - target.get_ydata()) ** 2)
    assert loss == pytest.approx(longer.history["loss"][0], rel=1e-12)
    (tmp_path / "samples.npz").unlink()
    assert prediction_figure(longer) is None


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", inputs=np.zeros((5, 2)), targets=np.zeros(5), few=np.zeros(4))
    for data, says in (
        (DataFile("two.npz"), "inputs has 2 columns"),
        (DataFile("two.npz", inputs="x"), "has no array 'x'"),
        (DataFile("two.npz", inputs="few"), "4 few and 5 targets do not fit"),
    ):
        with pytest.raises(FileError, match=says):
            assemble(neurons(data, tmp_path))


def test_a_kernel_over_the_budget_is_refused_with_both_numbers() -> None:
    with pytest.raises(MeanFieldError, match=r"1000 rows times 1000000 heads needs 8e\+09 bytes.*budget of 2e\+09"):
        check_memory(1000, 1000000)


def _changed(section: str, **changes: Any) -> Any:
    def change(problem: Problem) -> Problem:
        old = getattr(problem, section)
        return replace(problem, **{section: replace(old, **changes) if old is not None else Shallow(**changes)})

    return change


def _without_tokens(problem: Problem) -> Problem:
    return replace(problem, tokens=None, sequences=())


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("shallow_gaussian", _changed("shallow", loss="hinge"), "shallow.loss = 'hinge'"),
        ("shallow_gaussian", _changed("shallow", activation="tanh"), "shallow.activation is for neurons"),
        ("shallow_gaussian", _without_tokens, "is given not the whole of"),
        ("shallow_gaussian", lambda p: replace(p, data=DataFile("a.npz")), "is given both"),
        ("shallow_gaussian", _changed("tokens", noise=0.1), "tokens rest there"),
        ("shallow_gaussian", lambda p: replace(p, attention="linear"), "is not covered for kind = 'shallow'"),
        ("shallow_gaussian", lambda p: replace(p, sequences=(Sequence(p.sequences[0].initial),)), "must be a number"),
        ("two_layer", _changed("shallow", activation="gelu"), "shallow.activation = 'gelu'"),
        ("two_layer", lambda p: replace(p, shallow=None), "shallow.activation is missing"),
        ("two_gaussians", _changed("heads", lower=(-1.0,)), "is not negative"),
        ("two_gaussians", _changed("data", dimension=1), "data.dimension"),
        ("two_gaussians", _changed("data", difference=1.5), "data.difference"),
        ("two_gaussians", _changed("shallow", activation="tanh"), "odd but for a constant"),
        ("two_gaussians", lambda p: replace(p, data=DataFile("a.npz")), "does not fit its data"),
        ("gaussian_coupled", _changed("heads", family="radial"), "is for kind = 'shallow'|has one axis|1: "),
    ],
)
def test_a_layer_whose_parts_do_not_fit_is_refused(name: str, change: Any, says: str) -> None:
    with pytest.raises(MeanFieldError, match=says):
        change(library.get(name)[0])


def test_the_loss_is_the_mean_over_sequences() -> None:
    problem, _ = library.get("shallow_gaussian", head_cells=40)
    other = Sequence(Gaussian((-0.2,), ((0.3,),)), (0.1, -0.5, 0.2))
    held = Sequence(Gaussian((0.0,), ((0.3,),)), 5.0, "held-out")

    def first(*sequences: Sequence) -> float:
        ready = assemble(replace(problem, reference=None, sequences=sequences))
        assert ready.training is not None
        assert ready.state is not None
        return ready.training.moment(ready.state).variation.loss

    one = problem.sequences[0]
    assert isinstance(one, Sequence)
    assert first(one, other, held) == pytest.approx(0.5 * (first(one) + first(other)), rel=1e-13)


@pytest.mark.filterwarnings("ignore:rho touches the wall")
def test_labels_that_are_no_probabilities_are_refused() -> None:
    problem, _ = library.get("shallow_gaussian")
    logistic = replace(problem, reference=None, shallow=Shallow("logistic"))
    with pytest.raises(MeanFieldError, match="is no probability"):
        assemble(logistic)
    one = replace(problem.sequences[0], target=1)
    loss = solve(replace(logistic, sequences=(one,), training=Training(beta=0.05, ds=0.2, s_end=1.0))).history["loss"]
    assert loss[-1] < loss[0]


def test_a_shallow_problem_predicts_no_law_at_the_end_of_depth() -> None:
    solution = solve(library.get("shallow_gaussian", s_end=0.1, head_cells=40)[0])
    with pytest.raises(MeanFieldError, match="carries no tokens"):
        solution.predict()
