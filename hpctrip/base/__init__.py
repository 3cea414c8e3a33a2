"""Layer 0: errors, units, named random streams, components and their registries (stdlib, numpy, pydantic)."""
