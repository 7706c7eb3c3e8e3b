"""The command ``meanfield-pde``: parsing and printing only."""
