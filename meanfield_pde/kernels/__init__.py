"""Compiled kernels: arrays in, arrays out, layout (outer, n, inner). Numba lives here and only here."""
