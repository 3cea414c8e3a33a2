import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.ranks.placement import cut, cut_at_fixed_borders, fixed_hosts, place


@given(st.permutations(range(23)), st.integers(1, 30))
def test_blocks_hold_every_position_once_and_depend_on_the_set_of_sites_alone(order, size):
    cohort = np.array(order)
    blocks = cut(cohort, size)
    assert sorted(np.concatenate(blocks)) == list(range(23))
    assert [list(cohort[block]) for block in blocks] == [
        list(range(s, min(s + size, 23))) for s in range(0, 23, size)
    ]


def test_fixed_blocks_have_the_same_borders_in_every_cohort():
    """Blocks of three: sites 0 to 2, 3 to 5, 6 to 8; nobody of the second one is there."""
    assert [block.tolist() for block in cut_at_fixed_borders(np.array([7, 2, 8, 0, 6]), 3)] == [
        [3, 1],
        [4, 0, 2],
    ]
    assert [block.tolist() for block in cut_at_fixed_borders(np.array([5]), 3)] == [[0]]
    assert len(cut_at_fixed_borders(np.array([], dtype=np.int64), 3)) == 0


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 7), st.integers(1, 9))
def test_a_whole_block_has_one_host_whatever_the_cohort(costs, sites_per_block, num_hosts):
    hosts = fixed_hosts(np.array(costs), sites_per_block, num_hosts)
    assert len(hosts) == len(costs) and hosts.min() >= 0 and hosts.max() < num_hosts
    for block in cut_at_fixed_borders(np.arange(len(costs))[::-1], sites_per_block):
        assert len({int(hosts[len(costs) - 1 - position]) for position in block}) == 1


def test_fixed_hosts_balance_the_full_costs_of_the_blocks():
    """Blocks of 9, 7, 5 and 1 (the last one short): 9 -> 0, 7 -> 1, 5 -> 1 (7 < 9), 1 -> 0."""
    assert fixed_hosts(np.array([4, 5, 3, 4, 5, 0, 1]), 2, 2).tolist() == [0, 0, 1, 1, 1, 1, 0]


def test_the_longest_blocks_are_placed_first_on_the_least_loaded_host():
    """7 -> 0, 6 -> 1, 5 -> 1 (6 < 7), 4 -> 0, 3 -> 0 or 1 (both 11): the smaller index."""
    assert place(np.array([3, 4, 5, 6, 7]), 2).tolist() == [0, 0, 1, 1, 0]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 9))
def test_the_makespan_is_within_four_thirds_of_the_lower_bound_or_one_block(costs, num_hosts):
    hosts = place(np.array(costs), num_hosts)
    load = np.bincount(hosts, weights=costs, minlength=num_hosts)
    assert load.max() <= sum(costs) / num_hosts + max(costs)  # the classical bound of list scheduling
    assert (place(np.array(costs), num_hosts) == hosts).all()


def test_more_hosts_than_blocks_leave_hosts_idle():
    assert place(np.array([1, 1]), 5).tolist() == [0, 1]
