"""Learning: data, models, local training, compression, aggregation, evaluation (torch)."""
