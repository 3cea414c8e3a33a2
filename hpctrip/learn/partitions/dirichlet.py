"""Label mixes drawn from a Dirichlet distribution, in the several meanings that the field gives to alpha."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.learn.partitions.base import NOBODY, PARTITIONS, Partition, random_rank

_NOTHING = 1e-200  # probabilities below it are too coarse, as floating-point numbers, to be normalised


@PARTITIONS.add
class Dirichlet(Partition):
    """Label mixes drawn from a Dirichlet distribution: the smaller `alpha`, the fewer labels a site sees.

    p [K] is the label mix of the whole set.
    """

    kind: ClassVar[str] = "dirichlet"

    alpha: float = Field(0.3, ge=1e-6, le=1e9)
    """Concentration; what it means depends on the law, so compare it only between runs of the same one."""
    law: Literal["per-class", "hsu", "hsu-per-label", "pfl"] = "per-class"
    """From what the mix of a site is drawn. `per-class`: each label is divided among the sites by symmetric
    Dirichlet(alpha) shares (Yurochkin et al. 2019; Flower's DirichletPartitioner), so that a balanced site's mix is
    p_k Gamma_k(alpha), normalised. `hsu`: Dirichlet(alpha p), alpha being the total concentration (Hsu et al. 2019).
    `hsu-per-label`: Dirichlet(alpha K p), alpha being the concentration per label on average. `pfl`: symmetric
    Dirichlet(alpha) over the labels, however frequent these are (pfl-research)."""
    balanced: bool = True
    """True: equally many samples at every site. Where a label is used up, the samples still wanted are drawn again
    from the same mix among the labels that are left; chance decides which sites had to give way. That brings the mixes
    nearer to p, most where all samples are shared out.
    False: sizes as they fall, which is a matter of the law `per-class` alone."""
    min_samples: int = Field(1, ge=1)
    """Not `balanced`: no site has fewer; what lacks is taken, at random, from what others have beyond it."""

    @model_validator(mode="after")
    def _consistent(self) -> Dirichlet:
        if not self.balanced and self.law != "per-class":
            raise ValueError(
                f'law = {self.law!r} gives equal sizes: balanced = false needs law = "per-class"'
            )
        return self

    def check_own(self, num_samples, num_sites, has_groups):
        """The samples that sites are to have, and those that none is to be without."""
        num_shared = self._num_shared(num_samples, num_sites)
        if not self.balanced and num_sites * self.min_samples > num_shared:
            raise InputError(
                "partition.min_samples",
                f"{num_sites:,} sites x {self.min_samples:,} are more than the {num_shared:,} samples to share out",
                f"use at most {num_shared // num_sites:,}",
            )

    def owners(self, labels, groups, num_sites, rng):
        """Equal sizes, or sizes as they fall."""
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
            sites = np.flatnonzero(wanted)
            left = mix[sites] * (supply > 0)
            total = left.sum(axis=1, keepdims=True)
            # A mix may hold nothing of the labels that are left: such a site takes what there is.
            left = np.where(total > _NOTHING, left / np.maximum(total, _NOTHING), supply / supply.sum())
            asked = rng.multinomial(wanted[sites], left)  # [sites, K]
            for label in np.flatnonzero(asked.any(axis=0)):
                takers = np.repeat(sites, asked[:, label])
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
    shape = (num, len(alpha))
    log_gamma = np.log(rng.standard_gamma(alpha + 1, shape)) - rng.standard_exponential(shape) / alpha
    log_gamma += np.log(scale)
    weights = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
