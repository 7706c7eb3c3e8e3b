"""Studies: one claim a file, measured."""
