"""Samples dealt at random."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hpctrip.learn.partitions.base import NOBODY, PARTITIONS, Partition


@PARTITIONS.add
class Iid(Partition):
    """Samples dealt at random, equally many to every site (to within one)."""

    kind: ClassVar[str] = "iid"

    def check_own(self, num_samples, num_sites, has_groups):
        """The samples that sites are to have."""
        self._num_shared(num_samples, num_sites)

    def owners(self, labels, groups, num_sites, rng):
        """Deal the shuffled samples in turn."""
        pool = self._pool(len(labels), num_sites, rng)
        owner = np.full(len(labels), NOBODY)
        owner[pool] = np.arange(len(pool)) % num_sites
        return owner
