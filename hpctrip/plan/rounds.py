"""The first rounds of a run as they would be: decided by its policy, timed by its clock, placed on its hosts."""

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
    """One round as it would be. Arrays [num_hosts]."""

    assignment: Assignment
    row: RoundRow
    """As it would be recorded, but for what training contributes."""
    sites: np.ndarray
    """Sites of every host."""
    blocks: np.ndarray
    """Blocks of every host."""
    samples: np.ndarray
    """Training samples of every host."""


def first_rounds(aggregator: Aggregator, num_rounds: int) -> list[PlannedRound]:
    """At most so many rounds, fewer where a stop rule ends the run; no accuracy is known."""
    num_hosts, num_visits = len(aggregator.ranks.hosts), aggregator.host.num_visits
    state, rounds = State(), []
    while len(rounds) < num_rounds and not state.stop_reason:
        draft, assignment = aggregator.begin(state)
        blocks, hosts = assignment.blocks, assignment.block_hosts
        visits = draft.local_work * num_visits[draft.cohort]
        # until a round is measured, the modelled work stands in for it
        outcome = Outcome.assumed(draft.work_s[draft.cohort])
        state, row = aggregator.simulation.finish(draft, outcome)
        loads = (blocks.sums(np.ones(len(visits), dtype=np.int64)), np.ones(len(blocks)), blocks.sums(visits))
        sites, num_blocks, samples = (np.bincount(hosts, load, num_hosts).astype(np.int64) for load in loads)
        rounds.append(PlannedRound(assignment, row, sites, num_blocks, samples))
    return rounds
