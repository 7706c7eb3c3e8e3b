"""Named problems and their exact solutions: an example, a test and a benchmark row each.

A problem is one file in the package's data, ``problems/<name>.toml``; here are its parameters by keyword and, computed
from the numbers of any problem of the same form, its exact solution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from meanfield_pde.errors import MeanFieldError, nearest
from meanfield_pde.library import (
    aggregation,
    circle_tokens,
    fokker_planck,
    gaussian_attentions,
    gaussian_coupled,
    gaussian_shallow,
    gaussian_space,
    gaussian_tokens,
    in_context,
    linear_flow,
    mckean_vlasov,
    neural_ode,
    transport,
    two_diracs,
)
from meanfield_pde.library.exact import Exact, require
from meanfield_pde.library.fokker_planck import SlabMode
from meanfield_pde.library.parameters import Parameter, numerical, with_parameters
from meanfield_pde.problem import Problem
from meanfield_pde.problem_file import load_problem

__all__ = ["NAMES", "Exact", "SlabMode", "exact_of", "get", "parameters_of", "path_of"]


class _Form(NamedTuple):
    """Parameters of a problem, its exact solution, and what fits its boxes to the parameters."""

    parameters: Mapping[str, Parameter]
    exact: Callable[[Problem], Exact]
    fitted: Callable[[Problem, Collection[str]], Problem] | None


# in the order of the list: all coupled, tokens alone, heads alone; problems without an exact solution come last
_FORMS = {
    "gaussian_coupled": _Form(gaussian_coupled.PARAMETERS, gaussian_coupled.exact, gaussian_coupled.fitted),
    "gaussian_layerwise": _Form(gaussian_coupled.PARAMETERS, gaussian_coupled.exact, gaussian_coupled.fitted),
    "in_context_regression": _Form(in_context.PARAMETERS, in_context.exact, None),
    "softmax_gaussian": _Form(
        gaussian_tokens.PARAMETERS | gaussian_tokens.LEAK, gaussian_tokens.exact, gaussian_tokens.fitted
    ),
    "softmax_leak": _Form(
        gaussian_tokens.PARAMETERS | gaussian_tokens.LEAK, gaussian_tokens.exact, gaussian_tokens.fitted
    ),
    "noisy_softmax": _Form(
        gaussian_tokens.PARAMETERS | gaussian_tokens.LEAK | gaussian_tokens.NOISE,
        gaussian_tokens.exact,
        gaussian_tokens.fitted,
    ),
    "softmax_plane": _Form(gaussian_space.parameters(2), gaussian_space.exact, gaussian_space.fitted),
    "softmax_space": _Form(gaussian_space.parameters(3), gaussian_space.exact, gaussian_space.fitted),
    "variable_speed_ring": _Form(transport.RING_PARAMETERS, transport.ring_exact, None),
    "logistic_walls": _Form({}, transport.walls_exact, None),
    "jiang_shu": _Form(transport.WAVE_PARAMETERS, transport.wave_exact, None),
    "sine_power": _Form(transport.WAVE_PARAMETERS, transport.wave_exact, None),
    "zalesak_disk": _Form(transport.PLANE_PARAMETERS, transport.plane_exact, None),
    "leveque_deformation": _Form(transport.PLANE_PARAMETERS, transport.plane_exact, None),
    "aggregation": _Form(aggregation.PARAMETERS, aggregation.exact, None),
    "two_diracs": _Form(two_diracs.PARAMETERS, two_diracs.exact, None),
    "mean_shift": _Form(gaussian_attentions.LINE, gaussian_attentions.exact, gaussian_attentions.fitted),
    "l2_gaussian": _Form(gaussian_attentions.LINE, gaussian_attentions.exact, gaussian_attentions.fitted),
    "l2_plane": _Form(gaussian_attentions.PLANE, gaussian_attentions.exact, gaussian_attentions.fitted),
    "sinkhorn_gaussian": _Form(gaussian_attentions.LINE, gaussian_attentions.exact, gaussian_attentions.fitted),
    "linear_flow": _Form(linear_flow.PARAMETERS, linear_flow.exact, linear_flow.fitted),
    "linear_plane": _Form(linear_flow.PARAMETERS, linear_flow.exact, None),
    "linear_costate": _Form(linear_flow.PARAMETERS, linear_flow.exact, linear_flow.fitted),
    "circle_modes": _Form(circle_tokens.MODES_PARAMETERS, circle_tokens.modes_exact, None),
    "kuramoto": _Form(circle_tokens.KURAMOTO_PARAMETERS, circle_tokens.kuramoto_exact, None),
    "neural_ode": _Form(neural_ode.PARAMETERS, neural_ode.exact, neural_ode.fitted),
    "ornstein_uhlenbeck": _Form(fokker_planck.OU_PARAMETERS, fokker_planck.ou_exact, fokker_planck.ou_fitted),
    "slab": _Form(fokker_planck.SLAB_PARAMETERS, fokker_planck.slab_exact, None),
    "double_well": _Form(fokker_planck.WELL_PARAMETERS, fokker_planck.well_exact, None),
    "desai_zwanzig": _Form(fokker_planck.WELL_PARAMETERS, fokker_planck.well_exact, None),
    "noisy_kuramoto": _Form(mckean_vlasov.KURAMOTO_PARAMETERS, mckean_vlasov.kuramoto_exact, None),
    "shallow_gaussian": _Form(gaussian_shallow.PARAMETERS, gaussian_shallow.exact, gaussian_shallow.fitted),
}


def _folder() -> Path:
    return Path(str(files("meanfield_pde.data") / "problems"))


def _names() -> tuple[str, ...]:
    shipped = {path.stem for path in _folder().glob("*.toml")}
    return tuple([name for name in _FORMS if name in shipped] + sorted(shipped - set(_FORMS)))


NAMES: tuple[str, ...] = _names()


def path_of(name: str) -> Path:
    """The TOML file of a named problem. Raises: MeanFieldError with the nearest name."""
    if name not in NAMES:
        raise MeanFieldError(f"there is no problem named {name!r}: {nearest(name, NAMES)}")
    return _folder() / f"{name}.toml"


def parameters_of(name: str) -> tuple[str, ...]:
    """The keywords that `get` takes for a named problem, physical ones first."""
    return tuple(_parameters(name, load_problem(path_of(name))))


def _parameters(name: str, problem: Problem) -> dict[str, Parameter]:
    physical = dict(_FORMS[name].parameters) if name in _FORMS else {}
    return physical | {key: value for key, value in numerical(problem).items() if key not in physical}


def get(name: str, **parameters: Any) -> tuple[Problem, Exact | None]:
    """A named problem, with some of its parameters changed, and its exact solution if it has one.

    Meaning: the defaults are those of the problem's file. Boxes that are not given are widened, at the same cell
    width, when they do not hold the laws that the parameters lead to.
    Raises: MeanFieldError for an unknown name or parameter (with the nearest one) or a value that does not fit.
    """
    problem = load_problem(path_of(name))
    if parameters:
        problem = with_parameters(problem, _parameters(name, problem), parameters, name)
        form = _FORMS.get(name)
        if form is not None and form.fitted is not None:
            problem = form.fitted(problem, parameters)
    return problem, exact_of(problem)


def exact_of(problem: Problem) -> Exact | None:
    """The exact solution of a problem that names its ``reference``, from the problem's own numbers; else None.

    Raises: MeanFieldError if the reference is unknown or the problem no longer has its form.
    """
    if problem.reference is None:
        return None
    if problem.training is not None:
        require(problem.training.flow is None, problem, "training.flow is set", "no flow of your own")
    if problem.reference in _FORMS:
        return _FORMS[problem.reference].exact(problem)
    known = dict.fromkeys((*_FORMS, *NAMES))
    if problem.reference not in known:
        raise MeanFieldError(f"reference = {problem.reference!r} is unknown: {nearest(problem.reference, known)}")
    return None
