"""`train_samples` and `test_samples`: a random subset of a part of the data, drawn from the run's seed."""

from __future__ import annotations

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream


def subset(
    workload: str, part: str, limit: int | None, num_samples: int, source: str, seed: int
) -> np.ndarray:
    """Sorted indices of the samples to keep: all, or `limit` of the `num_samples` that `source` has.

    Raises InputError where it has fewer.
    """
    if limit is None:
        return np.arange(num_samples)
    if limit > num_samples:
        raise InputError(
            f"workload.{part}_samples",
            f"{limit:,}, but {source} has {num_samples:,}",
            "ask for fewer, or leave the key out for all",
        )
    return np.sort(stream(seed, f"{workload}/{part}_samples").choice(num_samples, limit, replace=False))
