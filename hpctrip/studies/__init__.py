"""Studies: grids of runs, each executed once and stored under its identity, with their tables and figures."""
