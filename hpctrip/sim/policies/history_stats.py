"""Per-site statistics of the history: when a site last trained, with which loss, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hpctrip.sim.rounds import History, Status

_MAX_ROUNDS = 256
"""The newest rounds that are read; a site that has not trained within them counts as never having trained."""


@dataclass(frozen=True)
class LastSeen:
    """The last round in which each site's update arrived. Arrays [N]; NaN where none did."""

    age: np.ndarray
    """Rounds since then, 0 for the last one; all rounds so far, at most 256, where none did."""
    loss: np.ndarray
    """Mean training loss."""
    num_samples: np.ndarray
    """Samples trained on."""
    return_s: np.ndarray
    """Compute and communication time."""

    @classmethod
    def of(cls, history: History, num_sites: int) -> Self:
        """Read a history, newest round first, until every site has been met."""
        rows = history.rows[-_MAX_ROUNDS:]
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
        """Whether an update of the site has ever arrived, [N] bool."""
        return ~np.isnan(self.return_s)
