"""What every run measures at each step, what of it is worst, and what of that deserves a warning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.rho_fokker_planck import FokkerPlanckHeads
from meanfield_pde.model.sides import HeadSide, TokenReport
from meanfield_pde.model.softmax_cost import TOLERANCE
from meanfield_pde.particles.langevin import LangevinHeads
from meanfield_pde.training.state import Moment

# one series a diagnostic: the meaning goes into the result file
COLUMNS = {
    "s": "training time",
    "step": "accepted steps",
    "ds": "the next step",
    "rejected": "trials cut so far",
    "loss": "mean loss over the training sequences",
    "free_energy": "loss + weight decay + beta × negative entropy",
    "penalised_loss": "loss + (weight_decay/2) mean |theta|² of heads that are points, which have no free energy",
    "energy_rise": "largest rise of the free energy over one step so far",
    "slope": "‖∇psi + beta ∇log rho‖ in L2(rho), 0 at rest; its square is the rate at which the free energy falls",
    "step_error": "L1 distance of the last step of rho to the step of the other order: what one step errs at most",
    "mass_error_mu": "largest |∫mu - 1| over depth and sequences",
    "mass_error_rho": "largest |∫rho - 1| over layers",
    "min_mu": "least value of mu over depth and sequences",
    "undershoot_mu": "largest -min/max of mu over depth and sequences, 0 where mu is positive",
    "peak_mass_mu": "largest share of mass in one cell, over depth and sequences",
    "outside_mass_mu": "largest mass that an initial law has outside the box; it is left out",
    "min_rho": "least value of rho",
    "courant": "largest Courant number used in depth",
    "table_error": "largest relative error of the softmax table at sampled keys",
    "table_size": "nodes of the softmax table",
    "costate_drift": "largest change of ∫p dmu over depth",
    "wall_mass_mu": "largest mass of mu in the cells at a wall",
    "wall_mass_rho": "largest mass of rho in the cells at a wall",
    "limited": "faces of mu limited for positivity",
    "limited_rho": "largest L1 distance that keeping rho positive moved a step by, where its order in s is lower",
    "dual": "1 if p is the dual of the very steps taken, 0 if only consistent",
    "depth_steps": "steps in depth",
}

# beyond these a run warns and its result says so
WALL_MASS = 1e-8
MASS_ERROR = 1e-10
# of the error that tables in so many dimensions are made for
TABLE_SLACK = 10.0
ENERGY_RISE = 1e-10
UNDERSHOOT = 1e-2
COSTATE_DRIFT = 1e-9
PEAK_MASS = 0.4
# so long a step at so small a Courant number: the velocity is small, and what grows slowly is not seen by it
LONG, SLOW = 0.25, 0.1


def token_columns(report: TokenReport) -> dict[str, float]:
    """The series that a sweep in depth measured; NaN stands for not measured."""
    names = {
        "mass_error_mu": report.mass_error,
        "min_mu": report.minimum,
        "undershoot_mu": report.undershoot,
        "peak_mass_mu": report.peak_mass,
        "outside_mass_mu": report.outside_mass,
        "courant": report.courant,
        "table_error": report.table_error,
        "table_size": report.table_size,
        "costate_drift": report.costate_drift,
        "wall_mass_mu": report.wall_mass,
        "limited": report.limited,
        "dual": report.dual,
        "depth_steps": report.steps,
    }
    return {name: np.nan if value is None else float(value) for name, value in names.items()}


def row(moment: Moment, heads: HeadSide) -> dict[str, float]:
    """One row of the history."""
    state = moment.state
    values = {
        "s": state.s,
        "step": float(state.step),
        "ds": state.ds,
        "rejected": float(state.rejected),
        "loss": moment.variation.loss,
        **_head_columns(moment, heads),
        **token_columns(moment.variation.report),
    }
    return {name: values[name] for name in COLUMNS if name in values}


def _head_columns(moment: Moment, heads: HeadSide) -> dict[str, float]:
    """The series of the heads; heads that are points have only one."""
    state = moment.state
    if isinstance(heads, LangevinHeads):
        return {"penalised_loss": moment.variation.loss + heads.decay(state.rho)}
    out = {
        "free_energy": moment.free_energy,
        "energy_rise": state.energy_rise,
        "slope": moment.slope,
        "step_error": state.step_error,
        "limited_rho": state.limited,
    }
    if isinstance(heads, FokkerPlanckHeads):
        report = heads.report(state.rho)
        out["mass_error_rho"] = float(report.mass_error.max())
        out["min_rho"] = float(report.minimum)
        out["wall_mass_rho"] = float(report.wall_mass.max())
    return out


def certificates(history: Mapping[str, FloatArray]) -> dict[str, float | bool | None]:
    """The worst of each series over the run; None where it was not measured."""
    worst: dict[str, float | bool | None] = {}
    for name in COLUMNS:
        if name in ("s", "step", "ds", "loss", "free_energy", "penalised_loss", "slope"):
            continue
        series = history.get(name, np.empty(0))
        known = series[np.isfinite(series)]
        if not len(known):
            worst[name] = None
        elif name == "dual":
            worst[name] = bool(known.min() == 1.0)
        else:
            worst[name] = float(known.min() if name.startswith("min_") else known.max())
    return worst


def warnings_of(worst: Mapping[str, float | bool | None], dim: int = 1) -> tuple[str, ...]:
    """What a user should know before trusting the numbers of tokens with ``dim`` axes, in words."""

    def beyond(name: str, limit: float) -> bool:
        value = worst.get(name)
        return value is not None and float(value) > limit

    out = []
    for law, box in (("mu", "tokens"), ("rho", "heads")):
        if beyond(f"wall_mass_{law}", WALL_MASS):
            out.append(
                f"{law} touches the wall: mass {worst[f'wall_mass_{law}']:.1e} in the cells at a wall "
                f"(at most {WALL_MASS:.0e} is harmless): widen {box}.lower and {box}.upper"
            )
        if beyond(f"mass_error_{law}", MASS_ERROR):
            out.append(f"{law} is not conserved: |∫{law} - 1| reached {worst[f'mass_error_{law}']:.1e}")
    if beyond("table_error", TABLE_SLACK * TOLERANCE[dim]):
        out.append(
            f"the softmax table is accurate to {worst['table_error']:.1e} only: the laws are too rough for "
            "its largest size, or too narrow for their cells; use more cells, smoother laws or a smaller box of heads"
        )
    courant, length = worst.get("courant"), worst.get("depth_step")
    if courant is not None and length is not None and 0.0 < courant < SLOW and length > LONG:
        out.append(
            f"depth is crossed in steps of {length:g}, since V is small: a slow growth of mu is not followed to the "
            "accuracy of the scheme; take depth.control = \"error\", whose steps keep to depth.tolerance"
        )
    if beyond("undershoot_mu", UNDERSHOOT):
        out.append(
            f"mu is under-resolved: it undershoots by {worst['undershoot_mu']:.1e} of its maximum; take more cells, "
            "smoother initial laws or depth.positivity = true (a law that blows up ends like this too)"
        )
    if beyond("peak_mass_mu", PEAK_MASS):
        out.append(
            f"mu has concentrated below the grid scale: one cell holds {worst['peak_mass_mu']:.0%} of its mass, so "
            "widths and variances are those of the cells; take more cells, unless the law itself collapses"
        )
    if worst.get("dual") and beyond("costate_drift", COSTATE_DRIFT):
        out.append(f"∫p dmu is not constant in depth: it drifts by {worst['costate_drift']:.1e}")
    if beyond("energy_rise", ENERGY_RISE):
        out.append(f"the free energy rose by {worst['energy_rise']:.1e} over a step: take a smaller training.ds")
    if worst.get("dual") is False:
        out.append("p is consistent but not the dual of the scheme: the gradient is not that of the discrete loss")
    return tuple(out)


def token_history(report: TokenReport) -> dict[str, FloatArray]:
    """The history of a problem of tokens alone: one row."""
    return {name: np.array([value]) for name, value in token_columns(report).items()}
