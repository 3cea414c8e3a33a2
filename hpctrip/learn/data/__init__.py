"""Samples: files read, synthetic data made, and the cache of what is prepared."""
