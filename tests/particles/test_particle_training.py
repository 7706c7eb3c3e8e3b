"""Heads as points: noisy gradient descent, its noise, gradients on grids of tokens, the training run of torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from meanfield_pde import load_problem
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, TokenReport
from meanfield_pde.particles.langevin import LangevinHeads
from meanfield_pde.particles.of_training import first_heads, token_side
from meanfield_pde.problem import Drift, Particles, Problem
from meanfield_pde.training.assemble import assemble
from meanfield_pde.training.particle_runs import run_training

DATA = Path(__file__).parents[2] / "data"
BOX = Grid((-3.0, -3.0), (3.0, 3.0), (8, 8), (False, False))
BOTH = ("tokens", "heads")


def shipped(name: str, *overrides: str) -> Problem:
    return load_problem(DATA / "problems" / f"{name}.toml", overrides)


def small(**changes: object) -> Problem:
    """The coupled Gaussian problem with few tokens and heads and three steps."""
    problem = shipped("gaussian_coupled", "training.order=1", "training.s_end=0.15", "depth.layers=4")
    return replace(problem, particles=Particles(tokens=30, heads=20, **changes))


@pytest.mark.parametrize("exact", [True, False])
def test_the_loss_of_the_torch_run_is_met_at_its_recorded_heads(exact: bool) -> None:
    # its tokens are quantiles (i + ½)/96 of the laws, found by linear interpolation in a table of spacing 2e-4: with
    # those the loss agrees to rounding, with exact quantiles to the error of that table
    with np.load(DATA / "particles" / "train.npz") as file:
        heads, recorded = file["heads"], file["loss"]
    side = token_side(shipped("torch_train", 'particles.sides=["tokens"]', "training.order=1"))
    assert side.start.shape == (4, 96, 1)
    if not exact:
        laws = [[(0.5, -0.8, 0.04), (0.5, 0.4, 0.04)], [(0.5, -0.3, 0.0625), (0.5, 0.7, 0.0225)], [(1.0, 0.1, 0.1225)],
                [(0.7, 0.6, 0.04), (0.3, -0.6, 0.04)]]  # fmt: skip
        x = np.linspace(-4.0, 4.0, 40001)
        tables = [sum(p * ndtr((x - m) / np.sqrt(v)) for p, m, v in law) for law in laws]
        start = np.stack([np.interp((np.arange(96) + 0.5) / 96, F, x)[:, None] for F in tables])
        np.testing.assert_allclose(side.start, start, atol=1e-7)
        side = replace(side, start=start)
    for k, step in enumerate((0, 20, 40, 60, 80)):
        # columns (a, w) in the file, (w, a) here
        found = side.loss((Measure.particles(np.ascontiguousarray(heads[k][:, ::-1])),))
        assert abs(found - recorded[step]) < (1.5e-10 if exact else 1e-15)


def test_the_torch_run_is_one_of_ours() -> None:
    # heads and loss at the end lie among those of eight own runs from its first heads
    with np.load(DATA / "particles" / "train.npz") as file:
        heads, recorded = file["heads"][:, :, ::-1], file["loss"]
    problem = shipped("torch_train")
    runs = [run_training(problem, head_start=heads[0], seed=seed, times=(5.0, 10.0, 15.0)) for seed in range(8)]
    assert runs[0].theta.shape == (5, 128, 2)
    np.testing.assert_array_equal(runs[0].s, [0.0, 5.0, 10.0, 15.0, 20.0])
    np.testing.assert_array_equal(runs[0].theta[0], heads[0])
    np.testing.assert_allclose(runs[0].loss_s, np.arange(81) * 0.25, rtol=1e-15)
    for found, true in (
        (np.array([one.loss[1:] for one in runs]), recorded[1:]),
        (np.array([one.theta[1:].mean(axis=1) for one in runs]), heads[1:].mean(axis=1)),
        (np.array([one.theta[1:].var(axis=1) for one in runs]), heads[1:].var(axis=1)),
    ):
        off = (true - found.mean(axis=0)) / (found.std(axis=0, ddof=1) * np.sqrt(1 + 1 / 8))
        assert np.sqrt((off**2).mean()) < 1.8
        assert np.abs(off).max() < 6.0


def free(rho: np.ndarray, *, decay: float = 0.0) -> FirstVariation:
    return FirstVariation(0.0, np.zeros(rho.shape[:2]), TokenReport(), np.full(rho.shape, decay))


def test_noise_has_the_variance_of_the_laplacian_and_is_new_at_every_step() -> None:
    # theta_{n+1} = (1 − λ ds) theta_n + sqrt(2 β ds) ξ: mean and variance of the chain in closed form
    beta, weight_decay, ds, steps, H = 0.3, 0.8, 0.05, 12, 20000
    side = LangevinHeads(BOX, beta, weight_decay, seed=5)
    rho = np.full((1, H, 2), 0.7)
    past = []
    for step in range(steps):
        past.append(side.noise(step, rho).ravel())
        rho = side.flows_at(step)["gibbs"](rho, side.driving(free(rho)), ds, 1).rho
    factor = 1.0 - weight_decay * ds
    variance = 2.0 * beta * ds * (1.0 - factor ** (2 * steps)) / (1.0 - factor**2)
    values = rho.ravel()
    assert abs(values.mean() - 0.7 * factor**steps) < 4.0 * np.sqrt(variance / values.size)
    assert abs(values.var() / variance - 1.0) < 4.0 * np.sqrt(2.0 / values.size)
    seen = np.corrcoef([*past, LangevinHeads(BOX, beta, seed=6).noise(0, rho).ravel()])
    assert np.abs(seen - np.eye(steps + 1)).max() < 5.0 / np.sqrt(values.size)
    # a shorter step from the same state takes the same numbers, scaled
    start = np.zeros((1, 4, 2))
    one, half = (side.flows_at(3)["gibbs"](start, start, length, 1).rho for length in (0.4, 0.1))
    np.testing.assert_allclose(one, 2.0 * half, rtol=1e-14)


def test_angles_are_wrapped_and_have_no_size() -> None:
    ring = Grid((-3.0, -np.pi), (3.0, np.pi), (8, 8), (False, True))
    side = LangevinHeads(ring, 0.0, 0.5, (0.25, 0.75))
    rho = np.array([[[4.0, 3.0]], [[-2.0, -3.0]]])
    moved = side.flows_at(0)["gibbs"](rho, np.full(rho.shape, -2.0), 0.1, 1).rho
    np.testing.assert_allclose(moved, [[[4.0 - 0.2 + 0.2, 3.2 - 2 * np.pi]], [[-2.0 + 0.1 + 0.2, -2.8]]], rtol=1e-14)
    assert side.decay(rho) == pytest.approx(0.25 * (0.25 * 16.0 + 0.75 * 4.0), rel=1e-15)
    assert side.regularisation(rho) is None


def closed_form(theta: np.ndarray) -> np.ndarray:
    """∇δL/δrho at any heads for Gaussian tokens: δL/δrho = c1 w + c2 w a, whatever the law of the heads (5.2)."""
    m0, s0, b = 0.5, 0.4, 1.0
    w, wa = theta[:, 0].mean(), theta.prod(axis=1).mean()
    s = s0 / (1.0 - 2.0 * wa * s0)
    m = m0 * np.exp(w) * np.sqrt(s / s0)
    c1, c2 = m * (m - b), s * m * (m - b) + s * s
    return np.stack([c1 + c2 * theta[:, 1], c2 * theta[:, 0]], axis=1)


def test_gradients_of_points_on_a_grid_of_tokens_are_those_of_the_closed_form() -> None:
    ready = assemble(small(sides=("heads",)))
    assert ready.training is not None
    assert ready.state is not None
    theta = np.random.default_rng(1).normal(size=(20, 2)) * 0.4 + [0.2, 0.3]
    found = ready.training.tokens.first_variation(ready.training.heads.measure(theta[None]))
    assert found.gradient is not None
    assert found.potential.shape == (1, 20)
    np.testing.assert_allclose(found.gradient[0], closed_form(theta), atol=2e-5)
    fine = shipped("gaussian_coupled", "training.order=1", "depth.cfl=0.05", "tokens.cells=[192]")
    ready = assemble(replace(fine, particles=Particles(heads=20, sides=("heads",))))
    assert ready.training is not None
    found = ready.training.tokens.first_variation(ready.training.heads.measure(theta[None]))
    assert found.gradient is not None
    np.testing.assert_allclose(found.gradient[0], closed_form(theta), atol=1e-7)


def test_the_same_arguments_give_the_same_bits_and_times_between_steps_change_nothing() -> None:
    problem = small(sampling="iid")
    one, again, other = (run_training(problem, seed=seed) for seed in (3, 3, 4))
    more = run_training(problem, seed=3, times=(0.07, 0.1))
    np.testing.assert_array_equal(one.theta, again.theta)
    np.testing.assert_array_equal(one.loss, again.loss)
    np.testing.assert_array_equal(more.s, [0.0, 0.07, 0.1, 0.15])
    np.testing.assert_array_equal(more.theta[[0, -1]], one.theta)
    np.testing.assert_array_equal(more.loss, one.loss)
    assert np.abs(one.theta[0] - other.theta[0]).max() > 0.01
    assert len(one.loss) == 4
    sized = run_training(problem, 7, 11, 3, integrator="rk4", sampling="quantile", head_sampling="sobol")
    assert sized.theta.shape == (2, 7, 2)
    started = run_training(problem, head_start=one.theta[0], seed=3)
    np.testing.assert_array_equal(started.theta[0], one.theta[0])
    assert np.abs(started.theta[-1] - one.theta[-1]).max() == 0.0


def test_sequences_and_layers_are_drawn_apart_and_stay_when_others_go() -> None:
    problem = shipped("torch_train", "training.order=1", "particles.sampling='iid'", 'particles.sides=["tokens"]')
    starts = token_side(problem).start[:, :, 0]
    # ranks of draws of one stream would be the same in every sequence
    ranks = np.argsort(np.argsort(starts, axis=1), axis=1)
    assert np.abs(np.corrcoef(ranks) - np.eye(4)).max() < 0.4
    without = replace(problem, sequences=(replace(problem.sequences[0], role="held-out"), *problem.sequences[1:]))
    np.testing.assert_array_equal(token_side(without).start[:, :, 0], starts[1:])
    layerwise = shipped("gaussian_layerwise", "training.order=1", "depth.layers=3",
                        'particles={tokens=40,heads=200,layers=6,sides=["heads"]}')  # fmt: skip
    heads = first_heads(layerwise)[:, :, 0]
    assert np.abs(np.corrcoef(heads) - np.eye(3)).max() < 0.3


def test_layers_have_heads_of_their_own() -> None:
    problem = shipped("gaussian_layerwise", "training.order=1", "training.s_end=0.1", "depth.layers=4")
    problem = replace(problem, particles=Particles(tokens=40, heads=6, layers=8, sides=BOTH))
    assert first_heads(problem).shape == (4, 6, 2)
    found = run_training(problem)
    assert found.theta.shape == (2, 4, 6, 2)
    # at the start the heads of each layer are moved by the gradient of that layer alone, per unit of depth
    ready = assemble(problem)
    assert ready.training is not None
    assert ready.state is not None
    theta, loop = ready.state.rho, ready.training
    variation = loop.tokens.first_variation(loop.heads.measure(theta))
    assert variation.gradient is not None
    for layer, k in ((0, 2), (3, 5)):
        beside = [theta.copy() for _ in range(2)]
        for sign, one in zip((1.0, -1.0), beside, strict=True):
            one[layer, k, 1] += 1e-4 * sign
        up, down = (loop.tokens.loss(loop.heads.measure(one)) for one in beside)
        assert variation.gradient[layer, k, 1] == pytest.approx((up - down) / 2e-4 * 6 * 4 / 1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("training.order=2",), "take order = 1"),
        (('training.control="energy"',), "control = 'fixed'"),
        (('training.splitting="lie"',), "splitting = 'gibbs'"),
        (("training.rest=0.1",), "leave it out"),
        (('attention="linear"',), "take attention = 'softmax'"),
        (("tokens.noise=0.1",), "set it to 0"),
        (("tokens.periodic=[true]", "tokens.lower=[-3.141592653589793]", "tokens.upper=[3.141592653589793]",
          'objective={kind="potential",potential={kind="harmonic",coefficients=[1.0],mode=1}}',
          'sequences=[{initial={law="von-mises",mean=[0.0],concentration=[1.0]}}]'), "take walls"),
        (('objective={kind="energy-distance"}', 'sequences=[{initial={law="gaussian",mean=[0.0],covariance=[[0.1]]},'
          'target={law="gaussian",mean=[0.0],covariance=[[0.1]]}}]'), "allowed: potential, regression, cross-entropy"),
        (("particles.heads=0",), "at least 1"),
        (('particles.integrator="renormalised"',), "circle"),
        (('particles={sides=["heads"]}',), "give their number"),
        (('particles.sides=["heads","mu"]',), "mu"),
    ],
)
def test_what_particles_do_not_have_is_refused_before_any_work(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(MeanFieldError, match=words):
        shipped("gaussian_coupled", "training.order=1",
                'particles={tokens=10,heads=10,sides=["tokens","heads"]}', *overrides)  # fmt: skip


def test_other_kinds_layers_that_do_not_fit_and_wrong_starts_are_refused() -> None:
    with pytest.raises(MeanFieldError, match="is for kind = 'training'"):
        shipped("torch_line", 'particles={tokens=10,sides=["tokens"]}')
    with pytest.raises(MeanFieldError, match="take a multiple"):
        shipped("gaussian_layerwise", "training.order=1", "depth.layers=4",
                'particles={tokens=10,layers=6,sides=["tokens"]}')  # fmt: skip
    problem = small()
    with pytest.raises(MeanFieldError, match="below 2\\^64"):
        replace(problem, seed=2**64, particles=Particles(heads=3, sides=("heads",)))
    flowing = Drift(flow=lambda x, t: 0.0 * x)
    for tokens, words in ((Drift(leak=0.1), None), (flowing, "constant and leak alone")):
        changed = replace(problem, tokens=replace(problem.tokens, drift=tokens))
        if words is None:
            assert run_training(changed).theta.shape == (2, 20, 2)
            continue
        with pytest.raises(MeanFieldError, match=words):
            run_training(changed)
    wrong = ((np.ones((20, 3)), r"give \(20, 2\)"), (np.full((20, 2), np.nan), "NaN"), (np.ones(3), "give"))
    for start, words in wrong:
        with pytest.raises(MeanFieldError, match=words):
            run_training(problem, head_start=start)
    with pytest.raises(MeanFieldError, match="leave heads out"):
        run_training(problem, heads=3, head_start=np.ones((20, 2)))
    with pytest.raises(MeanFieldError, match="seed"):
        LangevinHeads(BOX, 0.1, seed=-1)
    with pytest.raises(MeanFieldError, match="beta"):
        LangevinHeads(BOX, -0.1)
    with pytest.raises(MeanFieldError, match="heads that move"):
        LangevinHeads(BOX, 0.1).driving(FirstVariation(0.0, np.zeros((1, 3)), TokenReport()))
    with pytest.raises(MeanFieldError, match="memory"):
        assemble(replace(problem, particles=replace(problem.particles, sides=BOTH)), memory=1e3)
