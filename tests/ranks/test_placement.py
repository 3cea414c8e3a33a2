import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.ranks.placement import cut, place


@given(st.permutations(range(23)), st.integers(1, 30))
def test_blocks_hold_every_position_once_and_depend_on_the_set_of_sites_alone(order, size):
    cohort = np.array(order)
    blocks = cut(cohort, size)
    assert sorted(np.concatenate(blocks)) == list(range(23))
    assert [list(cohort[block]) for block in blocks] == [
        list(range(s, min(s + size, 23))) for s in range(0, 23, size)
    ]


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
