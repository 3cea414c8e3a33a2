"""The contract of a partition: which site owns which training samples.

Every partition answers one question, the owner of each sample, so no sample can have two. Shapes: n samples,
N sites, K labels.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from pydantic import Field

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, integers
from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream

PARTITIONS = Registry("partition", default="dirichlet")

NOBODY = -1
"""The owner of a sample that no site owns."""


class Partition(Component):
    """Base of all partitions."""

    samples_per_site: int | None = Field(None, ge=1)
    """Samples that each site gets: with `dirichlet` not `balanced` the mean, with `natural` the most that a site
    keeps, else the exact number. None: all samples are shared out."""
    pooled_sites: int | None = Field(None, ge=1)
    """What so many sites would get is pooled at the one site that there is (the centralized policy sets it)."""

    def split(
        self, labels: np.ndarray, groups: np.ndarray | None, num_sites: int, seed: int
    ) -> list[np.ndarray]:
        """For each site the sorted indices [num_samples of the site] int64 of the samples that it owns, never empty.

        `labels` [n] int64, or [n, ...] where a sample holds several predictions; `groups` [n] int64 or None, see
        `Dataset.groups`. Raises InputError, with the numbers, where the samples do not suffice, or where `owners` gives
        what it must not.
        """
        self.check(len(labels), num_sites, groups is not None)
        num_samples, num_sites = len(labels), self.pooled_sites or num_sites
        rng = stream(seed, f"partition/{self.kind}")
        place = config_key("partition", self)
        owner = self.owners(np.asarray(labels), groups, num_sites, rng)
        owner = integers(owner, (num_samples,), NOBODY, num_sites - 1, place, "the owners")
        by_site = np.argsort(owner, kind="stable")  # stable: indices stay sorted within a site
        bounds = np.searchsorted(owner[by_site], np.arange(num_sites + 1))
        if not np.diff(bounds).all():
            empty = int(np.diff(bounds).argmin())
            raise InputError(place, f"gave site {empty} no sample", "every site must own at least one")
        shards = [by_site[start:end] for start, end in pairwise(bounds)]
        return shards if self.pooled_sites is None else [np.sort(np.concatenate(shards))]

    def check(self, num_samples: int, num_sites: int, has_groups: bool) -> None:
        """InputError, with the numbers, where so many samples, with natural owners or without, cannot be shared out to
        so many sites: as much as can be told without their labels."""
        num_sites = self.pooled_sites or num_sites
        if num_samples < num_sites:
            raise InputError(
                "partition",
                f"{num_samples:,} training samples cannot be shared out to {num_sites:,} sites",
                "use fewer sites, or more training samples",
            )
        self.check_own(num_samples, num_sites, has_groups)

    def check_own(self, num_samples: int, num_sites: int, has_groups: bool) -> None:
        """What this kind needs besides a sample for every site; by default nothing."""

    def owners(
        self, labels: np.ndarray, groups: np.ndarray | None, num_sites: int, rng: np.random.Generator
    ) -> np.ndarray:
        """[n] int64: the site that owns each sample, -1 where none does; every site owns at least one."""
        raise NotImplementedError

    def _pool(self, num_samples: int, num_sites: int, rng: np.random.Generator) -> np.ndarray:
        """The samples to share out, in random order."""
        return rng.permutation(num_samples)[: self._num_shared(num_samples, num_sites)]

    def _num_shared(self, num_samples: int, num_sites: int) -> int:
        """How many samples are shared out: all, or num_sites x samples_per_site of them."""
        wanted = num_samples if self.samples_per_site is None else num_sites * self.samples_per_site
        if wanted > num_samples:
            raise InputError(
                "partition.samples_per_site",
                f"{num_sites:,} sites x {self.samples_per_site:,} samples are {wanted:,}, "
                f"but there are {num_samples:,} training samples",
                f"use at most {num_samples // num_sites:,}, or leave the key out to share out all",
            )
        return wanted

    def _by_one_label(self, labels: np.ndarray) -> None:
        """Refuse samples of several predictions each: there is no one label to share them out by."""
        if labels.ndim > 1:
            raise InputError(
                "partition.kind",
                f"{self.kind!r} shares out by label, but each sample has {labels[0].size} labels",
                "use natural or iid",
            )


def random_rank(owner: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[n]: the place of each sample in a random order of its site's samples, counted from 0."""
    shuffled = rng.permutation(len(owner))
    by_site = shuffled[np.argsort(owner[shuffled], kind="stable")]
    sizes = np.unique(owner, return_counts=True)[1]
    rank = np.empty(len(owner), np.int64)
    rank[by_site] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
