"""The main loop: federated averaging with site selection (Algorithm 1). Every rank runs it."""

from __future__ import annotations

from functools import partial

import torch

from hpctrip.runner.host import Host, ServerStep
from hpctrip.runner.rank0 import Rank0
from hpctrip.sim.step import State


def train(host: Host, state: State, params: torch.Tensor, rank0: Rank0 | None) -> tuple[State, torch.Tensor]:
    """Train from `state` and the global model `params` [P], equal at all ranks, to the end of the run.

    `rank0` is rank 0's part of the loop; None elsewhere. Returns the last state (valid at rank 0 only) and the global
    model [P]. A collective.
    """
    ranks, round = host.ranks, state.round
    while True:
        ranks.phase.enter("record", round)
        decision = ranks.decide_on_root(
            partial(Rank0.decide, rank0, state)
        )  # 1. who trains, or that it is over
        if decision.save:
            slots, site_states = ranks.collect(host.slots), ranks.gather_rows(host.memory.rows)
            if rank0:
                rank0.save(decision, state, params, slots, site_states)
        if rank0:
            rank0.record()  # 6. of the round before, while the hosts are at this one: its row on disk, its line
        assignment = decision.assignment
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
            state = rank0.finish_round(decision.draft, before, params, tail, counts)
