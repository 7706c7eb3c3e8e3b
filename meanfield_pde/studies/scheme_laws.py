"""Laws that a reconstruction of one's own must keep, each measured on small data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.schemes import SCHEMES, DualReconstruction, Reconstruction
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.studies.own_schemes import own_scheme

EXACT = 1e-12  # relative to the largest value
DIFFERENCED = 1e-6  # of a derivative by central differences
STEP = 1e-5
OUTER, INNER = 2, 3
# cells of a line for the order of face values, and how far the wave is from the middle of a period at its left end
LINE, PHASE = 48, 0.4


@dataclass(frozen=True, slots=True)
class Law:
    """What was measured of a law and the most that is allowed; None allows anything: it is told and not judged."""

    law: str
    measured: float
    allowed: float | None
    words: str = ""

    @property
    def held(self) -> bool:
        """Whether it holds; a measurement that is not finite does not."""
        return self.allowed is None or bool(self.measured <= self.allowed)


def scheme_laws(scheme: Reconstruction) -> list[Law]:
    """Every law with what was measured; ends early where nothing more can be measured.

    Meaning: on random positive data of 2 × n × 3 cells with winds of both signs, on a ring and between walls: every
    face gets a finite value, a constant is kept, input is not written to, reflection of axis and wind and a shift of
    a ring commute, a batch has the values of its lines; with ``cells`` ⟨R'(u) w, g⟩ = ⟨w, R'(u)ᵀ g⟩, with R' by the
    scheme itself where it is linear, else by central differences. The order of face values on a smooth wave is told.
    """
    found: list[Law] = []
    try:
        for law in _laws(scheme):
            found.append(law)
            if law.law.startswith("values") and not law.held:
                break
    except Exception as error:  # whatever the user's code raises is his finding, not our failure
        said = f"{type(error).__name__}: {error}"
        found.append(Law("runs", float("nan"), 0.0, said))
    return found


def own_with_laws(own: Mapping[str, Any]) -> tuple[dict[str, Reconstruction], list[dict[str, Any]]]:
    """Of the user's objects by name those that give finite values, as reconstructions, and the laws of all as rows.

    Raises: MeanFieldError for objects that lack something, or have the name of a built-in scheme.
    """
    mine, rows = {}, []
    for name, given in own.items():
        if name in SCHEMES:
            raise MeanFieldError(f"scheme {name!r} of your own has the name of a built-in one: give it another")
        scheme = own_scheme(name, given)
        found = scheme_laws(scheme)
        rows += [{"scheme": name, **asdict(law), "held": law.held} for law in found]
        if usable(found):
            mine[name] = scheme
    return mine, rows


def usable(laws: list[Law]) -> bool:
    """Whether the scheme gives finite values, so that orders can be measured."""
    return all(law.held for law in laws if law.law == "runs" or law.law.startswith("values"))


def _laws(scheme: Reconstruction) -> Iterator[Law]:
    cells = max(16, 3 * scheme.width)
    for where, faces in (("on a ring", cells), ("between walls", cells - 1)):
        generator = np.random.default_rng(1)
        u = 0.5 + generator.random((OUTER, cells, INNER))
        v = generator.choice((-1.0, 1.0), (OUTER, faces, INNER)) * (0.5 + generator.random((OUTER, faces, INNER)))
        kept = u.copy(), v.copy()
        r = _faces(scheme, u, v)
        missing = int((~np.isfinite(r)).sum())
        yield Law(f"values at every face {where}", missing, 0.0, f"{missing} of {r.size} faces are not finite")
        changed = float(np.abs(u - kept[0]).max() + np.abs(v - kept[1]).max())
        yield Law(f"input left as it was {where}", changed, 0.0)
        u, v = kept
        flat = _faces(scheme, np.full_like(u, 0.7), v)
        yield Law(f"a constant is kept {where}", float(np.abs(flat / 0.7 - 1.0).max()), EXACT)
        yield Law(f"mirror symmetry {where}", _gap(_mirrored(scheme, u, v), r), EXACT)
        lines = np.empty_like(r)
        for o in range(OUTER):
            for i in range(INNER):
                one = (np.ascontiguousarray(a[o : o + 1, :, i : i + 1]) for a in (u, v))
                lines[o, :, i] = _faces(scheme, *one)[0, :, 0]
        yield Law(f"a batch has the values of its lines {where}", _gap(lines, r), EXACT)
        if faces == cells:
            moved = _faces(scheme, *(np.roll(a, 5, axis=1) for a in (u, v)))
            yield Law("shift of a ring", _gap(moved, np.roll(r, 5, axis=1)), EXACT)
        if isinstance(scheme, DualReconstruction):
            yield from _duality(scheme, where, v)
    inside, walls = face_orders(scheme)
    yield Law("order of face values inside", inside, None)
    yield Law("order of face values at walls", walls, None)


def _faces(scheme: Reconstruction, u: FloatArray, v: FloatArray) -> FloatArray:
    out = np.full(v.shape, np.nan)
    scheme.faces(u, v, out)
    return out


def _gap(a: FloatArray, b: FloatArray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def _mirrored(scheme: Reconstruction, u: FloatArray, v: FloatArray) -> FloatArray:
    """The face values of the mirrored data, mirrored back; face f lies between cells f and f + 1."""
    turn = -1 if v.shape[1] == u.shape[1] else 0
    back, wind = (np.ascontiguousarray(a[:, ::-1]) for a in (u, v))
    found = _faces(scheme, back, -np.roll(wind, turn, axis=1))
    return np.ascontiguousarray(np.roll(found, -turn, axis=1)[:, ::-1])


def _duality(scheme: DualReconstruction, where: str, v: FloatArray) -> Iterator[Law]:
    cells = v.shape[1] if where == "on a ring" else v.shape[1] + 1
    generator = np.random.default_rng(2)
    angle = 2.0 * np.pi * np.arange(cells)[None, :, None] / cells
    # smooth with some noise, so that a nonlinear scheme is differentiable over the step
    u = 2.0 + np.sin(angle) + 0.3 * generator.random((OUTER, cells, INNER))
    w, g = generator.standard_normal(u.shape), generator.standard_normal(v.shape)
    before = generator.standard_normal(u.shape)
    out = before.copy()
    scheme.cells(u, g, v, out)
    out -= before  # what is there already must stay
    sum_of_two = _faces(scheme, u + w, v)
    linear = _gap(_faces(scheme, u, v) + _faces(scheme, w, v), sum_of_two) <= EXACT
    if linear:
        along, allowed = _faces(scheme, w, v), EXACT
    else:
        along = (_faces(scheme, u + STEP * w, v) - _faces(scheme, u - STEP * w, v)) / (2.0 * STEP)
        allowed = DIFFERENCED
    ahead, back = float((along * g).sum()), float((w * out).sum())
    size = float(np.sqrt((along**2).sum() * (g**2).sum()))
    yield Law(f"cells is the transpose of faces {where}", abs(ahead - back) / size, allowed)


def face_orders(scheme: Reconstruction) -> tuple[float, float]:
    """Orders of the largest error of face values from one line to one of twice its cells: inside, and at the walls.

    Meaning: exact averages of 1 + sin(x + .4)/2 on [0, 1], where it has no extremum; both winds.
    """
    errors = []
    for cells in (max(LINE, 4 * scheme.width), 2 * max(LINE, 4 * scheme.width)):
        edge = np.linspace(0.0, 1.0, cells + 1)
        u = np.diff(edge - 0.5 * np.cos(edge + PHASE)) * cells
        u3 = np.ascontiguousarray(np.stack([u, u])[:, :, None])
        wind = np.ones((2, cells - 1, 1))
        wind[1] = -1.0
        error = np.abs(_faces(scheme, u3, wind)[:, :, 0] - (1.0 + 0.5 * np.sin(edge[1:-1] + PHASE))).max(axis=0)
        near = min(scheme.width, cells // 4)
        errors.append((error[near:-near].max(), max(error[:near].max(), error[-near:].max())))
    (inside, walls), (inside_fine, walls_fine) = errors
    return _order(inside, inside_fine), _order(walls, walls_fine)


def _order(coarse: float, fine: float) -> float:
    return float(np.log2(coarse / fine)) if fine > 0.0 else float("inf")
