"""Samples of particle codes against the laws of the mean-field limit: distances, and the reading of trajectories."""
