"""Splittings as data: a table of flows with the share of the step each takes, and the order that follows from it.

Flows e^{c_1 ds A_1}, .., e^{c_n ds A_n}, one after the other, are e^X with X = ds Σ c_i A_i + ½ ds² Σ_{i<j} c_i c_j
[A_j, A_i] + O(ds³) (Baker, Campbell, Hausdorff). X = ds ΣA to first order when the shares of each flow sum to 1; the
commutator of a and b then has the weight ½ (S_ab − S_ba), S_ab = Σ_{i<j, i is a, j is b} c_i c_j, and S_ab + S_ba = 1:
it vanishes for S_ab = ½. Shares > 0 reach no order beyond 2 (Sheng 1989), and diffusion runs forward alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import TypeVar

from meanfield_pde.arrays import FloatArray
from meanfield_pde.errors import MeanFieldError, nearest

S = TypeVar("S")
Table = tuple[tuple[str, float], ...]
"""(flow, share of the step), the first flow first."""
HeadFlow = Callable[[FloatArray, FloatArray, float], FloatArray]
"""A user's own flow of the heads: theta (K, q), rho (layers, *cells) and a step of s -> the new rho."""
MOST_STAGES = 100
# sums and weights of shares are known to rounding
EXACT = 1e-12


@dataclass(frozen=True, slots=True)
class Splitting:
    """Stages (flow, share), in turn.

    Raises: MeanFieldError for shares that are not finite, not > 0, or do not sum to 1 for each flow.
    Source: Hairer, Lubich & Wanner (2006), III.4.2 and III.5.
    """

    stages: Table

    def __post_init__(self) -> None:
        totals: dict[str, float] = {}
        for name, share in self.stages:
            if not (isfinite(share) and share > 0.0):
                raise MeanFieldError(
                    f"flow {name!r} has the fraction {share:g}: fractions must be finite and > 0, since diffusion "
                    "does not run backward"
                )
            totals[name] = totals.get(name, 0.0) + share
        for name, total in totals.items():
            if not abs(total - 1.0) <= EXACT:
                raise MeanFieldError(f"the fractions of flow {name!r} sum to {total:.15g}: they must sum to 1")

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows that are used, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.stages))

    @property
    def order(self) -> int:
        """2 if Σ_{i<j, i is a, j is b} c_i c_j = ½ for all flows a ≠ b, else 1; one flow alone is not split at all."""
        pairs = [(a, b) for a in self.flows for b in self.flows if a != b]
        return 2 if all(abs(self._before(a, b) - 0.5) <= EXACT for a, b in pairs) else 1

    def _before(self, a: str, b: str) -> float:
        weight, so_far = 0.0, 0.0
        for name, share in self.stages:
            so_far += share if name == a else 0.0
            weight += so_far * share if name == b else 0.0
        return weight

    def until(self, flow: str) -> int:
        """Number of stages before the first one of a flow."""
        return [name for name, _ in self.stages].index(flow)

    def shares(self, flow: str) -> tuple[float, ...]:
        """The shares of a flow in their order."""
        return tuple(share for name, share in self.stages if name == flow)


def compose(
    stages: Sequence[tuple[str, float]], flows: Mapping[str, Callable[[S, float], S]], state: S, length: float
) -> S:
    """The state after all stages in turn, each flow (state, length) -> state over its share of ``length``."""
    for name, share in stages:
        state = flows[name](state, share * length)
    return state


def check_flows(table: Splitting, flows: Mapping[str, object]) -> None:
    """Refuse a table with flows that are not there. Raises: MeanFieldError with the nearest name."""
    for name in table.flows:
        if name not in flows:
            raise MeanFieldError(f"the splitting uses a flow {name!r} that is not there: {nearest(name, flows)}")


HEADS = {
    "gibbs": Splitting((("gibbs", 1.0),)),
    "lie": Splitting((("drift", 1.0), ("diffusion", 1.0))),
    "strang": Splitting((("drift", 0.5), ("diffusion", 1.0), ("drift", 0.5))),
}
TOKENS = {
    "strang": Splitting((("noise", 0.5), ("transport", 1.0), ("noise", 0.5))),
    "lie": Splitting((("transport", 1.0), ("noise", 1.0))),
}
HEAD_FLOWS = ("drift", "diffusion", "gibbs", "user")
TOKEN_FLOWS = ("transport", "noise")


def head_splitting(given: object, own: bool = False, where: str = "training.splitting") -> Splitting:
    """The splitting of the heads that a name or a table says; ``own`` tells that there is a flow of the user's.

    Raises: MeanFieldError for unknown names and flows, wrong fractions, a table that leaves out a part of the equation
    or takes one twice, or a flow of the user's that is used and not there, or there and not used.
    """
    table = _read(given, HEADS, HEAD_FLOWS, where)
    used, parts = set(table.flows), {"drift", "diffusion"}
    if "gibbs" in used and used & parts:
        raise MeanFieldError(
            f"{where} uses 'gibbs' along with {' and '.join(repr(name) for name in table.flows if name in parts)}: "
            "gibbs is drift and diffusion at once, so that they would count twice; keep gibbs, or both others"
        )
    if "gibbs" not in used and not parts <= used:
        missing = " and ".join(repr(name) for name in ("drift", "diffusion") if name not in used)
        raise MeanFieldError(f"{where} leaves out {missing}: use both 'drift' and 'diffusion', or 'gibbs' alone")
    if "user" in used and not own:
        raise MeanFieldError(f"{where} uses the flow 'user' and there is none: give training.flow, a Python function")
    if own and "user" not in used:
        raise MeanFieldError(f"training.flow is given and {where} does not use it: add ('user', 1.0) to a table")
    return table


def token_splitting(given: object, where: str = "depth.splitting") -> Splitting:
    """The splitting of transport and token noise that a name or a table says.

    Raises: MeanFieldError for unknown names and flows, wrong fractions, or a table that leaves one of the two out.
    """
    table = _read(given, TOKENS, TOKEN_FLOWS, where)
    for name in TOKEN_FLOWS:
        if name not in table.flows:
            raise MeanFieldError(f"{where} leaves out {name!r}: use both 'transport' and 'noise'")
    return table


def _read(given: object, named: Mapping[str, Splitting], flows: Sequence[str], where: str) -> Splitting:
    if isinstance(given, str):
        if given not in named:
            raise MeanFieldError(f"{where} = {given!r} is not known; {nearest(given, named)}")
        return named[given]
    words = f"a name ({', '.join(named)}) or a table of (flow, fraction)"
    if not isinstance(given, tuple) or not given:
        raise MeanFieldError(f"{where} = {given!r} must be {words}")
    if len(given) > MOST_STAGES:
        raise MeanFieldError(f"{where} has {len(given)} stages: at most {MOST_STAGES}")
    for k, entry in enumerate(given):
        if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], str):
            raise MeanFieldError(f"{where}[{k}] = {entry!r} must be (flow, fraction)")
        name, share = entry
        if name not in flows:
            raise MeanFieldError(f"{where}[{k}] uses a flow {name!r} that is not known; {nearest(name, flows)}")
        if isinstance(share, bool) or not isinstance(share, Real):
            raise MeanFieldError(f"{where}[{k}] = {entry!r}: the fraction must be a number")
    try:
        return Splitting(tuple((name, float(share)) for name, share in given))
    except MeanFieldError as error:
        raise MeanFieldError(f"{where}: {error}") from None
