"""Blocks of sites, and which host trains which block. Pure."""

from __future__ import annotations

import heapq

import numpy as np


def cut(cohort: np.ndarray, sites_per_block: int) -> list[np.ndarray]:
    """The cohort's positions, sorted by site and cut into blocks. Returns positions into `cohort`, not sites.

    The cut depends on the cohort alone, never on the number of ranks: batched kernels are not bit-identical across
    batch sizes, so fixed blocks are what makes results independent of the ranks.
    """
    by_site = np.argsort(cohort, kind="stable")
    return [by_site[start : start + sites_per_block] for start in range(0, len(by_site), sites_per_block)]


def cut_at_home(cohort: np.ndarray, sites_per_block: int) -> list[np.ndarray]:
    """As `cut`, but at fixed borders: block b holds those of the sites b * S to (b + 1) * S - 1 that are in the cohort.

    For sites that keep something at the host that trains them: a site's block is the same in every round.
    """
    by_site = np.argsort(cohort, kind="stable")
    number = cohort[by_site] // sites_per_block
    return [block for block in np.split(by_site, np.flatnonzero(np.diff(number)) + 1) if len(block)]


def homes(costs: np.ndarray, sites_per_block: int, num_hosts: int) -> np.ndarray:
    """Host of every site, [N], for the whole run: `place` over the fixed blocks of all N sites and their full costs."""
    whole = np.add.reduceat(costs, np.arange(0, len(costs), sites_per_block))
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
