"""Studies: grids of runs, made once each, kept by their identity, and drawn."""
