"""Layer 0: errors, files, tables, units, named random streams, statistics (stdlib, numpy, pydantic)."""
