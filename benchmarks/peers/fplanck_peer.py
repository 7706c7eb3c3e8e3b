"""Fokker-Planck with fplanck: rates between cells from U, then SciPy's expm_multiply; it wants SI units."""

from __future__ import annotations

import fplanck
import numpy as np
from problems import BETA, END, HALF, l1_distance, potential, start
from protocol import Answer, Ask, answer, seconds_of
from scipy import constants


def fokker_planck(ask: Ask) -> Answer:
    n = ask["cells"]
    # drag 1 and k T = beta: its diffusion is beta, its force -∇U; it makes its own grid, whose centre is 0
    temperature, spacing = BETA / constants.k, 2.0 * HALF / n

    def run() -> np.ndarray:
        model = fplanck.fokker_planck(
            temperature=temperature, drag=1.0, extent=[2.0 * HALF] * 2, resolution=spacing, potential=potential
        )
        return model.propagate(start, END)

    seconds, masses = seconds_of(run)
    if masses.shape != (n, n):
        raise ValueError(f"its grid has {masses.shape} cells, not {n}²")
    rho = masses / spacing**2
    return {
        "seconds": seconds,
        "error": l1_distance(rho, np.load(ask["reference"])),
        "minimum": float(rho.min()),
        "mass_error": float(abs(masses.sum() - 1.0)),
        "note": "with the build of its matrix",
    }


if __name__ == "__main__":
    answer(fokker_planck, "fplanck", "scipy", "numpy")
