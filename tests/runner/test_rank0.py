"""Rank 0's side of the main loop: an error after a round is raised at all ranks before the next one."""

import pickle
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from hpctrip.base.errors import DivergedError, HpctripError, InputError
from hpctrip.ranks.placement import Assignment, cut
from hpctrip.runner.cache.writer import NoCache
from hpctrip.runner.rank0 import LoopDecision, Rank0
from hpctrip.sim.step import State


@pytest.mark.parametrize(
    "error", [DivergedError("site 3 diverged"), InputError("power.kind = 'mine'", "gave P = 3")]
)
def test_a_round_without_a_result_is_raised_before_the_next_round(error):
    site = np.zeros(1, dtype=np.int64)
    assignment = Assignment(1, site, np.ones(1), cut(site, 1), site, evaluate=True)
    aggregator, interruption = Mock(), Mock()
    before = State()
    draft = Mock(before=before)
    aggregator.begin.return_value = draft, assignment
    aggregator.finish.side_effect = error
    interruption.reason.return_value = ""
    rank0 = Rank0(aggregator, Mock(), Mock(), interruption, Mock(), Mock(), NoCache())
    decision = rank0.decide(before)
    assert (decision.assignment, decision.draft) == (assignment, draft)
    # the collectives of this round are over: raising here would leave the other ranks in the next one
    assert rank0.finish_round(draft, torch.zeros(1), torch.ones(1), site, site) is before
    with pytest.raises(HpctripError) as raised:
        rank0.decide(before)
    assert raised.value is error


def test_the_other_ranks_receive_neither_the_draft_nor_what_writes_the_state():
    decision = LoopDecision(None, True, draft=Mock(), savers=(NoCache(),))
    assert pickle.loads(pickle.dumps(decision)) == LoopDecision(None, True)
