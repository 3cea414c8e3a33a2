"""The engine of a device, and the size of a round's blocks, which never depends on the ranks."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.learn.engines import EngineChoice, choose, engines
from hpctrip.learn.engines.choice import BlockRule
from hpctrip.ranks.placement import cut

ENGINES = engines()
NUMBERS = st.integers(1, 5000)


def sizes(num_sites, **table):
    """Sites of every stacked block of a round with `num_sites` sites."""
    rule = EngineChoice(**table).block_rule(ENGINES["stacked"])
    return [len(block) for block in cut(np.arange(num_sites), rule.size(num_sites))]


@pytest.mark.parametrize(
    ("num_sites", "table", "expected"),
    [
        (23, {}, [23]),
        (100, {}, [32, 32, 32, 4]),
        (23, {"lanes": 40}, [1] * 23),
        (100, {"lanes": 40}, [3] * 33 + [1]),
        (100, {"lanes": 2}, [25] * 4),  # two turns of two lanes, not 32, 32, 32 and 4
        (1300, {"lanes": 40}, [17] * 76 + [8]),  # one turn would need blocks of 33
        (10, {"sites_per_block": 4, "lanes": 40}, [4, 4, 2]),
        (0, {}, []),
        (0, {"lanes": 40}, []),
    ],
)
def test_lanes_make_blocks_small_enough_to_fill_them(num_sites, table, expected):
    assert sizes(num_sites, **table) == expected


def test_the_sequential_engine_trains_sites_alone():
    assert {EngineChoice(lanes=40).block_rule(ENGINES["sequential"]).size(k) for k in (0, 1, 39, 500)} == {1}


@given(num_sites=NUMBERS, lanes=NUMBERS, most=st.integers(1, 64))
def test_no_lane_has_more_turns_than_the_largest_block_asks_for(num_sites, lanes, most):
    size = BlockRule(most, lanes).size(num_sites)
    turns = -(-num_sites // (lanes * most))
    assert 1 <= size <= most and -(-num_sites // size) <= lanes * turns


@pytest.fixture
def any_algorithm(monkeypatch):
    """PyTorch as it starts; put back afterwards."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize(
    ("device", "keys", "expected"),
    [("cuda", {}, True), ("cuda", {"deterministic": False}, False), ("cpu", {}, False)],
)
def test_on_a_gpu_only_algorithms_that_repeat_themselves_are_allowed(any_algorithm, device, keys, expected):
    EngineChoice(**keys).prepare(torch.device(device))
    assert torch.are_deterministic_algorithms_enabled() == expected
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if expected else None)


def test_auto_takes_the_loop_on_a_cpu_and_the_stack_on_a_gpu():
    assert choose("auto", "cpu") == (ENGINES["sequential"], "on a CPU one site's model stays in the cache")
    assert choose("auto", torch.device("cuda", 1))[0] is ENGINES["stacked"]
    assert choose("stacked", "cpu")[0] is ENGINES["stacked"]
