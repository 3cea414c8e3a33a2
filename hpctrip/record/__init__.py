"""Layer 4: results files and checkpoints (h5py, pandas)."""
