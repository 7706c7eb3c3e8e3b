"""What a step does to every number of a field in one pass: Runge–Kutta increments, and the largest size of all."""

from __future__ import annotations

import numpy as np

from meanfield_pde.kernels._jit import jit_same

# all bits of a double but its sign: read as integers, sizes are in order, and what is not finite is the largest
_SIZE = 0x7FFFFFFFFFFFFFFF


@jit_same
def euler_increment(slope, h, current, start):
    """h slope + (current - start) in the place of the slope: e_i - u_0 of a stage."""
    for i in range(slope.shape[0]):
        slope[i] = h * slope[i] + (current[i] - start[i])


@jit_same
def increased(change, weight, start):
    """start + weight change in the place of the change."""
    for i in range(change.shape[0]):
        change[i] = weight * change[i] + start[i]


@jit_same
def largest_size(bits):
    """The largest |a| of numbers given by their bits (int64), as bits: infinite or NaN if one of them is."""
    largest = np.int64(0)
    for i in range(bits.shape[0]):
        size = bits[i] & _SIZE
        largest = size if size > largest else largest
    return largest
