"""Checks of sequences, objective and potential: dimensions, and targets that fit the loss."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from meanfield_pde.errors import MeanFieldError
from meanfield_pde.grid import Grid
from meanfield_pde.laws import Law, Vector, check_law
from meanfield_pde.problem_checks import ROLES, check_circumference, integer, number, one_of, vector
from meanfield_pde.problem_sections import Feature, Objective, Potential, Sequence, SequenceFile, Tokens

OBJECTIVES = ("potential", "regression", "cross-entropy", "energy-distance", "query-regression")
# losses without targets of their own
UNTARGETED = ("potential", "query-regression")
FEATURES = ("polynomial", "bump", "harmonic")
Target = int | float | Vector | Law | None


def check_objective(objective: Objective, dim: int) -> None:
    """Refuse an objective whose parts do not fit each other or the dimension of the tokens."""
    one_of(objective.kind, OBJECTIVES, "objective.kind")
    if objective.kind == "potential":
        if objective.potential is None:
            raise MeanFieldError("objective.kind = 'potential' needs objective.potential: give a feature")
        check_feature(objective.potential, dim, "objective.potential")
    elif objective.potential is not None:
        raise MeanFieldError(f"objective.kind = '{objective.kind}' has no use for objective.potential: remove it")
    if objective.kind in (*UNTARGETED, "energy-distance"):
        if objective.features or objective.readout or objective.bias:
            raise MeanFieldError(
                f"objective.kind = '{objective.kind}' has no use for features, readout or bias: remove them"
            )
        return
    if not objective.features:
        raise MeanFieldError(f"objective.kind = '{objective.kind}' needs objective.features: give at least one")
    for k, feature in enumerate(objective.features):
        check_feature(feature, dim, f"objective.features[{k}]")
    for k, row in enumerate(objective.readout):
        vector(row, f"objective.readout[{k}]", len(objective.features))
    if objective.bias:
        vector(objective.bias, "objective.bias", objective.outputs)


def check_rings(objective: Objective, tokens: Tokens) -> None:
    """Refuse losses that jump at the seam of a periodic token axis, and harmonics that do not fit their axis."""
    grid = tokens.grid()
    if objective.kind == "energy-distance" and any(grid.periodic):
        raise MeanFieldError(
            "objective.kind = 'energy-distance' on a periodic token axis is not covered: |x - y| has a kink opposite "
            "to each token; use regression on harmonics, or walls"
        )
    named = [(f"objective.features[{k}]", feature) for k, feature in enumerate(objective.features)]
    if objective.potential is not None:
        named.append(("objective.potential", objective.potential))
    for where, feature in named:
        if feature.kind == "harmonic":
            if not grid.periodic[feature.axis]:
                raise MeanFieldError(
                    f"{where}: a harmonic lives on a ring, but axis {feature.axis} has walls: set tokens.periodic, or "
                    "take kind = 'polynomial' or 'bump'"
                )
            if 2 * (feature.mode or 0) >= grid.cells[feature.axis]:
                raise MeanFieldError(
                    f"{where}.mode = {feature.mode} is not resolved by tokens.cells = {grid.cells[feature.axis]} on "
                    f"axis {feature.axis}: take at least {2 * (feature.mode or 0) + 1} cells, or a lower mode"
                )
        elif grid.periodic[feature.axis] if feature.kind == "polynomial" else any(grid.periodic):
            raise MeanFieldError(
                f"{where}: a {feature.kind} jumps at the seam of a periodic token axis: take kind = 'harmonic', or "
                "use walls"
            )


def check_feature(feature: Feature, dim: int, where: str) -> None:
    """Refuse a feature with missing, unused or misfitting entries."""
    one_of(feature.kind, FEATURES, f"{where}.kind")
    if feature.mode is not None and feature.kind != "harmonic":
        raise MeanFieldError(f"{where}: a {feature.kind} has no mode: remove it, or take kind = 'harmonic'")
    if feature.kind == "bump":
        if feature.coefficients or feature.axis != 0:
            raise MeanFieldError(f"{where}: a bump has no coefficients or axis: remove them")
        vector(feature.center, f"{where}.center", dim)
        if feature.width is None:
            raise MeanFieldError(f"{where}.width is missing: give the deviation of the bump")
        number(feature.width, f"{where}.width", 0.0, above=True)
        return
    if feature.center or feature.width is not None:
        raise MeanFieldError(f"{where}: a {feature.kind} has no center or width: remove them")
    if not feature.coefficients:
        order = "the polynomial in ascending order" if feature.kind == "polynomial" else "those of cos and sin"
        raise MeanFieldError(f"{where}.coefficients is missing: give {order}")
    if feature.kind == "harmonic":
        if feature.mode is None:
            raise MeanFieldError(f"{where}.mode is missing: give k of cos(2 pi k x/L), an integer of at least 1")
        integer(feature.mode, f"{where}.mode", 1)
        if len(feature.coefficients) > 2:
            raise MeanFieldError(f"{where}.coefficients = {feature.coefficients}: give those of cos and sin, or of cos")
    vector(feature.coefficients, f"{where}.coefficients", len(feature.coefficients))
    integer(feature.axis, f"{where}.axis", 0)
    if feature.axis >= dim:
        raise MeanFieldError(f"{where}.axis = {feature.axis} does not exist: the tokens have axes 0 to {dim - 1}")


def check_sequences(
    sequences: tuple[Sequence | SequenceFile, ...],
    objective: Objective | None,
    dim: int,
    with_targets: bool = True,
    shallow: bool = False,
) -> None:
    """Refuse sequences of another dimension than the tokens or with targets that the objective cannot use.

    A ``shallow`` problem has no objective: its targets are polynomials of the token.

    Without ``with_targets`` they are there to be predicted: a target may be missing, and none has to train.
    """
    for k, entry in enumerate(sequences):
        where = f"sequences[{k}]"
        if isinstance(entry, SequenceFile):
            integer(entry.train_every, f"{where}.train_every", 1)
            if entry.bandwidth is not None:
                number(entry.bandwidth, f"{where}.bandwidth", 0.0, above=True)
            if with_targets and objective is not None and objective.kind == "energy-distance":
                raise MeanFieldError(f"{where}: a file has no target laws for objective.kind = 'energy-distance'")
            continue
        check_law(entry.initial, dim, f"{where}.initial")
        one_of(entry.role, ROLES, f"{where}.role")
        if with_targets or entry.target is not None:
            check_target(entry.target, objective, dim, f"{where}.target", shallow)
    if with_targets and not any(isinstance(entry, SequenceFile) or entry.role == "train" for entry in sequences):
        raise MeanFieldError("no sequence has role = 'train', so there is nothing to carry: set it on at least one")


def check_target(
    target: Target, objective: Objective | None, dim: int, where: str, shallow: bool = False
) -> None:
    """Refuse a target that does not fit the objective, or is no polynomial of a token in a ``shallow`` problem."""
    if shallow:
        values = target if isinstance(target, tuple) else (target,)
        if not values or not all(isinstance(value, int | float) for value in values):
            raise MeanFieldError(
                f"{where} = {target!r} must be a number, or the coefficients of a polynomial of the token, ascending"
            )
        for k, value in enumerate(values):
            number(value, f"{where}[{k}]" if isinstance(target, tuple) else where)
    elif objective is None or objective.kind in UNTARGETED:
        if target is not None:
            what = "without an objective" if objective is None else f"with objective.kind = '{objective.kind}'"
            raise MeanFieldError(f"{where} = {target!r} has no use {what}: remove it")
    elif objective.kind == "energy-distance":
        if target is None or isinstance(target, int | float | tuple):
            raise MeanFieldError(f"{where} = {target!r} must be a law for objective.kind = 'energy-distance'")
        check_law(target, dim, where)
    elif objective.kind == "cross-entropy":
        classes = max(objective.outputs, 2)
        if isinstance(target, bool) or not isinstance(target, Integral) or not 0 <= target < classes:
            raise MeanFieldError(f"{where} = {target!r} must be a label, an integer from 0 to {classes - 1}")
    else:
        values = target if isinstance(target, tuple) else (target,)
        if target is None or len(values) != objective.outputs:
            given = "missing" if target is None else f"{len(values)} numbers"
            raise MeanFieldError(f"{where} is {given}, but the objective has {objective.outputs} outputs: give as many")
        for k, value in enumerate(values):
            number(value, f"{where}[{k}]" if isinstance(target, tuple) else where)


def check_potential(potential: Potential, grid: Grid) -> None:
    """Refuse a potential that has another dimension than the heads or jumps at the seam of a ring."""
    if len(potential.coefficients) != grid.dim:
        raise MeanFieldError(
            f"potential.coefficients has {len(potential.coefficients)} polynomials, but heads has {grid.dim} axes"
        )
    number(potential.interaction, "potential.interaction")
    _check_rings_of(potential, grid)
    if potential.interaction != 0 and any(grid.periodic):
        raise MeanFieldError(
            f"potential.interaction = {potential.interaction:g} is not periodic: use walls, or interaction = 0"
        )
    for k, row in enumerate(potential.coefficients):
        if not row:
            raise MeanFieldError(f"potential.coefficients[{k}] is empty: give at least the constant, such as [0.0]")
        vector(row, f"potential.coefficients[{k}]", len(row))
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = np.polynomial.polynomial.polyval(np.array([grid.lower[k], grid.upper[k]]), row)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise MeanFieldError(
                f"potential.coefficients[{k}] is not finite at the walls {grid.lower[k]:g} and {grid.upper[k]:g}: "
                "take smaller coefficients or a smaller box"
            )
        if grid.periodic[k] and abs(high - low) > 1e-12 * max(abs(low), abs(high), 1e-300):
            raise MeanFieldError(
                f"potential.coefficients[{k}] jumps by {high - low:g} at the seam of periodic axis {k}: use walls"
            )


def _check_rings_of(potential: Potential, grid: Grid) -> None:
    """Refuse what lives on rings between walls, or on rings of another length than once around."""
    number(potential.cosine, "potential.cosine")
    if potential.cosine != 0:
        if not any(grid.periodic):
            raise MeanFieldError(
                f"potential.cosine = {potential.cosine:g} acts along rings: set heads.periodic = true on an axis, or "
                "use potential.interaction between walls"
            )
        for k in np.flatnonzero(grid.periodic).tolist():
            check_circumference(grid.upper[k] - grid.lower[k], f"potential.cosine on heads, axis {k}")
    if potential.harmonics and len(potential.harmonics) != grid.dim:
        raise MeanFieldError(
            f"potential.harmonics has {len(potential.harmonics)} lists, but heads has {grid.dim} axes: give one each, "
            "empty between walls"
        )
    for axis, rows in enumerate(potential.harmonics):
        if rows and not grid.periodic[axis]:
            raise MeanFieldError(f"potential.harmonics[{axis}] is for a ring: axis {axis} has walls; use coefficients")
        for j, row in enumerate(rows):
            vector(row, f"potential.harmonics[{axis}][{j}]", 2)
