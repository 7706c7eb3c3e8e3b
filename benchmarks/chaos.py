"""How fast finitely many tokens, heads and layers approach their limits: slopes with intervals, beside what is proved.

tokens   W2 of N tokens to their law, drawn from ½U[−1.2, −.8] + ½U[.8, 1.2] (−1/4: the masses of the clumps differ by
         N^{−1/2}, and what is over has to cross the gap) and from U[−1, 1] (−1/2). The law is 2^17 of its quantiles
         carried by the same steps; the floor is W2 between these and 2^16 of them. The gap is measured at the end.
heads    sup over [−2, 2] of |V^H − V| for H heads drawn from a ~ N(1, .25), w ~ N(−.6, .16), on fixed tokens; V by 40²
         Gauss-Hermite heads (−1/2); the floor is the change from 32².
layers   the largest error of tokens after L layers to RK4 with 256 layers, from the same tokens in each run (−1 for
         Euler, −4 for RK4).
Intervals are 95 % bootstrap ones over the runs (`meanfield_pde.validation.rates`).
Run: python benchmarks/chaos.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from meanfield_pde.grid import Grid
from meanfield_pde.laws import Law, Mixture, Uniform
from meanfield_pde.measure import Measure
from meanfield_pde.particles.sampling import sample
from meanfield_pde.particles.tokens import ParticleTokens, carry
from meanfield_pde.validation.line_distances import sample_w2
from meanfield_pde.validation.rates import Rate, fit_rate

LINE = Grid((-3.0,), (3.0,), (3,), (False,))
CLUMPS = Mixture((0.5, 0.5), (Uniform((-1.2,), (-0.8,)), Uniform((0.8,), (1.2,))))
ONE = Uniform((-1.0,), (1.0,))
FINE, T = 2**17, 0.5
# tokens drift apart a little: the clumps stay two
HEADS = Measure.particles(np.array([[0.4, 0.8], [-0.2, 1.3]]))


def tokens_at(start: Measure) -> np.ndarray:
    """Tokens at T by two steps of order 2, sorted; what these steps err by is in the law, too."""
    model = ParticleTokens("softmax", "scalar", (HEADS,), way="table", tolerance=1e-11)
    return np.sort(carry(model, start, T, 2, "midpoint").x[-1, :, 0])


def tokens(law: Law, runs: int, most: int) -> tuple[Rate, float]:
    """The rate in N, and the widest gap between the quantiles at the end."""
    limit = tokens_at(sample(law, FINE, LINE, "quantile"))
    floor = sample_w2(tokens_at(sample(law, FINE // 2, LINE, "quantile")), limit)
    sizes = [2**k for k in range(7, 14) if 2**k <= most]

    def error(case: tuple[int, int]) -> float:
        found = tokens_at(sample(law, case[0], LINE, "iid", case))
        return float(np.sqrt(((np.repeat(found, FINE // case[0]) - limit) ** 2).mean()))

    errors = [spread(error, [(n, run) for run in range(runs)]) for n in sizes]
    return fit_rate(sizes, errors, floor=floor), float(np.diff(limit).max())


def heads(runs: int, most: int) -> Rate:
    """The rate in H of the largest error of the field on [−2, 2]."""
    start = sample(CLUMPS, 256, LINE, "quantile")
    at = np.linspace(-2.0, 2.0, 81)[:, None]

    def field(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        model = ParticleTokens("softmax", "scalar", (Measure.particles(points, weights),), way="table")
        return model.field(start.points, start.weights, 0, at)[0][:, 0]

    def gauss(count: int) -> np.ndarray:
        nodes, weights = np.polynomial.hermite_e.hermegauss(count)
        w, a = (m.ravel() for m in np.meshgrid(-0.6 + 0.4 * nodes, 1.0 + 0.5 * nodes, indexing="ij"))
        rho = np.outer(weights, weights).ravel()
        return field(np.stack([w, a], axis=1), rho / rho.sum())

    exact = gauss(40)
    floor = float(np.abs(gauss(32) - exact).max())
    sizes = [2**k for k in range(4, 13) if 2**k <= most]

    def error(case: tuple[int, int]) -> float:
        drawn = np.array([-0.6, 1.0]) + np.array([0.4, 0.5]) * np.random.default_rng(case).standard_normal((case[0], 2))
        return float(np.abs(field(drawn, np.full(case[0], 1.0 / case[0])) - exact).max())

    return fit_rate(sizes, [spread(error, [(n, run) for run in range(runs)]) for n in sizes], floor=floor)


def layers(integrator: str, sizes: list[int], runs: int) -> Rate:
    """The rate in L of the largest error of 512 tokens; a run is a draw of tokens, the same for every L."""
    drawn = np.array([-0.6, 1.0]) + np.array([0.4, 0.5]) * np.random.default_rng(1).normal(size=(32, 2))
    model = ParticleTokens("softmax", "scalar", (Measure.particles(drawn),), way="table", tolerance=1e-12)

    def errors(run: int) -> list[float]:
        start = sample(CLUMPS, 512, LINE, "iid", run)
        exact = carry(model, start, 1.0, 256, "rk4").x[-1]
        return [float(np.abs(carry(model, start, 1.0, n, integrator).x[-1] - exact).max()) for n in sizes]

    return fit_rate(sizes, np.array(spread(errors, list(range(runs)))).T, paired=True)


def spread(call: Callable[..., object], cases: list[object]) -> np.ndarray:
    """Results in the order of the cases, on two threads: the kernels let go of the interpreter."""
    with ThreadPoolExecutor(2) as pool:
        return np.array(list(pool.map(call, cases)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs and sizes: a minute")
    quick = parser.parse_args().quick
    runs, most = (400, 2048) if quick else (1000, 8192)
    few = 6 if quick else 20

    def clumps(law: Law) -> Rate:
        rate, gap = tokens(law, runs, most)
        print(f"  the widest gap between the quantiles at t = {T:g} is {gap:.4g}")
        return rate

    cases: list[tuple[str, str, float, float, Callable[[], Rate]]] = [
        ("two clumps, W2", "N", -0.25, 0.03, lambda: clumps(CLUMPS)),
        ("one clump, W2", "N", -0.5, 0.05, lambda: clumps(ONE)),
        ("heads, sup |V^H − V|", "H", -0.5, 0.05, lambda: heads(runs, 1024 if quick else 4096)),
        ("layers, Euler", "L", -1.0, 0.05, lambda: layers("euler", [32, 64, 128, 256], few)),
        ("layers, RK4", "L", -4.0, 0.2, lambda: layers("rk4", [4, 8, 16, 32], few)),
    ]
    for name, letter, slope, within, measure in cases:
        began = time.perf_counter()
        print(f"{name}: stated {slope:g} ± {within:g}")
        rate = measure()
        for size, error in zip(rate.sizes, rate.errors, strict=True):
            print(f"  {letter} = {size:6g}  {error:.4e}")
        good = "as stated" if abs(rate.slope - slope) <= within else "NOT as stated"
        print(f"  {rate.words(letter)} {good}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
