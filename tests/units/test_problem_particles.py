"""The section of particles: what it refuses, by name, and what it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meanfield_pde import library
from meanfield_pde.errors import MeanFieldError
from meanfield_pde.problem import Particles
from meanfield_pde.problem_file import dump_problem, parse_problem


@pytest.mark.parametrize(
    ("name", "section", "words"),
    [
        ("torch_line", {"tokens": 0}, ("particles.tokens = 0", "at least 1")),
        ("torch_line", {"layers": 2.5}, ("particles.layers = 2.5", "integer")),
        ("torch_line", {"integrator": "rk5"}, ("particles.integrator", "'rk5'", "rk4")),
        ("torch_line", {"integrator": "renormalised"}, ("particles.integrator", "circle", "euler, midpoint")),
        ("torch_plane", {"sampling": "quantile"}, ("particles.sampling", "one axis, not 2", "sobol")),
        ("torch_line", {"head_sampling": "random"}, ("particles.head_sampling", "'random'", "iid")),
        ("torch_line", {"heads": 31}, ("particles.heads = 31", "32 points")),
        ("torch_line", {"sides": ("tokens",)}, ("particles.sides has 'tokens'", "particles.tokens is missing")),
        ("torch_line", {"tokens": 5, "sides": ("tokens", "tokens")}, ("particles.sides", "different")),
        ("torch_line", {"tokens": 5, "sides": ("token",)}, ("particles.sides", "'token'", "'tokens'")),
    ],
)
def test_what_no_particle_code_could_be_is_refused_by_name(name: str, section: Any, words: tuple[str, ...]) -> None:
    problem = library.get(name)[0]
    with pytest.raises(MeanFieldError) as caught:
        replace(problem, particles=Particles(**section))
    for word in words:
        assert word in str(caught.value)


def test_particles_are_no_part_of_a_given_potential() -> None:
    with pytest.raises(MeanFieldError, match="no use for particles"):
        replace(library.get("slab")[0], particles=Particles(heads=10))


def test_a_declared_particle_code_survives_the_file() -> None:
    particles = Particles(tokens=96, heads=32, layers=20, integrator="rk4", sampling="quantile", sides=("tokens",))
    problem = replace(library.get("torch_train")[0], particles=particles)
    assert parse_problem(dump_problem(problem), "copy").particles == particles
