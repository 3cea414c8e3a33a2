"""Partitions: which site owns which training samples.

Every partition answers one question, the owner of each sample, so no sample can have two. Shapes: n samples,
N sites, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.validate import integers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.sim.sites import numbered

PARTITIONS = Registry("partition", default="dirichlet")

NOBODY = -1
"""The owner of a sample that no site owns."""
_NEGLIGIBLE = 1e-200
"""Probabilities below it are too coarse, as floating-point numbers, to be normalised."""


class SiteSamples(Sequence[np.ndarray]):
    """The samples of each site: their sorted indices, [num_samples of the site] int64. Two arrays hold them, because a
    million small ones would take hundreds of megabytes."""

    def __init__(self, samples: np.ndarray, bounds: np.ndarray):
        self.samples = samples
        """[n] those of all sites, site by site."""
        self.bounds = bounds
        """[N + 1] where each site's begin, and the end."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, site: int) -> np.ndarray:
        site = range(len(self))[site]
        return self.samples[self.bounds[site] : self.bounds[site + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """Number of samples of each site, [N]."""
        return np.diff(self.bounds)

    def label_counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Number of each site's labels of each class, [N, classes]. `labels` as in `Partition.split`; negative ones are
        not predicted and count nowhere."""
        of_site = labels[self.samples].reshape(len(self.samples), -1)
        site = np.repeat(np.arange(len(self)), self.sizes)[:, None]
        counted = (site * num_classes + of_site)[of_site >= 0]
        return np.bincount(counted, minlength=len(self) * num_classes).reshape(len(self), num_classes)


class Partition(Component):
    """Base of all partitions."""

    samples_per_site: int | None = Field(None, ge=1)
    """Samples per site: with `dirichlet` not `balanced` the mean, with `natural` the maximum, otherwise the exact
    number. Absent: all samples are distributed."""
    pooled_sites: int | None = Field(None, ge=1)
    """Number of sites whose shares are pooled at the only site of the run (set by the centralized policy)."""

    def split(
        self,
        labels: np.ndarray,
        groups: np.ndarray | None,
        num_sites: int,
        seed: int,
        names: Sequence[str] = (),
    ) -> SiteSamples:
        """The samples that each site owns, never none.

        `labels` [n] int64, or [n, ...] where a sample holds several predictions; `groups` [n] int64 or None, see
        `Dataset.groups`; `names` [N] of the sites for messages, if they have any. Random numbers come from the stream
        (seed, "partition/<kind>"). Raises InputError, with the numbers, where the samples do not suffice, or where
        `owners` returns no owners or leaves a site without samples.
        """
        self.check(len(labels), num_sites, groups is not None)
        num_samples, num_sites = len(labels), self.pooled_sites or num_sites
        rng = stream(seed, f"partition/{self.kind}")
        place = config_key("partition", self)
        owner = self.owners(np.asarray(labels), groups, num_sites, rng)
        owner = integers(owner, (num_samples,), NOBODY, num_sites - 1, place, "the owners")
        by_site = np.argsort(owner, kind="stable")  # stable: indices stay sorted within a site
        bounds = np.searchsorted(owner[by_site], np.arange(num_sites + 1))
        shards = SiteSamples(by_site[bounds[0] :], bounds - bounds[0])
        if not shards.sizes.all():
            empty = int(shards.sizes.argmin())
            raise InputError(
                place, f"gave {numbered(empty, names)} no sample", "every site must own at least one"
            )
        if self.pooled_sites is None:
            return shards
        return SiteSamples(np.sort(shards.samples), shards.bounds[[0, -1]])

    def check(self, num_samples: int, num_sites: int, has_groups: bool) -> None:
        """Raises InputError, with the numbers, where `num_samples` samples, with natural owners or without, cannot be
        shared out to `num_sites` sites, as far as that shows without their labels."""
        num_sites = self.pooled_sites or num_sites
        if num_samples < num_sites:
            raise InputError(
                "partition",
                f"{num_samples:,} training samples cannot be shared out to {num_sites:,} sites",
                "use fewer sites, or more training samples",
            )
        self.check_own(num_samples, num_sites, has_groups)

    def check_own(self, num_samples: int, num_sites: int, has_groups: bool) -> None:
        """Raises InputError where this kind needs more than a sample for every site. By default nothing is checked."""

    def owners(
        self, labels: np.ndarray, groups: np.ndarray | None, num_sites: int, rng: np.random.Generator
    ) -> np.ndarray:
        """[n] int64: the site that owns each sample, -1 where none does; every site owns at least one."""
        raise NotImplementedError

    def _num_shared(self, num_samples: int, num_sites: int) -> int:
        """Number of samples shared out: all, or num_sites x samples_per_site of them."""
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


@PARTITIONS.add
class Iid(Partition):
    """Samples distributed at random, equally many to every site (to within one)."""

    kind: ClassVar[str] = "iid"

    def check_own(self, num_samples, num_sites, has_groups):
        """Raises InputError where there are fewer samples than the sites are to have."""
        self._num_shared(num_samples, num_sites)

    def owners(self, labels, groups, num_sites, rng):
        """Deal the shuffled samples in turn."""
        pool = rng.permutation(len(labels))[: self._num_shared(len(labels), num_sites)]
        owner = np.full(len(labels), NOBODY)
        owner[pool] = np.arange(len(pool)) % num_sites
        return owner


@PARTITIONS.add
class Shards(Partition):
    """Samples sorted by label and cut into equal shards; each site gets a few random shards (McMahan et al. 2017)."""

    kind: ClassVar[str] = "shards"

    shards_per_site: int = Field(2, ge=1)
    """Shards per site, about the number of labels that it sees; 2 in McMahan et al."""

    def check_own(self, num_samples, num_sites, has_groups):
        """Raises InputError where there are more shards than samples."""
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
        pool = rng.permutation(len(labels))[: self._num_shared(len(labels), num_sites)]
        num_shards = num_sites * self.shards_per_site
        site_of_shard = rng.permutation(num_shards) % num_sites
        by_label = pool[np.argsort(labels[pool], kind="stable")]
        owner = np.full(len(labels), NOBODY)
        owner[by_label] = site_of_shard[np.arange(len(pool)) * num_shards // len(pool)]
        return owner


@PARTITIONS.add
class Natural(Partition):
    """Samples stay with their natural owner (writer, role, speaker); a site has one or more owners."""

    kind: ClassVar[str] = "natural"

    owners_per_site: int | None = Field(None, ge=1)
    """Owners per site, drawn at random; the others are omitted. Absent: all owners are distributed in random order."""

    def check_own(self, num_samples, num_sites, has_groups):
        """Raises InputError where samples have no natural owner. Only the data tell how many owners there are."""
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


@PARTITIONS.add
class Dirichlet(Partition):
    """Label mixes drawn from a Dirichlet distribution; `law` selects the meaning of alpha. The smaller `alpha`, the
    fewer labels a site sees.

    p [K] is the label mix of the whole set.
    """

    kind: ClassVar[str] = "dirichlet"

    alpha: float = Field(0.3, ge=1e-6, le=1e9)
    """Concentration. Its meaning depends on the law, so compare it only between runs of the same law."""
    law: Literal["per-class", "hsu", "hsu-per-label", "pfl"] = "per-class"
    """Distribution of a site's label mix. `per-class`: each label is divided among the sites by symmetric
    Dirichlet(alpha) shares (Yurochkin et al. 2019; Flower's DirichletPartitioner), so that a balanced site's mix is
    p_k Gamma_k(alpha), normalised. `hsu`: Dirichlet(alpha p), alpha being the total concentration (Hsu et al. 2019).
    `hsu-per-label`: Dirichlet(alpha K p), alpha being the concentration per label on average. `pfl`: symmetric
    Dirichlet(alpha) over the labels, however frequent these are (pfl-research)."""
    balanced: bool = True
    """True: the same number of samples at every site. If a label is used up, missing samples are drawn from the same
    mix among the remaining labels, at randomly chosen sites. This moves the mixes towards p, most if all samples are
    distributed. False: sizes as drawn; the law must be `per-class`."""
    min_samples: int = Field(1, ge=1)
    """Without `balanced`, the minimum number of samples of a site; missing ones are taken at random from sites with
    more."""

    @model_validator(mode="after")
    def _consistent(self) -> Dirichlet:
        if not self.balanced and self.law != "per-class":
            raise ValueError(
                f'law = {self.law!r} gives equal sizes: balanced = false needs law = "per-class"'
            )
        return self

    def check_own(self, num_samples, num_sites, has_groups):
        """Raises InputError where there are fewer samples than the sites are to have, on average or at least."""
        num_shared = self._num_shared(num_samples, num_sites)
        if not self.balanced and num_sites * self.min_samples > num_shared:
            raise InputError(
                "partition.min_samples",
                f"{num_sites:,} sites x {self.min_samples:,} are more than the {num_shared:,} samples to share out",
                f"use at most {num_shared // num_sites:,}",
            )

    def owners(self, labels, groups, num_sites, rng):
        """Equal sizes, or sizes as they are drawn."""
        self._by_one_label(labels)
        num_shared = self._num_shared(len(labels), num_sites)
        pool = rng.permutation(len(labels))
        if not self.balanced:  # else sites draw from the whole set, so that fewer labels are used up
            pool = pool[:num_shared]
        _, label_of = np.unique(labels[pool], return_inverse=True)
        owner = np.full(len(labels), NOBODY)
        if self.balanced:
            owner[pool] = self._balanced(label_of, num_shared, num_sites, rng)
        else:
            owner[pool] = self._by_label(label_of, num_sites, rng)
        return owner

    def _balanced(
        self, label_of: np.ndarray, num_shared: int, num_sites: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Owners [n]; sizes equal to within one. At most K + 1 rounds: each fills all wants or uses up a label."""
        supply = np.bincount(label_of)  # [K] samples left
        wanted = np.full(num_sites, num_shared // num_sites)  # [N] samples still to draw
        wanted[: num_shared % num_sites] += 1
        mix = self._mixes(supply, num_sites, rng)
        by_label = np.argsort(label_of, kind="stable")
        next_sample = np.cumsum(supply) - supply  # [K] start of the unused samples in by_label
        owner = np.full(len(label_of), NOBODY)
        while wanted.any():
            sites, wishes = np.flatnonzero(wanted), []
            for part in _parts(sites):
                left = mix[part] * (supply > 0)
                # A mix may hold nothing of the labels that are left: such a site takes what there is.
                left[left.sum(axis=1) <= _NEGLIGIBLE] = supply
                left /= left.sum(axis=1, keepdims=True)
                drawn = rng.multinomial(wanted[part], left)  # [part, K]
                index, label = np.nonzero(drawn)
                wishes.append(np.stack([label, part[index], drawn[index, label]]))
            wished = np.concatenate(wishes, axis=1)  # [3, n]: label, site, number
            wished = wished[:, np.argsort(wished[0], kind="stable")]
            for group in np.split(wished, np.flatnonzero(np.diff(wished[0])) + 1, axis=1):
                label, takers = group[0, 0], np.repeat(group[1], group[2])
                if len(takers) > supply[label]:
                    takers = rng.permutation(takers)[: supply[label]]
                start = next_sample[label]
                owner[by_label[start : start + len(takers)]] = takers
                next_sample[label] += len(takers)
                supply[label] -= len(takers)
                wanted -= np.bincount(takers, minlength=num_sites)
        return owner

    def _mixes(self, counts: np.ndarray, num_sites: int, rng: np.random.Generator) -> np.ndarray:
        """[N, K]: the label mix that each site wants, from the whole set's counts [K]."""
        symmetric, whole = np.full(len(counts), self.alpha), counts / counts.mean()  # K p
        if self.law == "per-class":
            return _dirichlet(symmetric, num_sites, rng, scale=whole)
        if self.law == "pfl":
            return _dirichlet(symmetric, num_sites, rng)
        return _dirichlet(self.alpha * whole / (len(counts) if self.law == "hsu" else 1), num_sites, rng)

    def _by_label(self, label_of: np.ndarray, num_sites: int, rng: np.random.Generator) -> np.ndarray:
        """Owners [n]; each label cut at the cumulative shares of the sites, then topped up to `min_samples`."""
        num_samples = len(label_of)
        owner = np.empty(num_samples, np.int64)
        for label in range(label_of.max() + 1):
            samples = np.flatnonzero(label_of == label)
            ends = np.cumsum(_dirichlet(np.full(num_sites, self.alpha), 1, rng)[0]) * len(samples)
            owner[samples] = np.minimum(np.searchsorted(ends, np.arange(len(samples)) + 0.5), num_sites - 1)
        sizes = np.bincount(owner, minlength=num_sites)
        takers = np.repeat(np.arange(num_sites), np.maximum(self.min_samples - sizes, 0))
        spare = np.flatnonzero(random_rank(owner, rng) >= self.min_samples)
        owner[rng.permutation(spare)[: len(takers)]] = takers
        return owner


def _dirichlet(
    alpha: np.ndarray, num: int, rng: np.random.Generator, scale: np.ndarray | float = 1.0
) -> np.ndarray:
    """[num, len(alpha)] draws: gamma variates times `scale`, normalised; from Dirichlet(alpha) where that is 1.

    In logarithms, because for small alpha every gamma variate of a row underflows to 0.

    log Gamma(a) = log Gamma(a + 1) + log(U) / a, U uniform (Marsaglia and Tsang 2000, Sec. 6).
    """
    weights = rng.standard_gamma(alpha + 1, (num, len(alpha)))
    for part in _parts(weights):
        np.log(part, out=part)
        part -= rng.standard_exponential(part.shape) / alpha
        part += np.log(scale)
        part -= part.max(axis=1, keepdims=True)
        np.exp(part, out=part)
        part /= part.sum(axis=1, keepdims=True)
    return weights


def _parts(rows: np.ndarray) -> list[np.ndarray]:
    """Views of an array of many sites, a few at a time, whose label mixes stay in the cache. Draws are the same."""
    return np.array_split(rows, range(2048, len(rows), 2048))


def random_rank(owner: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[n]: the place of each sample in a random order of its site's samples, counted from 0."""
    shuffled = rng.permutation(len(owner))
    by_site = shuffled[np.argsort(owner[shuffled], kind="stable")]
    sizes = np.unique(owner, return_counts=True)[1]
    rank = np.empty(len(owner), np.int64)
    rank[by_site] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
