"""The cache of trained rounds: kept on disk, taken up by every run that trains the same (train once, time many)."""
