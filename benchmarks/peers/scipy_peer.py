"""Fokker-Planck with SciPy: a sparse matrix of Scharfetter-Gummel fluxes by the method of lines, four ways in time."""

from __future__ import annotations

import numpy as np
from problems import BETA, END, HALF, head_grid, l1_distance, normalised, potential, start
from protocol import Answer, Ask, answer, seconds_of
from scipy import sparse
from scipy.integrate import solve_ivp
from scipy.sparse.linalg import expm_multiply, splu
from scipy.special import exprel


def generator(n: int) -> sparse.csc_array:
    """Rates between neighbouring cells, beta B(±ΔU/beta)/h², B(z) = z/(e^z − 1); columns sum to 0.

    Source: Scharfetter and Gummel (1969), eq. 10.
    """
    u, h = potential(*head_grid(n)), 2.0 * HALF / n
    cell = np.arange(n * n).reshape(n, n)
    rows, columns, rates = [], [], []
    for axis in range(2):
        here = np.take(cell, range(n - 1), axis).ravel()
        ahead = np.take(cell, range(1, n), axis).ravel()
        z = (u.ravel()[ahead] - u.ravel()[here]) / BETA
        for source, goal, rate in ((here, ahead, 1.0 / exprel(z)), (ahead, here, 1.0 / exprel(-z))):
            rate *= BETA / h**2
            rows += [goal, source]
            columns += [source, source]
            rates += [rate, -rate]
    entries = np.concatenate(rates), (np.concatenate(rows), np.concatenate(columns))
    return sparse.coo_array(entries, (n * n, n * n)).tocsc()


def crank_nicolson(n: int, begun: np.ndarray, steps: int) -> np.ndarray:
    """One factorisation, then ``steps`` solves; the first two steps are four half steps of backward Euler.

    Source: Rannacher (1984), Numer. Math. 43, 309.
    """
    matrix, one, ds = generator(n), sparse.eye_array(n * n, format="csc"), END / steps
    factors = splu((one - 0.5 * ds * matrix).tocsc(), permc_spec="MMD_AT_PLUS_A")
    explicit = (one + 0.5 * ds * matrix).tocsr()
    rho = begun
    for k in range(steps):
        rho = factors.solve(factors.solve(rho) if k < 2 else explicit @ rho)
    return rho


def euler(n: int, begun: np.ndarray) -> np.ndarray:
    """Forward Euler at the largest step that keeps every cell >= 0: one sparse product a step."""
    matrix = generator(n).tocsr()
    steps = int(np.ceil(END * float(np.abs(matrix.diagonal()).max())))
    ahead = (sparse.eye_array(n * n, format="csr") + END / steps * matrix).tocsr()
    rho = begun
    for _ in range(steps):
        rho = ahead @ rho
    return rho


def chebyshev(n: int, begun: np.ndarray, steps: int) -> np.ndarray:
    """Steps of the stabilised explicit method RKC of order 2, with the least number of stages that is stable.

    Source: Sommeijer, Shampine and Verwer (1998), J. Comput. Appl. Math. 88, 315, eqs. 2.3-2.9.
    """
    matrix = generator(n).tocsr()
    ds = END / steps
    radius = 2.0 * float(np.abs(matrix.diagonal()).max())
    count = max(2, int(np.ceil(np.sqrt(1.0 + 1.54 * ds * radius))))
    w0 = 1.0 + 2.0 / 13.0 / count**2
    t, dt, ddt = np.zeros((3, count + 1))
    t[:2], dt[1] = (1.0, w0), 1.0
    for j in range(2, count + 1):
        t[j] = 2.0 * w0 * t[j - 1] - t[j - 2]
        dt[j] = 2.0 * t[j - 1] + 2.0 * w0 * dt[j - 1] - dt[j - 2]
        ddt[j] = 4.0 * dt[j - 1] + 2.0 * w0 * ddt[j - 1] - ddt[j - 2]
    w1 = dt[count] / ddt[count]
    b = np.empty(count + 1)
    b[2:] = ddt[2:] / dt[2:] ** 2
    b[:2] = b[2]
    rho = begun
    for _ in range(steps):
        first = matrix @ rho
        before, now = rho, rho + b[1] * w1 * ds * first
        for j in range(2, count + 1):
            mu, nu = 2.0 * b[j] * w0 / b[j - 1], -b[j] / b[j - 2]
            slope, share = 2.0 * b[j] * w1 / b[j - 1], 1.0 - b[j - 1] * t[j - 1]
            after = (1.0 - mu - nu) * rho + mu * now + nu * before
            after += slope * ds * (matrix @ now - share * first)
            before, now = now, after
        rho = now
    return rho


def fokker_planck(ask: Ask) -> Answer:
    n, steps = ask["cells"], ask.get("steps", 0)
    begun = normalised(start(*head_grid(n))).ravel()

    def run() -> np.ndarray:
        if ask["method"] == "crank-nicolson":
            return crank_nicolson(n, begun, steps)
        if ask["method"] == "euler":
            return euler(n, begun)
        if ask["method"] == "rkc":
            return chebyshev(n, begun, steps)
        matrix = generator(n).tocsr()
        if ask["method"] == "expm_multiply":
            return expm_multiply(END * matrix, begun)
        found = solve_ivp(
            lambda s, rho: matrix @ rho, (0.0, END), begun, method="RK45", t_eval=[END], rtol=1e-4, atol=1e-6
        )
        return found.y[:, -1]

    seconds, rho = seconds_of(run, repeats=ask.get("repeats", 1), warm=ask.get("repeats", 1) > 1)
    rho = rho.reshape(n, n)
    return {
        "seconds": seconds,
        "steps": steps or None,
        "error": l1_distance(rho, np.load(ask["reference"])),
        "minimum": float(rho.min()),
        "mass_error": float(abs(rho.sum() * (2.0 * HALF / n) ** 2 - 1.0)),
    }


if __name__ == "__main__":
    answer(fokker_planck, "scipy", "numpy")
