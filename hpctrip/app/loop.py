"""The main loop: Algorithm 1 around federated averaging. Every rank runs it; the collectives stand in one order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from hpctrip.app.experiment import Run, State


def train(run: Run, observe: Callable[[State, torch.Tensor], None]) -> tuple[State, torch.Tensor]:
    """Train until a stop rule fires. Returns the final state (meaningful at rank 0) and the global model [P].

    `observe(state, params)` is called at rank 0 after every round.
    """
    ranks, state = run.ranks, State()
    params = run.initial_params  # equal everywhere: drawn from the seed
    while True:
        plan = ranks.lead(partial(run.plan, state))  # 1. who trains, or that it is over
        if plan is None:
            return state, params
        before = params
        hosted = run.train_hosted(before, plan)  # 2. my blocks of sites, on my device
        with run.wall.phase(
            "exchange"
        ):  # 3. sum of p_i delta_i; the new model where it lives, then to all (Eq. 2)
            params, tail = ranks.combine(hosted.vector, len(before), partial(run.step, before, plan))
        counts = ranks.total(run.evaluate_hosted(params, plan))  # 4. integer counts: correct, seen
        if ranks.is_aggregator:
            state = run.advance(
                state, plan, params - before, tail, counts
            )  # 5. the virtual clock (Eqs. 3-7), one row
            observe(state, params)  # 6. the results file, the progress line
