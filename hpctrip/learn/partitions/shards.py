"""A few label shards to every site."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.learn.partitions.base import NOBODY, PARTITIONS, Partition


@PARTITIONS.add
class Shards(Partition):
    """Samples sorted by label, cut into equal shards, a few random ones to every site (McMahan et al. 2017)."""

    kind: ClassVar[str] = "shards"

    shards_per_site: int = Field(2, ge=1)
    """A site sees about so many labels. 2 in McMahan et al."""

    def check_own(self, num_samples, num_sites, has_groups):
        """A sample for every shard."""
        num_shared = self._num_shared(num_samples, num_sites)
        if num_sites * self.shards_per_site > num_shared:
            raise InputError(
                "partition.shards_per_site",
                f"{num_sites:,} sites x {self.shards_per_site:,} shards are more than the {num_shared:,} samples",
                f"use at most {num_shared // num_sites:,}",
            )

    def owners(self, labels, groups, num_sites, rng):
        """Shuffle the shards, deal them in turn."""
        self._by_one_label(labels)
        pool = self._pool(len(labels), num_sites, rng)
        num_shards = num_sites * self.shards_per_site
        site_of_shard = rng.permutation(num_shards) % num_sites
        by_label = pool[np.argsort(labels[pool], kind="stable")]
        owner = np.full(len(labels), NOBODY)
        owner[by_label] = site_of_shard[np.arange(len(pool)) * num_shards // len(pool)]
        return owner
