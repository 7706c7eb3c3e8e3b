"""How fast finitely many tokens, heads and layers approach the limit: slopes in N, H and L, over seeded runs."""

from __future__ import annotations

import numpy as np
import pytest

from meanfield_pde.grid import Grid
from meanfield_pde.laws import Law, Mixture, Uniform
from meanfield_pde.measure import Measure
from meanfield_pde.particles.sampling import sample
from meanfield_pde.particles.tokens import ParticleTokens, carry
from meanfield_pde.validation.rates import fit_rate

LINE = Grid((-3.0,), (3.0,), (3,), (False,))
CLUMPS = Mixture((0.5, 0.5), (Uniform((-1.2,), (-0.8,)), Uniform((0.8,), (1.2,))))
LIMIT, RUNS, T = 2**16, 250, 0.5


# the steps are the same for N tokens and for the limit, so that their error is in both
def tokens_at(model: ParticleTokens, start: Measure) -> np.ndarray:
    return np.sort(carry(model, start, T, 2, "midpoint").x[-1, :, 0])


def w2(x: np.ndarray, y: np.ndarray) -> float:
    """W2 of two sorted samples on a line, the count of one a multiple of the other's."""
    return float(np.sqrt(((np.repeat(x, len(y) // len(x)) - y) ** 2).mean()))


@pytest.mark.parametrize(("law", "slope", "within"), [(CLUMPS, -0.25, 0.03), (Uniform((-1.0,), (1.0,)), -0.5, 0.05)])
def test_tokens_approach_their_limit_as_their_law_lets_them(law: Law, slope: float, within: float) -> None:
    model = ParticleTokens("softmax", "scalar", (Measure.particles(np.array([[0.4, 0.8], [-0.2, 1.3]])),), way="table")
    limit = tokens_at(model, sample(law, LIMIT, LINE, "quantile"))
    if law is CLUMPS:  # the gap is still there at t: nothing between -.6 and .6
        assert not ((limit > -0.6) & (limit < 0.6)).any()
    counts = [128, 512, 2048, 8192]
    found = [
        np.mean([w2(tokens_at(model, sample(law, n, LINE, "iid", (n, run))), limit) for run in range(RUNS)])
        for n in counts
    ]
    assert np.polyfit(np.log(counts), np.log(found), 1)[0] == pytest.approx(slope, abs=within)


def test_heads_approach_their_law_as_the_root_of_their_number() -> None:
    # a ~ N(1, .25), w ~ N(-.6, .16): the limit by 24 x 24 Gauss-Hermite heads, on the same tokens
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    w, a = (m.ravel() for m in np.meshgrid(-0.6 + 0.4 * nodes, 1.0 + 0.5 * nodes, indexing="ij"))
    rho = np.outer(weights, weights).ravel()
    start = sample(CLUMPS, 256, LINE, "quantile")
    law = Measure.particles(np.stack([w, a], axis=1), rho / rho.sum())
    limit = tokens_at(ParticleTokens("softmax", "scalar", (law,)), start)
    rng, counts, found = np.random.default_rng(4), [16, 64, 256, 1024], []
    for heads in counts:
        gaps = []
        for _ in range(RUNS):
            drawn = np.array([-0.6, 1.0]) + np.array([0.4, 0.5]) * rng.standard_normal((heads, 2))
            gaps.append(w2(tokens_at(ParticleTokens("softmax", "scalar", (Measure.particles(drawn),)), start), limit))
        found.append(np.mean(gaps))
    assert np.polyfit(np.log(counts), np.log(found), 1)[0] == pytest.approx(-0.5, abs=0.05)


@pytest.mark.parametrize(
    ("integrator", "sizes", "slope", "within"),
    [("euler", [32, 64, 128], -1.0, 0.05), ("rk4", [4, 8, 16], -4.0, 0.2)],
)
def test_layers_approach_the_flow_at_the_order_of_the_integrator(
    integrator: str, sizes: list[int], slope: float, within: float
) -> None:
    # the same tokens in each run for every number of layers, and rk4 with many more layers for the flow
    theta = np.array([-0.6, 1.0]) + np.array([0.4, 0.5]) * np.random.default_rng(1).normal(size=(16, 2))
    model = ParticleTokens("softmax", "scalar", (Measure.particles(theta),), way="table", tolerance=1e-12)
    errors = []
    for run in range(4):
        start = sample(CLUMPS, 256, LINE, "iid", run)
        flow = carry(model, start, 1.0, 128, "rk4").x[-1]
        errors.append([np.abs(carry(model, start, 1.0, n, integrator).x[-1] - flow).max() for n in sizes])
    rate = fit_rate(sizes, np.array(errors).T, paired=True)
    assert rate.slope == pytest.approx(slope, abs=within)
    assert rate.lower is not None
    assert rate.upper is not None
    assert slope - within < rate.lower <= rate.upper < slope + within
