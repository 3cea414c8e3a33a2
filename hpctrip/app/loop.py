"""The main loop: Algorithm 1 around federated averaging. Every rank runs it; the collectives stand in one order."""

from __future__ import annotations

from functools import partial

import torch

from hpctrip.app.desk import Desk
from hpctrip.app.experiment import Run, State
from hpctrip.ranks.phase import current_phase


def train(run: Run, state: State, params: torch.Tensor, desk: Desk | None) -> tuple[State, torch.Tensor]:
    """Train on from `state` and the global model `params` [P], equal everywhere, until it is time to stop.

    `desk` is what rank 0 does around the rounds; None elsewhere. Returns the last state (meaningful at rank 0) and
    the global model [P].
    """
    ranks, round = run.ranks, state.round
    while True:
        current_phase.enter("record", round)
        turn = ranks.lead(partial(Desk.turn, desk, state))  # 1. who trains, or that it is over
        if turn.save:
            slots, residuals = ranks.collect(run.slots), ranks.gather_rows(run.compressor.residuals)
            if desk:
                desk.save(state, params, slots, residuals)
        if desk:
            desk.record()  # 6. of the round before, while the hosts are at this one: its row on disk, its line
        plan = turn.plan
        if plan is None:
            return state, params
        before, round = params, plan.round
        hosted = run.train_hosted(before, plan)  # 2. my blocks of sites, on my device
        # 3. sum of p_i delta_i; the new model where it lives, then to all (Eq. 2)
        with run.wall.phase("exchange", round):
            params, tail = ranks.combine(hosted, len(before), partial(run.step, before, plan))
        with run.wall.phase("evaluate", round):
            counts = ranks.total(run.evaluate_hosted(params, plan))  # 4. integer counts: correct, seen
        if desk:
            # 5. the virtual clock (Eqs. 3-7), one more row
            state = desk.advance(state, plan, params - before, tail, counts)
