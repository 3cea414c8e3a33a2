"""The main loop: Algorithm 1 around federated averaging. Every rank runs it; the collectives stand in one order."""

from __future__ import annotations

from functools import partial

import torch

from hpctrip.ranks.phase import current_phase
from hpctrip.runner.host import Host, ServerStep
from hpctrip.runner.rank0 import Rank0
from hpctrip.sim.step import State


def train(host: Host, state: State, params: torch.Tensor, rank0: Rank0 | None) -> tuple[State, torch.Tensor]:
    """Train on from `state` and the global model `params` [P], equal everywhere, until it is time to stop.

    `rank0` is rank 0's side of the loop; None elsewhere. Returns the last state (meaningful at rank 0) and the global
    model [P].
    """
    ranks, round = host.ranks, state.round
    while True:
        current_phase.enter("record", round)
        turn = ranks.decide_on_root(partial(Rank0.turn, rank0, state))  # 1. who trains, or that it is over
        if turn.save:
            slots, kept = ranks.collect(host.slots), ranks.gather_rows(host.memory.rows)
            if rank0:
                rank0.save(turn, state, params, slots, kept)
        if rank0:
            rank0.record()  # 6. of the round before, while the hosts are at this one: its row on disk, its line
        assignment = turn.assignment
        if assignment is None:
            return state, params
        before, round = params, assignment.round
        hosted = host.train(before, assignment)  # 2. my blocks of sites, on my device
        step = ServerStep(host, before, assignment)
        with host.wall.phase("exchange", round):
            # 3. sum of p_i delta_i; the new model where it lives, then to all (Eq. 2)
            params, tail = ranks.combine(hosted, len(before), step)
        with host.wall.phase("evaluate", round):
            # 4. integer counts: correct, seen
            counts = ranks.total(host.evaluate(params, assignment, step.mean_update_norm))
        if rank0:
            # 5. the virtual clock (Eqs. 3-7), one more row
            state = rank0.finish_round(turn.draft, before, params, tail, counts)
