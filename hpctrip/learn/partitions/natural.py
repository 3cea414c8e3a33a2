"""Samples stay with their natural owner."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.learn.partitions.base import NOBODY, PARTITIONS, Partition, random_rank


@PARTITIONS.add
class Natural(Partition):
    """Samples stay with their natural owner (writer, role, speaker); a site is one owner or several."""

    kind: ClassVar[str] = "natural"

    owners_per_site: int | None = Field(None, ge=1)
    """Owners at each site, drawn at random; the others are left out. None: all owners are dealt out in random order."""

    def check_own(self, num_samples, num_sites, has_groups):
        """Owners. How many there are, only the data tell."""
        if not has_groups:
            raise InputError(
                "partition.kind",
                "'natural' needs the owner of each sample, and this data has none",
                "use iid, dirichlet or shards",
            )

    def owners(self, labels, groups, num_sites, rng):
        """Shuffle the natural owners, deal them in turn."""
        _, group_of = np.unique(groups, return_inverse=True)
        num_groups = group_of.max() + 1
        needed = num_sites * (self.owners_per_site or 1)
        if needed > num_groups:
            raise InputError(
                "partition.owners_per_site" if self.owners_per_site else "partition.kind",
                f"{num_sites:,} sites need {needed:,} natural owners, but the data has {num_groups:,}",
                "use fewer sites",
            )
        site_of_group = np.full(num_groups, NOBODY)
        dealt = rng.permutation(num_groups)[: needed if self.owners_per_site else num_groups]
        site_of_group[dealt] = np.arange(len(dealt)) % num_sites
        owner = site_of_group[group_of]
        if self.samples_per_site is not None:
            owner[random_rank(owner, rng) >= self.samples_per_site] = NOBODY
        return owner
