"""Compile what most tests call, once, before two processes of tests ask for it at the same time.

Run: python tests/compile_kernels.py
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from meanfield_pde import library, solve

# between them softmax on a line, in the plane and on a ring, tokens and heads, forward and back
PROBLEMS = ("gaussian_coupled", "softmax_plane", "circle_modes", "linear_plane", "double_well", "noisy_kuramoto")


def main() -> None:
    """Solve each problem, with one step where heads are trained."""
    warnings.simplefilter("ignore")  # results are not looked at
    for name in PROBLEMS:
        problem, _ = library.get(name)
        if problem.training is not None:
            training = replace(problem.training, s_end=problem.training.ds)
            problem = replace(problem, training=training, output=replace(problem.output, times=()))
        solve(problem)


if __name__ == "__main__":
    main()
