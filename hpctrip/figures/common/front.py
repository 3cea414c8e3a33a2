"""Which of several points no other one beats."""

from __future__ import annotations

import numpy as np


def on_front(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether no other point is as good in both and better in one, less being better, [n] bool; never where one of its
    numbers is NaN."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    beaten = (
        (x[None] <= x[:, None]) & (y[None] <= y[:, None]) & ((x[None] < x[:, None]) | (y[None] < y[:, None]))
    )
    return ~beaten.any(axis=1) & ~np.isnan(x) & ~np.isnan(y)
