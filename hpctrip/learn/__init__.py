"""Layer 2: data, models, local training, aggregation (torch)."""
