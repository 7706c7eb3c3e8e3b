"""The softmax velocity with torch in float64: scaled_dot_product_attention, and products and softmax as written."""

from __future__ import annotations

import torch
from problems import attention_case, log_masses, velocity_error
from protocol import Answer, Ask, answer, seconds_of

EVERY = 16  # the error is taken at every so-manyth token


def attention(ask: Ask) -> Answer:
    torch.set_num_threads(ask["threads"])
    torch.set_flush_denormal(True)
    torch.set_default_dtype(torch.float64)
    dim = int(ask["problem"][-2])
    case = attention_case(dim)
    points, scores, weights = (torch.from_numpy(a) for a in (case.points, case.scores, case.weights))
    logs = torch.from_numpy(log_masses(case))

    def masked() -> torch.Tensor:
        queries = (points @ scores.transpose(1, 2))[None]
        keys = points.expand(1, len(scores), *points.shape)
        means = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, keys, attn_mask=logs.expand(1, 1, len(logs), len(logs)), scale=1.0
        )
        return torch.einsum("h,hnd->nd", weights, means[0])

    def merged() -> torch.Tensor:
        # log mu is one more component of the keys, and the queries of all heads share them
        queries = (points @ scores.transpose(1, 2)).reshape(-1, dim)
        wide = torch.nn.functional.pad(queries, (0, 1), value=1.0)[None, None]
        keys = torch.cat([points, logs[:, None]], dim=1)[None, None]
        values = torch.nn.functional.pad(points, (0, 1))[None, None]
        means = torch.nn.functional.scaled_dot_product_attention(wide, keys, values, scale=1.0)
        return torch.einsum("h,hnd->nd", weights, means[0, 0, :, :dim].reshape(len(scores), -1, dim))

    def plain() -> torch.Tensor:
        out = torch.zeros_like(points)
        for score, weight in zip(scores, weights, strict=True):
            out += weight * (torch.softmax(points @ score.T @ points.T + logs, dim=1) @ points)
        return out

    run = {"sdpa": masked, "sdpa merged": merged, "plain": plain}[ask["method"]]
    with torch.inference_mode():
        # seconds each in the plane, and nothing to compile
        repeats = 5 if dim == 1 else 1
        seconds, v = seconds_of(run, repeats, warm=dim == 1)
    return {"seconds": seconds, "error": velocity_error(case, v.numpy(), EVERY)}


if __name__ == "__main__":
    answer(attention, "torch", "numpy")
