"""Checks of a problem's sections, one function each; the messages name the key in the TOML file."""

from __future__ import annotations

from collections.abc import Collection
from math import inf, isfinite, pi, prod
from numbers import Integral, Real

from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.laws import Atoms, Samples, check_law, check_weights
from meanfield_pde.model.attention import ATTENTIONS
from meanfield_pde.model.heads import ALONE, ANGLES, FAMILIES, RADIAL, axes_of
from meanfield_pde.problem_sections import Heads, Output, Tokens, Training
from meanfield_pde.splitting import head_splitting

KINDS = ("training", "tokens", "fokker-planck", "shallow")
REQUIRED = {
    "training": ("attention", "tokens", "heads", "depth", "sequences", "objective", "training"),
    "tokens": ("tokens", "depth", "sequences"),
    "fokker-planck": ("heads", "potential", "training"),
    "shallow": ("attention", "heads", "training"),
}
ALLOWED = {
    "training": (*REQUIRED["training"], "particles"),
    "tokens": ("attention", "tokens", "heads", "depth", "sequences", "objective", "particles"),
    "fokker-planck": REQUIRED["fokker-planck"],
    "shallow": (*REQUIRED["shallow"], "tokens", "sequences", "shallow", "data"),
}
CONTROLS = ("fixed", "error", "energy")
ROLES = ("train", "held-out")
ON_CIRCLE = ("softmax", "unnormalised", "none")
MOST_HEAD_AXES = 4
# beyond these nothing would end in a lifetime or fit into memory
FARTHEST = 1e30
MOST_CELLS, MOST_STEPS, MOST_SNAPSHOTS = 10**7, 1e9, 10**5
NOT_COVERED = {
    "mask": "attention masks are not covered yet; every token attends to every token: remove the key",
    "causal": "causal attention is not covered yet; every token attends to every token: remove the key",
    "layer_norm": "layer normalisation is not covered yet; attention with a prescribed drift is: remove the key",
    "mlp": "MLP blocks are not covered yet; attention with a prescribed drift (tokens.drift) is: remove the key",
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
    if not isinstance(values, tuple):
        raise MeanFieldError(f"{where} = {values!r} must be a tuple of {length} numbers")
    if len(values) != length:
        raise MeanFieldError(f"{where} = {values!r} must have {length} entries")
    for k, value in enumerate(values):
        number(value, f"{where}[{k}]")


def check_attention(attention: str | None, window: float | None) -> None:
    """Refuse unknown attentions, causal ones by name, and a window where there is none or none where there must be."""
    if attention is not None:
        if str(attention).lower() in ("causal", "masked"):
            raise MeanFieldError(f"attention = '{attention}' is not covered yet: every token attends to every token")
        one_of(attention, ATTENTIONS, "attention")
    if attention == "windowed":
        if window is None:
            raise MeanFieldError("window is missing: give the radius r within which tokens attend to each other")
        number(window, "window", 0.0, above=True)
    elif window is not None:
        raise MeanFieldError(f"window = {window!r} is for attention = 'windowed': remove it, or change the attention")


def check_acts(family: object, attention: str | None, kind: str) -> None:
    """Refuse heads that do not act by their attention."""
    alone = family in ALONE
    if family == RADIAL and kind != "shallow":
        raise MeanFieldError(f"heads.family = '{RADIAL}' is for kind = 'shallow', not '{kind}': take another family")
    if alone and attention != "none":
        raise MeanFieldError(f"heads.family = '{family}' looks at no other token: set attention = 'none'")
    if attention == "none" and not alone:
        raise MeanFieldError(f"attention = 'none' needs heads.family = '{ALONE[0]}', not {family!r}")


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


def check_box(box: Tokens | Heads, where: str, most_axes: int = 3) -> None:
    """Refuse a box whose entries do not fit together or that has too many axes; ``where`` is its section."""
    if not box.cells or not isinstance(box.cells, tuple):
        raise MeanFieldError(f"{where}.cells = {box.cells!r} must have one integer per axis")
    dim = len(box.cells)
    for k, count in enumerate(box.cells):
        integer(count, f"{where}.cells[{k}]", 3)
    if prod(box.cells) > MOST_CELLS:
        raise MeanFieldError(f"{where}.cells = {box.cells} makes {prod(box.cells):.3g} cells: at most {MOST_CELLS:.0e}")
    if dim > most_axes:
        raise MeanFieldError(f"{where}.cells = {box.cells} has {dim} axes: 1 to {most_axes} are covered")
    vector(box.lower, f"{where}.lower", dim)
    vector(box.upper, f"{where}.upper", dim)
    if not isinstance(box.periodic, tuple) or len(box.periodic) not in (0, dim):
        raise MeanFieldError(f"{where}.periodic = {box.periodic!r} must have {dim} entries, or none for walls")
    for k, ring in enumerate(box.periodic):
        flag(ring, f"{where}.periodic[{k}]")
    for k, (low, high, n) in enumerate(zip(box.lower, box.upper, box.cells, strict=True)):
        number(low, f"{where}.lower[{k}]", -FARTHEST, FARTHEST)
        number(high, f"{where}.upper[{k}]", -FARTHEST, FARTHEST)
        # a cell has to be more than rounding of its place
        if not (high - low) / n > max(1e-12 * max(abs(low), abs(high)), 1.0 / FARTHEST):
            words = f"{where}.lower[{k}] = {low:g} must be below {where}.upper[{k}] = {high:g}"
            raise MeanFieldError(f"{words}, with room for {n} cells")


def check_tokens(tokens: Tokens, attention: str | None) -> None:
    """Refuse a token box that cannot be used, and rings on which the attention is not defined."""
    check_box(tokens, "tokens")
    if attention is not None and any(tokens.periodic):
        if len(tokens.cells) > 1 or attention not in ON_CIRCLE:
            raise MeanFieldError(
                f"tokens.periodic with attention = '{attention}' on {len(tokens.cells)} axes: on a ring attention is "
                f"that of tokens on the unit circle, one axis, {' or '.join(ON_CIRCLE)}; use walls on every axis"
            )
        check_circumference(tokens.upper[0] - tokens.lower[0], "tokens")
    number(tokens.noise, "tokens.noise", 0.0)


def check_circumference(length: float, where: str) -> None:
    """Refuse a ring of angles that is not once around."""
    if abs(length - 2.0 * pi) > 1e-9:
        raise MeanFieldError(
            f"{where}: a ring of angles has the length 2 pi = {2.0 * pi!r}, not {length!r}: "
            "take lower = -3.141592653589793 and upper = 3.141592653589793"
        )


def check_heads(heads: Heads, kind: str, tokens: Tokens | None) -> None:
    """Refuse heads that do not fit their family, their box, the tokens or the kind of problem."""
    names: tuple[str, ...] | None = None
    if not callable(heads.family) and (heads.family is not None or kind != "fokker-planck"):
        one_of(heads.family, FAMILIES, "heads.family")
        circle = tokens is not None and any(tokens.periodic)
        names = axes_of(str(heads.family), 2 if circle else len(tokens.cells) if tokens is not None else 1)
    axes = None if names is None else len(names)
    if not isinstance(heads.points, tuple):
        raise MeanFieldError(f"heads.points is a {type(heads.points).__name__}: give a tuple of tuples of numbers")
    if heads.points:
        if kind != "tokens":
            raise MeanFieldError(f"heads.points is for kind = 'tokens'; kind = '{kind}' needs a box and heads.initial")
        if heads.lower or heads.upper or heads.cells or heads.periodic or heads.initial is not None:
            raise MeanFieldError("heads has both points and a box: keep points and weights, or the box and its law")
        for k, point in enumerate(heads.points):
            vector(point, f"heads.points[{k}]", len(heads.points[0]) if axes is None else axes)
        if heads.weights:
            check_weights(heads.weights, len(heads.points), "heads.weights")
        return
    if heads.weights:
        raise MeanFieldError("heads.weights is given without heads.points: add points, or remove weights")
    check_box(heads, "heads", MOST_HEAD_AXES)
    if names is not None:
        _check_head_axes(heads, names, kind)
    if heads.initial is None:
        raise MeanFieldError("heads.initial is missing: give the law of the heads at s = 0, such as law = 'gaussian'")
    if isinstance(heads.initial, Atoms | Samples):
        raise MeanFieldError(f"heads.initial.law = '{heads.initial.law}' has no density: take gaussian or uniform")
    check_law(heads.initial, len(heads.cells), "heads.initial")


def _check_head_axes(heads: Heads, names: tuple[str, ...], kind: str) -> None:
    """Refuse a head box with other axes than its family has, or with an angle between walls."""
    if len(heads.cells) != len(names):
        hint = "; leave family out of a fokker-planck problem" if kind == "fokker-planck" else ""
        hint = "; give it as heads.points" if len(names) > MOST_HEAD_AXES else hint
        raise MeanFieldError(
            f"heads.cells = {heads.cells} has {len(heads.cells)} axes, but family '{heads.family}' has {len(names)}: "
            f"({', '.join(names)}){hint}"
        )
    rings = heads.periodic or (False,) * len(names)
    for k, (name, ring) in enumerate(zip(names, rings, strict=True)):
        if ring and name not in ANGLES:
            raise MeanFieldError(f"heads.periodic[{k}]: the axis {name} of family '{heads.family}' lives between walls")
        if name in ANGLES and not ring:
            raise MeanFieldError(
                f"heads.periodic = {list(heads.periodic)}: the axis {name} (number {k} of {len(names)}) of family "
                f"'{heads.family}' is an angle: set heads.periodic[{k}] = true"
            )
        if ring:
            check_circumference(heads.upper[k] - heads.lower[k], f"heads, axis {name}")


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
    one_of(training.control, CONTROLS, "training.control")
    head_splitting(training.splitting, training.flow is not None)
    if training.flow is not None:
        _check_flow(training)
    if training.rest is not None:
        number(training.rest, "training.rest", 0.0)
    integer(training.order, "training.order", 1)
    if training.order > 2:
        raise MeanFieldError(f"training.order = {training.order} is not covered: take 1 or 2")


def _check_flow(training: Training) -> None:
    """Refuse a flow that is no function, and what looks at the free energy, which knows no such flow."""
    if not callable(training.flow):
        raise MeanFieldError(f"training.flow = {training.flow!r} must be a Python function of (theta, rho, ds)")
    for key, wrong in (("control = 'energy'", training.control == "energy"), ("rest", training.rest is not None)):
        if wrong:
            raise MeanFieldError(f"training.{key} looks at the free energy, which knows no training.flow: remove one")


def check_output(output: Output, end: float, name: str) -> None:
    """Refuse output times outside [0, end] or out of order, and counts that are too small."""
    integer(output.every, "output.every", 1)
    integer(output.snapshots, "output.snapshots", 2)
    if output.snapshots > MOST_SNAPSHOTS:
        raise MeanFieldError(f"output.snapshots = {output.snapshots} is more than {MOST_SNAPSHOTS}: take fewer")
    integer(output.checkpoint_every, "output.checkpoint_every", 1)
    integer(output.checkpoint_keep, "output.checkpoint_keep", 1)
    number(output.checkpoint_minutes, "output.checkpoint_minutes", 0.0, above=True)
    if output.checkpoint_s is not None:
        number(output.checkpoint_s, "output.checkpoint_s", 0.0, above=True)
    if len(output.times) > MOST_SNAPSHOTS:
        raise MeanFieldError(f"output.times has {len(output.times)} entries, more than {MOST_SNAPSHOTS}: take fewer")
    for k, time in enumerate(output.times):
        number(time, f"output.times[{k}]", 0.0)
        if time > end:
            raise MeanFieldError(f"output.times[{k}] = {time:g} is beyond {name} = {end:g}: drop it or raise {name}")
        if k and not output.times[k - 1] < time:
            raise MeanFieldError(f"output.times = {list(output.times)} must increase")
