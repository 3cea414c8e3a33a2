"""Studies: grids of runs, each executed once and stored under its identity, with their tables and figures."""

RESULTS = "results/studies"
"""Default folder of studies and their runs."""
