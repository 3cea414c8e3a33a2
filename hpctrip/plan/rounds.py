"""First rounds of a planned run: cohorts, simulated times and placement, from the code that the run uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpctrip.ranks.placement import Assignment
from hpctrip.runner.aggregator import Aggregator
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.rounds import RoundRow
from hpctrip.sim.step import State


@dataclass(frozen=True)
class PlannedRound:
    """One planned round. The arrays are [num_hosts]."""

    assignment: Assignment
    row: RoundRow
    """The row that the run would record, without the results of training."""
    sites: np.ndarray
    """Number of sites of every host."""
    blocks: np.ndarray
    """Number of blocks of every host."""
    samples: np.ndarray
    """Number of training samples of every host."""


def first_rounds(aggregator: Aggregator, num_rounds: int) -> list[PlannedRound]:
    """Plan up to `num_rounds` rounds, fewer if a stop rule ends the run. No accuracy is known."""
    num_hosts, num_visits = len(aggregator.ranks.hosts), aggregator.host.num_visits
    state, rounds = State(), []
    while len(rounds) < num_rounds and not state.stop_reason:
        draft, assignment = aggregator.begin(state)
        blocks, hosts = assignment.blocks, assignment.block_hosts
        visits = draft.local_work * num_visits[draft.cohort]
        # no round has been measured yet, so its work is that of the model
        outcome = Outcome.assumed(draft.work_s[draft.cohort])
        state, row = aggregator.simulation.finish(draft, outcome)
        loads = (blocks.sums(np.ones(len(visits), dtype=np.int64)), np.ones(len(blocks)), blocks.sums(visits))
        sites, num_blocks, samples = (np.bincount(hosts, load, num_hosts).astype(np.int64) for load in loads)
        rounds.append(PlannedRound(assignment, row, sites, num_blocks, samples))
    return rounds
