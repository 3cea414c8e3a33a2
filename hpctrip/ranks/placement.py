"""Blocks of sites, their placement on hosts, and the assignment that rank 0 sends. Pure functions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Assignment:
    """The work of one round, as rank 0 sends it to every rank. Arrays [k] are in the order of its flights."""

    round: int
    cohort: np.ndarray
    """Sites of all flights of the round."""
    weights: np.ndarray
    """p_i (Eq. 1) over the sites whose updates arrive, sum 1; 0 for the others. All 0 where none arrives."""
    discounts: np.ndarray
    """Factors in [0, 1] of these weights, by the age of the update."""
    blocks: list[np.ndarray]
    """Positions into the cohort of the sites that are trained."""
    block_hosts: np.ndarray
    """Host (index into ranks.hosts) of every block."""
    visited: np.ndarray
    """[k] int64: samples that each site has visited in earlier rounds; 0 where no pass goes on from round to round."""
    evaluate: bool
    local_work: np.ndarray
    """[k] int64: length of each site's training, as a multiple of what [train] says."""
    ended: Sequence[int] = ()
    """Positions of the flights of earlier rounds that end in this one: hosts have kept their updates."""
    first_step: int = 0
    """Steps of [train] in the rounds before, where a schedule counts them."""

    def hosted(self, host: int) -> list[np.ndarray]:
        """The blocks of one host."""
        return [block for block, at in zip(self.blocks, self.block_hosts, strict=True) if at == host]


def cut(cohort: np.ndarray, sites_per_block: int) -> list[np.ndarray]:
    """Cut a cohort into blocks of positions (not sites), sorted by site.

    The blocks do not depend on the number of ranks (see learn.engines.choice).
    """
    by_site = np.argsort(cohort, kind="stable")
    return [by_site[first : first + sites_per_block] for first in range(0, len(cohort), sites_per_block)]


def cut_at_fixed_borders(cohort: np.ndarray, sites_per_block: int) -> list[np.ndarray]:
    """Cut a cohort at fixed borders: block b has the sites b * S to (b + 1) * S - 1 as far as they are in the cohort.

    For sites with state at their host: a site belongs to the same block in every round.
    """
    by_site = np.argsort(cohort, kind="stable")
    number = cohort[by_site] // sites_per_block
    return np.split(by_site, np.flatnonzero(np.diff(number, prepend=-1)))[1:]


def fixed_hosts(costs: np.ndarray, sites_per_block: int, num_hosts: int) -> np.ndarray:
    """Host of every site, [N], for the whole run: `place` applied to the fixed blocks of all N sites."""
    whole = np.add.reduceat(costs, np.arange(0, len(costs), sites_per_block))
    return np.repeat(place(whole, num_hosts), sites_per_block)[: len(costs)]


def place(costs: Sequence[float] | np.ndarray, num_hosts: int) -> np.ndarray:
    """Host of every block, [num_blocks], by the LPT rule: longest block first, onto the least loaded host (Graham
    1969).

    The makespan is at most 4/3 of the optimum. Ties go to the smaller index, so the result is deterministic.
    """
    hosts = np.empty(len(costs), dtype=np.int64)
    load = [(0.0, host) for host in range(num_hosts)]
    for block in np.argsort(-np.asarray(costs), kind="stable"):
        busy, host = heapq.heappop(load)
        hosts[block] = host
        heapq.heappush(load, (busy + float(costs[block]), host))
    return hosts
