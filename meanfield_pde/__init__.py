"""Mean-field limits of transformers: the token law mu, its costate p and the head law rho, solved on grids.

Names load when first used, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanfield_pde import laws as laws
    from meanfield_pde import library as library
    from meanfield_pde.equations.grid_tokens import GridTokens as GridTokens
    from meanfield_pde.equations.mu_continuity import Transport as Transport
    from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads as FokkerPlanckHeads
    from meanfield_pde.errors import MeanFieldError as MeanFieldError
    from meanfield_pde.grid import Grid as Grid
    from meanfield_pde.measure import Measure as Measure
    from meanfield_pde.output.report import read_run as read_run
    from meanfield_pde.output.solution import Solution as Solution
    from meanfield_pde.output.solve import solve as solve
    from meanfield_pde.particles.langevin import LangevinHeads as LangevinHeads
    from meanfield_pde.particles.of_problem import run_tokens as run_tokens
    from meanfield_pde.particles.token_side import ParticleTokenSide as ParticleTokenSide
    from meanfield_pde.particles.tokens import ParticleTokens as ParticleTokens
    from meanfield_pde.particles.tokens import carry as carry
    from meanfield_pde.problem import Problem as Problem
    from meanfield_pde.problem import Sequence as Sequence
    from meanfield_pde.problem import SequenceFile as SequenceFile
    from meanfield_pde.problem_file import load_problem as load_problem
    from meanfield_pde.training.particle_runs import run_training as run_training
    from meanfield_pde.training.stationary import critical_beta as critical_beta
    from meanfield_pde.training.stationary import stability as stability
    from meanfield_pde.training.stationary import stationary as stationary

# in the order of the equations: what is given, mu and p, rho, training
_WHERE = {
    "Grid": "meanfield_pde.grid",
    "Measure": "meanfield_pde.measure",
    "Problem": "meanfield_pde.problem",
    "Sequence": "meanfield_pde.problem",
    "SequenceFile": "meanfield_pde.problem",
    "load_problem": "meanfield_pde.problem_file",
    "Transport": "meanfield_pde.equations.mu_continuity",
    "GridTokens": "meanfield_pde.equations.grid_tokens",
    "ParticleTokens": "meanfield_pde.particles.tokens",
    "carry": "meanfield_pde.particles.tokens",
    "run_tokens": "meanfield_pde.particles.of_problem",
    "ParticleTokenSide": "meanfield_pde.particles.token_side",
    "FokkerPlanckHeads": "meanfield_pde.equations.rho_fokker_planck",
    "LangevinHeads": "meanfield_pde.particles.langevin",
    "run_training": "meanfield_pde.training.particle_runs",
    "solve": "meanfield_pde.output.solve",
    "Solution": "meanfield_pde.output.solution",
    "read_run": "meanfield_pde.output.report",
    "stationary": "meanfield_pde.training.stationary",
    "stability": "meanfield_pde.training.stationary",
    "critical_beta": "meanfield_pde.training.stationary",
    "MeanFieldError": "meanfield_pde.errors",
}

__all__ = ["laws", "library", *_WHERE]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("meanfield-pde")
    if name in ("laws", "library"):
        return import_module(f"meanfield_pde.{name}")
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'meanfield_pde' has no attribute {name!r}")
