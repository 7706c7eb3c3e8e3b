"""The softmax velocity with JAX in float64, compiled: one head after the other, or all at once where they fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from problems import attention_case, log_masses, velocity_error
from protocol import Answer, Ask, answer, seconds_of

EVERY = 16  # the error is taken at every so-manyth token


def attention(ask: Ask) -> Answer:
    jax.config.update("jax_enable_x64", True)
    dim = int(ask["problem"][-2])
    case = attention_case(dim)
    points, scores, weights = (jnp.asarray(a) for a in (case.points, case.scores, case.weights))
    logs = jnp.asarray(log_masses(case))

    def mean(score: jax.Array) -> jax.Array:
        return jax.nn.softmax(points @ score.T @ points.T + logs, axis=1) @ points

    ways = {"map": lambda: jax.lax.map(mean, scores), "vmap": lambda: jax.vmap(mean)(scores)}
    call = jax.jit(lambda: jnp.einsum("h,hnd->nd", weights, ways[ask["method"]]()))
    seconds, v = seconds_of(lambda: call().block_until_ready(), repeats=5 if dim == 1 else 3, warm=True)
    return {"seconds": seconds, "error": velocity_error(case, np.asarray(v), EVERY)}


if __name__ == "__main__":
    answer(attention, "jax", "jaxlib", "numpy")
