"""Named problems and token files, found as ``importlib.resources.files("meanfield_pde.data")``."""
