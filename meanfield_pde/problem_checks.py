"""Checks of a problem's sections, one function each; the messages name the key in the TOML file."""

from __future__ import annotations

from collections.abc import Collection
from math import inf, isfinite, prod
from numbers import Integral, Real

from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.laws import Atoms, Samples, check_law, check_weights
from meanfield_pde.model.heads import AXES
from meanfield_pde.problem_sections import Depth, Heads, Output, Tokens, Training

KINDS = ("training", "tokens", "fokker-planck")
REQUIRED = {
    "training": ("attention", "tokens", "heads", "depth", "sequences", "objective", "training"),
    "tokens": ("tokens", "depth", "sequences"),
    "fokker-planck": ("heads", "potential", "training"),
}
ALLOWED = {
    "training": REQUIRED["training"],
    "tokens": ("attention", "tokens", "heads", "depth", "sequences", "objective"),
    "fokker-planck": REQUIRED["fokker-planck"],
}
SCHEMES = ("upwind1", "linear3", "linear5", "muscl-minmod", "muscl-mc", "muscl-vanleer", "muscl-vanalbada", "weno5z")
STEPPERS = ("ssprk1", "ssprk2", "ssprk3")
SPLITTINGS = ("gibbs", "lie", "strang")
CONTROLS = ("fixed", "energy")
ROLES = ("train", "held-out")
FAMILIES_NOT_COVERED = ("rotation", "diagonal", "matrix")
ATTENTION_NOT_COVERED = ("causal", "linear", "l2", "unnormalised", "windowed", "sinkhorn", "none")
MOST_CFL = 1.7
# beyond these nothing would end in a lifetime or fit into memory
MOST_CELLS, MOST_LAYERS, MOST_STEPS, MOST_SNAPSHOTS = 10**7, 10**6, 1e9, 10**5
NOT_COVERED = {
    "mask": "attention masks are not covered yet; every token attends to every token: remove the key",
    "causal": "causal attention is not covered yet; every token attends to every token: remove the key",
    "window": "windowed attention is not covered yet; attention = \"softmax\" is: remove the key",
    "layer_norm": "layer normalisation is not covered yet; attention with a prescribed drift is: remove the key",
    "mlp": "MLP blocks are not covered yet; attention with a prescribed drift (tokens.drift) is: remove the key",
    "noise": "token noise is not covered yet; tokens move by attention and a prescribed drift: remove the key",
}  # fmt: skip


def number(value: object, where: str, low: float = -inf, high: float = inf, above: bool = False) -> None:
    """Refuse what is not a finite number in [low, high], or in (low, high] if ``above``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise MeanFieldError(f"{where} = {value!r} must be a number")
    value = float(value)
    if not (isfinite(value) and low <= value <= high) or (above and value == low):
        lower = "" if low == -inf else f" and {'>' if above else '>='} {low:g}"
        upper = "" if high == inf else f" and <= {high:g}"
        raise MeanFieldError(f"{where} = {value:g} must be finite{lower}{upper}")


def integer(value: object, where: str, low: int) -> None:
    """Refuse what is not an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise MeanFieldError(f"{where} = {value!r} must be an integer")
    if value < low:
        raise MeanFieldError(f"{where} = {value} is too small: take at least {low}")


def flag(value: object, where: str) -> None:
    """Refuse what is not true or false."""
    if not isinstance(value, bool):
        raise MeanFieldError(f"{where} = {value!r} must be true or false")


def one_of(value: object, choices: Collection[str], where: str) -> None:
    """Refuse a word that is not among the choices, naming the nearest one."""
    if value is None:
        raise MeanFieldError(f"{where} is missing; allowed: {', '.join(choices)}")
    if not isinstance(value, str) or value not in choices:
        raise MeanFieldError(f"{where} = {value!r} is not known; {nearest(str(value), choices)}")


def vector(values: object, where: str, length: int) -> None:
    """Refuse what is not a tuple of ``length`` finite numbers."""
    if not isinstance(values, tuple) or len(values) != length:
        raise MeanFieldError(f"{where} = {values!r} must have {length} entries")
    for k, value in enumerate(values):
        number(value, f"{where}[{k}]")


def check_not_covered(attention: str | None) -> None:
    """Refuse by name the attention that is known but not solved yet, and unknown names."""
    if attention is None or attention == "softmax":
        return
    word = str(attention).lower().replace("unnormalized", "unnormalised")
    if word in ATTENTION_NOT_COVERED:
        raise MeanFieldError(f"attention = '{attention}' is not covered yet; attention = 'softmax' is")
    one_of(attention, ("softmax",), "attention")


def check_sections(kind: str, given: Collection[str]) -> None:
    """Refuse missing sections of a kind of problem, and sections that would have no effect."""
    missing = [name for name in REQUIRED[kind] if name not in given]
    extra = [name for name in given if name not in ALLOWED[kind]]
    if missing:
        remedy = "set attention = 'softmax'" if missing == ["attention"] else "add what is missing"
        raise MeanFieldError(f"kind = '{kind}' needs {', '.join(missing)}: {remedy}")
    if extra:
        useless, allowed = ", ".join(sorted(extra)), ", ".join(ALLOWED[kind])
        raise MeanFieldError(f"kind = '{kind}' has no use for {useless}: remove it; it takes {allowed}")
    if "heads" in given and kind == "tokens" and "attention" not in given:
        raise MeanFieldError("heads are given but no attention: set attention = 'softmax'")
    if "attention" in given and "heads" not in given:
        raise MeanFieldError("attention is given but no heads: add heads, or remove it to move tokens by drift alone")


def check_box(box: Tokens | Heads, where: str) -> None:
    """Refuse a box whose entries do not fit together; ``where`` is its section."""
    if not box.cells or not isinstance(box.cells, tuple):
        raise MeanFieldError(f"{where}.cells = {box.cells!r} must have one integer per axis")
    dim = len(box.cells)
    for k, count in enumerate(box.cells):
        integer(count, f"{where}.cells[{k}]", 3)
    if prod(box.cells) > MOST_CELLS:
        raise MeanFieldError(f"{where}.cells = {box.cells} makes {prod(box.cells):.3g} cells: at most {MOST_CELLS:.0e}")
    if dim > 3:
        raise MeanFieldError(f"{where}.cells = {box.cells} has {dim} axes: 1 to 3 are covered")
    vector(box.lower, f"{where}.lower", dim)
    vector(box.upper, f"{where}.upper", dim)
    if not isinstance(box.periodic, tuple) or len(box.periodic) not in (0, dim):
        raise MeanFieldError(f"{where}.periodic = {box.periodic!r} must have {dim} entries, or none for walls")
    for k, ring in enumerate(box.periodic):
        flag(ring, f"{where}.periodic[{k}]")
    for k, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
        if not low < high:
            raise MeanFieldError(f"{where}.lower[{k}] = {low:g} must be below {where}.upper[{k}] = {high:g}")


def check_tokens(tokens: Tokens, with_attention: bool) -> None:
    """Refuse a token box or drift that cannot be used."""
    check_box(tokens, "tokens")
    if with_attention and any(tokens.periodic):
        raise MeanFieldError(
            "tokens.periodic: softmax attention on the circle is not covered yet; "
            "use walls on every axis, or tokens without heads"
        )
    number(tokens.drift.leak, "tokens.drift.leak")
    if tokens.drift.constant:
        vector(tokens.drift.constant, "tokens.drift.constant", len(tokens.cells))
    if tokens.drift.leak != 0 and any(tokens.periodic):
        raise MeanFieldError(
            f"tokens.drift.leak = {tokens.drift.leak:g} jumps at the seam of a periodic axis: use walls, or leak = 0"
        )


def check_heads(heads: Heads, kind: str) -> None:
    """Refuse heads that do not fit their family, their box or the kind of problem."""
    if heads.family in FAMILIES_NOT_COVERED:
        raise MeanFieldError(f"heads.family = '{heads.family}' is not covered yet; heads.family = 'scalar' is")
    if heads.family is not None or kind != "fokker-planck":
        one_of(heads.family, AXES, "heads.family")
    axes = len(AXES[heads.family]) if heads.family in AXES else None
    if heads.points:
        if kind != "tokens":
            raise MeanFieldError(f"heads.points is for kind = 'tokens'; kind = '{kind}' needs a box and heads.initial")
        if heads.lower or heads.upper or heads.cells or heads.periodic or heads.initial is not None:
            raise MeanFieldError("heads has both points and a box: keep points and weights, or the box and its law")
        for k, point in enumerate(heads.points):
            vector(point, f"heads.points[{k}]", axes or 0)
        if heads.weights:
            check_weights(heads.weights, len(heads.points), "heads.weights")
        return
    if heads.weights:
        raise MeanFieldError("heads.weights is given without heads.points: add points, or remove weights")
    check_box(heads, "heads")
    if axes is not None and len(heads.cells) != axes:
        hint = "; leave family out of a fokker-planck problem" if kind == "fokker-planck" else ""
        raise MeanFieldError(
            f"heads.cells = {heads.cells} has {len(heads.cells)} axes, but family 'scalar' has 2: (w, a){hint}"
        )
    if axes is not None and any(heads.periodic):
        raise MeanFieldError("heads.periodic: family 'scalar' lives between walls: remove the key")
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law of the heads at s = 0, such as law = 'gaussian'")
    if isinstance(heads.initial, Atoms | Samples):
        raise MeanFieldError(f"heads.initial.law = '{heads.initial.law}' has no density: take gaussian or uniform")
    check_law(heads.initial, len(heads.cells), "heads.initial")


def check_depth(depth: Depth) -> None:
    """Refuse depth settings out of range."""
    number(depth.T, "depth.T", 0.0)
    integer(depth.layers, "depth.layers", 1)
    if depth.layers > MOST_LAYERS:
        raise MeanFieldError(f"depth.layers = {depth.layers} is more than {MOST_LAYERS}: take fewer")
    flag(depth.shared, "depth.shared")
    if depth.T == 0 and not depth.shared:
        raise MeanFieldError("depth.T = 0 leaves no layers to tell apart: take T > 0, or shared = true")
    flag(depth.positivity, "depth.positivity")
    if depth.scheme == "weno":
        raise MeanFieldError("depth.scheme = 'weno' is not known; did you mean 'weno5z'?")
    one_of(depth.scheme, SCHEMES, "depth.scheme")
    one_of(depth.stepper, STEPPERS, "depth.stepper")
    number(depth.cfl, "depth.cfl", 0.0, MOST_CFL, above=True)


def check_training(training: Training) -> None:
    """Refuse training settings out of range."""
    number(training.beta, "training.beta", 0.0)
    number(training.weight_decay, "training.weight_decay", 0.0)
    number(training.ds, "training.ds", 0.0, above=True)
    number(training.s_end, "training.s_end", 0.0)
    if training.s_end / training.ds > MOST_STEPS:
        raise MeanFieldError(
            f"training.s_end = {training.s_end:g} in steps of training.ds = {training.ds:g} is more than "
            f"{MOST_STEPS:.0e} steps: raise ds or lower s_end"
        )
    number(training.tolerance, "training.tolerance", 0.0, above=True)
    one_of(training.splitting, SPLITTINGS, "training.splitting")
    one_of(training.control, CONTROLS, "training.control")
    integer(training.order, "training.order", 1)
    if training.order > 2:
        raise MeanFieldError(f"training.order = {training.order} is not covered: take 1 or 2")


def check_output(output: Output, end: float, name: str) -> None:
    """Refuse output times outside [0, end] or out of order, and counts that are too small."""
    integer(output.every, "output.every", 1)
    integer(output.snapshots, "output.snapshots", 2)
    if output.snapshots > MOST_SNAPSHOTS:
        raise MeanFieldError(f"output.snapshots = {output.snapshots} is more than {MOST_SNAPSHOTS}: take fewer")
    integer(output.checkpoint_every, "output.checkpoint_every", 1)
    for k, time in enumerate(output.times):
        number(time, f"output.times[{k}]", 0.0)
        if time > end:
            raise MeanFieldError(f"output.times[{k}] = {time:g} is beyond {name} = {end:g}: drop it or raise {name}")
        if k and not output.times[k - 1] < time:
            raise MeanFieldError(f"output.times = {list(output.times)} must increase")
