"""Fokker-Planck equation of the head law: ∂_s rho = ∇·(rho ∇psi) + beta Δ rho, no flux at walls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from meanfield_pde.arrays import FloatArray
from meanfield_pde.equations.dissipation import dissipation
from meanfield_pde.equations.face_weight import FaceWeight, weighted_rates
from meanfield_pde.equations.user_flow import user_step
from meanfield_pde.errors import MeanFieldError, NotFiniteError
from meanfield_pde.grid import Grid
from meanfield_pde.kernels.flux import add_outflow
from meanfield_pde.kernels.scharfetter_gummel import face_rates, move_limited, summed_flux
from meanfield_pde.kernels.sweep import rows, sweep
from meanfield_pde.kernels.tridiagonal import backward_euler
from meanfield_pde.measure import Measure
from meanfield_pde.model.sides import FirstVariation, Flow, Moved
from meanfield_pde.splitting import HeadFlow

_Rates = dict[int, tuple[FloatArray, FloatArray]]  # up and dn of each axis, in the order of the sweeps

# Fraction of a cell the limiter lets go: the sum over its faces then stays below the cell in floating point.
_KEEP = 1.0 - 1e-14
_EMPTY = 1e-290  # a cell below this gives nothing away: products of subnormal numbers round up


class FokkerPlanckStep(NamedTuple):
    """Result of one step: new rho, its distance to the first-order result, and limiter activity.

    Meaning: ``error`` = max over layers of ∫|rho - BE(ds/2)² rho_0|, the error of the embedded positive
    first-order result, ``None`` at order 1 (not measured); ``limited`` is the L1 distance that the limiter
    moved the result by, in the worst layer.
    """

    rho: FloatArray
    error: float | None
    limited: float


class RhoReport(NamedTuple):
    """What can be said of rho without its history: ``mass_error`` and ``wall_mass`` (layers,), ``minimum``."""

    mass_error: FloatArray
    minimum: float
    wall_mass: FloatArray


def fokker_planck_step(
    grid: Grid,
    rho: FloatArray,
    psi: FloatArray,
    beta: float,
    ds: float,
    order: int = 2,
    axes: tuple[int, ...] | None = None,
    weight: FaceWeight | None = None,
) -> FokkerPlanckStep:
    """One step of ∂_s rho = ∇·(rho ∇psi) + beta Δ rho with psi frozen: conservative and >= 0 for any ds.

    Formula: order 1 is BE(ds), backward Euler axis after axis (in the order ``axes``, else 0, 1, ...); order 2
    is 2 BE(ds/2)² - BE(ds), and where that is negative anywhere its face fluxes less those of BE(ds/2)² are
    limited per face (Zalesak).
    Shapes: ``rho`` and ``psi`` (layers, *cells).
    Meaning: ``weight`` takes the place of B(z) of Scharfetter and Gummel, and has to be >= 0.
    Raises: NotFiniteError naming field, layer and cell; MeanFieldError for negative rho, ds < 0, another order.
    Source: Scharfetter and Gummel 1969; Grassmann, Taksar and Heyman 1985; Zalesak 1979.
    """
    if order not in (1, 2):
        raise MeanFieldError(f"order = {order!r} is not a step of the Fokker-Planck equation; take 1 or 2")
    if not (np.isfinite(ds) and ds >= 0):
        raise MeanFieldError(f"ds = {ds} must be finite and >= 0; a step runs forward in s")
    _check_beta(beta)
    rho = np.ascontiguousarray(rho, dtype=float)
    psi = np.ascontiguousarray(psi, dtype=float)
    _check_field("rho", rho, grid)
    _check_field("psi", psi, grid)
    if psi.shape != rho.shape:
        raise MeanFieldError(f"psi {psi.shape} and rho {rho.shape} must have the same shape, one psi a layer")
    if rho.min() < 0:
        where = _place(grid, np.unravel_index(int(rho.argmin()), rho.shape))
        raise MeanFieldError(f"rho = {rho.min():g} at {where}: a density must be >= 0")
    if ds == 0:
        return FokkerPlanckStep(rho.copy(), 0.0 if order == 2 else None, 0.0)
    axes = tuple(range(grid.dim)) if axes is None else axes
    if sorted(axes) != list(range(grid.dim)):
        raise MeanFieldError(f"axes = {axes} must name each of the {grid.dim} axes once: an order of 0..{grid.dim - 1}")
    rates = {}
    for axis in axes:
        place = sweep(psi, axis, grid.dim), beta, grid.spacing[axis], grid.periodic[axis]
        rates[axis] = face_rates(*place) if weight is None else weighted_rates(weight, *place)
    if order == 1:
        new = _stages(grid, rho, rates, ds)[-1]
        _check_field("rho after the step", new, grid)
        return FokkerPlanckStep(new, None, 0.0)
    first = _stages(grid, rho, rates, 0.5 * ds)
    second = _stages(grid, first[-1], rates, 0.5 * ds)
    whole = _stages(grid, rho, rates, ds)
    low = second[-1]
    new = 2.0 * low - whole[-1]
    _check_field("rho after the step", new, grid)
    limited = 0.0
    if new.min() < 0:
        plain, new = new, _limit(grid, new, (first, second, whole), rates, ds)
        limited = float(grid.integral(np.abs(new - plain)).max())
    error = float(grid.integral(np.abs(new - low)).max())
    return FokkerPlanckStep(new, error, limited)


@dataclass(frozen=True, slots=True)
class FokkerPlanckHeads:
    """The head side on a grid: rho (layers, *cells) holds normalised samples at cell centres.

    Meaning: ``beta`` is the coefficient of the Laplacian, ``weight_decay`` the λ of (λ/2)|theta|², where |theta|²
    leaves out periodic axes (an angle has no size),
    ``layer_lengths`` the depth Δt of each layer ((1.0,) when one rho is shared over depth); they weigh the
    free energy only. With ``radial`` = d > 1 the one axis is the length r of a vector in R^d whose law is isotropic and
    rho the law of r: psi and the free energy take −beta (d − 1) log r besides, the entropy of the spheres.
    ``user`` is a flow of the user's, which no free energy knows, ``weight`` a B(z) of the user's for the flow "gibbs".
    Raises: MeanFieldError for beta or weight_decay that is negative or not finite, or lengths <= 0.
    """

    grid: Grid
    beta: float
    weight_decay: float = 0.0
    layer_lengths: tuple[float, ...] = (1.0,)
    radial: int = 1
    user: HeadFlow | None = None
    weight: FaceWeight | None = None
    points: FloatArray = field(init=False, repr=False, compare=False)
    confinement: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_beta(self.beta)
        if not (np.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise MeanFieldError(
                f"weight_decay = {self.weight_decay} must be finite and >= 0; a negative one does not confine the heads"
            )
        if not self.layer_lengths or not all(np.isfinite(dt) and dt > 0 for dt in self.layer_lengths):
            raise MeanFieldError(
                f"layer_lengths = {self.layer_lengths} must be positive, one a layer; (1.0,) for shared heads"
            )
        points = self.grid.points()
        weights = points[:, ~np.array(self.grid.periodic)]
        confinement = (0.5 * self.weight_decay * (weights**2).sum(axis=1)).reshape(self.grid.cells)
        if self.radial > 1:
            if self.grid.dim != 1 or self.grid.lower[0] < 0 or self.grid.periodic[0]:
                raise MeanFieldError("a radial law of heads needs one axis between walls with lower >= 0")
            confinement = confinement - self.beta * (self.radial - 1) * np.log(self.grid.centers(0))
        points.setflags(write=False)
        confinement.setflags(write=False)
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "confinement", confinement)

    @property
    def flows(self) -> Mapping[str, Flow]:
        """What a splitting is made of: "drift" (beta = 0), "diffusion" (psi = 0), "gibbs" (both at once), "user"."""
        known: dict[str, Flow] = {"drift": self._drift, "diffusion": self._diffusion, "gibbs": self._gibbs}
        user = self.user
        if user is not None:
            known["user"] = lambda rho, psi, ds, order: Moved(user_step(user, self.grid, self.points, rho, ds), 0.0)
        return MappingProxyType(known)

    def flows_at(self, step: int) -> Mapping[str, Flow]:
        """The flows, which are the same in every step."""
        return self.flows

    def step(self, rho: FloatArray, psi: FloatArray, ds: float, order: int = 2) -> FokkerPlanckStep:
        """The unsplit step with its error estimate and limiter activity."""
        return fokker_planck_step(self.grid, rho, psi, self.beta, ds, order, weight=self.weight)

    def measure(self, rho: FloatArray) -> tuple[Measure, ...]:
        """The heads of each layer as atoms at the cell centres; all share one array of points."""
        widths = np.zeros(self.grid.dim)
        return tuple(Measure(self.points, layer.ravel() * self.grid.cell_volume, widths) for layer in rho)

    def potential(self, first_variation: FloatArray) -> FloatArray:
        """psi = δL/δrho + (λ/2)|theta|²; shapes (layers, K) or (layers, *cells) → (layers, *cells)."""
        layers = len(first_variation)
        if first_variation.size != layers * self.grid.size:
            raise MeanFieldError(
                f"a first variation of shape {first_variation.shape} does not fit {self.grid.size} head cells a layer"
            )
        return np.asarray(first_variation.reshape(layers, *self.grid.cells) + self.confinement)

    def driving(self, variation: FirstVariation) -> FloatArray:
        """psi, which is what the flows take."""
        return self.potential(variation.potential)

    def regularisation(self, rho: FloatArray) -> float:
        """Σ over layers of Δt ( (λ/2)∫|theta|² rho + beta ∫ rho log rho ), with 0 log 0 = 0."""
        if len(rho) != len(self.layer_lengths):
            raise MeanFieldError(f"rho has {len(rho)} layers, layer_lengths {len(self.layer_lengths)}: one each")
        terms = self.grid.integral(self.confinement * rho + self.beta * xlogy(rho, rho))
        return float(np.dot(self.layer_lengths, terms))

    def distance(self, a: FloatArray, b: FloatArray) -> float:
        """L1 distance of two head laws, the worst layer."""
        return float(self.grid.integral(np.abs(a - b)).max())

    def slope(self, rho: FloatArray, psi: FloatArray) -> float:
        """‖∇psi + beta ∇log rho‖ in L2(rho), layers weighed by their lengths: the root of −dF/ds."""
        return float(np.sqrt(np.dot(self.layer_lengths, dissipation(self.grid, rho, psi, self.beta))))

    def energy_change(self, a: FloatArray, b: FloatArray, psi: FloatArray) -> float:
        """Free energy of b less that of a to first order: Σ Δt ∫ (psi + beta log b)(b - a)."""
        slope = psi + self.beta * np.log(np.maximum(b, _EMPTY))
        return float(np.dot(self.layer_lengths, self.grid.integral(slope * (b - a))))

    def gibbs_state(self, psi: FloatArray) -> FloatArray:
        """The stationary state e^{-psi/beta} sampled and normalised layer by layer, shape of ``psi``."""
        if self.beta <= 0:
            raise MeanFieldError("beta = 0 has no Gibbs state; take beta > 0")
        _check_field("psi", psi, self.grid)
        axes = tuple(range(1, psi.ndim))
        state = np.exp(-(psi - psi.min(axis=axes, keepdims=True)) / self.beta)
        return np.asarray(state / (state.sum(axis=axes, keepdims=True) * self.grid.cell_volume))

    def report(self, rho: FloatArray) -> RhoReport:
        """Mass error |∫rho - 1| and mass in the wall cells of each layer, and the least value."""
        return RhoReport(np.abs(self.grid.integral(rho) - 1.0), float(rho.min()), self.grid.wall_mass(rho))

    def _drift(self, rho: FloatArray, psi: FloatArray, ds: float, order: int) -> Moved:
        return _moved(fokker_planck_step(self.grid, rho, psi, 0.0, ds, order))

    def _diffusion(self, rho: FloatArray, psi: FloatArray, ds: float, order: int) -> Moved:
        return _moved(fokker_planck_step(self.grid, rho, np.zeros_like(psi), self.beta, ds, order))

    def _gibbs(self, rho: FloatArray, psi: FloatArray, ds: float, order: int) -> Moved:
        return _moved(self.step(rho, psi, ds, order))


def _moved(step: FokkerPlanckStep) -> Moved:
    return Moved(step.rho, step.limited)


def _stages(grid: Grid, rho: FloatArray, rates: _Rates, ds: float) -> list[FloatArray]:
    """rho and the results of backward Euler after each axis in turn."""
    fields = [rho]
    for axis, (up3, dn3) in rates.items():
        fields.append(backward_euler(sweep(fields[-1], axis, grid.dim), up3, dn3, ds).reshape(rho.shape))
    return fields


def _limit(grid: Grid, new: FloatArray, stages: tuple[list[FloatArray], ...], rates: _Rates, ds: float) -> FloatArray:
    """The second-order result with the fluxes that make it negative limited."""
    first, second, whole = stages
    low = second[-1]
    fluxes = []
    outflow = np.zeros_like(low)
    for before, (axis, (up3, dn3)) in enumerate(rates.items()):
        after = before + 1
        change = (first[before] - first[after]) + (second[before] - second[after]) - (whole[before] - whole[after])
        half = 0.5 * (first[after] + second[after])
        mean, size = half - whole[after], half + whole[after]
        change3, mean3, size3 = (sweep(a, axis, grid.dim) for a in (change, mean, size))
        fluxes.append(summed_flux(change3, mean3, size3, up3, dn3, ds))
        flux3 = fluxes[-1]
        add_outflow(flux3.reshape(len(flux3), -1), 1.0, flux3.shape[2], rows(outflow, axis, grid.dim))
    bound = np.where(low > _EMPTY, _KEEP * low, 0.0)
    share = np.divide(bound, outflow, out=np.ones_like(low), where=outflow > bound)
    rest, gain, touched = low.copy(), np.zeros_like(low), np.zeros_like(low)
    for axis, flux3 in zip(rates, fluxes, strict=True):
        share3, rest3, gain3, touched3 = (sweep(a, axis, grid.dim) for a in (share, rest, gain, touched))
        move_limited(flux3, share3, rest3, gain3, touched3)
    # cells away from limited faces keep the plain difference: it has less rounding
    return np.where((touched > 0) | (new < 0), rest + gain, new)


def _check_beta(beta: float) -> None:
    if not (np.isfinite(beta) and beta >= 0):
        raise MeanFieldError(f"beta = {beta} must be finite and >= 0: it is the coefficient of the Laplacian of rho")


def _check_field(name: str, values: FloatArray, grid: Grid) -> None:
    if values.ndim != grid.dim + 1 or values.shape[1:] != grid.cells:
        raise MeanFieldError(f"{name} has shape {values.shape}; it must be (layers, *cells) with cells {grid.cells}")
    if not (np.isfinite(values.min()) and np.isfinite(values.max())):
        index = np.unravel_index(int(np.isfinite(values).argmin()), values.shape)
        raise NotFiniteError(f"{name} = {values[index]} at {_place(grid, index)}: it stopped being finite")


def _place(grid: Grid, index: tuple[np.intp, ...]) -> str:
    cell = tuple(int(i) for i in index[1:])
    theta = ", ".join(f"{grid.centers(axis)[i]:g}" for axis, i in enumerate(cell))
    return f"layer {int(index[0])}, cell {cell}, theta = ({theta})"
