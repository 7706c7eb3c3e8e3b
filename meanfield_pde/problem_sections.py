"""The sections of a problem as frozen dataclasses: exactly what its TOML file can say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.drift_flows import DriftFunction
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Law, Vector
from meanfield_pde.model.heads import HeadFunction
from meanfield_pde.splitting import HeadFlow, Table

T = TypeVar("T")


def given(section: T | None, name: str) -> T:
    """A section that must be there. Raises: MeanFieldError naming it."""
    if section is None:
        raise MeanFieldError(f"[{name}] is missing: this needs a problem that has it")
    return section


@dataclass(frozen=True, slots=True)
class Drift:
    """Prescribed token velocity ``constant`` - ``leak`` x + ``flow``, added to that of attention.

    Meaning: ``flow`` is one of `drift_flows.FLOWS`, with its ``period`` where it has one (1 if left out), or a Python
    function of positions (n, d) and depth t -> velocities (n, d).
    """

    leak: float = 0.0
    constant: Vector = ()
    flow: str | DriftFunction | None = None
    period: float | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The box of the tokens and its cells; ``periodic`` has one entry per axis, empty for walls.

    Meaning: ``noise`` is the coefficient of the Laplacian, dx = V dt + sqrt(2 noise) dB.
    """

    lower: Vector
    upper: Vector
    cells: tuple[int, ...]
    periodic: tuple[bool, ...] = ()
    drift: Drift = Drift()
    noise: float = 0.0

    def grid(self) -> Grid:
        """The grid of the tokens."""
        return Grid(self.lower, self.upper, self.cells, self.periodic or (False,) * len(self.cells))


@dataclass(frozen=True, slots=True)
class Heads:
    """The law of the heads: on a box with an ``initial`` law, or finitely many ``points`` with ``weights``.

    Meaning: ``family`` says how a head acts (scalar: theta = (w, a), W = w I, A = a I), or is a Python function
    theta (K, q) -> A (K, d, d), W (K, d, d); a Fokker-Planck problem has none. ``weights`` are relative, empty for
    equal ones.
    """

    family: str | HeadFunction | None = None
    lower: Vector = ()
    upper: Vector = ()
    cells: tuple[int, ...] = ()
    periodic: tuple[bool, ...] = ()
    initial: Law | None = None
    points: tuple[Vector, ...] = ()
    weights: Vector = ()

    def grid(self) -> Grid:
        """The grid of the heads."""
        return Grid(self.lower, self.upper, self.cells, self.periodic or (False,) * len(self.cells))


@dataclass(frozen=True, slots=True)
class Depth:
    """Depth t in [0, T], its layers, and how the tokens are transported.

    Meaning: ``splitting`` of transport and token noise is a name or a table of (flow, fraction). ``control`` says how
    long the steps are: from the Courant number, at most ``dt`` ("fixed"), or such that they keep to ``tolerance``.
    """

    T: float = 1.0
    layers: int = 1
    shared: bool = True
    scheme: str = "weno5z"
    stepper: str = "ssprk3"
    cfl: float = 0.5
    positivity: bool = False
    splitting: str | Table = "strang"
    control: str = "cfl"
    dt: float | None = None
    tolerance: float = 1e-6

    def edges(self) -> FloatArray:
        """Depths between the layers, (layers + 1,): the owner of the time grid in depth."""
        return np.linspace(0.0, self.T, self.layers + 1)

    def lengths(self) -> tuple[float, ...]:
        """The depth of each layer of heads, (1.0,) when they are shared over depth."""
        return (1.0,) if self.shared else tuple(np.diff(self.edges()).tolist())


@dataclass(frozen=True, slots=True)
class Sequence:
    """One input law with its target; ``role`` is train or held-out.

    Meaning: ``queries`` are points without mass that are carried along; with objective.query each has a number among
    ``query_targets`` that it should end at.
    """

    initial: Law
    target: int | float | Vector | Law | None = None
    role: str = "train"
    queries: tuple[Vector, ...] = ()
    query_targets: Vector = ()


@dataclass(frozen=True, slots=True)
class SequenceFile:
    """Many input laws on common points, in an .npz file beside the problem.

    Meaning: ``points``, ``weights``, ``labels`` name arrays (n, d), (N, n), (N,) or (N, k). Item i
    trains if ``train_every`` divides i, and is held out otherwise. Atoms are shared between cells,
    or become Gaussians of deviation ``bandwidth``.
    """

    file: str
    points: str = "points"
    weights: str = "weights"
    labels: str = "labels"
    bandwidth: float | None = None
    train_every: int = 1


@dataclass(frozen=True, slots=True)
class Feature:
    """A function of a token: ascending polynomial in x_axis, bump exp(-|x - center|²/(2 width²)), or harmonic.

    Meaning: a harmonic c0 cos(2 pi mode x/L) + c1 sin(2 pi mode x/L) lives on a ring axis of length L;
    ``coefficients`` are (c0, c1), or (c0,) alone.
    """

    kind: str
    coefficients: Vector = ()
    axis: int = 0
    center: Vector = ()
    width: float | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A loss on where queries end: ``weight`` times the mean over queries of ½ |x_axis − target|²."""

    axis: int = 0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of the tokens at depth T.

    Meaning: ``potential`` is the integral of a feature; regression and cross-entropy act on
    readout @ (integrals of features) + bias, the features themselves if there is no readout; a single
    row with cross-entropy is the logit of label 1. The energy distance compares with a target law. ``query`` adds the
    loss of the queries, which is all there is of kind query-regression.
    """

    kind: str
    potential: Feature | None = None
    features: tuple[Feature, ...] = ()
    readout: tuple[Vector, ...] = ()
    bias: Vector = ()
    query: QueryTerm | None = None

    @property
    def outputs(self) -> int:
        """Number of components that regression or cross-entropy acts on."""
        return len(self.readout) or len(self.features)


@dataclass(frozen=True, slots=True)
class Potential:
    """Given psi: V, attraction (interaction/2) ∫ |theta - theta'|² rho(dtheta'), and -cosine ∫ cos(theta - theta') rho.

    Meaning: V sums over axes the ascending polynomials ``coefficients`` and, on rings of length L, ``harmonics``: the
    pairs (a_1, b_1), (a_2, b_2), .. of a_k cos(2 pi k theta/L) + b_k sin(2 pi k theta/L). The cosine acts along rings.
    """

    coefficients: tuple[Vector, ...]
    interaction: float = 0.0
    cosine: float = 0.0
    harmonics: tuple[tuple[Vector, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """Samples (x_i, y_i) in an .npz file beside the problem: arrays ``inputs`` and ``targets``, (N,) or (N, 1)."""

    file: str
    inputs: str = "inputs"
    targets: str = "targets"


@dataclass(frozen=True, slots=True)
class TwoGaussians:
    """Equally likely classes in R^dimension: N(0, (1 + difference)² I) labelled 1, N(0, (1 - difference)² I) -1."""

    dimension: int
    difference: float


@dataclass(frozen=True, slots=True)
class Shallow:
    """One layer without transport: the loss of the predictions ∫ K(theta) drho, and the activation of a neuron."""

    loss: str = "squared"
    activation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training time s and its steps; ``beta`` is the coefficient of the Laplacian.

    Meaning: ``splitting`` is a name or a table of (flow, fraction) over drift, diffusion, gibbs and user, which is the
    Python function ``flow``. With ``rest`` the run ends early once ‖∇psi + beta ∇log rho‖ in L2(rho) is at most that.
    """

    beta: float
    ds: float
    s_end: float
    weight_decay: float = 0.0
    splitting: str | Table = "gibbs"
    flow: HeadFlow | None = None
    order: int = 2
    control: str = "fixed"
    tolerance: float = 1e-4
    rest: float | None = None


@dataclass(frozen=True, slots=True)
class Particles:
    """Finitely many tokens and heads, as a particle code has them, in place of their laws.

    Meaning: ``tokens`` a sequence and ``heads``, drawn by ``sampling`` and ``head_sampling``; tokens take ``layers``
    steps in depth (those of [depth] if left out) by an ``integrator``. None is what is not declared. ``sides`` are what
    a run takes as particles: "tokens", "heads", both, or by default none.
    """

    tokens: int | None = None
    heads: int | None = None
    layers: int | None = None
    integrator: str | None = None
    sampling: str = "iid"
    head_sampling: str = "iid"
    sides: tuple[str, ...] = ()

    def layers_in(self, depth: Depth) -> int:
        """Steps in depth: those declared, else those of [depth]."""
        return depth.layers if self.layers is None else self.layers


@dataclass(frozen=True, slots=True)
class Output:
    """What is kept: exact ``times``, a history row each ``every`` steps, snapshots, checkpoints.

    Meaning: a checkpoint is written each ``checkpoint_every`` steps, each ``checkpoint_s`` of training time and each
    ``checkpoint_minutes`` on the clock, whichever comes first, and at the end; the newest ``checkpoint_keep`` stay.
    """

    times: Vector = ()
    every: int = 1
    snapshots: int = 11
    checkpoint_every: int = 100
    checkpoint_s: float | None = None
    checkpoint_minutes: float = 1.0
    checkpoint_keep: int = 2
