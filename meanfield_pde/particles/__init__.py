"""Finitely many tokens under the same model as on grids: sampling, velocities, integrators."""
