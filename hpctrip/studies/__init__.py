"""Studies: grids of runs, made once each, kept by their identity, and drawn."""

RESULTS = "results/studies"
"""The default folder of studies and their runs."""
