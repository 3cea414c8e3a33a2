"""What the history tells of every site: when it last trained, with which loss, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hpctrip.sim.rounds import History, Status

_MOST_ROUNDS = 256
"""So far back is looked; who has not trained since then counts as never having done so."""


@dataclass(frozen=True)
class Experience:
    """Of the last time that each site's update arrived. Arrays [N]; NaN where it never did."""

    age: np.ndarray
    """Rounds since then, 0 for the last one; all rounds so far, at most 256, where it never did."""
    loss: np.ndarray
    """Mean training loss."""
    num_samples: np.ndarray
    """Samples trained on."""
    return_s: np.ndarray
    """Compute and communication time."""

    @classmethod
    def of(cls, history: History, num_sites: int) -> Self:
        """That of a history, newest round first, until all sites have been met."""
        rows = history.rows[-_MOST_ROUNDS:]
        age = np.full(num_sites, float(len(rows)))
        loss, samples, seconds = (np.full(num_sites, np.nan) for _ in range(3))
        unmet = np.ones(num_sites, dtype=bool)
        for passed, row in enumerate(reversed(rows)):
            cohort = row.cohort
            last = (cohort.status == Status.ARRIVED) & unmet[cohort.site]
            site = cohort.site[last]
            age[site], loss[site] = passed, cohort.train_loss[last]
            samples[site] = cohort.num_samples[last]
            seconds[site] = (cohort.compute_s + cohort.comm_s)[last]
            unmet[site] = False
            if not unmet.any():
                break
        return cls(age, loss, samples, seconds)

    @property
    def seen(self) -> np.ndarray:
        """Whose update has ever arrived, [N] bool."""
        return ~np.isnan(self.return_s)
