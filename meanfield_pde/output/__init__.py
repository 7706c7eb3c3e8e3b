"""What comes out of a run: diagnostics, solutions, files, figures."""
