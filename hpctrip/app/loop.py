"""The main loop: Algorithm 1 around federated averaging. Every rank runs it; the collectives stand in one order."""

from __future__ import annotations

from functools import partial

import torch

from hpctrip.app.host import Host
from hpctrip.app.leader import Leader
from hpctrip.ranks.phase import current_phase
from hpctrip.sim.state import State


def train(
    host: Host,
    state: State,
    params: torch.Tensor,
    leader: Leader | None,
) -> tuple[State, torch.Tensor]:
    """Train on from `state` and the global model `params` [P], equal everywhere, until it is time to stop.

    `leader` is what rank 0 does around the rounds; None elsewhere. Returns the last state (meaningful at rank 0) and
    the global model [P].
    """
    ranks, round = host.ranks, state.round
    while True:
        current_phase.enter("record", round)
        turn = ranks.lead(partial(Leader.turn, leader, state))  # 1. who trains, or that it is over
        if turn.save:
            slots, kept = ranks.collect(host.slots), ranks.gather_rows(host.memory.rows)
            if leader:
                leader.save(state, params, slots, kept)
        if leader:
            leader.record()  # 6. of the round before, while the hosts are at this one: its row on disk, its line
        assignment = turn.assignment
        if assignment is None:
            return state, params
        before, round = params, assignment.round
        hosted = host.train(before, assignment)  # 2. my blocks of sites, on my device
        # 3. sum of p_i delta_i; the new model where it lives, then to all (Eq. 2)
        with host.wall.phase("exchange", round):
            params, tail = ranks.combine(hosted, len(before), partial(host.step, before, assignment))
        with host.wall.phase("evaluate", round):
            counts = ranks.total(host.evaluate(params, assignment))  # 4. integer counts: correct, seen
        if leader:
            # 5. the virtual clock (Eqs. 3-7), one more row
            state = leader.finish_round(state, before, params, tail, counts)
