"""Blocks of sites, and which host trains which block. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Blocks:
    """Positions into a cohort, block after block: two arrays, since these travel to every rank in every round."""

    positions: np.ndarray
    starts: np.ndarray
    """Index into `positions` of every block's first, and at last len(positions): [num_blocks + 1]."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, block: int) -> np.ndarray:
        return self.positions[self.starts[block] : self.starts[block + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[block] for block in range(len(self)))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum of `values` [cohort] over each block."""
        return np.add.reduceat(values[self.positions], self.starts[:-1])


def cut(cohort: np.ndarray, sites_per_block: int) -> Blocks:
    """The cohort's positions, sorted by site and cut into blocks. Positions into `cohort`, not sites.

    The cut does not depend on the number of ranks (see learn.engines.choice).
    """
    return Blocks(
        np.argsort(cohort, kind="stable"), np.append(np.arange(0, len(cohort), sites_per_block), len(cohort))
    )


def cut_at_fixed_borders(cohort: np.ndarray, sites_per_block: int) -> Blocks:
    """As `cut`, but at fixed borders: block b holds those of the sites b * S to (b + 1) * S - 1 that are in the cohort.

    For sites that keep something at the host that trains them: a site's block is the same in every round.
    """
    by_site = np.argsort(cohort, kind="stable")
    number = cohort[by_site] // sites_per_block
    return Blocks(by_site, np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(cohort)))


def fixed_hosts(costs: np.ndarray, sites_per_block: int, num_hosts: int) -> np.ndarray:
    """Host of every site, [N], for the whole run: `place` over the fixed blocks of all N sites and their full costs."""
    whole = cut(np.arange(len(costs)), sites_per_block).sums(costs)
    return np.repeat(place(whole, num_hosts), sites_per_block)[: len(costs)]


def place(costs: np.ndarray, num_hosts: int) -> np.ndarray:
    """Host of every block, [num_blocks]: longest processing time first onto the least loaded host (Graham 1969).

    The makespan is at most 4/3 of the best possible. Ties go to the smaller index, so equal input gives equal output.
    """
    hosts = np.empty(len(costs), dtype=np.int64)
    load = [(0.0, host) for host in range(num_hosts)]
    for block in np.argsort(-np.asarray(costs), kind="stable"):
        busy, host = heapq.heappop(load)
        hosts[block] = host
        heapq.heappush(load, (busy + float(costs[block]), host))
    return hosts
