from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.laws import Atoms, Gaussian, Uniform
from meanfield_pde.problem import (
    Depth,
    Drift,
    Feature,
    Heads,
    Objective,
    Output,
    Potential,
    Problem,
    Sequence,
    SequenceFile,
    Tokens,
    Training,
)
from meanfield_pde.problem_depth import SCHEMES, STEPPERS
from meanfield_pde.splitting import HEADS as SPLITTINGS

LAW = Gaussian((0.5,), ((0.4,),))
HEAD_LAW = Gaussian((0.2, 0.3), ((0.04, 0.0), (0.0, 0.04)))
SQUARE = Feature("polynomial", (0.5, -1.0, 0.5))
TRAINING = Training(beta=0.05, ds=0.1, s_end=1.0, weight_decay=0.5)
HEADS = Heads("scalar", (-2.0, -2.0), (2.0, 2.0), (32, 32), initial=HEAD_LAW)
CLASSES = Objective("cross-entropy", features=(SQUARE, SQUARE), readout=((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))

GIVEN = Problem(
    "training",
    attention="softmax",
    tokens=Tokens((-5.0,), (6.0,), (64,)),
    heads=HEADS,
    depth=Depth(),
    sequences=(Sequence(LAW),),
    objective=Objective("potential", SQUARE),
    training=TRAINING,
)
MOVED = Problem("tokens", tokens=Tokens((-5.0,), (6.0,), (64,)), depth=Depth(), sequences=(Sequence(LAW),))
DIFFUSED = Problem(
    "fokker-planck",
    heads=Heads(lower=(0.0,), upper=(1.0,), cells=(20,), initial=Uniform((0.0,), (1.0,))),
    potential=Potential(((0.0, -1.0),)),
    training=TRAINING,
)


def with_target(target: Any, objective: Objective) -> dict[str, Any]:
    return {"sequences": (Sequence(LAW, target),), "objective": objective}


def depth(**changes: Any) -> dict[str, Any]:
    return {"depth": Depth(**changes)}


def training(**changes: Any) -> dict[str, Any]:
    return {"training": replace(TRAINING, **changes)}


def tokens(**changes: Any) -> dict[str, Any]:
    return {"tokens": replace(Tokens((-5.0,), (6.0,), (64,)), **changes)}


def heads(**changes: Any) -> dict[str, Any]:
    return {"heads": replace(HEADS, **changes)}


def feature(*args: Any, **changes: Any) -> dict[str, Any]:
    return {"objective": Objective("potential", Feature(*args, **changes))}


@pytest.mark.parametrize(
    "changes",
    [
        *[depth(scheme=name) for name in SCHEMES],
        *[depth(stepper=name, scheme="upwind1") for name in STEPPERS if name != "lax-wendroff"],
        *[training(splitting=name) for name in SPLITTINGS],
        depth(T=0.0, layers=4, cfl=1.4),
        training(beta=0, s_end=0.0, order=1, control="energy"),
        with_target(0, Objective("cross-entropy", features=(SQUARE,), readout=((1.0,),))),
        with_target(2, CLASSES),
        with_target(1.5, Objective("regression", features=(SQUARE,))),
        with_target((1, 2.0), Objective("regression", features=(SQUARE, SQUARE), bias=(0.0, 1.0))),
        with_target(Atoms(((0.0,),)), Objective("energy-distance")),
        feature("bump", center=(0.3,), width=0.5),
        {"output": Output((0.0, 0.5, 1.0), 2, 2, 1)},
        {"sequences": (SequenceFile("a.npz", bandwidth=0.1, train_every=9),)},
    ],
)
def test_what_is_allowed_is_accepted(changes: dict[str, Any]) -> None:
    assert isinstance(replace(GIVEN, **changes), Problem)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "trainig"}, "kind = 'trainig' is not known; did you mean 'training'"),
        ({"seed": 1.5}, "seed = 1.5 must be an integer"),
        ({"seed": -1}, "seed = -1 is too small: take at least 0"),
        ({"attention": None}, "needs attention: set attention = 'softmax'"),
        ({"attention": "sofmax"}, "attention = 'sofmax' is not known; did you mean 'softmax'"),
        ({"training": None, "depth": None}, "kind = 'training' needs depth, training"),
        ({"sequences": ()}, "needs sequences"),
        ({"potential": Potential(((0.0,), (0.0,)))}, "has no use for potential"),
        # tokens
        (tokens(cells=(64.5,)), r"tokens.cells\[0\] = 64.5 must be an integer"),
        (tokens(cells=(True,)), r"tokens.cells\[0\] = True must be an integer"),
        (tokens(cells=(2,)), r"tokens.cells\[0\] = 2 is too small: take at least 3"),
        (tokens(cells=()), "tokens.cells = .* one integer per axis"),
        (tokens(cells=(9,) * 4), "4 axes: 1 to 3 are covered"),
        (tokens(lower=(-5.0, 0.0)), "tokens.lower = .* must have 1 entries"),
        (tokens(upper=(float("inf"),)), r"tokens.upper\[0\] = inf must be finite"),
        (tokens(upper=(-5.0,)), r"tokens.lower\[0\] = -5 must be below tokens.upper\[0\] = -5"),
        (tokens(periodic=(False, False)), "tokens.periodic = .* must have 1 entries"),
        (tokens(periodic=("perodic",)), r"tokens.periodic\[0\] = 'perodic' must be true or false"),
        (tokens(periodic=(True,)), "a ring of angles has the length 2 pi"),
        (tokens(drift=Drift(float("nan"))), "tokens.drift.leak = nan must be finite"),
        (tokens(drift=Drift(0.0, (1.0, 2.0))), "tokens.drift.constant = .* must have 1 entries"),
        # heads
        (heads(family=None), "heads.family is missing; allowed: scalar"),
        (heads(family="skalar"), "did you mean 'scalar'"),
        (heads(family="rotation"), "turns tokens in the plane, but they live in dimension 1"),
        (heads(lower=(0.0,), upper=(1.0,), cells=(9,)), r"1 axes, but family 'scalar' has 2: \(w, a\)"),
        (heads(periodic=(True, False)), "lives between walls"),
        (heads(initial=None), "heads.initial is missing"),
        (heads(initial=LAW), "heads.initial.mean has dimension 1, .* dimension 2"),
        (heads(initial=Atoms(((0.0, 0.0),))), "heads.initial.law = 'atoms' has no density"),
        (heads(initial=replace(HEAD_LAW, covariance=((1.0, 2.0), (2.0, 1.0)))), "heads.initial.covariance .* definite"),
        (heads(weights=(1.0,)), "heads.weights is given without heads.points"),
        ({"heads": Heads("scalar", points=((1.0, 2.0),))}, "heads.points is for kind = 'tokens'"),
        # depth
        (depth(scheme="weno"), "depth.scheme = 'weno' is not known; did you mean 'weno5z'"),
        (depth(scheme="muscl-minmo"), "did you mean 'muscl-minmod'"),
        (depth(stepper="rk4"), "depth.stepper = 'rk4' is not known"),
        (depth(T=-1.0), "depth.T = -1 must be finite and >= 0"),
        (depth(layers=0), "depth.layers = 0 is too small"),
        (depth(cfl=0.0), "depth.cfl = 0 must be finite and > 0 and <= 6"),
        (depth(cfl=6.1), "depth.cfl = 6.1 must be finite and > 0 and <= 6"),
        (depth(shared="yes"), "depth.shared = 'yes' must be true or false"),
        # training
        (training(beta=-0.1), "training.beta = -0.1 must be finite and >= 0"),
        (training(beta="0.1"), "training.beta = '0.1' must be a number"),
        (training(beta=True), "training.beta = True must be a number"),
        (training(weight_decay=-1.0), "training.weight_decay = -1"),
        (training(ds=0.0), "training.ds = 0 must be finite and > 0"),
        (training(s_end=float("inf")), "training.s_end = inf must be finite"),
        (training(splitting="stang"), "training.splitting = 'stang' is not known; did you mean 'strang'"),
        (training(order=3), "training.order = 3 is not covered: take 1 or 2"),
        (training(control="adaptive"), "training.control = 'adaptive' is not known; allowed: fixed, error, energy"),
        (training(tolerance=0.0), "training.tolerance = 0"),
        # output
        ({"output": Output((0.5, 1.5))}, r"output.times\[1\] = 1.5 is beyond training.s_end = 1"),
        ({"output": Output((-0.5,))}, r"output.times\[0\] = -0.5 must be finite and >= 0"),
        ({"output": Output((0.5, 0.5))}, "must increase"),
        ({"output": Output(snapshots=1)}, "output.snapshots = 1 is too small"),
        ({"output": Output(every=0)}, "output.every = 0 is too small"),
        ({"output": Output(checkpoint_every=2.5)}, "output.checkpoint_every = 2.5 must be an integer"),
        # objective and features
        ({"objective": Objective("hinge")}, "objective.kind = 'hinge' is not known"),
        ({"objective": Objective("potential")}, "needs objective.potential"),
        ({"objective": Objective("potential", SQUARE, (SQUARE,))}, "has no use for features"),
        ({"objective": Objective("regression", SQUARE, (SQUARE,))}, "has no use for objective.potential"),
        ({"objective": Objective("regression")}, "needs objective.features"),
        ({"objective": replace(CLASSES, readout=((1.0,),))}, r"objective.readout\[0\] = .* must have 2 entries"),
        ({"objective": replace(CLASSES, bias=(1.0,))}, "objective.bias = .* must have 3 entries"),
        (feature("polynom", (1.0,)), "objective.potential.kind = 'polynom' is not known; did you mean 'polynomial'"),
        (feature("polynomial"), "objective.potential.coefficients is missing"),
        (feature("polynomial", (1.0,), 1), "objective.potential.axis = 1 does not exist"),
        (feature("polynomial", (1.0,), width=1.0), "no center or width"),
        (feature("bump", center=(0.0, 1.0), width=1.0), "objective.potential.center = .* must have 1 entries"),
        (feature("bump", center=(0.0,)), "objective.potential.width is missing"),
        (feature("bump", center=(0.0,), width=-1.0), "objective.potential.width = -1"),
        (feature("bump", (1.0,), center=(0.0,), width=1.0), "no coefficients or axis"),
        # sequences
        ({"sequences": (Sequence(HEAD_LAW),)}, r"sequences\[0\].initial.mean has dimension 2, .* dimension 1"),
        ({"sequences": (Sequence(LAW, role="test"),)}, r"sequences\[0\].role = 'test' is not known"),
        ({"sequences": (Sequence(LAW, role="held-out"),)}, "no sequence has role = .train."),
        ({"sequences": (SequenceFile("a.npz", train_every=0),)}, r"sequences\[0\].train_every = 0"),
        ({"sequences": (SequenceFile("a.npz", bandwidth=0.0),)}, r"sequences\[0\].bandwidth = 0"),
        ({"sequences": (SequenceFile("a.npz"),), "objective": Objective("energy-distance")}, "no target laws"),
        (with_target(1.0, Objective("potential", SQUARE)), r"sequences\[0\].target = 1.0 has no use"),
        (with_target(3, CLASSES), r"sequences\[0\].target = 3 must be a label, an integer from 0 to 2"),
        (with_target(1.0, CLASSES), "must be a label"),
        (with_target(True, CLASSES), "must be a label"),
        (with_target(2, Objective("cross-entropy", features=(SQUARE,))), "an integer from 0 to 1"),
        (with_target(None, Objective("regression", features=(SQUARE,))), "target is missing, .* 1 outputs"),
        (with_target((1.0, 2.0), Objective("regression", features=(SQUARE,))), "target is 2 numbers, .* 1 outputs"),
        (with_target(LAW, Objective("regression", features=(SQUARE,))), "must be a number"),
        (with_target(1.0, Objective("energy-distance")), "must be a law"),
        (with_target(HEAD_LAW, Objective("energy-distance")), r"sequences\[0\].target.mean has dimension 2"),
    ],
)
def test_training_problems_that_cannot_be_solved_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        replace(GIVEN, **changes)


def test_causal_attention_is_refused_by_name() -> None:
    with pytest.raises(MeanFieldError, match="attention = 'causal' is not covered yet"):
        replace(GIVEN, attention="causal")


CUBE_LAW = Gaussian((0.0,) * 3, ((0.02, 0.0, 0.0), (0.0, 0.02, 0.0), (0.0, 0.0, 0.02)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "L2"}, "did you mean 'l2'"),
        ({"attention": "unnormalized"}, "did you mean 'unnormalised'"),
        ({"attention": "windowed"}, "window is missing: give the radius"),
        ({"attention": "windowed", "window": 0.0}, "window = 0 must be finite and > 0"),
        ({"window": 1.0}, "window = 1.0 is for attention = 'windowed'"),
        ({"attention": "none"}, "needs heads.family = 'perceptron', not 'scalar'"),
        (
            heads(family="perceptron", cells=(9,) * 3, lower=(-1.0,) * 3, upper=(1.0,) * 3, initial=CUBE_LAW),
            "set attention = 'none'",
        ),
    ],
)
def test_attentions_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        replace(GIVEN, **changes)


def rotation(**changes: Any) -> Heads:
    angle = np.pi
    law = Gaussian((0.0, 0.5, 0.0), tuple(tuple(row) for row in 0.01 * np.eye(3)))
    given = Heads("rotation", (-1.0, 0.0, -angle), (1.0, 1.0, angle), (9, 9, 9), (False, False, True), law)
    return replace(given, **changes)


@pytest.mark.parametrize(
    ("turned", "message"),
    [
        ({"periodic": ()}, r"the axis phi \(number 2 of 3\) of family 'rotation' is an angle"),
        ({"periodic": (True, False, True)}, r"heads.periodic\[0\]: the axis w of .* lives between walls"),
        ({"lower": (-1.0, 0.0, 0.0)}, r"axis phi: a ring of angles has the length 2 pi = 6.28\d*, not 3.14"),
        ({"family": "scalar"}, r"has 3 axes, but family 'scalar' has 2: \(w, a\)"),
        ({"family": "matrix"}, "has 3 axes, but family 'matrix' has 8: .* give it as heads.points"),
    ],
)
def test_head_boxes_that_do_not_fit_the_plane_are_refused(turned: dict[str, Any], message: str) -> None:
    plane = Gaussian((0.0, 0.0), ((0.1, 0.0), (0.0, 0.1)))
    box = {"tokens": Tokens((-2.0,) * 2, (2.0,) * 2, (16, 16)), "sequences": (Sequence(plane),)}
    loss = Objective("potential", SQUARE)
    assert replace(GIVEN, heads=rotation(), objective=loss, **box).heads == rotation()
    with pytest.raises(MeanFieldError, match=message):
        replace(GIVEN, heads=rotation(**turned), objective=loss, **box)


def test_tokens_move_by_drift_alone_even_on_a_ring_or_by_given_heads() -> None:
    ring = Tokens((0.0,), (1.0,), (16,), (True,), Drift(0.0, (1.0,)))
    assert replace(MOVED, tokens=ring).tokens == ring
    points = Heads("scalar", points=((0.7, 0.8), (0.1, 0.2)), weights=(1.0, 3.0))
    assert replace(MOVED, heads=points, attention="softmax").heads == points
    assert replace(MOVED, heads=HEADS, attention="softmax", objective=Objective("potential", SQUARE)).heads == HEADS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": TRAINING}, "kind = 'tokens' has no use for training"),
        ({"heads": HEADS}, "heads are given but no attention"),
        ({"attention": "softmax"}, "attention is given but no heads"),
        ({"attention": "softmax", "heads": Heads("scalar", points=((1.0,),))}, r"heads.points\[0\] = .* 2 entries"),
        ({"attention": "softmax", "heads": replace(HEADS, points=((1.0, 2.0),))}, "both points and a box"),
        ({"attention": "softmax", "heads": Heads("scalar", points=((1.0, 2.0),), weights=(-1.0,))}, "heads.weights"),
        (tokens(periodic=(True,), drift=Drift(0.9)), "tokens.drift.leak = 0.9 jumps at the seam"),
        ({"sequences": (Sequence(LAW, 1.0),)}, "target = 1.0 has no use without an objective"),
        ({"output": Output((2.0,))}, "beyond depth.T = 1"),
    ],
)
def test_token_problems_that_cannot_be_solved_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        replace(MOVED, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": Depth()}, "kind = 'fokker-planck' has no use for depth"),
        ({"potential": None}, "needs potential"),
        ({"potential": Potential(((1.0,), (1.0,)))}, "2 polynomials, but heads has 1 axes"),
        ({"potential": Potential(((float("nan"),),))}, r"potential.coefficients\[0\]\[0\] = nan"),
        ({"potential": Potential(((1.0,),), float("inf"))}, "potential.interaction = inf"),
        ({"heads": replace(DIFFUSED.heads, family="scalar")}, "leave family out"),
        ({"heads": replace(DIFFUSED.heads, periodic=(True,))}, "jumps by -1 at the seam"),
        (
            {"heads": replace(DIFFUSED.heads, periodic=(True,)), "potential": Potential(((1.0,),), 2.0)},
            "potential.interaction = 2 is not periodic",
        ),
    ],
)
def test_fokker_planck_problems_that_cannot_be_solved_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeanFieldError, match=message):
        replace(DIFFUSED, **changes)


def test_a_potential_without_a_jump_is_accepted_on_a_ring() -> None:
    ring = replace(DIFFUSED.heads, periodic=(True,))
    assert replace(DIFFUSED, heads=ring, potential=Potential(((0.1, -0.3, 0.3),))).heads == ring
