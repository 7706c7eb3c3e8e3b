"""Sums over the cells of a ring against rows of a positive kernel, and their transpose.

A row serves many targets: where keys turn with the target, target f reads the row from the cell ``starts[f]`` on.
Shapes: rows (3, A, lines, length) with lines = 1 (one row for all targets) or F; starts (F,); w (n,).
"""

from __future__ import annotations

from meanfield_pde.kernels._jit import jit, jit_sum


@jit_sum
def circle_sums(rows, starts, w, out):
    """out[c, a, f] = sum_j w_j rows[c, a, line of f, starts_f + j].

    Shapes: out (3, A, F) overwritten.
    """
    heads, lines = rows.shape[1], rows.shape[2]
    n = w.shape[0]
    for a in range(heads):
        for f in range(starts.shape[0]):
            line = f if lines > 1 else 0
            start = starts[f]
            first = rows[0, a, line, start : start + n]
            second = rows[1, a, line, start : start + n]
            third = rows[2, a, line, start : start + n]
            total, along, across = 0.0, 0.0, 0.0
            for j in range(n):
                total += w[j] * first[j]
                along += w[j] * second[j]
                across += w[j] * third[j]
            out[0, a, f] = total
            out[1, a, f] = along
            out[2, a, f] = across


@jit
def circle_sums_transpose(rows, starts, g, out):
    """Transpose of `circle_sums`: out_j += sum over c, a, f of g[c, a, f] rows[c, a, line of f, starts_f + j].

    Shapes: g (3, A, F), out (n,) added to.
    """
    heads, lines = rows.shape[1], rows.shape[2]
    n = out.shape[0]
    for a in range(heads):
        for f in range(starts.shape[0]):
            line = f if lines > 1 else 0
            start = starts[f]
            first = rows[0, a, line, start : start + n]
            second = rows[1, a, line, start : start + n]
            third = rows[2, a, line, start : start + n]
            total, along, across = g[0, a, f], g[1, a, f], g[2, a, f]
            for j in range(n):
                out[j] += total * first[j] + along * second[j] + across * third[j]
