"""Rank 0's side of the main loop: what goes wrong between two turns is told to everyone in the next."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from hpctrip.app.assignment import Assignment
from hpctrip.app.leader import Leader
from hpctrip.app.storing import NoStore
from hpctrip.base.errors import DivergedError, HpctripError, InputError
from hpctrip.ranks.placement import cut
from hpctrip.sim.step import State


@pytest.mark.parametrize(
    "error", [DivergedError("site 3 diverged"), InputError("power.kind = 'mine'", "gave P = 3")]
)
def test_a_round_without_a_result_is_told_in_the_next_turn(error):
    site = np.zeros(1, dtype=np.int64)
    assignment = Assignment(1, site, np.ones(1), cut(site, 1), site, evaluate=True)
    aggregator, interruption = Mock(), Mock()
    aggregator.begin.return_value = Mock(), assignment
    aggregator.finish.side_effect = error
    interruption.reason.return_value = ""
    leader = Leader(aggregator, Mock(), Mock(), interruption, Mock(), Mock(), NoStore())
    assert leader.turn(State()).assignment is assignment
    before = State()
    # the collectives of this round are over: raising here would leave the other ranks in the next one
    assert leader.finish_round(before, torch.zeros(1), torch.ones(1), site, site) is before
    with pytest.raises(HpctripError) as raised:
        leader.turn(before)
    assert raised.value is error
