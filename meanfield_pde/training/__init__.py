"""The coupling in training time s: state in, state out, one loop."""
