"""The mean-field equations on grids: one file an unknown."""
