"""Which packages are compared, where they come from, and what each of them is asked."""

from __future__ import annotations

from typing import Any, NamedTuple


class Peer(NamedTuple):
    """A package: what pip installs in an environment of its own, () for ours, and the script that asks it."""

    script: str
    requirements: tuple[str, ...]
    licence: str


class Case(NamedTuple):
    """One row: a method of a peer on a problem, what it is told besides, and after how many seconds it is ended."""

    problem: str
    peer: str
    method: str
    ask: dict[str, Any]
    timeout: float = 240.0


PEERS = {
    "meanfield-pde": Peer("ours.py", (), "BSD-3-Clause"),
    "numpy": Peer("numpy_peer.py", ("numpy",), "BSD-3-Clause"),
    "pyclaw": Peer("pyclaw_peer.py", ("clawpack==5.14.0", "numpy", "scipy"), "BSD-3-Clause"),
    "py-pde": Peer("pypde_peer.py", ("py-pde==0.59.0",), "MIT"),
    "fipy": Peer("fipy_peer.py", ("fipy==4.0.3",), "NIST public domain"),
    "scipy": Peer("scipy_peer.py", ("scipy", "numpy"), "BSD-3-Clause"),
    "fplanck": Peer("fplanck_peer.py", ("numpy<2", "fplanck==0.2.2"), "MIT"),
    "torch": Peer("torch_peer.py", ("torch==2.13.0", "numpy"), "BSD-3-Clause"),
    "jax": Peer("jax_peer.py", ("jax", "jaxlib", "numpy"), "Apache-2.0"),
}

CELLS = {"transport": {"cells": 512}, "fokker_planck": {"cells": 256}}

CASES = (
    Case("transport", "meanfield-pde", "muscl-mc+lax-wendroff", {"cfl": 1.8}),
    Case("transport", "meanfield-pde", "weno5z+ssprk104", {"cfl": 3.0}, 600.0),
    Case("transport", "meanfield-pde", "weno5z+ssprk104, 432² cells", {"cfl": 3.0, "cells": 432}, 600.0),
    Case("transport", "numpy", "split MC", {}),
    Case("transport", "pyclaw", "classic", {}, 450.0),
    Case("transport", "pyclaw", "sharpclaw", {}, 600.0),
    Case("transport", "py-pde", "central RK4", {}),
    Case("transport", "fipy", "van Leer", {}),
    Case("fokker_planck", "meanfield-pde", "gibbs", {"steps": 32}),
    Case("fokker_planck", "scipy", "crank-nicolson", {"steps": 36, "repeats": 3}),
    Case("fokker_planck", "scipy", "euler", {"repeats": 3}),
    Case("fokker_planck", "scipy", "rkc", {"steps": 26, "repeats": 3}),
    Case("fokker_planck", "scipy", "expm_multiply", {}),
    Case("fokker_planck", "scipy", "rk45", {}),
    Case("fokker_planck", "fplanck", "expm", {}),
    Case("fokker_planck", "py-pde", "euler", {}),
    Case("fokker_planck", "py-pde", "runge-kutta", {}),
    Case("fokker_planck", "py-pde", "euler, 384² cells", {"cells": 384}),
    Case("fokker_planck", "fipy", "implicit", {}),
    Case("attention_1d", "meanfield-pde", "table 1e-9", {"tolerance": 1e-9}),
    Case("attention_1d", "torch", "sdpa merged", {}),
    Case("attention_1d", "torch", "sdpa", {}),
    Case("attention_1d", "torch", "plain", {}),
    Case("attention_1d", "jax", "map", {}),
    Case("attention_1d", "jax", "vmap", {}),
    Case("attention_2d", "meanfield-pde", "table 1e-8", {"tolerance": 1e-8}),
    Case("attention_2d", "meanfield-pde", "keys 1e-8", {"tolerance": 1e-8, "way": "keys"}),
    Case("attention_2d", "meanfield-pde", "table 1e-5", {"tolerance": 1e-5}),
    Case("attention_2d", "meanfield-pde", "keys 1e-5", {"tolerance": 1e-5, "way": "keys"}),
    Case("attention_2d", "torch", "sdpa merged", {}),
    Case("attention_2d", "torch", "sdpa", {}),
    Case("attention_2d", "torch", "plain", {}),
    Case("attention_2d", "jax", "map", {}),
)
