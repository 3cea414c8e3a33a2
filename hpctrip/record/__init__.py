"""Results files and checkpoints: schema, writing, reading, verifying, comparing, exporting (h5py, pandas)."""
